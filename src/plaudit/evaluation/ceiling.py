"""The accuracy that annotators who disagree leave room for.

No model can be right about more preferences than their majority is. How often that is cannot be read off one
judgement a pair; where pairs were judged repeatedly, two figures hold it between them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plaudit.evaluation.columns import numbered
from plaudit.evaluation.pairs import ScoredPair
from plaudit.evaluation.resample import Resampling, estimate
from plaudit.evaluation.result import Ceiling
from plaudit.records.messages import Text

_Pair = tuple[Text, tuple[str, str]]


def ceiling(pairs: Sequence[ScoredPair], resampling: Resampling) -> Ceiling:
    """From pairs that several annotators judged.

    The majority of the others against each one: too low, as a majority of few errs. The majority of all
    against each one: too high, as each has a vote in it. Ties are no votes; a person's first vote counts.
    """
    votes = [cast for cast in _votes(pairs).items() if sum(cast[1]) > 1]
    if not votes:
        return Ceiling(
            source="none",
            accuracy=None,
            at_most=None,
            words="no pair was judged by two named annotators, so the ceiling is not known",
        )
    many = np.array([sum(cast) for _, cast in votes], dtype=float)
    others = np.array([_others_right(*cast) for _, cast in votes], dtype=float)
    prompts = numbered([prompt for (prompt, _), _ in votes])
    return Ceiling(
        source="repeated judgements",
        accuracy=estimate(others / many, prompts, resampling, weight_B=many),
        at_most=float(sum(max(cast) for _, cast in votes) / many.sum()),
        words=f"{len(votes)} pairs were judged by {many.mean():.1f} annotators on average: the majority of "
        "the others against one of them, and of all against one of them",
    )


def _votes(pairs: Sequence[ScoredPair]) -> dict[_Pair, list[int]]:
    """For either answer of each pair, the answers in the order of their words."""
    found: dict[_Pair, list[int]] = {}
    heard: set[tuple[_Pair, str]] = set()
    for pair in pairs:
        if pair.annotator is None or pair.chance == 0.5:
            continue
        first, second = pair.answers
        key = (pair.prompt, (min(first, second), max(first, second)))
        if (key, pair.annotator) in heard:
            continue
        heard.add((key, pair.annotator))
        liked = first if pair.chance > 0.5 else second
        found.setdefault(key, [0, 0])[int(liked != key[1][0])] += 1
    return found


def _others_right(a: int, b: int) -> float:
    """How many of a + b votes the majority of the other votes foretells; a draw foretells half."""

    def foretold(own: int, other: int) -> float:
        return own * (0.5 + 0.5 * np.sign(own - 1 - other))

    return float(foretold(a, b) + foretold(b, a))
