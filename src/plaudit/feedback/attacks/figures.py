"""Shares with their intervals, and differences of two shares of the same attempts.

A share of independent attempts has Wilson's interval (1927). Where several attempts were made from one prompt
(rewordings) or have several answers, it is Wilson's at the size that prompts are worth, and prompts are drawn
anew as a whole (bootstrap) for differences. Two shares of the same
attempts are compared by the exact test of McNemar (1947) and by the interval of Newcombe (1998, method 10).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from plaudit.evaluation.reward_models.pairs import group_index
from plaudit.evaluation.shares import share_estimate, sign_flip_test
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean, wilson_interval


def attack_share(values: Sequence[float], units: Sequence[str]) -> Estimate | None:
    """The mean of shares with its interval; ``units`` says which of them belong to one prompt.

    None of nothing.

    >>> found = attack_share([1, 0, 1, 0, 1, 0, 1, 0, 1, 0], list("abcdefghij"))
    >>> round(found.low, 3), round(found.high, 3)
    (0.237, 0.763)
    """
    if not values:
        return None
    mean, prompts = sum(values) / len(values), len({*units})
    if prompts == len(values) and {*values} <= {0, 1}:
        low, high = wilson_interval(mean, len(values))
        return Estimate(value=mean, low=low, high=high, n=len(values), prompts=prompts)
    return share_estimate(np.array(values, dtype=float), group_index(units))


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two shares of the same things: of two policies, or of the two sides of mirrored pairs."""

    both: int
    first: int
    second: int
    neither: int
    """Of how many none holds."""
    difference: Estimate
    p_value: float
    """Of the exact test that neither is more frequent."""


def paired(first: Sequence[bool], second: Sequence[bool], units: Sequence[str]) -> Paired | None:
    """Both shares beside each other; None of nothing.

    >>> found = paired([True] * 6 + [False] * 4, [False] * 10, list("abcdefghij"))
    >>> found.difference.value, found.first, round(found.p_value, 5)
    (0.6, 6, 0.03125)
    """
    if not first:
        return None
    counts = Counter(zip(first, second, strict=True))
    cells = [counts[key] for key in ((True, True), (True, False), (False, True), (False, False))]
    gains = np.array(first, dtype=float) - np.array(second, dtype=float)
    if len({*units}) == len(units):
        low, high = paired_interval(*cells)
        difference = Estimate(
            value=float(gains.mean()), low=low, high=high, n=len(units), prompts=len({*units})
        )
        p_value = exact_p_value(cells[1], cells[2])
    else:
        difference = bootstrap_mean(gains, group_index(units), Resampling(), share=False)
        p_value = sign_flip_test(gains, group_index(units))
    return Paired(
        both=cells[0],
        first=cells[1],
        second=cells[2],
        neither=cells[3],
        difference=difference,
        p_value=p_value,
    )


def exact_p_value(first: int, second: int) -> float:
    """Of McNemar's exact test: of those of which one alone holds, each side is as likely.

    >>> exact_p_value(6, 0), exact_p_value(0, 0)
    (0.03125, 1.0)
    """
    from scipy.stats import binomtest

    return float(binomtest(first, first + second, 0.5).pvalue) if first + second else 1.0


def paired_interval(both: int, first: int, second: int, neither: int) -> tuple[float, float]:
    """The 95 % interval of the difference of two shares of the same things (Newcombe 1998, method 10).

    >>> low, high = paired_interval(0, 0, 0, 50)
    >>> low == -high, round(high, 3)
    (True, 0.071)
    """
    n = both + first + second + neither
    mine, theirs = (both + first) / n, (both + second) / n
    (my_low, my_high), (their_low, their_high) = wilson_interval(mine, n), wilson_interval(theirs, n)
    phi = _correlation(both, first, second, neither)

    def reach(a: float, b: float) -> float:
        return sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))

    gap = mine - theirs
    low = gap - reach(mine - my_low, their_high - theirs)
    high = gap + reach(my_high - mine, theirs - their_low)
    return max(-1.0, low), min(1.0, high)


def _correlation(both: int, first: int, second: int, neither: int) -> float:
    """φ with Newcombe's correction for continuity; 0 where one of the shares is 0 or 1."""
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    if not margins:
        return 0.0
    excess = both * neither - first * second
    corrected = max(excess - (both + first + second + neither) / 2, 0.0) if excess > 0 else excess
    return corrected / sqrt(margins)
