"""The one who is asked which of two clips is better: here a program that knows the true reward, and errs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.control.environment import true_reward
from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """How the judge answers.

    Example: ``Judge(wrong=0.1, tie=0.5, silent=0.05)``
    """

    wrong: float = 0.1
    """Share of the clear cases in which the worse clip is called better."""
    tie: float = 0.5
    """Sums of the true reward that are no farther apart are as good as each other."""
    silent: float = 0.05
    """Share of the questions that get no answer: the two cannot be compared."""

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        for name, share in (("wrong", self.wrong), ("silent", self.silent)):
            if not 0 <= share < 1:
                raise UserError(f"{name} {share} is no share of the answers; give 0 or more, and less than 1")
        if not self.tie >= 0:
            raise UserError(f"tie {self.tie}: two sums cannot be closer than 0; give 0 or more")

    def answer(
        self, first_BCF: Float[Tensor, "B C F"], second_BCF: Float[Tensor, "B C F"], chance: torch.Generator
    ) -> Verdicts:
        """Compare the sums of the true reward over both clips of each question.

        >>> good, bad = torch.tensor([[[1.0, 0, 0, 0]]]), torch.tensor([[[-1.0, 0, 0, 0]]])
        >>> sure, chance = Judge(wrong=0.0, silent=0.0), torch.Generator()
        >>> sure.answer(good, bad, chance).label_B, sure.answer(bad, bad, chance).label_B
        (tensor([1.]), tensor([0.5000]))
        """
        gap_B = true_reward(first_BCF).sum(-1) - true_reward(second_BCF).sum(-1)
        slip_B, silence_B = torch.rand(2, len(gap_B), generator=chance)
        right_B = (gap_B > 0).to(gap_B.dtype)
        label_B = torch.where(slip_B < self.wrong, 1 - right_B, right_B)
        return Verdicts(
            label_B=label_B.masked_fill(gap_B.abs() <= self.tie, 0.5), told_B=silence_B >= self.silent
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What the judge says to some questions.

    Example: ``Judge().answer(first_BCF, second_BCF, chance)``
    """

    label_B: Float[Tensor, " B"]
    """1: the first clip is better; 0: the second; ½: both are as good."""
    told_B: Bool[Tensor, " B"]
    """False where there is no answer; such a question teaches nothing."""
