"""Several verdicts on two answers as one: the mean of their log-odds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from plaudit.data.judging import Orders, Verdict, first_probability, probable_verdict

MOST_SURE = 0.99
"""What a verdict is taken to be sure of at most: a certain one would outvote all others together."""


def pooled_verdict(voices: Sequence[tuple[float, Verdict]], *, annotator: str) -> Verdict:
    """σ of the weighted mean of the log-odds, of the chance and of either order.

    >>> voices = [(1.0, probable_verdict(share, annotator="a")) for share in (0.9, 0.5)]
    >>> first_probability(pooled_verdict(voices, annotator="both"))
    0.75
    """
    share = mean_of_odds([(weight, first_probability(verdict)) for weight, verdict in voices])
    found = probable_verdict(share, annotator=annotator, orders=_pooled_orders(voices))
    principles = (name for _, verdict in voices for name in verdict.principles)
    return replace(found, principles=tuple(dict.fromkeys(principles)))


def _pooled_orders(voices: Sequence[tuple[float, Verdict]]) -> Orders | None:
    both = [(weight, verdict.orders) for weight, verdict in voices]
    sides = [
        [(weight, side) for weight, orders in both if orders and (side := getattr(orders, name)) is not None]
        for name in ("forward", "backward")
    ]
    if not all(len(side) == len(voices) for side in sides):
        return None
    return Orders(forward=mean_of_odds(sides[0]), backward=mean_of_odds(sides[1]))


def mean_of_odds(voices: Sequence[tuple[float, float]]) -> float:
    """σ of the mean of the log-odds of chances, each with its weight before it.

    >>> round(mean_of_odds([(1.0, 0.9), (1.0, 0.5)]), 6)
    0.75
    """
    total = sum(weight for weight, _ in voices)
    mean = sum(weight * _log_odds(share) for weight, share in voices) / total
    return 0.5 * (1 + math.tanh(mean / 2))


def _log_odds(share: float) -> float:
    bounded = min(max(share, 1 - MOST_SURE), MOST_SURE)
    return math.log(bounded / (1 - bounded))
