"""All stages of a pipeline: what is finished is kept, the rest runs, some side by side."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from plaudit.errors import UserError
from plaudit.pipeline.course import (
    Course,
    Told,
    Wish,
    begin,
    clock,
    left_of,
    now_words,
    numbered,
    weight_from,
)
from plaudit.pipeline.folder import Folder, read_seal, set_aside, take_back
from plaudit.pipeline.lanes import Here, Lanes, Order, Outcome
from plaudit.pipeline.reading import as_written
from plaudit.pipeline.stage import Pipeline, Stage
from plaudit.pipeline.standing import Standing, refuse_unknown, standing
from plaudit.training import durable, lock


class StoppedError(Exception):
    """A signal asked the pipeline to stop; ``signum`` says which."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


def run_pipeline(pipeline: Pipeline, out: Path, wish: Wish | None = None, told: Told | None = None) -> Folder:
    """Run what is to be run; the folder then has every result, and each is sealed.

    Whatever ends it, the same call goes on from there to the same results.
    """
    wish, told = wish or Wish(), told or Told()
    folder = Folder(path=out.absolute())
    refuse_unknown(pipeline, [name for name in (wish.begin, *wish.only) if name], "stages")
    _refuse_foreign(folder)
    durable.make_folder(folder.path / "stages")
    with lock.hold(folder.path), _heard() as heard:
        durable.clear_leftovers(folder.path)
        _remove_unknown(folder, pipeline)
        if not folder.config.exists() or folder.config.read_text("utf-8") != as_written(pipeline):
            durable.write_text(folder.config, as_written(pipeline))
        course = begin(folder, pipeline, wish, told)
        crew = Here(folder.path) if pipeline.jobs == 1 else Lanes(folder.path, pipeline.jobs)
        try:
            _look_over(crew)
            _go(course, crew, heard)
        finally:
            crew.close()
    _end(course)
    return folder


def _look_over(crew: Here | Lanes) -> None:
    """What would fail in an hour is told now."""
    crew.give(Order(name=""))
    outcomes: list[Outcome] = []
    while not outcomes:
        outcomes = crew.wait()
    if outcomes[0].how != "done":
        raise UserError(outcomes[0].said)


def _go(course: Course, crew: Here | Lanes, heard: list[int]) -> None:
    waiting = list(course.stages)
    while waiting or course.began:
        if heard and not course.signal:
            course.signal = heard[0]
            crew.stop()
        if course.fault is None and not course.signal:
            waiting = _start(course, crew, waiting)
        elif not course.began:
            return
        for outcome in crew.wait():
            _ended(course, outcome, len(waiting))
        course.told.now(now_words(course))


def _start(course: Course, crew: Here | Lanes, waiting: list[Stage]) -> list[Stage]:
    """Keep what can be kept, and give out what can run, the longest first; returns what still waits."""
    left = list(waiting)
    for stage in waiting:
        if set(stage.needs) <= set(course.results):
            found = standing(course.place, stage, course.results, course.forced)
            if _is_kept(course, found):
                left.remove(stage)
    for stage in sorted(left, key=lambda stage: -weight_from(course, stage)):
        if not crew.free or not set(stage.needs) <= set(course.results):
            continue
        found = standing(course.place, stage, course.results, course.forced)
        assert found.decided is not None, "all that it needs has a result"
        course.began[stage.name] = time.monotonic()
        course.told.now(now_words(course))
        left.remove(stage)
        crew.give(Order(name=stage.name, decided=found.decided, fresh=course.wish.fresh))
    return left


def _is_kept(course: Course, found: Standing) -> bool:
    if found.result is None:
        return False
    if found.state == "taken back":
        assert found.decided is not None, "it has a result"
        take_back(course.place.folder, found.stage.name, found.decided.key)
    course.results[found.stage.name] = found.result
    why = f" ({found.why})" if found.why else ""
    course.told.line(f"{numbered(course, found.stage.name)}  {found.state}{why}")
    return True


def _ended(course: Course, outcome: Outcome, waiting: int) -> None:
    seconds = time.monotonic() - course.began.pop(outcome.name)
    if outcome.how != "done":
        course.fault = course.fault or outcome
        return
    course.results[outcome.name] = outcome.said
    course.took[outcome.name] = seconds
    seal = read_seal(course.place.folder.stage(outcome.name)) or {}
    said = (seal.get("said") or [""])[0]
    left = f"; about {clock(left_of(course))} left" if waiting or course.began else ""
    course.told.line(f"{numbered(course, outcome.name)}  {clock(seconds)}  {said}{left}")


def _end(course: Course) -> None:
    """What is said of a pipeline that did not come to its end."""
    if course.signal:
        raise StoppedError(course.signal)
    if course.fault is not None and course.fault.how == "stopped":
        raise StoppedError(signal.SIGINT)
    if course.fault is not None:
        raise UserError(course.fault.said)


@contextmanager
def _heard() -> Iterator[list[int]]:
    """The signals that came while the block runs; where they cannot be listened to, none."""
    heard: list[int] = []

    def hear(signum: int, frame: FrameType | None) -> None:
        del frame
        if heard:
            raise KeyboardInterrupt
        heard.append(signum)

    before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _refuse_foreign(folder: Folder) -> None:
    if not folder.path.exists() or folder.config.exists():
        return
    if not folder.path.is_dir():
        raise UserError(f"{folder.path}: a file is in the way; choose another folder with --out")
    ours = ("stages", "earlier", lock.NAME, "fingerprints.json")
    foreign = [one.name for one in folder.path.iterdir() if one.name not in ours and one.name[0] != "."]
    if foreign:
        raise UserError(
            f"{folder.path}: this folder is no pipeline's (it has no pipeline.yaml) and is not empty: "
            f"{', '.join(sorted(foreign)[:5])}. Choose an empty or new folder with --out"
        )


def _remove_unknown(folder: Folder, pipeline: Pipeline) -> None:
    """Set aside the results of stages that are no part of the pipeline any more."""
    known = {stage.name for stage in pipeline.stages}
    for here in sorted((folder.path / "stages").iterdir()):
        if here.is_dir() and here.name not in known:
            set_aside(folder, here.name)
