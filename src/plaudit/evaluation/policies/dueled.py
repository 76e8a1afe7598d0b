"""Two answers to one prompt, and what a judge said of them, each shown first once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

NO_REASON = "no verdict"
"""Counted where a judge did not say why it gave none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dueled:
    """A pair and its verdicts; a judge that sees no order gives the same number twice.

    Example: ``Dueled(prompt="What do owls eat?", mine="Mice.", theirs="Tea.", forward=1.0, backward=0.7)``
    """

    prompt: str
    """What was asked: pairs of one prompt are resampled together."""
    category: str | None = None
    """The kind of question."""
    mine: str
    """The answer whose wins are counted."""
    theirs: str
    """The other one."""
    forward: int | float | None
    """The chance that mine is the better one, told with mine shown first; None for no verdict."""
    backward: int | float | None
    """The same, told with mine shown second."""
    reason: str | None = None
    """Why there is no verdict."""

    def __post_init__(self) -> None:
        """Refuse what is no chance."""
        for chance in (self.forward, self.backward):
            if chance is not None and not 0 <= chance <= 1:
                raise ValueError(f"{self.prompt[:40]!r}: {chance} is no chance from 0 to 1")

    @property
    def verdict(self) -> float | None:
        """The mean of both chances; ½ where the orders contradict each other, None where either is missing.

        >>> Dueled(prompt="q", mine="a", theirs="b", forward=1.0, backward=0.5).verdict
        0.75
        >>> Dueled(prompt="q", mine="a", theirs="b", forward=0.9, backward=0.3).verdict
        0.5
        """
        if self.forward is None or self.backward is None:
            return None
        if (self.forward - 0.5) * (self.backward - 0.5) < 0:
            return 0.5
        return (self.forward + self.backward) / 2

    @property
    def turned(self) -> Dueled:
        """The same pair seen from the other side."""
        return Dueled(
            prompt=self.prompt,
            category=self.category,
            mine=self.theirs,
            theirs=self.mine,
            forward=None if self.backward is None else 1 - self.backward,
            backward=None if self.forward is None else 1 - self.forward,
            reason=self.reason,
        )


def judged(duels: Sequence[Dueled]) -> list[Dueled]:
    """Those with a verdict."""
    return [duel for duel in duels if duel.verdict is not None]


def verdicts(duels: Sequence[Dueled]) -> Float[np.ndarray, " B"]:
    """The verdict of each of pairs that all have one."""
    return np.array([duel.verdict for duel in duels], dtype=float)
