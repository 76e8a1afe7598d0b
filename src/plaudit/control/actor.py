"""A policy and its critic, and what they do in the pendulum."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from plaudit.control.environment import ACTIONS, SEEN, Pendulum, facts, seen


class Actor(nn.Module):
    """Log-chances of the actions, and the value of what is seen; two networks with nothing in common.

    Example: ``Actor(torch.Generator().manual_seed(0))(torch.zeros(1, 3))``
    """

    def __init__(self, chance: torch.Generator, *, width: int = 64) -> None:
        super().__init__()
        # A policy whose last layer is small begins by trying every action equally often.
        self.policy = _network(ACTIONS, width, 0.01, chance)
        self.critic = _network(1, width, 1.0, chance)

    def forward(self, seen_NO: Float[Tensor, "*N O"]) -> tuple[Float[Tensor, "*N A"], Float[Tensor, "*N"]]:
        """Log-probabilities of all actions, and the value."""
        return self.policy(seen_NO).log_softmax(-1), self.critic(seen_NO).squeeze(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """What was seen and done in one episode of each copy. There is no reward in it.

    Example: ``play(actor, Pendulum(), copies=64, chance=chance)``
    """

    seen_NTO: Float[Tensor, "N T O"]
    """What the policy saw before each action."""
    action_NT: Int[Tensor, "N T"]
    """What it did."""
    logp_NT: Float[Tensor, "N T"]
    """The log-probability of that."""
    value_NT: Float[Tensor, "N T"]
    """What the critic expected."""
    end_N: Float[Tensor, " N"]
    """What it expected after the last step: the episode is cut there, and the pendulum swings on."""

    @property
    def fact_NTF(self) -> Float[Tensor, "N T F"]:
        """What a judge, a learned reward or the true reward can see."""
        return facts(self.seen_NTO, self.action_NT)


@torch.no_grad()
def play(actor: Actor, pendulum: Pendulum, *, copies: int, chance: torch.Generator) -> Episodes:
    """One episode of each copy."""
    state_N2 = pendulum.start(copies, chance)
    steps = list[tuple[Tensor, Tensor, Tensor, Tensor]]()
    for _ in range(pendulum.steps):
        seen_NO = seen(state_N2)
        logp_NA, value_N = actor(seen_NO)
        action_N = torch.multinomial(logp_NA.exp(), 1, generator=chance).squeeze(-1)
        steps.append((seen_NO, action_N, logp_NA.gather(-1, action_N[:, None]).squeeze(-1), value_N))
        state_N2 = pendulum.step(state_N2, action_N)
    seen_NTO, action_NT, logp_NT, value_NT = (torch.stack(part, 1) for part in zip(*steps, strict=True))
    return Episodes(
        seen_NTO=seen_NTO,
        action_NT=action_NT,
        logp_NT=logp_NT,
        value_NT=value_NT,
        end_N=actor(seen(state_N2))[1],
    )


def _network(out: int, width: int, last: float, chance: torch.Generator) -> nn.Sequential:
    layers = (nn.Linear(SEEN, width), nn.Linear(width, width), nn.Linear(width, out))
    for layer, gain in zip(layers, (2**0.5, 2**0.5, last), strict=True):
        nn.init.orthogonal_(layer.weight, gain, generator=chance)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
