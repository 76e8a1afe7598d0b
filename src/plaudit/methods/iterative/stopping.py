"""When a loop has gone too far: a rule that noise alone seldom sets off.

After each round the newest model is measured, row by row: what a held-out judge says of its answers, and
whether its own judgements are those of people. It has **fallen** where it is below the best round so far in
such a measure and a sign-flip test of the paired differences, one-sided, is below 0.05 over the number of
comparisons that could be made in the whole loop: measures × rounds × (rounds + 1) / 2, every two models. By
the union bound a loop in which nothing changes is stopped with chance 0.05 at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plaudit.evaluation.shares import sign_flip_test
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean, wilson_interval

FALSE_STOP = 0.05
"""The highest chance that a loop is stopped in which nothing changes."""
HELD_OUT_JUDGE, PEOPLE_LABELS = "the held-out judge", "agreement with people"
"""What is measured of a round's model: its answers, and its own judgements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    name: str
    """What is measured; more is better."""
    prompts: tuple[int, ...]
    """For each row the number of its prompt: rows of one prompt are not independent."""
    values: tuple[float | None, ...]
    """For each row the value; None where there is none."""

    @property
    def mean(self) -> float | None:
        measured = [value for value in self.values if value is not None]
        return sum(measured) / len(measured) if measured else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """A measure in which the newest round is below the best one, beyond noise.

    Example: ``find_fall(history, rounds=3, measures=2)``
    """

    name: str
    best: int
    """The place of the best round in the history."""
    gap: float
    """The mean of the paired differences, below 0."""
    p: float
    """The one-sided chance of so large a fall where nothing changes."""
    level: float


def best_place(history: Sequence[Measure]) -> int:
    """The place of the highest mean; of several the first, and never one that has no value."""
    means = [measure.mean for measure in history]
    return max(range(len(means)), key=lambda n: -np.inf if (mean := means[n]) is None else mean)


def paired_gaps(newest: Measure, other: Measure) -> tuple[np.ndarray, np.ndarray]:
    """The differences of the rows that both have a value of, and the prompts of these rows."""
    pairs = [
        (a - b, prompt)
        for a, b, prompt in zip(newest.values, other.values, newest.prompts, strict=True)
        if a is not None and b is not None
    ]
    return np.array([gap for gap, _ in pairs]), np.array([prompt for _, prompt in pairs], dtype=np.int64)


def find_fall(history: Sequence[Measure], *, rounds: int, measures: int) -> Fall | None:
    """Whether the newest of a measure's history, the start first, has fallen; None where it has not."""
    *earlier, newest = history
    if not earlier:
        return None
    best = best_place(earlier)
    gap_B, prompt_B = paired_gaps(newest, earlier[best])
    if not len(gap_B) or gap_B.sum() >= 0:
        return None
    level = FALSE_STOP / (measures * rounds * (rounds + 1) / 2)
    p = sign_flip_test(gap_B, prompt_B) / 2
    if p >= level:
        return None
    return Fall(name=newest.name, best=best, gap=float(gap_B.mean()), p=p, level=level)


def mean_with_interval(measure: Measure) -> Estimate:
    """The mean of a measure: of right and wrong with Wilson's interval, else by drawing prompts anew."""
    measured = zip(measure.values, measure.prompts, strict=True)
    rows = [(value, prompt) for value, prompt in measured if value is not None]
    value_B, prompt_B = np.array([value for value, _ in rows]), np.array([prompt for _, prompt in rows])
    if measure.name == PEOPLE_LABELS:
        share = float(value_B.mean())
        low, high = wilson_interval(share, len(rows))
        return Estimate(value=share, low=low, high=high, n=len(rows), prompts=len(set(prompt_B.tolist())))
    return bootstrap_mean(value_B, prompt_B, Resampling(), share=False)


def gain_with_interval(newest: Measure, start: Measure) -> Estimate | None:
    """The mean of the paired differences to the start; None where no row has both values."""
    gap_B, prompt_B = paired_gaps(newest, start)
    return bootstrap_mean(gap_B, prompt_B, Resampling(), share=False) if len(gap_B) else None
