"""What a judge likes: an ensemble of small networks, each of which knows a reward for every step.

Christiano et al. 2017, arXiv:1706.03741. How they learn is in ``fitting.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from plaudit.control.environment import FACTS
from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class TasteSettings:
    """The ensemble and how it learns.

    Example: ``TasteSettings(members=3, noise=0.1)``
    """

    members: int = 3
    """E: networks that learn the same from different weights."""
    width: int = 64
    """Of both hidden layers."""
    noise: float = 0.1
    """Share of the answers that the loss takes for the toss of a coin."""
    learning_rate: float = 2e-3
    """Of Adam."""
    batch: int = 64
    """Comparisons of a step."""
    steps: int = 20
    """Steps of a round."""
    first_steps: int = 200
    """Steps of the first round, in which everything is new."""
    decay: float = 1e-4
    """Weight of the squared parameters at first; then each member's own adapts."""

    def __post_init__(self) -> None:
        """Refuse an ensemble that cannot disagree, and a judge who only tosses coins."""
        if self.members < 2:
            raise UserError(f"{self.members} members cannot disagree; give 2 or more")
        if not 0 <= self.noise < 1:
            raise UserError(f"noise {self.noise} is no share of the answers; give 0 or more, and less than 1")


class Taste(nn.Module):
    """E networks side by side: facts of a step to each one's reward.

    Example: ``Taste(TasteSettings(), chance)(torch.zeros(5, 4)).shape == (3, 5)``
    """

    def __init__(self, how: TasteSettings, chance: torch.Generator) -> None:
        super().__init__()
        sizes = (FACTS, how.width, how.width, 1)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for into, out in pairwise(sizes):
            weight_Eio = torch.randn(how.members, into, out, generator=chance) * into**-0.5
            self.weights.append(nn.Parameter(weight_Eio))
            self.biases.append(nn.Parameter(torch.zeros(how.members, 1, out)))

    def forward(self, fact_NF: Float[Tensor, "*N F"]) -> Float[Tensor, " E *N"]:
        """Every member's reward of every step, as it is: its level and its scale mean nothing."""
        x_ENH = fact_NF.reshape(1, -1, fact_NF.shape[-1]).expand(len(self.weights[0]), -1, -1)
        for layer, (weight_Eio, bias_E1o) in enumerate(zip(self.weights, self.biases, strict=True)):
            x_ENH = torch.baddbmm(bias_E1o, leaky_relu(x_ENH) if layer else x_ENH, weight_Eio)
        return x_ENH.reshape(-1, *fact_NF.shape[:-1])

    def normalised(
        self, fact_NF: Float[Tensor, "*N F"], among_MF: Float[Tensor, "*M F"]
    ) -> Float[Tensor, " E *N"]:
        """The same with mean 0 and deviation 1 over the steps of ``among_MF``, for each member by itself."""
        own_EM = self(among_MF).flatten(1)
        mean_E, deviation_E = own_EM.mean(1), own_EM.std(1).clamp(min=1e-6)
        reward_EN = self(fact_NF)
        shape = (-1, *[1] * (reward_EN.ndim - 1))
        return (reward_EN - mean_E.reshape(shape)) / deviation_E.reshape(shape)

    def size_E(self) -> Float[Tensor, " E"]:
        """The sum of each member's squared parameters."""
        return torch.stack([part.square().sum((1, 2)) for part in self.parameters()]).sum(0)
