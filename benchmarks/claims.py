"""Claims, each with the rule by which figures of several runs decide it; the rules stand before the figures.

A figure is measured once in each run, over all prompts of that run and paired over them where two policies or
rewards are compared. Its interval is Student's over the runs: the runs are the clusters, so that what a run's
seed does to all prompts at once is in it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.intervals import half_width, numbers, shares

Mark = Literal["holds", "does not hold", "not decided"]
"""What becomes of a claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where a figure lies if a claim is true.

    Example: ``Bounds(above=0.7, mean_at_least=0.75)``
    """

    above: float = -math.inf
    """The whole interval lies above it."""
    below: float = math.inf
    """The whole interval lies below it."""
    mean_at_least: float = -math.inf
    """The mean reaches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number of each run, and where it lies if the claim is true.

    Example: ``Figure(name="PPO against SFT", values=(0.78, 0.81), bounds=Bounds(above=0.7), percent=True)``
    """

    name: str
    """What was measured."""
    values: Sequence[float]
    """One of each run; not a number where it could not be measured."""
    bounds: Bounds | None = None
    """Where it lies if the claim is true; None: it is shown, and decides nothing."""
    percent: bool = False
    """Whether it is a share, printed in per cent."""

    @property
    def is_measured(self) -> bool:
        """Whether every run has it."""
        return bool(self.values) and all(map(math.isfinite, self.values))

    def __str__(self) -> str:
        if not self.is_measured:
            return f"{self.name}: not measured"
        return f"{self.name} {shares(self.values) if self.percent else numbers(self.values, 3)}"


def mark_of(values: Sequence[float], bounds: Bounds) -> Mark:
    """Holds where the interval lies on the claimed side, does not where it lies on the other.

    One run has no interval, and decides nothing.

    >>> mark_of([0.1, 0.11, 0.12], Bounds(above=0))
    'holds'
    >>> mark_of([-0.1, -0.11, -0.12], Bounds(above=0))
    'does not hold'
    >>> mark_of([-0.1, 0.11, 0.12], Bounds(above=0))
    'not decided'
    """
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return "not decided"
    mean, half = statistics.fmean(values), half_width(values)
    low, high = mean - half, mean + half
    if low > bounds.above and high < bounds.below and mean >= bounds.mean_at_least:
        return "holds"
    if high <= bounds.above or low >= bounds.below or high < bounds.mean_at_least:
        return "does not hold"
    return "not decided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding of the field, with the figures that decide it.

    Example: ``Finding(name="PPO", claimed="it is preferred to SFT (Stiennon et al. 2020)", figures=(…,))``
    """

    name: str
    """What it is about."""
    claimed: str
    """What is claimed, and by whom."""
    figures: tuple[Figure, ...]
    """What was measured."""

    @property
    def mark(self) -> Mark:
        """It holds if it does by all figures with bounds, and does not if it does not by any of them."""
        marks = {
            mark_of(figure.values, figure.bounds) for figure in self.figures if figure.bounds is not None
        }
        if "does not hold" in marks:
            return "does not hold"
        return "holds" if marks == {"holds"} else "not decided"

    @property
    def row(self) -> tuple[str, str, str, str]:
        """The finding in a table."""
        return self.name, self.claimed, "; ".join(map(str, self.figures)), self.mark


def best_places(
    curves: Sequence[Sequence[float]], best: Callable[[Sequence[float]], float] = max
) -> list[int]:
    """For each run the place of the best point of the mean curve of the *other* runs.

    The best point of a run's own curve is partly luck, so whatever comes after it is worse on average also
    where nothing falls. By the others' choice the difference to the last point is 0 there on average.

    >>> best_places([[0.0, 1.0, 0.9], [0.0, 0.8, 1.0], [0.0, 1.0, 0.5]])
    [1, 1, 2]
    """
    found: list[int] = []
    for run in range(len(curves)):
        others = [curve for other, curve in enumerate(curves) if other != run] or curves
        means = [statistics.fmean(points) for points in zip(*others, strict=True)]
        found.append(means.index(best(means)))
    return found
