"""Whole runs: a policy on the true reward, one on comparisons, and both measured by the true return."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from plaudit.control.actor import Actor, play
from plaudit.control.clips import Asking
from plaudit.control.environment import Pendulum, true_reward
from plaudit.control.judge import Judge
from plaudit.control.learning import Ppo, improve
from plaudit.control.reward import Preferences, Source, Truth
from plaudit.control.taste import TasteSettings
from plaudit.errors import UserError

FRESH = 512
"""Episodes that a policy is measured on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that a run can be told.

    Example: ``Settings(seed=1, asking=Asking(comparisons=200))``
    """

    seed: int = 0
    """The same seed gives the same run."""
    rounds: int = 60
    """How often the policy plays and learns."""
    copies: int = 64
    """N: episodes of a round."""
    pendulum: Pendulum = field(default_factory=Pendulum)
    """What is to be controlled."""
    ppo: Ppo = field(default_factory=Ppo)
    """How the policy learns."""
    asking: Asking = field(default_factory=Asking)
    """What the judge is asked."""
    judge: Judge = field(default_factory=Judge)
    """How the judge answers."""
    taste: TasteSettings = field(default_factory=TasteSettings)
    """How the reward is learnt."""

    def __post_init__(self) -> None:
        """Refuse a run that does nothing."""
        if self.rounds < 1 or self.copies < self.ppo.parts:
            raise UserError(f"a run needs 1 round or more, and {self.ppo.parts} copies or more")
        if self.asking.clip > self.pendulum.steps:
            raise UserError(f"clip {self.asking.clip}: an episode has only {self.pendulum.steps} steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run on comparisons, beside a run on the true reward.

    Example: ``Outcome(chance=-93.1, truth=48.4, learned=47.0, asked=99, answered=95, ties=30, seconds=9.0)``
    """

    chance: float
    """True return of a policy that has not learnt: it tries all actions equally often."""
    truth: float
    """True return of the policy that learnt from the true reward."""
    learned: float
    """True return of the policy that learnt from comparisons alone."""
    asked: int
    """Questions to the judge."""
    answered: int
    """Those that got an answer."""
    ties: int
    """Answers that called both clips as good."""
    seconds: float
    """Of the run on comparisons."""

    @property
    def share(self) -> float:
        """How much of the way from chance to the run on the true reward was gone: 1 is all of it."""
        return (self.learned - self.chance) / (self.truth - self.chance)


Say = Callable[[str], None]
"""Where a line of progress goes."""


def untrained(settings: Settings) -> Actor:
    """The policy at the beginning."""
    return Actor(torch.Generator().manual_seed(settings.seed))


def learn(settings: Settings, source: Source, say: Say) -> Actor:
    """A policy that has learnt from this source's reward and has seen no other."""
    actor, chance = untrained(settings), torch.Generator().manual_seed(settings.seed)
    optimizer = torch.optim.Adam(actor.parameters(), lr=settings.ppo.learning_rate)
    for number in range(settings.rounds):
        episodes = play(actor, settings.pendulum, copies=settings.copies, chance=chance)
        improve(actor, optimizer, episodes, source.reward(episodes), settings.ppo, chance)
        if (number + 1) % 10 == 0:
            worth = true_reward(episodes.fact_NTF).sum(1).mean().item()
            say(f"round {number + 1} of {settings.rounds}: true return {worth:.1f}")
    return actor


def true_return(actor: Actor, settings: Settings) -> float:
    """The mean sum of the true reward over fresh episodes, the same beginnings for every policy."""
    chance = torch.Generator().manual_seed(settings.seed + 1_000_000)
    episodes = play(actor, settings.pendulum, copies=FRESH, chance=chance)
    return true_reward(episodes.fact_NTF).sum(1).mean().item()


def on_truth(settings: Settings, say: Say) -> float:
    """The true return of a policy that learns from the true reward."""
    return true_return(learn(settings, Truth(), say), settings)


def on_preferences(settings: Settings, truth: float, say: Say) -> Outcome:
    """A policy that learns from comparisons, beside the true return of one that learnt from the truth."""
    began = time.perf_counter()
    source = Preferences(
        settings.asking, settings.judge, settings.taste, rounds=settings.rounds, seed=settings.seed
    )
    actor = learn(settings, source, say)
    seconds = time.perf_counter() - began
    return Outcome(
        chance=true_return(untrained(settings), settings),
        truth=truth,
        learned=true_return(actor, settings),
        asked=source.counts["asked"],
        answered=source.counts["answered"],
        ties=source.counts["tie"],
        seconds=seconds,
    )
