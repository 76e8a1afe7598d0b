"""Short clips cut from episodes, and which pairs of them are worth a question."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.control.taste import Taste
from plaudit.errors import UserError

QUERIES = ("disagreement", "random")
"""How pairs can be chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How many comparisons are asked, when, and about what.

    Example: ``Asking(comparisons=1000, queries="disagreement")``
    """

    comparisons: int = 1000
    """Questions of the whole run, those without an answer included."""
    queries: str = "disagreement"
    """Ask where the ensemble disagrees most, or about any pair."""
    first: float = 0.25
    """Share of the questions that is asked before the policy has learnt anything."""
    half: float = 15.0
    """The round at which questions come half as fast as in the beginning."""
    candidates: int = 10
    """Pairs that are looked at for each that is asked."""
    clip: int = 20
    """C: steps of a clip."""

    def __post_init__(self) -> None:
        """Refuse what asks nothing, or more than everything."""
        if self.comparisons < 2:
            raise UserError(f"{self.comparisons} comparisons: nothing can be learnt from fewer than 2")
        if self.queries not in QUERIES:
            raise UserError(f"queries {self.queries!r}: there are {' and '.join(QUERIES)}")
        if not 0 < self.first <= 1 or self.half <= 0 or self.candidates < 1 or self.clip < 1:
            raise UserError("first is a share above 0; half, candidates and clip are above 0")

    def schedule(self, rounds: int) -> list[int]:
        """How many are asked in each round: ``first`` at once, the rest in proportion to half / (half + t).

        >>> Asking(comparisons=100, first=0.5, half=1.0).schedule(3)
        [77, 14, 9]
        """
        rate_R = self.half / (self.half + torch.arange(rounds, dtype=torch.float64))
        share_R = self.first + (1 - self.first) * rate_R.cumsum(0) / rate_R.sum()
        until_R = (self.comparisons * share_R).round().long()
        return until_R.diff(prepend=until_R.new_zeros(1)).tolist()


def cut_pairs(
    fact_NTF: Float[Tensor, "N T F"], pairs: int, length: int, chance: torch.Generator
) -> Float[Tensor, "2 B C F"]:
    """Pairs of clips from anywhere in these episodes.

    >>> cut_pairs(torch.zeros(4, 100, 4), 7, 20, torch.Generator()).shape
    torch.Size([2, 7, 20, 4])
    """
    copies, steps, _ = fact_NTF.shape
    if length > steps:
        raise UserError(f"a clip of {length} steps is longer than an episode of {steps}")
    copy_2B1 = torch.randint(copies, (2, pairs, 1), generator=chance)
    start_2B1 = torch.randint(steps - length + 1, (2, pairs, 1), generator=chance)
    return fact_NTF[copy_2B1, start_2B1 + torch.arange(length)]


@torch.no_grad()
def most_disputed(pair_2BCF: Float[Tensor, "2 B C F"], taste: Taste, count: int) -> Float[Tensor, "2 b C F"]:
    """The pairs over which the members' P(first is better) varies most."""
    first_EB, second_EB = taste(pair_2BCF).sum(-1).unbind(1)
    spread_B = (first_EB - second_EB).sigmoid().var(0)
    return pair_2BCF[:, spread_B.topk(count).indices]
