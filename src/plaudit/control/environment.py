"""A pendulum that hangs and should stand, many copies at once; its motor is too weak to lift it straight up.

Length, mass and gravity are 1. The angle is 0 when it stands and π when it hangs. Episodes have a fixed
length, so that their end tells nothing about how good they were.

Shapes of this package: N copies of the pendulum, T steps of an episode, C steps of a clip, A actions,
O numbers that the policy sees, F facts that a judge sees, B comparisons, E members of the ensemble.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from plaudit.errors import UserError

ACTIONS = 3
"""Push to the left, let go, push to the right."""
SEEN = 3
"""O: cosine and sine of the angle, and the speed of turning."""
FACTS = 4
"""F: what is seen, and the push."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pendulum:
    """The pendulum and the length of an episode.

    Example: ``Pendulum(steps=100, torque=0.5)``
    """

    steps: int = 100
    """T: steps of an episode."""
    tick: float = 0.2
    """Time of a step; a small swing to and fro takes 2π."""
    torque: float = 0.5
    """Of the motor; from 1 on it would lift the pendulum without a swing."""
    friction: float = 0.05
    """What slows it, times its speed."""

    def __post_init__(self) -> None:
        """Refuse an episode of nothing."""
        if self.steps < 1 or self.tick <= 0:
            raise UserError(f"{self.steps} steps of {self.tick}: an episode needs a step and time above 0")

    def start(self, copies: int, chance: torch.Generator) -> Float[Tensor, "N 2"]:
        """Angle and speed of pendulums that hang, nearly at rest.

        >>> Pendulum().start(5, torch.Generator().manual_seed(0)).shape
        torch.Size([5, 2])
        """
        state_N2 = torch.rand(copies, 2, generator=chance) - 0.5
        return state_N2 + torch.tensor([math.pi, 0.0])

    def step(self, state_N2: Float[Tensor, "N 2"], action_N: Int[Tensor, " N"]) -> Float[Tensor, "N 2"]:
        """A tick later: the speed changes first, then the angle by the new speed.

        >>> Pendulum().step(torch.zeros(1, 2), torch.tensor([1])).tolist()  # let go of where it stands
        [[0.0, 0.0]]
        """
        angle_N, speed_N = state_N2.unbind(-1)
        push_N = self.torque * (action_N - 1)
        speed_N = speed_N + self.tick * (angle_N.sin() + push_N - self.friction * speed_N)
        return torch.stack((angle_N + self.tick * speed_N, speed_N), -1)


def seen(state_N2: Float[Tensor, "N 2"]) -> Float[Tensor, "N O"]:
    """What the policy sees: cosine, sine, speed.

    >>> seen(torch.zeros(1, 2)).tolist()
    [[1.0, 0.0, 0.0]]
    """
    angle_N, speed_N = state_N2.unbind(-1)
    return torch.stack((angle_N.cos(), angle_N.sin(), speed_N), -1)


def facts(seen_NO: Float[Tensor, "*N O"], action_N: Int[Tensor, "*N"]) -> Float[Tensor, "*N F"]:
    """What a step of a clip shows: what was seen, and the push −1, 0 or 1.

    >>> facts(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([2])).tolist()
    [[1.0, 0.0, 0.0, 1.0]]
    """
    return torch.cat((seen_NO, (action_N[..., None] - 1).to(seen_NO.dtype)), -1)


def true_reward(fact_NF: Float[Tensor, "*N F"]) -> Float[Tensor, "*N"]:
    """cos θ − 0.1 speed² − 0.01 push²: 1 at best. Only the judge and whoever measures may ask.

    >>> true_reward(torch.tensor([[1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 2.0, 0.0]]))
    tensor([ 1.0000, -1.4000])
    """
    height_N, _, speed_N, push_N = fact_NF.unbind(-1)
    return height_N - 0.1 * speed_N.square() - 0.01 * push_N.square()
