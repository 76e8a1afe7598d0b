"""All stages of a pipeline: what is finished is kept, the rest runs, some side by side."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Protocol

from plaudit.errors import UserError, WaitingError, located
from plaudit.files import atomic, lock
from plaudit.models.load import device_of
from plaudit.releases import untried_releases
from plaudit.runs.pipeline import store
from plaudit.runs.pipeline.read import pipeline_yaml
from plaudit.runs.pipeline.spec import Pipeline, Stage
from plaudit.runs.pipeline.status import (
    PipelineContext,
    StageKey,
    expected_seconds,
    format_clock,
    refuse_unknown_stages,
    seconds_left,
    stage_status,
)
from plaudit.runs.pipeline.workers import POLL_SECONDS, Crew, StageOutcome, Workers

_UNKNOWN_COST = "its cost is known when what it needs is there"
TAIL_BYTES = 2**16
"""Bytes of a file of figures in which its last line is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSelection:
    """Which stages are to run, beside those whose inputs have changed."""

    from_stage: str | None = None
    """This stage and all below it run again."""
    only: tuple[str, ...] = ()
    fresh: bool = False

    def forced_reasons(self, pipeline: Pipeline) -> dict[str, str]:
        """The stages that run whatever is there, with the reason; refuses names of no stage."""
        refuse_unknown_stages(pipeline, [name for name in (self.from_stage, *self.only) if name], "stages")
        if self.fresh:
            return {stage.name: "--fresh" for stage in pipeline.stages}
        if self.from_stage is None:
            return {}
        return dict.fromkeys(pipeline.with_dependents({self.from_stage}), f"--from {self.from_stage}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReporter:
    """Where a pipeline reports its progress: lines that stay, and a status that changes."""

    message: Callable[[str], None] = lambda text: None
    status: Callable[[str], None] = lambda text: None


class Attendant(Protocol):
    """Who lets people answer while a pipeline waits for them."""

    def serve(self, stage: Stage, waits: Sequence[object]) -> None:
        """Let people answer what a stage waits for; returns at once."""

    def answered(self) -> list[str]:
        """The stages that have all that they waited for; asked again and again, and returns at once."""
        ...


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
    *,
    attendant: Attendant | None = None,
    crew: Crew | None = None,
) -> store.PipelineFolder:
    """Run what is to be run; the folder then has every result, and each is sealed.
    Whatever ends it, the same call goes on from there to the same results. Where nothing but people is left
    to wait for, `WaitingError` ends it too, unless an attendant waits for them."""
    folder, selection = store.PipelineFolder(path=out.absolute()), selection or StageSelection()
    forced = selection.forced_reasons(pipeline)
    _refuse_foreign_folder(folder)
    atomic.make_folder(folder.path / "stages")
    with lock.hold_lock(folder.path), _catch_signals() as caught:
        atomic.remove_leftovers(folder.path)
        names = {stage.name for stage in pipeline.stages}
        for path in sorted((folder.path / "stages").iterdir()):
            if path.is_dir() and path.name not in names:
                store.set_aside(folder, path.name)
        text = pipeline_yaml(pipeline)
        if not folder.config.exists() or folder.config.read_text("utf-8") != text:
            atomic.write_text(folder.config, text)
        if pipeline.hub_names:
            atomic.write_json(
                folder.path / store.HUB_FILE, store.read_hub_names(folder.path) | {**pipeline.hub_names}
            )
        # What would fail in an hour fails now.
        validate_pipeline(pipeline)
        reporter = reporter or ProgressReporter()
        for sentence in untried_releases():
            reporter.message(f"note: {sentence}")
        context, workers = PipelineContext.of(folder, pipeline), Workers(folder.path, pipeline, crew)
        run = _Run(context, selection, forced, workers, reporter, attendant)
        try:
            run.run_stages(caught)
        finally:
            workers.close()
    return folder


def validate_pipeline(pipeline: Pipeline) -> None:
    device_of(pipeline.device)
    for stage in pipeline.stages:
        with located(stage.where):
            config = stage.config({})
            device_of(getattr(config, "device", "cpu"))
            stage.kind.check(config)


