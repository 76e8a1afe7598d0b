"""Which answers a policy learns from: pure functions from the scores of one prompt's answers to picks.

A pick is the places of the answers of one row: ``(3,)`` is an answer to learn, ``(3, 0)`` the better and the
worse of a pair. An answer whose score is None has no verdict; it is never picked, and never counts as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

from plaudit.errors import UserError
from plaudit.rewards.reward import Row

Picks = tuple[tuple[int, ...], ...]
"""Of each row that is made, the places of its answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a way to choose may be told.

    Example: ``Choice(threshold=0.7, keep=10)``
    """

    threshold: int | float = -math.inf
    """The least score of an answer to learn."""
    keep: int | None = None
    """At most so many answers of a prompt; None for all."""
    beta: int | float = 1.0
    """How dear distance from the drawing policy is; small values accept only the best."""
    gap: int | float = 0.0
    """Pairs are further apart than this."""
    chances: tuple[float, ...] = ()
    """For each answer a number drawn evenly from 0 to 1."""


Chooser = Callable[[Row, Choice], Picks]
"""From the scores of one prompt's answers to rows."""


def best(scores: Row) -> Picks:
    """The answer with the highest score; of several the first that was drawn.

    Stiennon et al. 2020, arXiv:2009.01325; Touvron et al. 2023, arXiv:2307.09288.

    >>> best((0.2, None, 0.9, 0.9))
    ((2,),)
    """
    known = _known(scores)
    return () if not known else ((max(known, key=lambda one: (known[one], -one)),),)


def at_least(scores: Row, threshold: int | float, keep: int | None = None) -> Picks:
    """The answers at or above a threshold, in the order in which they were drawn; at most ``keep``.

    Anthony et al. 2017, arXiv:1705.08439; Gulcehre et al. 2023, arXiv:2308.08998.

    >>> at_least((0.2, 1.0, None, 0.9), 0.9)
    ((1,), (3,))
    """
    return tuple((one,) for one, score in _known(scores).items() if score >= threshold)[:keep]


def best_against_worst(scores: Row) -> Picks:
    """The highest score against the lowest; no pair where all are equal. Of several the first drawn.

    >>> best_against_worst((0.2, None, 0.9, 0.1)), best_against_worst((0.5, 0.5))
    (((2, 3),), ())
    """
    known = _known(scores)
    if len({*known.values()}) < 2:
        return ()
    return ((best(scores)[0][0], min(known, key=lambda one: (known[one], one))),)


def gaps_above(scores: Row, gap: int | float) -> Picks:
    """All pairs whose scores are further apart than ``gap`` (Khaki et al. 2024, arXiv:2402.10038).

    >>> gaps_above((0.0, 1.0, None, 3.0), 1.5)
    ((3, 0), (3, 1))
    """
    known = _known(scores)
    return tuple((a, b) for a, b in permutations(known, 2) if known[a] - known[b] > gap)


def accepted(
    scores: Row, beta: int | float, chances: Sequence[float], ceiling: int | float | None = None
) -> tuple[int, ...]:
    """Statistical rejection sampling: an answer stays with probability exp((r − ceiling) / β).

    Liu et al. 2023, arXiv:2309.06657. If the answers were drawn from π_ref, those that stay are drawn from
    the optimal policy, π_ref exp(r / β) / Z. Without a ``ceiling`` it is the highest score seen, so the best
    answer always stays, and the law holds the better, the more answers there are.

    >>> accepted((0.0, 1.0, None, 0.9), 0.5, (0.1, 0.9, 0.0, 0.7))
    (0, 1, 3)
    """
    if not (math.isfinite(beta) and beta > 0):
        raise UserError(f"beta must be a number above 0, not {beta:g}")
    known = _known(scores)
    top = max(known.values(), default=0.0) if ceiling is None else ceiling
    if any(score > top for score in known.values()):
        raise UserError(f"a score is above the ceiling {top:g}; accepting it would need a chance above 1")
    return tuple(one for one, score in known.items() if chances[one] < math.exp((score - top) / beta))


def in_twos(scores: Row, places: Sequence[int]) -> Picks:
    """Answers two by two, as they come: the better first. Equal scores give no pair, nor does one left over.

    >>> in_twos((0.1, 0.9, 0.5, 0.5, 0.3), (0, 1, 2, 3, 4))
    ((1, 0),)
    """
    known = _known(scores)
    pairs = [(a, b) for n, (a, b) in enumerate(pairwise(places)) if n % 2 == 0]
    return tuple(
        (a, b) if known[a] > known[b] else (b, a)
        for a, b in pairs
        if a in known and b in known and known[a] != known[b]
    )


def threshold_of_top(rows: Sequence[Row], share: int | float) -> float:
    """The score that this share of all answers reaches, the best ones; infinite where there is no score.

    >>> threshold_of_top([(0.1, None, 0.4), (0.2, 0.3)], 0.5)
    0.3
    """
    known = sorted((score for row in rows for score in row if score is not None), reverse=True)
    # A share such as 0.1 of 30 is a little above 3 in binary.
    return known[max(1, math.ceil(share * len(known) - 1e-9)) - 1] if known else math.inf


def best_of_n_kl(n: int) -> float:
    """log n − (n − 1) / n: nats between the best of n answers and one of them.

    Stiennon et al. 2020, arXiv:2009.01325. Exact where no two scores are equal, else an upper bound
    (Beirami et al. 2024, arXiv:2401.01879).

    >>> best_of_n_kl(1), round(best_of_n_kl(16), 3)
    (0.0, 1.835)
    """
    if n < 1:
        raise UserError(f"the best of {n} answers: expected 1 or more")
    return math.log(n) - (n - 1) / n


def _known(scores: Row) -> dict[int, float]:
    return {one: score for one, score in enumerate(scores) if score is not None}
