"""Everything that a run folder says about its run, read once."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from plaudit.errors import UserError
from plaudit.training import exact_json, lineage
from plaudit.training.lineage import Lineage
from plaudit.training.page.history import History, read_history, whole_lines
from plaudit.training.sinks.jsonl import METRICS, NOTES, SAMPLES, SUMMARY

Result = Literal["none", "model", "adapter"]
"""What lies in ``model/``: nothing yet, a whole model, or an adapter beside its base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One prompt, and what the model said to it at first and at last.

    Example: ``Exchange(prompt="Name a fruit.", first=(10, "A"), last=(90, "A pear."), expected="A pear.")``
    """

    prompt: str
    """What it was asked."""
    first: tuple[int, str]
    """The first step at which it was asked, and the answer."""
    last: tuple[int, str]
    """The last one, which may be the same."""
    expected: str | None
    """The answer in the data, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A remark that was made during the run.

    Example: ``Note(step=12, text="tensorboard failed and is switched off", times=1)``
    """

    step: int | None
    """The step after which it was first made; None where its text says which."""
    text: str
    """The remark."""
    times: int
    """How often it was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run as its folder tells it.

    Example: ``RunFacts(path=Path("runs/first"), name="first", finished=True, …)``
    """

    path: Path
    """The folder, as the caller named it."""
    name: str
    """Its name."""
    config: str
    """The text of config.yaml."""
    origin: Lineage | None
    """What went in; None where the run ended before it was written down."""
    history: History
    """The figures."""
    finished: bool
    """Whether the run has had its last word, and no step was taken since."""
    when: datetime | None
    """When the last figure was written, or the last word of a finished run; None before the first step."""
    exchanges: tuple[Exchange, ...]
    """What the model said, the prompts that were asked last coming first."""
    notes: tuple[Note, ...]
    """Remarks in the order in which they were first made."""
    result: Result
    """What lies in ``model/``."""


def read_facts(run: Path) -> RunFacts:
    """The facts of a run folder; files that a run has not come to yet may be missing."""
    history = read_history(run / METRICS)
    finished = _finished(run / SUMMARY, history)
    origin = run / "lineage.json"
    return RunFacts(
        path=run,
        name=run.resolve().name,
        config=_config(run / "config.yaml"),
        origin=lineage.read(origin) if origin.exists() else None,
        history=history,
        finished=finished,
        when=_written(run / SUMMARY if finished else run / METRICS) if history.step or finished else None,
        exchanges=_exchanges(run / SAMPLES),
        notes=(*_notes(run / NOTES), *_gaps(history)),
        result=_result(run / "model"),
    )


def _config(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{path.parent}: not a run folder (it has no config.yaml). Name the folder that was `--out`."
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}). Restore it.") from error


def _finished(path: Path, history: History) -> bool:
    if not path.exists():
        return False
    try:
        step = exact_json.loads(path.read_bytes())["step"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: not a summary that plaudit wrote. Delete it and write the report again."
        ) from error
    # A run that was taken up again after its last word is not finished until it has had another.
    return step == history.step


def _written(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _exchanges(path: Path) -> tuple[Exchange, ...]:
    found: dict[tuple[str, int], Exchange] = {}
    asked: Counter[tuple[int, str]] = Counter()
    now = 0
    for number, line in whole_lines(path):
        try:
            step, prompt, said = int(line["step"]), str(line["prompt"]), str(line["completion"])
            expected = str(line["expected"]) if "expected" in line else None
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}:{number}: not a sample that plaudit wrote. Delete that line.") from error
        if step != now:
            asked.clear()
            now = step
        # A prompt that is asked twice at one step has two answers to compare with its next two.
        key = (prompt, asked[step, prompt])
        asked[step, prompt] += 1
        before = found.get(key)
        found[key] = (
            Exchange(prompt=prompt, first=(step, said), last=(step, said), expected=expected)
            if before is None
            else replace(before, last=(step, said))
        )
    return tuple(sorted(found.values(), key=lambda exchange: -exchange.last[0]))


def _notes(path: Path) -> tuple[Note, ...]:
    found: dict[str, Note] = {}
    for number, line in whole_lines(path):
        try:
            note = Note(step=int(line["step"]), text=str(line["note"]), times=1)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}:{number}: not a note that plaudit wrote. Delete that line.") from error
        before = found.get(note.text)
        found[note.text] = note if before is None else replace(before, times=before.times + 1)
    return tuple(found.values())


def _gaps(history: History) -> tuple[Note, ...]:
    """A note for each figure that was not a number somewhere: the gap in its curve is easily missed."""
    notes: list[Note] = []
    for column in history.columns.values():
        if len(column.numbers) == len(column.values):
            continue
        steps = [s for s, value in zip(column.steps, column.values, strict=True) if math.isnan(value)]
        rest = f" and {len(steps) - 5:,} others" if len(steps) > 5 else ""
        where = ", ".join(f"{step:,}" for step in steps[:5]) + rest
        text = f"{column.name} was not a finite number at step {where}"
        notes.append(Note(step=None, text=text, times=1))
    return tuple(notes)


def _result(folder: Path) -> Result:
    if (folder / "adapter_config.json").exists():
        return "adapter"
    return "model" if (folder / "config.json").exists() else "none"
