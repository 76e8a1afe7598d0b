"""Whether somebody's last labels differ from those before: right, with the others, and how fast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, TypeVar

from plaudit.collect.quality.result import Drift
from plaudit.evaluation.stats import holm

_T = TypeVar("_T")
LAST = 50
"""How many labels are the last ones."""
LEAST = 5
"""Labels that say something, which a figure needs on either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What is known of each of a person's labels, in their order; None where nothing is.

    Example: ``Course(gold=(None, True), others=(True, False), seconds=(8.2, 4.0))``
    """

    gold: Sequence[bool | None]
    """Whether it says what is known to be right."""
    others: Sequence[bool | None]
    """Whether it agrees with what the others say."""
    seconds: Sequence[float | None]
    """The active seconds that it took."""


def drifts(courses: Sequence[Course]) -> list[tuple[Drift, ...]]:
    """The changes of each person, with p-values corrected for all people (Holm 1979), each test by itself.

    >>> slow, fast = [10.0, 11.0, 12.0, 9.0] * 15, [2.0, 3.0] * 25
    >>> nothing = [None] * 110
    >>> (found,), = drifts([Course(gold=nothing, others=nothing, seconds=slow + fast)])
    >>> found.what, found.before, found.now, found.p < 1e-9
    ('seconds', 10.5, 2.5, True)
    """
    found = [_drifts_of(course) for course in courses]
    for what in ("gold", "others", "seconds"):
        corrected = holm([person[what].p if what in person else None for person in found])
        for person, p in zip(found, corrected, strict=True):
            if p is not None:
                person[what] = replace(person[what], p=p)
    return [tuple(person.values()) for person in found]


def _drifts_of(course: Course) -> dict[str, Drift]:
    """Each figure that has enough labels on both sides, not yet corrected."""
    shares = {"gold": course.gold, "others": course.others}
    found = {what: _share_drift(what, values) for what, values in shares.items()}
    found["seconds"] = _seconds_drift(course.seconds)
    return {what: drift for what, drift in found.items() if drift is not None}


def _sides(values: Sequence[_T | None]) -> tuple[list[_T], list[_T]] | None:
    before = [value for value in values[:-LAST] if value is not None]
    now = [value for value in values[-LAST:] if value is not None]
    return (before, now) if min(len(before), len(now)) >= LEAST else None


def _share_drift(what: str, values: Sequence[bool | None]) -> Drift | None:
    from scipy.stats import fisher_exact

    sides = _sides(values)
    if sides is None:
        return None
    counts = [[sum(side), len(side) - sum(side)] for side in sides]
    before, now = (sum(side) / len(side) for side in sides)
    p: Any = fisher_exact(counts)[1]
    return Drift(what=what, before=before, now=now, p=float(p), n=len(sides[1]))


def _seconds_drift(values: Sequence[float | None]) -> Drift | None:
    from scipy.stats import mannwhitneyu

    sides = _sides(values)
    if sides is None:
        return None
    p = float(mannwhitneyu(*sides).pvalue)
    # No number where all of them are the same: then nothing has changed.
    return Drift(
        what="seconds",
        before=median(sides[0]),
        now=median(sides[1]),
        p=1.0 if math.isnan(p) else p,
        n=len(sides[1]),
    )
