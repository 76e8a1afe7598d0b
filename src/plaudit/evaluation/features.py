"""Surface features of answers (length, lists, hedges, flattery) that may sway whoever judges them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from plaudit.evaluation.reward_models.pairs import ScoredPair

_LIST_ITEM = re.compile(r"^\s*(?:[-*•+]|\d{1,2}[.)])\s+\S", re.MULTILINE)
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
    """A measure of an answer's surface, such as its length; of a pair, the difference counts.

    Example: ``Feature(name="hedging", more_label="the hedging answer", less_label="the sure answer",
        value=hedges)``
    """

    name: str
    """A word for it."""
    more_label: str
    """What the answer that has more of it is called."""
    less_label: str
    """What the answer that has less of it is called."""
    value: Callable[[str], float]
    """From the words of an answer."""
    is_graded: bool = False
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
    return float(_LIST_ITEM.search(answer) is not None)


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
        more_label="the longer answer",
        less_label="the shorter answer",
        value=log_length,
        is_graded=True,
    ),
    Feature(
        name="list",
        more_label="the answer with a list",
        less_label="the answer without a list",
        value=has_list,
    ),
    Feature(
        name="hedging",
        more_label="the answer that hedges",
        less_label="the answer without hedges",
        value=hedges,
    ),
    Feature(
        name="flattery",
        more_label="the answer that flatters or agrees",
        less_label="the answer without flattery",
        value=flatters,
    ),
)
"""What is probed; the place in the row comes with the pair."""


def feature_differences(pairs: Sequence[ScoredPair], feature: Feature) -> Float[np.ndarray, " B"]:
    """The feature of the first answer less that of the second, for each pair."""
    return np.array([feature.value(one) - feature.value(other) for one, other in (p.answers for p in pairs)])


def shown_earlier(pairs: Sequence[ScoredPair]) -> Float[np.ndarray, " B"]:
    """1 where the first answer was shown earlier, −1 where the second was, 0 where that is not known."""
    return np.array([0.0 if p.places is None else float(np.sign(p.places[1] - p.places[0])) for p in pairs])
