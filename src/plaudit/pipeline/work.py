"""One stage carried out: its folder made ready, its work done, its results sealed."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plaudit.configs.settings import Names, all_settings
from plaudit.configs.values import convert
from plaudit.errors import UserError
from plaudit.pipeline.folder import (
    BEGUN,
    LOG,
    SEAL,
    Folder,
    code_now,
    outputs_of,
    result_hash,
    set_aside,
    stamps_of,
)
from plaudit.pipeline.keys import Decided
from plaudit.pipeline.stage import START, Pipeline, Stage
from plaudit.pipeline.standing import goes_on
from plaudit.pipeline.words import path_of
from plaudit.training import durable


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A stage in its place, with what it reads.

    Example: ``Work(stage=stage, pipeline=pipeline, folder=folder).here``
    """

    stage: Stage
    """The stage."""
    pipeline: Pipeline
    """The pipeline that it belongs to."""
    folder: Folder
    """Where that lies."""

    @property
    def here(self) -> Path:
        """The stage's own folder."""
        return self.folder.stage(self.stage.name)

    def real(self, setting: str) -> tuple[str, ...]:
        """What the words of an input really are: paths for references, the rest as it was said."""
        return tuple(self._real(word, setting) for word in self.stage.inputs.get(setting, ()))

    def config(self) -> Any:
        """The record that the stage's kind is told."""
        real: dict[Names, object] = {}
        for setting in all_settings(self.stage.kind.settings):
            words = self.real(setting.key)
            if words:
                told = (
                    [*words] if isinstance(self.stage.values[setting.path], tuple) else self._one(setting.key)
                )
                real[setting.path] = convert(told, setting.wanted)
        return self.stage.config(real, self.here / "run")

    def called(self, word: str) -> str:
        """What tables call a model or a reward."""
        if word == f"${START}":
            return (
                "base" if path_of(self.pipeline.model or "").name == "model" else _short(self.pipeline.model)
            )
        return word[1:] if word[:1] == "$" else _short(word)

    def _real(self, word: str, setting: str) -> str:
        if word == f"${START}":
            return str(path_of(self.pipeline.model or ""))
        if word[:1] != "$":
            return str(path_of(word)) if setting == "model" else word
        above = self.pipeline.stage(word[1:])
        wanted = "reward" if "model" not in self.stage.kind.takes[setting] else "model"
        return str(self.folder.result(above.name, above.kind, wanted))

    def _one(self, setting: str) -> str:
        """One file of rows, whatever number of them is read."""
        words = self.real(setting)
        if len(words) == 1:
            return words[0]
        from plaudit.sources import read_records, write_records

        path = self.here / f"{setting.replace('.', '-')}.jsonl"
        if not path.exists():
            write_records((record for word in words for record in read_records(word).records), path)
        return str(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What came of a stage.

    Example: ``Made(said=("2000 rows of comparisons",), command="plaudit world make …")``
    """

    said: tuple[str, ...]
    """What is worth knowing of it."""
    command: str
    """The single command that does the same."""
    checks: tuple[Mapping[str, Any], ...] = ()
    """What was looked over before it began."""


def carry_out(work: Work, found: Decided, make: Callable[[Work], Made], *, fresh: bool = False) -> str:
    """Do the work of a stage and seal it; returns the hash of its result.

    Whatever ends the process, what is there then is either whole and sealed, or goes on, or is made anew.
    """
    here, stage = work.here, work.stage
    if fresh or not goes_on(work.folder, stage, found.key):
        set_aside(work.folder, stage.name, found.key)
    durable.make_folder(here)
    began, clock = _now(), time.perf_counter()
    durable.write_json(here / BEGUN, {"key": found.key, "place": str(here), "began": began})
    with _logged(here / LOG), _named(stage):
        made = make(work)
    outputs = outputs_of(here)
    result = result_hash(stage.kind, found.key, outputs)
    seal = {
        "name": stage.name,
        "do": stage.kind.name,
        "settings": found.settings,
        "needs": [*stage.needs],
        "inputs": {name: dict(one) for name, one in found.inputs.items()},
        "key": found.key,
        "result": result,
        "outputs": outputs,
        "stamps": stamps_of(here, outputs),
        "code": dict(code_now()),
        "seconds": round(time.perf_counter() - clock, 3),
        "began": began,
        "ended": _now(),
        "command": made.command,
        "said": [*made.said],
        "checks": [dict(one) for one in made.checks],
    }
    durable.write_json(here / SEAL, seal)
    return result


def on_the_line(verb: str, *words: str, **options: object) -> str:
    """A command as it is typed; what was not said is left out, and a switch has no value.

    A list is one option with several words, a tuple an option that is there several times.

    >>> on_the_line("plaudit world make", "prompts", n=None, seed=0, out="my rows.jsonl")
    "plaudit world make prompts --seed 0 --out 'my rows.jsonl'"
    """
    typed = [verb, *map(shlex.quote, words)]
    for name, value in options.items():
        option, several = f"--{name.replace('_', '-')}", value if isinstance(value, tuple) else (value,)
        for one in several:
            told = one if isinstance(one, list) else [one]
            if one is True or (one is not None and told):
                typed += [option, *(shlex.quote(str(each)) for each in told if each is not True)]
    return " ".join(typed)


@contextlib.contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Whatever is printed goes to the stage's own file."""
    with (
        path.open("a", encoding="utf-8", buffering=1) as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        yield


@contextlib.contextmanager
def _named(stage: Stage) -> Iterator[None]:
    """A fault is told with the stage that it happened in."""
    kept = "what is finished is kept, and the same command goes on from here"
    try:
        yield
    except UserError as error:
        raise UserError(
            f"stage {stage.name} ({stage.kind.name}): {error}\n{kept[0].upper()}{kept[1:]}"
        ) from error
    except Exception as error:
        error.add_note(f"in stage {stage.name} ({stage.kind.name}); {kept}")
        raise


def _short(word: str | None) -> str:
    path = Path(word or "")
    return path.parent.name if path.name == "model" else path.name


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
