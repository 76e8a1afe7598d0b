"""Scored pairs as columns of numbers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from plaudit.evaluation.pairs import ScoredPair


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What the figures are computed from, a row for each of B pairs that have a verdict.

    Example: ``columns(pairs).gap_B``
    """

    gap_B: Float[np.ndarray, " B"]
    """r₁ − r₂."""
    chance_B: Float[np.ndarray, " B"]
    """That the first is the better one."""
    prompt_B: Int[np.ndarray, " B"]
    """A number for each prompt, from 0."""

    @property
    def told_B(self) -> Bool[np.ndarray, " B"]:
        """Whether the annotators prefer one of the two."""
        return self.chance_B != 0.5


def columns(pairs: Sequence[ScoredPair]) -> Columns:
    """The columns of pairs that all have a verdict."""
    return Columns(
        gap_B=np.array([gap(pair) for pair in pairs], dtype=float),
        chance_B=np.array([pair.chance for pair in pairs], dtype=float),
        prompt_B=numbered([pair.prompt for pair in pairs]),
    )


def has_verdict(pair: ScoredPair) -> bool:
    """Whether the model scores both answers."""
    return None not in pair.rewards


def gap(pair: ScoredPair) -> float:
    """r₁ − r₂ of a pair that has a verdict."""
    first, second = pair.rewards
    assert first is not None, pair.origin
    assert second is not None, pair.origin
    return first - second


def numbered(names: Sequence[Hashable]) -> Int[np.ndarray, " B"]:
    """A number for each different name, in the order of appearance.

    >>> numbered(["b", "a", "b"]).tolist()
    [0, 1, 0]
    """
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.array([places[name] for name in names], dtype=np.int64)
