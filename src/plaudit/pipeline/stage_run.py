"""One stage carried out: its folder made ready, its work done, its results sealed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plaudit.config import SettingPath, all_settings, convert
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.pipeline.spec import START_MODEL, Pipeline, Stage, word_path
from plaudit.pipeline.status import StageKey, can_resume
from plaudit.pipeline.store import (
    LOG_FILE,
    MANIFEST_FILE,
    START_FILE,
    PipelineFolder,
    output_hashes,
    result_hash,
    running_code_version,
    set_aside,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContext:
    """A stage with its pipeline and folder: what its action needs to run.

    Example: ``StageContext(stage=stage, pipeline=pipeline, folder=folder).config()``
    """

    stage: Stage
    """The stage."""
    pipeline: Pipeline
    """The pipeline that it belongs to."""
    folder: PipelineFolder
    """The folder of the pipeline."""

    @property
    def stage_folder(self) -> Path:
        """The stage's own folder."""
        return self.folder.stage(self.stage.name)

    def input_values(self, setting: str) -> tuple[str, ...]:
        """The values of an input: paths for references, other words as they are written."""
        return tuple(self._input_value(word, setting) for word in self.stage.inputs.get(setting, ()))

    def config(self) -> Any:
        """The settings record of the stage's kind, with references replaced by paths."""
        input_values: dict[SettingPath, object] = {}
        for setting in all_settings(self.stage.kind.settings):
            words = self.input_values(setting.key)
            if words:
                value = (
                    [*words]
                    if isinstance(self.stage.values[setting.path], tuple)
                    else self._merged_rows_file(setting.key)
                )
                input_values[setting.path] = convert(value, setting.value_type)
        return self.stage.config(input_values, self.stage_folder / "run")

    def display_name(self, word: str) -> str:
        """The name of a model or a reward in tables."""
        if word == f"${START_MODEL}":
            is_nameless = word_path(self.pipeline.model or "").name == "model"
            return "base" if is_nameless else _short_name(self.pipeline.model)
        return word[1:] if word[:1] == "$" else _short_name(word)

    def _input_value(self, word: str, setting: str) -> str:
        if word == f"${START_MODEL}":
            return str(word_path(self.pipeline.model or ""))
        if word[:1] != "$":
            return str(word_path(word)) if setting == "model" else word
        stage_above = self.pipeline.stage(word[1:])
        result_type = "reward" if "model" not in self.stage.kind.accepts[setting] else "model"
        return str(self.folder.result(stage_above.name, stage_above.kind, result_type))

    def _merged_rows_file(self, setting: str) -> str:
        """One file with the rows of all sources, however many the input names."""
        words = self.input_values(setting)
        if len(words) == 1:
            return words[0]
        from plaudit.data.read import read_records
        from plaudit.data.write import write_records

        path = self.stage_folder / f"{setting.replace('.', '-')}.jsonl"
        if not path.exists():
            write_records((record for word in words for record in read_records(word).records), path)
        return str(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """What the action of a stage reports.

    Example: ``StageResult(sentences=("2000 rows of comparisons",), command="plaudit world make …")``
    """

    sentences: tuple[str, ...]
    """Sentences about the result, for the log and the summary."""
    command: str
    """The single command that does the same."""
    checks: tuple[Mapping[str, Any], ...] = ()
    """What was looked over before it began."""


def run_stage(
    context: StageContext,
    stage_key: StageKey,
    action: Callable[[StageContext], StageResult],
    *,
    fresh: bool = False,
) -> str:
    """Run the action of a stage and write its manifest; returns the hash of its result.

    Whatever ends the process, what is there then is either whole and sealed, or goes on, or is made anew.
    """
    stage_folder, stage = context.stage_folder, context.stage
    if fresh or not can_resume(context.folder, stage, stage_key.key):
        set_aside(context.folder, stage.name, stage_key.key)
    atomic.make_folder(stage_folder)
    started_at, start = _utc_now(), time.perf_counter()
    atomic.write_json(
        stage_folder / START_FILE, {"key": stage_key.key, "place": str(stage_folder), "began": started_at}
    )
    stage_result = _run_action(context, action)
    outputs = output_hashes(stage_folder)
    result = result_hash(stage.kind, stage_key.key, outputs)
    manifest = {
        "name": stage.name,
        "do": stage.kind.name,
        "settings": stage_key.settings,
        "needs": [*stage.needs],
        "inputs": {name: dict(one) for name, one in stage_key.inputs.items()},
        "key": stage_key.key,
        "result": result,
        "outputs": outputs,
        "code": dict(running_code_version()),
        "seconds": round(time.perf_counter() - start, 3),
        "began": started_at,
        "ended": _utc_now(),
        "command": stage_result.command,
        "said": [*stage_result.sentences],
        "checks": [dict(one) for one in stage_result.checks],
    }
    atomic.write_json(stage_folder / MANIFEST_FILE, manifest)
    return result


def _run_action(context: StageContext, action: Callable[[StageContext], StageResult]) -> StageResult:
    """Whatever is printed goes to the stage's own file, and a fault is told with the stage's name."""
    name = f"stage {context.stage.name} ({context.stage.kind.name})"
    with (
        (context.stage_folder / LOG_FILE).open("a", encoding="utf-8", buffering=1) as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            return action(context)
        except UserError as error:
            raise UserError(f"{name}: {error}\nWhat {_ADVICE}") from error
        except Exception as error:
            error.add_note(f"in {name}; what {_ADVICE}")
            raise


_ADVICE = "is finished is kept, and the same command goes on from here"


def _short_name(word: str | None) -> str:
    path = Path(word or "")
    return path.parent.name if path.name == "model" else path.name


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
