"""PPO runs on the pendulum by the true reward or by comparisons, both measured by the true return.

PPO (Schulman et al. 2017, arXiv:1707.06347) is made of the cells of ``plaudit.advantages`` and
``plaudit.losses``; it cannot tell whose reward it gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from examples.control.pendulum import Actor, Episodes, Pendulum, collect_episodes, true_reward
from examples.control.reward_model import (
    ClipJudge,
    PreferenceReward,
    QuerySettings,
    RewardEnsembleSettings,
    RewardSource,
    TrueReward,
)
from plaudit.advantages.temporal import gae, returns
from plaudit.errors import UserError
from plaudit.losses.policy import clipped, squared_error
from plaudit.losses.ratio import log_ratio, ratio
from plaudit.losses.reduce import token_mean
from plaudit.tensors.masked import whiten


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoSettings:
    learning_rate: float = 2e-3
    gamma: float = 0.97
    lam: float = 0.95
    """λ of the advantages: 0 trusts the critic, 1 what came."""
    clip: float = 0.2
    """ε: beyond 1 ± ε a ratio brings nothing more."""
    passes: int = 4
    parts: int = 4
    entropy: float = 0.01
    """Weight of the entropy, which keeps the policy trying."""
    critic: float = 0.5


def ppo_update(
    actor: Actor,
    optimizer: torch.optim.Optimizer,
    episodes: Episodes,
    reward_NT: Float[Tensor, "N T"],
    settings: PpoSettings,
    generator: torch.Generator,
) -> None:
    """Move the policy and its critic, in place, by what these episodes were worth."""
    # All episodes have one length: nothing is padded.
    mask_NT = torch.ones_like(episodes.action_NT, dtype=torch.bool)
    value_NT = episodes.value_NT
    # An episode ends by the clock and in no last state, so V of what would follow still counts.
    advantage_NT = gae(
        reward_NT, value_NT, mask_NT, gamma=settings.gamma, lam=settings.lam, bootstrap_N=episodes.bootstrap_N
    )
    # Before whitening: the critic learns returns in the reward's own units.
    return_NT = returns(advantage_NT, value_NT, mask_NT)
    advantage_NT = whiten(advantage_NT, mask_NT)
    for _ in range(settings.passes):
        # Whole episodes are dealt out, and anew in each pass.
        for part_N in torch.randperm(len(reward_NT), generator=generator).chunk(settings.parts):
            loss = _ppo_loss(actor, episodes, advantage_NT, return_NT, part_N, settings)
            optimizer.zero_grad()
            loss.backward()
            clip_grad_norm_(actor.parameters(), 0.5)
            optimizer.step()


def _ppo_loss(
    actor: Actor,
    episodes: Episodes,
    advantage_NT: Tensor,
    return_NT: Tensor,
    part_N: Tensor,
    settings: PpoSettings,
) -> Tensor:
    logp_NTA, value_NT = actor(episodes.observation_NTO[part_N])
    logp_NT = logp_NTA.gather(-1, episodes.action_NT[part_N][..., None]).squeeze(-1)
    mask_NT = torch.ones_like(logp_NT, dtype=torch.bool)
    ratio_NT = ratio(log_ratio(logp_NT, episodes.logp_NT[part_N], mask_NT))
    policy_NT = clipped(ratio_NT, advantage_NT[part_N], low=settings.clip, high=settings.clip)
    entropy_NT = -(logp_NTA.exp() * logp_NTA).sum(-1)
    loss_NT = (
        policy_NT
        + settings.critic * squared_error(value_NT, return_NT[part_N])
        - settings.entropy * entropy_NT
    )
    return token_mean(loss_NT, mask_NT, tokens=mask_NT.numel())


EVALUATION_EPISODES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    seed: int = 0
    rounds: int = 60
    copies: int = 64
    """N: episodes of a round."""
    pendulum: Pendulum = field(default_factory=Pendulum)
    ppo: PpoSettings = field(default_factory=PpoSettings)
    asking: QuerySettings = field(default_factory=QuerySettings)
    judge: ClipJudge = field(default_factory=ClipJudge)
    taste: RewardEnsembleSettings = field(default_factory=RewardEnsembleSettings)

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.copies < self.ppo.parts:
            raise UserError(f"a run needs 1 round or more, and {self.ppo.parts} copies or more")
        if self.asking.clip > self.pendulum.steps:
            raise UserError(f"clip {self.asking.clip}: an episode has only {self.pendulum.steps} steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlResult:
    """What came of a run on comparisons, beside a run on the true reward."""

    random: float
    """True return of a policy that has not learnt: it tries all actions equally often."""
    true_reward: float
    """True return of the policy that learnt from the true reward."""
    learned_reward: float
    """True return of the policy that learnt from comparisons alone."""
    queries: int
    answered: int
    ties: int
    seconds: float

    @property
    def share(self) -> float:
        """How much of the way from chance to the run on the true reward was gone: 1 is all of it."""
        return (self.learned_reward - self.random) / (self.true_reward - self.random)


ReportLine = Callable[[str], None]


def untrained_actor(settings: ControlSettings) -> Actor:
    return Actor(torch.Generator().manual_seed(settings.seed))


def train_actor(settings: ControlSettings, source: RewardSource, report: ReportLine) -> Actor:
    """A policy trained with PPO on this source's reward alone."""
    actor, generator = untrained_actor(settings), torch.Generator().manual_seed(settings.seed)
    optimizer = torch.optim.Adam(actor.parameters(), lr=settings.ppo.learning_rate)
    for number in range(settings.rounds):
        episodes = collect_episodes(actor, settings.pendulum, copies=settings.copies, generator=generator)
        ppo_update(actor, optimizer, episodes, source.reward(episodes), settings.ppo, generator)
        if (number + 1) % 10 == 0:
            worth = true_reward(episodes.feature_NTF).sum(1).mean().item()
            report(f"round {number + 1} of {settings.rounds}: true return {worth:.1f}")
    return actor


def true_return(actor: Actor, settings: ControlSettings) -> float:
    """The mean sum of the true reward over fresh episodes, the same beginnings for every policy."""
    # Far from the seeds of training: no policy has practised these beginnings.
    generator = torch.Generator().manual_seed(settings.seed + 1_000_000)
    episodes = collect_episodes(actor, settings.pendulum, copies=EVALUATION_EPISODES, generator=generator)
    return true_reward(episodes.feature_NTF).sum(1).mean().item()


def train_on_true_reward(settings: ControlSettings, report: ReportLine) -> float:
    """The true return of a policy that learns from the true reward."""
    return true_return(train_actor(settings, TrueReward(), report), settings)


def train_on_preferences(settings: ControlSettings, true_reward: float, report: ReportLine) -> ControlResult:
    """A policy that learns from comparisons, beside the true return of one that learnt from the truth."""
    began = time.perf_counter()
    source = PreferenceReward(
        settings.asking, settings.judge, settings.taste, rounds=settings.rounds, seed=settings.seed
    )
    actor = train_actor(settings, source, report)
    seconds = time.perf_counter() - began
    return ControlResult(
        random=true_return(untrained_actor(settings), settings),
        true_reward=true_reward,
        learned_reward=true_return(actor, settings),
        queries=source.counts["asked"],
        answered=source.counts["answered"],
        ties=source.counts["tie"],
        seconds=seconds,
    )
