"""PPO with the cells of ``plaudit.advantages`` and ``plaudit.losses``; it cannot tell whose reward it gets.

Schulman et al. 2017, arXiv:1707.06347.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from plaudit.advantages.temporal import gae, returns
from plaudit.control.actor import Actor, Episodes
from plaudit.losses.policy import clipped
from plaudit.losses.ratio import log_ratio, ratio
from plaudit.losses.reduce import token_mean
from plaudit.losses.value import squared
from plaudit.tensors.masked import whiten


@dataclass(frozen=True, slots=True, kw_only=True)
class Ppo:
    """How the policy learns.

    Example: ``Ppo(learning_rate=1e-3)``
    """

    learning_rate: float = 2e-3
    """Of Adam."""
    gamma: float = 0.97
    """What a reward one step later counts."""
    lam: float = 0.95
    """λ of the advantages: 0 trusts the critic, 1 what came."""
    clip: float = 0.2
    """ε: beyond 1 ± ε a ratio brings nothing more."""
    passes: int = 4
    """How often the policy moves over the same episodes."""
    parts: int = 4
    """In how many parts a pass goes over them."""
    entropy: float = 0.01
    """Weight of the entropy, which keeps the policy trying."""
    critic: float = 0.5
    """Weight of the critic's loss."""


def improve(
    actor: Actor,
    optimizer: torch.optim.Optimizer,
    episodes: Episodes,
    reward_NT: Float[Tensor, "N T"],
    how: Ppo,
    chance: torch.Generator,
) -> None:
    """Move the policy and its critic, in place, by what these episodes were worth."""
    mask_NT = torch.ones_like(episodes.action_NT, dtype=torch.bool)
    value_NT = episodes.value_NT
    advantage_NT = gae(reward_NT, value_NT, mask_NT, gamma=how.gamma, lam=how.lam, end_N=episodes.end_N)
    return_NT = returns(advantage_NT, value_NT, mask_NT)
    advantage_NT = whiten(advantage_NT, mask_NT)
    for _ in range(how.passes):
        for part_N in torch.randperm(len(reward_NT), generator=chance).chunk(how.parts):
            loss = _loss(actor, episodes, advantage_NT, return_NT, part_N, how)
            optimizer.zero_grad()
            loss.backward()
            clip_grad_norm_(actor.parameters(), 0.5)
            optimizer.step()


def _loss(
    actor: Actor, episodes: Episodes, advantage_NT: Tensor, return_NT: Tensor, part_N: Tensor, how: Ppo
) -> Tensor:
    logp_NTA, value_NT = actor(episodes.seen_NTO[part_N])
    logp_NT = logp_NTA.gather(-1, episodes.action_NT[part_N][..., None]).squeeze(-1)
    mask_NT = torch.ones_like(logp_NT, dtype=torch.bool)
    ratio_NT = ratio(log_ratio(logp_NT, episodes.logp_NT[part_N], mask_NT))
    policy_NT = clipped(ratio_NT, advantage_NT[part_N], low=how.clip, high=how.clip)
    entropy_NT = -(logp_NTA.exp() * logp_NTA).sum(-1)
    loss_NT = policy_NT + how.critic * squared(value_NT, return_NT[part_N]) - how.entropy * entropy_NT
    return token_mean(loss_NT, mask_NT, tokens=mask_NT.numel())