class _Run:
    def __init__(
        self,
        context: PipelineContext,
        selection: StageSelection,
        forced_reasons: dict[str, str],
        workers: Workers,
        reporter: ProgressReporter,
        attendant: Attendant | None,
    ) -> None:
        self._context, self._selection, self._forced = context, selection, forced_reasons
        self._workers, self._reporter, self._attendant = workers, reporter, attendant
        only, stages = selection.only, context.pipeline.stages
        self._stages = [stage for stage in stages if not only or stage.name in only]
        self._earlier_seconds = context.earlier_seconds()
        self._results = self._results_above() if only else {}
        self._started: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._to_run = self._stages
        self._failure: StageOutcome | None = None
        self._waits: dict[str, StageOutcome] = {}

    def run_stages(self, caught: list[int]) -> None:
        """Until all are finished, or nothing but people is left to wait for, which is raised.
        A fault or a signal lets what runs come to its end, and is raised then."""
        stopped = 0
        while self._started or (self._failure is None and not stopped and self._can_go_on()):
            if caught and not stopped:
                stopped = caught[0]
                self._workers.stop()
            if self._failure is None and not stopped:
                self._take_up_answered()
                self._to_run = self._start_ready(self._to_run)
            for outcome in self._workers.wait():
                self._take(outcome)
            self._reporter.status(self._status_line())
        self._raise_end(stopped)

    def _can_go_on(self) -> bool:
        # Whether a stage is left that waits for nobody, or for people who may answer now.
        return bool(self._unblocked()) or (bool(self._waits) and self._attendant is not None)

    def _take_up_answered(self) -> None:
        # Go on with the stages whose labels are all there; a moment of rest where there is nothing else.
        if not self._waits or self._attendant is None:
            return
        answered = [name for name in self._attendant.answered() if self._waits.pop(name, None)]
        names = {*answered, *(stage.name for stage in self._to_run)}
        # In the pipeline's own order, which starting them rests on.
        self._to_run = [stage for stage in self._stages if stage.name in names]
        if not self._started and not self._unblocked():
            time.sleep(POLL_SECONDS)

    def _unblocked(self) -> list[Stage]:
        # The stages that are left, without those that wait for people and all below them.
        blocked = self._context.pipeline.with_dependents({*self._waits})
        return [stage for stage in self._to_run if stage.name not in blocked]

    def _take(self, outcome: StageOutcome) -> None:
        seconds = time.monotonic() - self._started.pop(outcome.name)
        if outcome.status == "done":
            self._finish(outcome, seconds, is_last=not self._to_run and not self._started)
        elif outcome.status == "waits":
            self._waits[outcome.name] = outcome
            # What it has begun is gone on with, also where all was to be made anew.
            self._forced.pop(outcome.name, None)
            missing = "; ".join(wait.sentence for wait in outcome.waits) or outcome.detail
            self._reporter.message(f"{self._numbered(outcome.name)}  waits for people: {missing}")
            if self._attendant is not None:
                self._attendant.serve(self._context.pipeline.stage(outcome.name), outcome.waits)
        else:
            self._failure = self._failure or outcome

    def _raise_end(self, stopped: int) -> None:
        # Raise what ended it before all stages were finished: a signal, a fault, or a wait for people.
        failure = self._failure
        if stopped or (failure is not None and failure.status == "stopped"):
            raise StoppedError(stopped or signal.SIGINT)
        if failure is not None:
            raise UserError(failure.detail)
        if self._waits:
            waits = [wait for outcome in self._waits.values() for wait in outcome.waits]
            raise WaitingError("\n".join(outcome.detail for outcome in self._waits.values()), *waits)

    def _start_ready(self, waiting: list[Stage]) -> list[Stage]:
        # Reuse what is finished, start what is ready, the longest way first; returns what still waits.
        keys: dict[str, StageKey | None] = {}
        # A stage stands below those that it needs, so one pass sees every result that is there.
        for stage in waiting:
            status = stage_status(self._context, stage, self._results, self._forced)
            if status.result_hash is None or status.stage_key is None:
                keys[stage.name] = status.stage_key
                continue
            if status.state == "taken back":
                store.restore_stage(self._context.folder, stage.name, status.stage_key.key)
            self._results[stage.name] = status.result_hash
            note = f" ({status.reason})" if status.reason else ""
            self._reporter.message(f"{self._numbered(stage.name)}  {status.state}{note}")
        remaining = [stage for stage in waiting if stage.name in keys]
        for stage in sorted(remaining, key=lambda stage: -self._seconds_from(stage)):
            stage_key = keys[stage.name]
            if stage_key is not None and self._workers.fits(stage):
                self._started[stage.name] = time.monotonic()
                self._reporter.status(self._status_line())
                remaining.remove(stage)
                fresh = self._selection.fresh and stage.name in self._forced
                self._workers.start(self._context, stage, stage_key, fresh=fresh)
        return remaining

    def _finish(self, outcome: StageOutcome, seconds: float, *, is_last: bool) -> None:
        name = outcome.name
        self._results[name], self._seconds[name] = outcome.detail, seconds
        manifest = store.read_manifest(self._context.folder.stage(name)) or {}
        sentence = (manifest.get("summary") or manifest.get("said") or [""])[0]
        left = "" if is_last else f"; about {format_clock(self._seconds_left())} left"
        self._reporter.message(f"{self._numbered(name)}  {format_clock(seconds)}  {sentence}{left}")

    def _results_above(self) -> dict[str, str]:
        # The results that ``--only`` rests on, as they are; refuses where one is not there.
        context, only, results = self._context, set(self._selection.only), dict[str, str]()
        needed = set[str]()
        for stage in reversed(context.pipeline.stages):
            if stage.name in only | needed:
                needed.update(stage.needs)
        for stage in context.pipeline.stages:
            if stage.name not in needed - only:
                continue
            status = stage_status(context, stage, results, {})
            manifest = store.read_manifest(context.folder.stage(stage.name))
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
        below = [self._seconds_from(other) for other in self._stages if stage.name in other.needs]
        return self._times()[stage.name] + max(below, default=0.0)

    def _elapsed(self) -> dict[str, float]:
        now = time.monotonic()
        return {name: now - start for name, start in self._started.items()}

    def _seconds_left(self) -> float:
        jobs = self._context.pipeline.jobs
        # How long people take nobody knows: what waits for them is left out.
        known = set(self._results) | self._context.pipeline.with_dependents({*self._waits})
        return seconds_left(self._stages, known, self._elapsed(), self._times(), jobs)

    def _status_line(self) -> str:
        running = [
            f"{name} {format_clock(seconds)}{_training_step(self._context.folder.stage(name))}"
            for name, seconds in self._elapsed().items()
        ]
        if not running:
            return "waiting for people" if self._waits else ""
        return f"{', '.join(running)}; about {format_clock(self._seconds_left())} left"

    def _numbered(self, name: str) -> str:
        names = [stage.name for stage in self._stages]
        return f"{names.index(name) + 1:>2}/{len(names)}  {name:{max(map(len, names))}}"


