"""One round of ``plaudit train rlhf``: where its parts lie, and what its two runs are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.reward_config import RewardConfig
from plaudit.recipes.rlhf_config import RewardRunSettings, RlhfConfig

_SHARED = (
    "max_length",
    "turns",
    "dtype",
    "device",
    "seed",
    "sinks",
    "optimizer",
    "memory",
    "safety",
    "sample",
)
"""Settings of the command that its reward runs have too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RlhfRound:
    """Where a round is, and what it begins with.

    Example: ``rlhf_round(config, 2).folder``
    """

    number: int
    """The first is 1."""
    folder: Path
    """Its folder."""
    speaker: Path
    """The policy whose answers are compared: that of the round before."""
    model: Path
    """The policy that it improves."""
    before: Path | None
    """The reward of the round before."""
    reward: Path
    """Its own: a reward model, or a combination of several."""

    @property
    def answers(self) -> Path:
        """All answers that were drawn."""
        return self.folder / "answers.jsonl"

    @property
    def pairs(self) -> Path:
        """The file that people fill in."""
        return self.folder / "pairs.jsonl"

    @property
    def comparisons(self) -> Path:
        """What was said of this round's answers."""
        return self.folder / "comparisons.jsonl"

    @property
    def train(self) -> Path:
        """The comparisons that its reward learns from."""
        return self.folder / "train.jsonl"

    @property
    def held_out(self) -> Path:
        """All comparisons so far that no reward learns from; there may be none, and then no file."""
        return self.folder / "held-out.jsonl"

    @property
    def reward_run(self) -> Path:
        """The training of its reward."""
        return self.folder / "reward"

    @property
    def policy_run(self) -> Path:
        """The training of its policy."""
        return self.folder / "policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What came of a round's comparing.

    Example: ``Compared(round=1, prompts=100, pairs=96, …).sentence``
    """

    round: int
    """The first is 1."""
    prompts: int
    """How many were asked."""
    pairs: int
    """How many pairs of answers were shown."""
    ties: int
    """Pairs of which neither was called better."""
    unjudged: int
    """Pairs of which nothing was said."""
    train: int
    """Comparisons that this round's reward learns from."""
    held_out: int
    """Comparisons of this round that no reward learns from."""

    @property
    def sentence(self) -> str:
        """All of it in a line."""
        return (
            f"round {self.round}: {self.pairs} pairs of answers to {self.prompts} prompts, {self.ties} ties, "
            f"{self.unjudged} without a verdict; {self.train} comparisons are trained, {self.held_out} of "
            "the new ones are held out"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What came of a round's learning; None where there was nothing to measure it by.

    Example: ``Learnt(round=2, old_on_new=0.61, old_held_out=0.58, …).sentence``
    """

    round: int
    """The first is 1."""
    old_on_new: float | None
    """How often the reward of the round before is right on all new comparisons."""
    old_held_out: float | None
    """The same on those of them that are held out."""
    new_held_out: float | None
    """How often the new reward is right on these."""
    reward: float | None
    """What the new reward says of the policy's answers at last: on held-out prompts, where there are some."""
    kl: float | None
    """How far the policy is from its reference then, in nats an answer."""

    @property
    def sentence(self) -> str:
        """All of it in a line."""
        words: list[str] = []
        if self.old_on_new is not None:
            words.append(f"the last reward is right on {self.old_on_new:.0%} of the new comparisons")
        if self.new_held_out is None:
            words.append("no new comparison is held out")
        else:
            old = "" if self.old_held_out is None else f", the last one on {self.old_held_out:.0%}"
            words.append(f"the new reward is right on {self.new_held_out:.0%} of those held out{old}")
        words.append(f"the policy's reward is {_number(self.reward)}, its KL {_number(self.kl)}")
        return f"round {self.round}: {'; '.join(words)}"


def prompts_file(config: RlhfConfig) -> Path:
    """The prompts as they are asked: a chat model's always by turns, so that every reward reads the same."""
    return config.out / "prompts.jsonl"


def held_out_file(config: RlhfConfig) -> Path:
    """The held-out prompts in the same way, where they have a file."""
    return config.out / "held-out-prompts.jsonl"


def rlhf_round(config: RlhfConfig, number: int) -> RlhfRound:
    """A round by its number."""
    home = config.out / "rounds"
    newest = home / str(number - 1) / "policy" / "model" if number > 1 else config.model
    return RlhfRound(
        number=number,
        folder=home / str(number),
        speaker=newest,
        model=newest if config.loop.starts == "newest" else config.model,
        before=_reward(config, home / str(number - 1)) if number > 1 else None,
        reward=_reward(config, home / str(number)),
    )


def reward_config(config: RlhfConfig, one: RlhfRound) -> RewardConfig:
    """What the reward run of a round is told."""
    own = config.reward_run
    said: dict[str, Any] = {name: getattr(config, name) for name in _SHARED}
    said |= {
        each.name: getattr(own, each.name)
        for each in fields(RewardRunSettings)
        if each.name not in ("start", "held_out")
    }
    goes_on = own.start == "newest" and one.before is not None
    return RewardConfig(
        **said,
        model=one.before if goes_on and one.before is not None else config.model,
        data=one.train,
        held_out=str(one.held_out) if one.held_out.exists() else "0",
        out=one.reward_run,
        format="plaudit",
        rows=replace(config.rows, split=None),
    )


def policy_config(config: RlhfConfig, one: RlhfRound) -> PolicyConfig:
    """What the policy run of a round is told."""
    own = {"model", "prompts", "format", "held_out", "out", "reference"}
    shared = {each.name for each in fields(RlhfConfig) if each.init and each.name not in own}
    said: dict[str, Any] = {
        each.name: getattr(config, each.name) for each in fields(PolicyConfig) if each.name in shared
    }
    held_out = config.held_out if config.held_out_share is not None else str(held_out_file(config))
    away = config.loop.reference == "start" and one.model != config.model
    usual = config.model if away else None
    reference = replace(config.reference, model=config.reference.model or usual)
    return PolicyConfig(
        **said,
        model=one.model,
        prompts=prompts_file(config),
        format="plaudit",
        held_out=held_out,
        reward=str(one.reward),
        out=one.policy_run,
        reference=reference,
    )


def as_line(*figures: Compared | Learnt) -> Mapping[str, Any]:
    """Figures as JSON holds them, without what could not be measured."""
    return {name: value for one in figures for name, value in asdict(one).items() if value is not None}


def _reward(config: RlhfConfig, folder: Path) -> Path:
    """An ensemble is the run itself, which then has no model of its own."""
    return folder / "reward" if config.reward_run.ensemble.members > 1 else folder / "reward" / "model"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
