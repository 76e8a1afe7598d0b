"""What can be seen in an answer without understanding it, and may sway whoever judges it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from plaudit.evaluation.pairs import ScoredPair

_LIST = re.compile(r"^\s*(?:[-*•+]|\d{1,2}[.)])\s+\S", re.MULTILINE)
_HEDGE = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|presumably|might be|may be|could be|it (?:seems|appears)"
    r"|i (?:think|believe|guess|suppose)|(?:i am|i'm) not (?:sure|certain)|some (?:people )?say"
    r"|as far as i know|it is (?:possible|likely) that)\b",
    re.IGNORECASE,
)
_PRAISE = r"(?:great|good|excellent|clever|wonderful|fantastic|brilliant|smart|thoughtful|insightful|lovely)"
_FLATTERY = re.compile(
    rf"\b(?:{_PRAISE} (?:question|point|idea|thinking|observation)|great mind"
    r"|(?:very|so) (?:wise|clever|smart)"
    r"|you(?:'re| are) (?:absolutely |so |quite |completely )?(?:right|correct|wise|brilliant|amazing)"
    r"|as you (?:say|rightly say)|i (?:completely |totally |fully )?agree|absolutely[!,.]"
    r"|was like you)|^\W*exactly\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A number for each answer; of a pair, the difference counts.

    Example: ``Feature(name="hedging", more="the hedging answer", less="the sure answer", value=hedges)``
    """

    name: str
    """A word for it."""
    more: str
    """The answer that has more of it."""
    less: str
    """The answer that has less."""
    value: Callable[[str], float]
    """From the words of an answer."""
    graded: bool = False
    """Whether it is a matter of degree; otherwise it is there or not."""


def log_length(answer: str) -> float:
    """ln of the characters, so that twice as long is as far from 10 as from 1000.

    >>> round(log_length("a" * 99), 3)
    4.605
    """
    return math.log(1 + len(answer))


def has_list(answer: str) -> float:
    """Whether a line is a list's item.

    >>> has_list("Fruit:\\n- pear"), has_list("pear - or fig")
    (1.0, 0.0)
    """
    return float(_LIST.search(answer) is not None)


def hedges(answer: str) -> float:
    """Whether it takes itself back.

    >>> hedges("Perhaps it is mice."), hedges("Mice.")
    (1.0, 0.0)
    """
    return float(_HEDGE.search(answer) is not None)


def flatters(answer: str) -> float:
    """Whether it praises the reader or takes their side.

    >>> flatters("Great question! Mice."), flatters("What a mouse eats is a good deal.")
    (1.0, 0.0)
    """
    return float(_FLATTERY.search(answer) is not None)


FEATURES = (
    Feature(
        name="length",
        more="the longer answer",
        less="the shorter answer",
        value=log_length,
        graded=True,
    ),
    Feature(name="list", more="the answer with a list", less="the answer without a list", value=has_list),
    Feature(name="hedging", more="the answer that hedges", less="the answer without hedges", value=hedges),
    Feature(
        name="flattery",
        more="the answer that flatters or agrees",
        less="the answer without flattery",
        value=flatters,
    ),
)
"""What is probed; the place in the row comes with the pair."""


def differences(pairs: Sequence[ScoredPair], feature: Feature) -> Float[np.ndarray, " B"]:
    """Of the first answer less that of the second."""
    return np.array([feature.value(one) - feature.value(other) for one, other in (p.answers for p in pairs)])


def earlier(pairs: Sequence[ScoredPair]) -> Float[np.ndarray, " B"]:
    """1 where the first answer was shown earlier, −1 where the second was, 0 where that is not known."""
    return np.array([0.0 if p.places is None else float(np.sign(p.places[1] - p.places[0])) for p in pairs])
