"""All stages of a pipeline: what is finished is kept, the rest runs, some side by side; or what would run."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from plaudit.errors import UserError
from plaudit.files import atomic, lock
from plaudit.pipeline.read import pipeline_yaml
from plaudit.pipeline.spec import Pipeline, Stage
from plaudit.pipeline.status import (
    PipelineContext,
    StageStatus,
    expected_seconds,
    format_clock,
    refuse_unknown_stages,
    seconds_left,
    stage_status,
)
from plaudit.pipeline.store import PipelineFolder, read_manifest, restore_stage, set_aside
from plaudit.pipeline.validate import cost_lines, validate_pipeline
from plaudit.pipeline.worker import StageOutcome, Workers

TAIL_BYTES = 2**16
"""Bytes of a file of figures in which its last line is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSelection:
    """Which stages are to run, beside those whose inputs have changed.

    Example: ``StageSelection(from_stage="reward")``
    """

    from_stage: str | None = None
    """This stage and all below it run again."""
    only: tuple[str, ...] = ()
    """These stages and no others; empty for all."""
    fresh: bool = False
    """Nothing is kept."""

    def forced_reasons(self, pipeline: Pipeline) -> dict[str, str]:
        """The stages that run whatever is there, with the reason; refuses names of no stage."""
        names = [name for name in (self.from_stage, *self.only) if name]
        refuse_unknown_stages(pipeline, names, "stages")
        if self.fresh:
            return {stage.name: "--fresh" for stage in pipeline.stages}
        if self.from_stage is None:
            return {}
        return dict.fromkeys(pipeline.with_dependents({self.from_stage}), f"--from {self.from_stage}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReporter:
    """Where a pipeline reports its progress: lines that stay, and a status that changes.

    Example: ``ProgressReporter(message=print)``
    """

    message: Callable[[str], None] = lambda text: None
    """Called with a line that stays."""
    status: Callable[[str], None] = lambda text: None
    """Called with what runs just now."""


class StoppedError(Exception):
    """A signal asked the pipeline to stop; ``signum`` says which."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


def run_pipeline(
    pipeline: Pipeline,
    out: Path,
    selection: StageSelection | None = None,
    reporter: ProgressReporter | None = None,
) -> PipelineFolder:
    """Run what is to be run; the folder then has every result, and each is sealed.

    Whatever ends it, the same call goes on from there to the same results.
    """
    selection = selection or StageSelection()
    folder, forced = PipelineFolder(path=out.absolute()), selection.forced_reasons(pipeline)
    _refuse_foreign_folder(folder)
    atomic.make_folder(folder.path / "stages")
    with lock.hold_lock(folder.path), _catch_signals() as caught:
        atomic.remove_leftovers(folder.path)
        for stage_folder in sorted((folder.path / "stages").iterdir()):
            if stage_folder.is_dir() and stage_folder.name not in {stage.name for stage in pipeline.stages}:
                set_aside(folder, stage_folder.name)
        text = pipeline_yaml(pipeline)
        if not folder.config.exists() or folder.config.read_text("utf-8") != text:
            atomic.write_text(folder.config, text)
        # What would fail in an hour fails now.
        validate_pipeline(pipeline)
        workers = Workers(folder.path, pipeline.jobs)
        run = _Run(
            PipelineContext.of(folder, pipeline), selection, forced, workers, reporter or ProgressReporter()
        )
        try:
            run.run_stages(caught)
        finally:
            workers.close()
    return folder


def dry_run(pipeline: Pipeline, out: Path, selection: StageSelection) -> Iterator[str]:
    """A line for each stage with its state and why; below those that train, what they will cost."""
    validate_pipeline(pipeline)
    context = PipelineContext.of(PipelineFolder(path=out.absolute()), pipeline)
    forced, results, to_run = selection.forced_reasons(pipeline), dict[str, str](), set[str]()
    width = max(len(stage.name) for stage in pipeline.stages)
    for number, stage in enumerate(pipeline.stages, 1):
        status = stage_status(context, stage, results, forced)
        if selection.only and stage.name not in selection.only:
            status = replace(status, state="waits", reason="not asked for")
        if status.result_hash is not None:
            results[stage.name] = status.result_hash
        elif status.reason != "not asked for":
            to_run.add(stage.name)
        state = f"{status.state}: {status.reason}" if status.reason else status.state
        yield f"{number:>2}  {stage.name:{width}}  {stage.kind.name:14}  {state}"
        if stage.kind.trains and stage.name in to_run:
            yield from (f"      {line}" for line in cost_lines(context, status))
    seconds = context.earlier_seconds()
    finished = {stage.name for stage in pipeline.stages} - to_run
    times = expected_seconds(pipeline.stages, seconds, {})
    clock = format_clock(seconds_left(pipeline.stages, finished, {}, times, pipeline.jobs))
    basis = "as long as they took before" if to_run <= set(seconds) else "by the weights of the stages"
    count = f"{len(to_run)} of {len(pipeline.stages)} stages to run"
    yield f"{context.folder.path}: {count}, about {clock} ({basis})"


class _Run:
    """A pipeline while it runs: what is finished, what runs, what has failed."""

    def __init__(
        self,
        context: PipelineContext,
        selection: StageSelection,
        forced_reasons: dict[str, str],
        workers: Workers,
        reporter: ProgressReporter,
    ) -> None:
        self._context, self._selection, self._forced = context, selection, forced_reasons
        self._workers, self._reporter = workers, reporter
        only, stages = selection.only, context.pipeline.stages
        self._stages = [stage for stage in stages if not only or stage.name in only]
        self._earlier_seconds = context.earlier_seconds()
        self._results = self._results_above() if only else {}
        self._started: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def run_stages(self, caught: list[int]) -> None:
        """Until all are finished; a fault or a signal lets what runs come to its end, and is raised then."""
        waiting, failure, stopped = list(self._stages), None, 0
        while self._started or (waiting and failure is None and not stopped):
            if caught and not stopped:
                stopped = caught[0]
                self._workers.stop()
            if failure is None and not stopped:
                waiting = self._start_ready(waiting)
            for outcome in self._workers.wait():
                if outcome.status == "done":
                    self._finish(outcome, is_last=not waiting and len(self._started) == 1)
                else:
                    failure = failure or outcome
                self._started.pop(outcome.name)
            self._reporter.status(self._status_line())
        if stopped or (failure is not None and failure.status == "stopped"):
            raise StoppedError(stopped or signal.SIGINT)
        if failure is not None:
            raise UserError(failure.detail)

    def _start_ready(self, waiting: list[Stage]) -> list[Stage]:
        """Reuse what is finished, start what is ready, the longest way first; returns what still waits."""
        remaining = [stage for stage in waiting if not self._reuse(stage)]
        for stage in sorted(remaining, key=lambda stage: -self._seconds_from(stage)):
            if self._workers.free and set(stage.needs) <= set(self._results):
                stage_key = self._status(stage).stage_key
                assert stage_key is not None, "all that it needs has a result"
                self._started[stage.name] = time.monotonic()
                self._reporter.status(self._status_line())
                remaining.remove(stage)
                self._workers.start(stage.name, stage_key, fresh=self._selection.fresh)
        return remaining

    def _status(self, stage: Stage) -> StageStatus:
        return stage_status(self._context, stage, self._results, self._forced)

    def _reuse(self, stage: Stage) -> bool:
        """Take the result of the stage as it is, where there is one of these settings and inputs."""
        status = self._status(stage)
        if status.result_hash is None or status.stage_key is None:
            return False
        if status.state == "taken back":
            restore_stage(self._context.folder, stage.name, status.stage_key.key)
        self._results[stage.name] = status.result_hash
        note = f" ({status.reason})" if status.reason else ""
        self._reporter.message(f"{self._numbered(stage.name)}  {status.state}{note}")
        return True

    def _finish(self, outcome: StageOutcome, *, is_last: bool) -> None:
        name = outcome.name
        self._results[name] = outcome.detail
        self._seconds[name] = time.monotonic() - self._started[name]
        manifest = read_manifest(self._context.folder.stage(name)) or {}
        sentence = (manifest.get("said") or [""])[0]
        left = "" if is_last else f"; about {format_clock(self._seconds_left())} left"
        clock = format_clock(self._seconds[name])
        self._reporter.message(f"{self._numbered(name)}  {clock}  {sentence}{left}")

    def _results_above(self) -> dict[str, str]:
        """The results that ``--only`` rests on, as they are; refuses where one is not there."""
        context, results = self._context, dict[str, str]()
        needed = set[str]()
        for stage in reversed(context.pipeline.stages):
            if stage.name in {*self._selection.only, *needed}:
                needed.update(stage.needs)
        for stage in context.pipeline.stages:
            if stage.name not in needed - set(self._selection.only):
                continue
            status = stage_status(context, stage, results, {})
            manifest = read_manifest(context.folder.stage(stage.name))
            if manifest is None:
                raise UserError(
                    f"--only: {stage.name} is needed and not finished; run it too, or leave --only out"
                )
            if status.state != "kept":
                self._reporter.message(
                    f"note: {stage.name} is taken as it is, though it is not up to date ({status.reason})"
                )
            results[stage.name] = manifest["result"]
        return results

    def _times(self) -> dict[str, float]:
        return expected_seconds(self._stages, self._earlier_seconds, self._seconds)

    def _seconds_from(self, stage: Stage) -> float:
        """Seconds of the longest chain of stages that begins with this one."""
        below = [self._seconds_from(other) for other in self._stages if stage.name in other.needs]
        return self._times()[stage.name] + max(below, default=0.0)

    def _seconds_left(self) -> float:
        now, jobs = time.monotonic(), self._context.pipeline.jobs
        running = {name: now - start for name, start in self._started.items()}
        return seconds_left(self._stages, set(self._results), running, self._times(), jobs)

    def _status_line(self) -> str:
        """What runs, for how long, and how long it will be."""
        now = time.monotonic()
        running = [
            f"{name} {format_clock(now - start)}{_training_step(self._context.folder.stage(name))}"
            for name, start in self._started.items()
        ]
        return f"{', '.join(running)}; about {format_clock(self._seconds_left())} left" if running else ""

    def _numbered(self, name: str) -> str:
        """A stage with its place among all."""
        names = [stage.name for stage in self._stages]
        return f"{names.index(name) + 1:>2}/{len(names)}  {name:{max(map(len, names))}}"


def _training_step(stage_folder: Path) -> str:
    """How far a training run is, by the last line of its figures; nothing while it has none."""
    try:
        with (stage_folder / "run" / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            last = json.loads(file.read().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return ""
    return f" (step {last['step']} of {last['steps']})" if "steps" in last else f" (step {last['step']})"


@contextmanager
def _catch_signals() -> Iterator[list[int]]:
    """The signals that came while the block runs; a second one raises KeyboardInterrupt."""
    caught: list[int] = []

    def handle(signum: int, frame: FrameType | None) -> None:
        del frame
        if caught:
            raise KeyboardInterrupt
        caught.append(signum)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _refuse_foreign_folder(folder: PipelineFolder) -> None:
    if not folder.path.exists() or folder.config.exists():
        return
    if not folder.path.is_dir():
        raise UserError(f"{folder.path}: a file is in the way; choose another folder with --out")
    own = ("stages", "earlier", lock.LOCK_NAME, "fingerprints.json")
    foreign = sorted(
        path.name for path in folder.path.iterdir() if path.name not in own and path.name[0] != "."
    )
    if foreign:
        raise UserError(
            f"{folder.path}: this folder is no pipeline's (it has no pipeline.yaml) and is not empty: "
            f"{', '.join(foreign[:5])}. Choose an empty or new folder with --out"
        )
