"""All that ``plaudit train rlhf`` can be told; importing this does not import torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from plaudit.errors import UserError
from plaudit.models.settings import LoraSettings
from plaudit.recipes.config import RunConfig
from plaudit.recipes.policy_settings import (
    CriticSettings,
    DrawSettings,
    JudgeSettings,
    PolicySettings,
    PtxSettings,
    ShapeSettings,
    TrustSettings,
)
from plaudit.recipes.policy_table import POLICIES
from plaudit.recipes.preference_config import ReferenceSettings
from plaudit.recipes.reward_config import EnsembleSettings, RewardSettings
from plaudit.training.settings import KeepSettings

PEOPLE = "people"
"""The word for people, who fill in a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """What is asked and compared in a round, and what a round begins with.

    Example: ``RoundSettings(rounds=3, prompts=200, teach="grpo")``
    """

    rounds: int = 3
    """How often answers are compared, a reward is trained and the policy improved."""
    prompts: int | None = None
    """Prompts of a round whose answers are compared, others in each until all had their turn; none: all."""
    answers: int = 4
    """Answers drawn to each of them; the first two that differ are compared."""
    noise: float = 0.0
    """How noisily a reward compares: what the difference of two scores is divided by; 0: the higher wins."""
    data: Path | None = None
    """Comparisons that there are before the first round."""
    teach: str = "ppo"
    """The row of policy optimisation that improves the policy (plaudit train --list)."""
    starts: Literal["newest", "start"] = "newest"
    """Which policy each round improves: that of the round before, or the command's."""
    reference: Literal["start", "newest"] = "start"
    """What a round is held near: the command's model, or the one that it improves."""

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        for name, least in (("rounds", 1), ("answers", 2), ("prompts", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"loop.{name} must be at least {least}, not {value}")
        if not 0 <= self.noise < math.inf:
            raise UserError(f"loop.noise must be a number from 0 on, not {self.noise:g}")
        if self.teach not in POLICIES:
            raise UserError(
                f"loop.teach {self.teach!r}: give a row of policy optimisation (plaudit train --list)"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRunSettings:
    """How each round's reward is trained; numbers, device and optimiser are those of the command.

    Example: ``RewardRunSettings(epochs=2, learning_rate=1e-4)``
    """

    start: Literal["anew", "newest"] = "anew"
    """anew: a new head on the command's model, from all comparisons so far; newest: the reward of the round
    before goes on with the new ones."""
    held_out: float = 0.1
    """The chance of a prompt that its comparisons are never trained, in any round, and measure instead."""
    epochs: float = 1.0
    """How often the comparisons are gone through."""
    batch_size: int = 16
    """Comparisons in a step, over all processes."""
    learning_rate: float = 1e-5
    """The peak learning rate; LoRA wants about ten times more."""
    reward: RewardSettings = field(default_factory=RewardSettings)
    """What is learnt, and where a reward is read."""
    ensemble: EnsembleSettings = field(default_factory=EnsembleSettings)
    """Several models instead of one."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """Small matrices beside frozen weights."""

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        if not 0 <= self.held_out < 1:
            raise UserError(f"reward_run.held_out is a chance from 0 to below 1, not {self.held_out:g}")
        if self.ensemble.member is not None:
            raise UserError("reward_run.ensemble.member: a round trains all of them; leave it out")
        if self.start == "newest" and self.ensemble.members > 1:
            raise UserError(
                "reward_run.start newest goes on with one reward model, and an ensemble is several: leave "
                "one of them out"
            )
        if self.reward.rows not in ("auto", "comparisons"):
            raise UserError(
                f"reward_run.reward.rows {self.reward.rows}: this loop has comparisons; leave it out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RlhfConfig(RunConfig):
    """Rounds of comparing, learning the reward and improving the policy, whose settings stand at the top.

    Example: ``RlhfConfig(model=Path("sft"), prompts=Path("p.jsonl"), comparisons="people", out=Path("r"))``
    """

    data: Path = field(init=False)
    """The prompts, under the name that every run has for its rows."""
    prompts: Path
    """The prompts: rows of any kind; whatever else a row of prompts holds is handed to who compares."""
    comparisons: str
    """Who compares: people, a reward's word, or file.py:function that takes first and second."""
    epochs: float = 1.0
    """How often each round's policy run goes through the prompts."""
    learning_rate: float = 1e-6
    """The peak learning rate of the policy; LoRA wants about ten times more."""
    loop: RoundSettings = field(default_factory=RoundSettings)
    """What is asked and compared."""
    reward_run: RewardRunSettings = field(default_factory=RewardRunSettings)
    """How each round's reward is trained."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    """The cells of the row that improves the policy."""
    draw: DrawSettings = field(default_factory=DrawSettings)
    """How answers are drawn, to be compared and to be learnt from."""
    critic: CriticSettings = field(default_factory=CriticSettings)
    """Of rows with a critic: the model that says how much is to be expected."""
    shape: ShapeSettings = field(default_factory=ShapeSettings)
    """What is done to a round's scores before they teach."""
    trust: TrustSettings = field(default_factory=TrustSettings)
    """How old an answer may be for the policy that learns from it."""
    reference: ReferenceSettings = field(default_factory=ReferenceSettings)
    """How the policy is held; near what, says loop.reference."""
    ptx: PtxSettings = field(default_factory=PtxSettings)
    """Text that no round shall forget."""
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    """Who scores held-out prompts in every round, and never teaches."""
    keep: KeepSettings = field(
        default_factory=lambda: KeepSettings(best="held_out/reward", best_is="highest")
    )
    """Which checkpoints of a policy run stay."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is loaded."""
        object.__setattr__(self, "data", self.prompts)
        RunConfig.__post_init__(self)
        if self.room < 1:
            raise UserError(
                f"draw.max_tokens {self.draw.max_tokens} leaves no room for a prompt within max_length "
                f"{self.max_length}; let answers be shorter, or rows longer"
            )
        if self.comparisons == PEOPLE and self.loop.noise:
            raise UserError(
                "loop.noise is that of a reward that compares; people have their own, leave it out"
            )

    @property
    def room(self) -> int:
        """The longest prompt beside which the longest answer fits, in tokens."""
        return self.max_length - self.draw.max_tokens
