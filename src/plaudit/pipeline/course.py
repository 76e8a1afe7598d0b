"""How far a pipeline has come: what is asked for, what is there, what runs, and how that is said."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plaudit.errors import UserError
from plaudit.pipeline.fingerprints import Fingerprints
from plaudit.pipeline.folder import Folder, read_seal
from plaudit.pipeline.lanes import Outcome
from plaudit.pipeline.stage import Pipeline, Stage
from plaudit.pipeline.standing import Place, standing
from plaudit.pipeline.time_left import expected, seconds_left


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be run, beside what has changed.

    Example: ``Wish(begin="reward")``
    """

    begin: str | None = None
    """This stage and all below it run again."""
    only: tuple[str, ...] = ()
    """These stages and no others; empty for all."""
    fresh: bool = False
    """Nothing is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Whom to tell what goes on.

    Example: ``Told(line=print)``
    """

    line: Callable[[str], None] = lambda text: None
    """A sentence that stays."""
    now: Callable[[str], None] = lambda text: None
    """What is being done just now."""


@dataclass(slots=True, kw_only=True)
class Course:
    """How far the pipeline has come.

    Example: ``begin(folder, pipeline, Wish(), Told()).results``
    """

    place: Place
    """Where it is."""
    stages: Sequence[Stage]
    """Those that are asked for."""
    wish: Wish
    """What else is asked for."""
    told: Told
    """Whom to tell."""
    before: Mapping[str, float]
    """Seconds of earlier runs."""
    forced: Mapping[str, str]
    """Stages that run whatever is there, with the reason."""
    results: dict[str, str]
    """The hashes of the results that are there."""
    began: dict[str, float] = field(default_factory=dict)
    """Of those that run: when they began."""
    took: dict[str, float] = field(default_factory=dict)
    """Seconds of those that have ended."""
    fault: Outcome | None = None
    """The first thing that went wrong."""
    signal: int = 0
    """The signal that asked to stop; 0 for none."""


def begin(folder: Folder, pipeline: Pipeline, wish: Wish, told: Told) -> Course:
    """Look at what is there; complains about what cannot go on."""
    place = Place(folder=folder, pipeline=pipeline, prints=Fingerprints(folder.path / "fingerprints.json"))
    forced = forced_by(pipeline, wish)
    results: dict[str, str] = {}
    seals = {stage.name: read_seal(folder.stage(stage.name)) for stage in pipeline.stages}
    if wish.only:
        results = _finished_above(place, wish, told)
    return Course(
        place=place,
        stages=[stage for stage in pipeline.stages if not wish.only or stage.name in wish.only],
        wish=wish,
        told=told,
        before={name: float(seal["seconds"]) for name, seal in seals.items() if seal is not None},
        forced=forced,
        results=results,
    )


def forced_by(pipeline: Pipeline, wish: Wish) -> dict[str, str]:
    """The stages that run whatever is there, with the reason."""
    if wish.fresh:
        return {stage.name: "--fresh" for stage in pipeline.stages}
    if wish.begin is None:
        return {}
    return dict.fromkeys(pipeline.below({wish.begin}), f"--from {wish.begin}")


def _finished_above(place: Place, wish: Wish, told: Told) -> dict[str, str]:
    """The results that ``--only`` rests on, as they are."""
    results: dict[str, str] = {}
    needed = {name for one in wish.only for name in _above(place.pipeline, one)} - set(wish.only)
    for stage in place.pipeline.stages:
        if stage.name not in needed:
            continue
        found = standing(place, stage, results, {})
        seal = read_seal(place.folder.stage(stage.name))
        if seal is None:
            raise UserError(
                f"--only: {stage.name} is needed and not finished; run it too, or leave --only out"
            )
        if found.state != "kept":
            told.line(f"note: {stage.name} is taken as it is, though it is not up to date ({found.why})")
        results[stage.name] = seal["result"]
    return results


def _above(pipeline: Pipeline, name: str) -> Iterator[str]:
    for other in pipeline.stage(name).needs:
        yield other
        yield from _above(pipeline, other)


def weight_from(course: Course, stage: Stage) -> float:
    """Seconds from the beginning of a stage to the end of all that rests on it, were there lanes enough."""
    times = expected(course.stages, course.before, course.took)
    after = [weight_from(course, other) for other in course.stages if stage.name in other.needs]
    return times[stage.name] + max(after, default=0.0)


def left_of(course: Course) -> float:
    """Seconds until the last stage ends, by what is known of them."""
    now = time.monotonic()
    running = {name: now - began for name, began in course.began.items()}
    times = expected(course.stages, course.before, course.took)
    return seconds_left(course.stages, set(course.results), running, times, course.place.pipeline.jobs)


def now_words(course: Course) -> str:
    """What runs, for how long, and how long it will be."""
    now = time.monotonic()
    running = [
        f"{name} {clock(now - began)}{_steps(course.place.folder.stage(name))}"
        for name, began in course.began.items()
    ]
    return f"{', '.join(running)}; about {clock(left_of(course))} left" if running else ""


def _steps(here: Path) -> str:
    """How far a training run is, by the last line of its figures; nothing while it has none."""
    try:
        with (here / "run" / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LAST))
            last = json.loads(file.read().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return ""
    return f" (step {last['step']} of {last['steps']})" if "steps" in last else f" (step {last['step']})"


LAST = 2**16
"""Bytes of a file of figures in which its last line is looked for."""


def numbered(course: Course, name: str) -> str:
    """A stage with its place among all."""
    names = [stage.name for stage in course.stages]
    return f"{names.index(name) + 1:>2}/{len(names)}  {name:{max(map(len, names))}}"


def clock(seconds: int | float) -> str:
    """Minutes and seconds.

    >>> clock(83.7)
    '1:24'
    """
    return f"{round(seconds) // 60}:{round(seconds) % 60:02}"
