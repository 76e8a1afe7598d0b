"""How the ensemble learns from comparisons, and what tells it to hold back.

P(first is better) = softmax of the sums of a member's reward over both clips, and in ``noise`` of the answers
a coin. Every comparison gets a weight for every member, drawn once from a Poisson distribution of mean 1: a
bootstrap that more comparisons can be added to. Where the weight is 0, in 1/e of the cases, the comparison is
held out of that member. Christiano et al. 2017, arXiv:1706.03741.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from plaudit.control.environment import FACTS
from plaudit.control.taste import Taste, TasteSettings
from plaudit.losses.reward import bradley_terry

STRIDE = 1.5
"""What a member's decay is multiplied with or divided by, once after each fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """All comparisons that were answered.

    Example: ``Answers(pair_2BCF=pair_2BCF, label_B=label_B, weight_EB=bootstrap(3, len(label_B), chance))``
    """

    pair_2BCF: Float[Tensor, "2 B C F"]
    """Both clips."""
    label_B: Float[Tensor, " B"]
    """1: the first is better; 0: the second; ½: both are as good."""
    weight_EB: Float[Tensor, "E B"]
    """How often each member sees it; 0: held out."""

    def __len__(self) -> int:
        """How many."""
        return len(self.label_B)

    def plus(self, more: Answers) -> Answers:
        """These and more."""
        return Answers(
            pair_2BCF=torch.cat((self.pair_2BCF, more.pair_2BCF), 1),
            label_B=torch.cat((self.label_B, more.label_B)),
            weight_EB=torch.cat((self.weight_EB, more.weight_EB), 1),
        )

    def some(self, place_b: Int[Tensor, " b"]) -> Answers:
        """Those at these places."""
        return Answers(
            pair_2BCF=self.pair_2BCF[:, place_b],
            label_B=self.label_B[place_b],
            weight_EB=self.weight_EB[:, place_b],
        )


def no_answers(members: int, clip: int) -> Answers:
    """None yet.

    >>> len(no_answers(3, 20))
    0
    """
    pair_2BCF = torch.zeros(2, 0, clip, FACTS)
    return Answers(pair_2BCF=pair_2BCF, label_B=torch.zeros(0), weight_EB=torch.zeros(members, 0))


def bootstrap(members: int, comparisons: int, chance: torch.Generator) -> Float[Tensor, "E B"]:
    """How often each member sees each comparison: Poisson of mean 1, independent of how many will come.

    >>> bootstrap(3, 1000, torch.Generator().manual_seed(0)).mean().round().item()
    1.0
    """
    return torch.poisson(torch.ones(members, comparisons), generator=chance)


def losses(taste: Taste, answers: Answers, noise: int | float) -> Float[Tensor, "E B"]:
    """Each member's cross-entropy with each answer."""
    first_EB, second_EB = taste(answers.pair_2BCF).sum(-1).unbind(1)
    label_EB = answers.label_B.expand_as(first_EB)
    return bradley_terry(first_EB, second_EB, label=label_EB, noise=noise)


class Learner:
    """The ensemble while it learns: networks, optimiser, and how much each member is held back.

    Example: ``Learner(TasteSettings(), chance)``
    """

    def __init__(self, how: TasteSettings, chance: torch.Generator) -> None:
        self._begun = False
        self.how, self.taste, self._chance = how, Taste(how, chance), chance
        self.decay_E = torch.full((how.members,), how.decay)
        self.gap_E = torch.ones(how.members)
        self._optimizer = torch.optim.Adam(self.taste.parameters(), lr=how.learning_rate)

    @torch.enable_grad()
    def fit(self, answers: Answers) -> None:
        """Some steps of gradient descent on these answers, more at the first time; then the decay anew."""
        for _ in range(self.how.steps if self._begun else self.how.first_steps):
            place_b = torch.randint(len(answers), (self.how.batch,), generator=self._chance)
            batch = answers.some(place_b)
            loss_EB = losses(self.taste, batch, self.how.noise)
            seen_E = batch.weight_EB.sum(1).clamp(min=1)
            loss_E = (batch.weight_EB * loss_EB).sum(1) / seen_E + self.decay_E * self.taste.size_E()
            self._optimizer.zero_grad()
            loss_E.sum().backward()
            self._optimizer.step()
        self._begun = True
        self._adapt(answers)

    @torch.no_grad()
    def _adapt(self, answers: Answers) -> None:
        """More decay where held-out answers lose over 1.5 times what seen ones do, less below 1.1 times."""
        self.gap_E = _gap(losses(self.taste, answers, self.how.noise), answers.weight_EB)
        factor_E = torch.ones_like(self.gap_E)
        factor_E[self.gap_E > 1.5] = STRIDE
        factor_E[self.gap_E < 1.1] = 1 / STRIDE
        self.decay_E = (self.decay_E * factor_E).clamp(min=1e-7, max=1e-1)


def _gap(loss_EB: Tensor, weight_EB: Tensor) -> Tensor:
    """Mean loss of held-out answers over that of seen ones; 1.3, which changes nothing, if one is missing."""
    held_EB = (weight_EB == 0).to(loss_EB.dtype)
    held_E, seen_E = ((w_EB * loss_EB).sum(1) / w_EB.sum(1) for w_EB in (held_EB, weight_EB))
    return (held_E / seen_E).nan_to_num(nan=1.3)