def _training_step(stage_folder: Path) -> str:
    # How far a training run is, by the last line of its figures; nothing while it has none.
    try:
        with (stage_folder / "run" / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            last = json.loads(file.read().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return ""
    return f" (step {last['step']} of {last['steps']})" if "steps" in last else f" (step {last['step']})"


@contextmanager
def _catch_signals() -> Iterator[list[int]]:
    # The signals that came while the block runs; a second one raises KeyboardInterrupt.
    caught: list[int] = []

    def handle(signum: int, _: FrameType | None) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(signum)
        name = signal.Signals(signum).name
        # Not printed: a handler may run in the middle of a print.
        os.write(
            2, f"plaudit: {name}: stopping when what runs now allows it; once more stops at once\n".encode()
        )

    previous = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _refuse_foreign_folder(folder: store.PipelineFolder) -> None:
    if not folder.path.exists() or folder.config.exists():
        return
    if not folder.path.is_dir():
        raise UserError(f"{folder.path}: a file is in the way; choose another folder with --out")
    own = ("stages", "earlier", lock.LOCK_NAME, "fingerprints.json")
    names = sorted(path.name for path in folder.path.iterdir())
    # The store of labels may be there before the pipeline: its owner has made the project first.
    foreign = [name for name in names if name not in own and not name.startswith((".", store.LABELS_FILE))]
    if foreign:
        raise UserError(
            f"{folder.path}: this folder is no pipeline's (it has no pipeline.yaml) and is not empty: "
            f"{', '.join(foreign[:5])}. Choose an empty or new folder with --out"
        )


def dry_run(pipeline: Pipeline, out: Path, selection: StageSelection) -> Iterator[str]:
    """A line for each stage with its state and why; below those that cost much, what they will cost."""
    validate_pipeline(pipeline)
    context = PipelineContext.of(store.PipelineFolder(path=out.absolute()), pipeline)
    forced, results, to_run = selection.forced_reasons(pipeline), dict[str, str](), set[str]()
    width = max(len(stage.name) for stage in pipeline.stages)
    for number, stage in enumerate(pipeline.stages, 1):
        status, is_requested = stage_status(context, stage, results, forced), True
        if selection.only and stage.name not in selection.only:
            status, is_requested = replace(status, state="waits", reason="not asked for"), False
        if status.result_hash is not None:
            results[stage.name] = status.result_hash
        elif is_requested:
            to_run.add(stage.name)
        state = f"{status.state}: {status.reason}" if status.reason else status.state
        yield f"{number:>2}  {stage.name:{width}}  {stage.kind.name:14}  {state}"
        if stage.name in to_run:
            is_known = status.stage_key is not None or not stage.kind.trains
            lines = stage.kind.cost(context, stage) if is_known else (_UNKNOWN_COST,)
            yield from (f"      {line}" for line in lines)
    seconds = context.earlier_seconds()
    finished = {stage.name for stage in pipeline.stages} - to_run
    times = expected_seconds(pipeline.stages, seconds, {})
    clock = format_clock(seconds_left(pipeline.stages, finished, {}, times, pipeline.jobs))
    basis = "as long as they took before" if to_run <= set(seconds) else "by the weights of the stages"
    count = f"{len(to_run)} of {len(pipeline.stages)} stages to run"
    yield f"{context.folder.path}: {count}, about {clock} ({basis})"
