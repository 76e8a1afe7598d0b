"""The pendulum that should stand, the policy and critic that act on it, and the episodes they collect.

Many copies swing at once, each with a motor too weak to lift it straight up. Length, mass and gravity are 1.
The angle is 0 when it stands and π when it hangs. Episodes have a fixed length, so that their end tells
nothing about how good they were.

Shapes of this package: N copies of the pendulum, T steps of an episode, C steps of a clip, A actions,
O numbers that the policy sees, F facts that a judge sees, B comparisons, E members of the ensemble.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from plaudit.errors import UserError

ACTION_COUNT = 3
OBSERVATION_SIZE = 3
FEATURE_SIZE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Pendulum:
    steps: int = 100
    """T: steps of an episode."""
    tick: float = 0.2
    """Time of a step; a small swing to and fro takes 2π."""
    torque: float = 0.5
    """Of the motor; from 1 on it would lift the pendulum without a swing."""
    friction: float = 0.05

    def __post_init__(self) -> None:
        if self.steps < 1 or self.tick <= 0:
            raise UserError(f"{self.steps} steps of {self.tick}: an episode needs a step and time above 0")

    def start(self, copies: int, generator: torch.Generator) -> Float[Tensor, "N 2"]:
        """Angle and speed of pendulums that hang, nearly at rest."""
        state_N2 = torch.rand(copies, 2, generator=generator) - 0.5
        return state_N2 + torch.tensor([math.pi, 0.0])

    def step(self, state_N2: Float[Tensor, "N 2"], action_N: Int[Tensor, " N"]) -> Float[Tensor, "N 2"]:
        """A tick later: the speed changes first, then the angle by the new speed.

        >>> Pendulum().step(torch.zeros(1, 2), torch.tensor([1])).tolist()  # let go of where it stands
        [[0.0, 0.0]]
        """
        angle_N, speed_N = state_N2.unbind(-1)
        push_N = self.torque * (action_N - 1)
        speed_N = speed_N + self.tick * (angle_N.sin() + push_N - self.friction * speed_N)
        # Semi-implicit Euler: by the old speed every tick would add energy.
        return torch.stack((angle_N + self.tick * speed_N, speed_N), -1)


def observe(state_N2: Float[Tensor, "N 2"]) -> Float[Tensor, "N O"]:
    """The observation of a state: cosine and sine of the angle, and the angular speed."""
    angle_N, speed_N = state_N2.unbind(-1)
    return torch.stack((angle_N.cos(), angle_N.sin(), speed_N), -1)


def step_features(
    observation_NO: Float[Tensor, "*N O"], action_N: Int[Tensor, "*N"]
) -> Float[Tensor, "*N F"]:
    """The features of a step that a judge or a learned reward reads: the observation and the push −1, 0 or 1.

    >>> step_features(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([2])).tolist()
    [[1.0, 0.0, 0.0, 1.0]]
    """
    return torch.cat((observation_NO, (action_N[..., None] - 1).to(observation_NO.dtype)), -1)


def true_reward(feature_NF: Float[Tensor, "*N F"]) -> Float[Tensor, "*N"]:
    """cos θ − 0.1 speed² − 0.01 push²: 1 at best. Only the judge and whoever measures may ask.

    >>> true_reward(torch.tensor([[1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 2.0, 0.0]]))
    tensor([ 1.0000, -1.4000])
    """
    height_N, _, speed_N, push_N = feature_NF.unbind(-1)
    return height_N - 0.1 * speed_N.square() - 0.01 * push_N.square()


class Actor(nn.Module):
    """Log-chances of the actions, and the value of what is seen; two networks with nothing in common."""

    def __init__(self, generator: torch.Generator, *, width: int = 64) -> None:
        super().__init__()
        # A policy whose last layer is small begins by trying every action equally often.
        self.policy = _make_network(ACTION_COUNT, width, 0.01, generator)
        self.critic = _make_network(1, width, 1.0, generator)

    def forward(
        self, observation_NO: Float[Tensor, "*N O"]
    ) -> tuple[Float[Tensor, "*N A"], Float[Tensor, "*N"]]:
        return self.policy(observation_NO).log_softmax(-1), self.critic(observation_NO).squeeze(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """What was seen and done in one episode of each copy. There is no reward in it."""

    observation_NTO: Float[Tensor, "N T O"]
    action_NT: Int[Tensor, "N T"]
    logp_NT: Float[Tensor, "N T"]
    """The log-probability of that."""
    value_NT: Float[Tensor, "N T"]
    bootstrap_N: Float[Tensor, " N"]
    """What it expected after the last step: the episode is cut there, and the pendulum swings on."""

    @property
    def feature_NTF(self) -> Float[Tensor, "N T F"]:
        """What a judge, a learned reward or the true reward can see."""
        return step_features(self.observation_NTO, self.action_NT)


@torch.no_grad()
def collect_episodes(
    actor: Actor, pendulum: Pendulum, *, copies: int, generator: torch.Generator
) -> Episodes:
    """One episode of each copy."""
    state_N2 = pendulum.start(copies, generator)
    steps = list[tuple[Tensor, Tensor, Tensor, Tensor]]()
    for _ in range(pendulum.steps):
        observation_NO = observe(state_N2)
        logp_NA, value_N = actor(observation_NO)
        action_N = torch.multinomial(logp_NA.exp(), 1, generator=generator).squeeze(-1)
        steps.append((observation_NO, action_N, logp_NA.gather(-1, action_N[:, None]).squeeze(-1), value_N))
        state_N2 = pendulum.step(state_N2, action_N)
    observation_NTO, action_NT, logp_NT, value_NT = (
        torch.stack(part, 1) for part in zip(*steps, strict=True)
    )
    return Episodes(
        observation_NTO=observation_NTO,
        action_NT=action_NT,
        logp_NT=logp_NT,
        value_NT=value_NT,
        bootstrap_N=actor(observe(state_N2))[1],
    )


def _make_network(out: int, width: int, last: float, generator: torch.Generator) -> nn.Sequential:
    layers = (nn.Linear(OBSERVATION_SIZE, width), nn.Linear(width, width), nn.Linear(width, out))
    for layer, gain in zip(layers, (2**0.5, 2**0.5, last), strict=True):
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
