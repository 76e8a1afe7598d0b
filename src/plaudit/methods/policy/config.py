"""All that ``plaudit train ppo`` and its relatives can be told; importing this does not import torch.

Settings of policy optimisation, a class for each group of flags; without torch.

How the steps of an answer are paid in policy optimisation; importing this does not import torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from plaudit.engine.settings import KeepSettings
from plaudit.errors import UserError
from plaudit.methods.config import RunConfig
from plaudit.methods.policy.algorithms import AdvantageName, SurrogateName
from plaudit.methods.preference.config import ReferenceSettings
from plaudit.rewards.learned.step_payments import ADDITIVE_PAYS, StepPayKind
from plaudit.rollouts.sampler import SamplingSettings

AutoYesNo = Literal["auto", "yes", "no"]
"""A switch: as the algorithm has it, on, or off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """The cells of a row; what is not set is as the algorithm has it (``plaudit train --list``).

    Example: ``PolicySettings(beta=0.02, epochs=2)``
    """

    advantage: Literal["auto"] | AdvantageName = "auto"
    """What a token is measured against."""
    surrogate: Literal["auto"] | SurrogateName = "auto"
    """What a token loses."""
    ratio: Literal["auto", "token", "answer", "answer-token"] = "auto"
    """Whose ratio: of each token, of the answer, or of the answer with each token's own gradient."""
    reduction: Literal["auto", "tokens", "answers", "fixed"] = "auto"
    """The mean over tokens, over answers, or over places for tokens, filled or not."""
    divergence: Literal["auto", "reward", "loss", "none"] = "auto"
    """Where the distance from the reference counts."""
    estimator: Literal["auto", "k1", "k2", "k3"] = "auto"
    """How it is estimated at a token; auto: k1 in the reward, k3 in the loss."""
    beta: float | None = None
    """How dear distance from the reference is."""
    target: float | None = None
    """The KL of an answer that β is made to follow; none: β stays."""
    horizon: float = 10_000.0
    """Answers in which β goes all the way to its target."""
    clip_low: float | None = None
    """ε below 1."""
    clip_high: float | None = None
    """ε above 1."""
    ceiling: float | None = None
    """The most that a bad token loses, in advantages (dual-clip's c)."""
    slope: float | None = None
    """How steeply a ratio is pulled back (α)."""
    limit: float | None = None
    """KL(π_old ‖ π): TRPO's and TR-PPO's δ, the target of ppo-penalty."""
    penalty: float | None = None
    """ppo-penalty's coefficient at first."""
    gamma: float | None = None
    """How much the next token's worth counts."""
    lam: float | None = None
    """GAE's λ: 0 trusts the critic, 1 what happened."""
    whiten: AutoYesNo = "auto"
    """Whether advantages get mean 0 and deviation 1 over the round; auto: with GAE."""
    whiten_rewards: bool = False
    """Whether the rewards of tokens are divided by their deviation over the round (Ziegler et al. 2019)."""
    entropy: float | None = None
    """How much the entropy of the policy counts."""
    epochs: int | None = None
    """How often the answers of a round are gone through."""
    minibatches: int | None = None
    """Moves of one such epoch."""
    stop_at: float | None = None
    """KL(π_old ‖ π) a token beyond which the rest of a round is left out; none: never."""

    def __post_init__(self) -> None:
        """Refuse what no cell has a meaning for."""
        for name in ("beta", "entropy", "slope", "clip_low", "clip_high"):
            _check_number(f"policy.{name}", getattr(self, name), above=False)
        for name in ("target", "horizon", "ceiling", "limit", "penalty", "stop_at"):
            _check_number(f"policy.{name}", getattr(self, name), above=True)
        for name in ("gamma", "lam"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise UserError(f"policy.{name} is from 0 to 1, not {value:g}")
        for name in ("epochs", "minibatches"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"policy.{name} must be at least 1, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawSettings:
    """How answers are drawn.

    Example: ``DrawSettings(answers=8, max_tokens=256)``
    """

    answers: int | None = None
    """How many to each prompt; none: as the algorithm has it."""
    temperature: float = 1.0
    """Scores are divided by it, in drawing and in learning."""
    top_k: int = 0
    """Only so many of the likeliest tokens are drawn; 0 is all of them."""
    top_p: float = 1.0
    """Only the likeliest tokens are drawn, as few as together have this probability; 1 is all of them."""
    min_p: float = 0.0
    """Only tokens at least so likely are drawn, as a share of the likeliest one; 0 is all of them."""
    max_tokens: int = 64
    """An answer that has not ended after so many tokens is cut."""
    stop: tuple[str, ...] = ()
    """An answer ends before any of these."""
    unlike: AutoYesNo = "auto"
    """Whether prompts whose answers all have one score are replaced by others (dynamic sampling)."""
    refills: int = 3
    """How often others are asked for in a round, at most."""
    mixture: float | None = None
    """The reference's share in the mixture that pairs, or the answers of rivals, are drawn from."""
    curriculum: bool = False
    """Whether prompts that are passed sometimes are asked more often than those passed always or never."""
    passes: float = 0.5
    """The score from which on an answer passes, for the curriculum."""
    replay: float = 0.0
    """The share of a round's prompts that come with the answers of an earlier round."""
    window: int = 4
    """How many rounds ago these may have been drawn, at most."""

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn, or learnt from."""
        if self.answers is not None and self.answers < 1:
            raise UserError(f"draw.answers must be at least 1, not {self.answers}")
        if self.refills < 0:
            raise UserError(f"draw.refills must be at least 0, not {self.refills}")
        if self.mixture is not None and not 0 <= self.mixture <= 1:
            raise UserError(f"draw.mixture is from 0 (the policy) to 1 (its reference), not {self.mixture:g}")
        if not 0 <= self.replay < 1:
            raise UserError(f"draw.replay is a share from 0 to below 1, not {self.replay:g}")
        if self.window < 1:
            raise UserError(f"draw.window must be at least 1, not {self.window}")
        if self.temperature == 0:
            raise UserError(
                "draw.temperature 0 gives the same answer each time, so there is nothing to compare; use 1"
            )
        self.sampling(0)

    def sampling(self, seed: int) -> SamplingSettings:
        """The settings as a sampler takes them, with this seed."""
        return SamplingSettings(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            max_tokens=self.max_tokens,
            stop=self.stop,
            seed=seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeSettings:
    """What is done to scores before they teach.

    Example: ``ShapeSettings(missing_end=-1.0, scale=True)``
    """

    missing_end: float | None = None
    """The score of an answer that was cut, in place of its own."""
    overlong: float | None = None
    """The last share of the longest length, in which an answer is punished up to −1; none: by the row."""
    drop_cut: AutoYesNo = "auto"
    """Whether answers that were cut are left out of the loss."""
    per_token: float = 0.0
    """What a token costs."""
    low: float | None = None
    """Scores below it become it."""
    high: float | None = None
    """Scores above it become it."""
    scale: bool = False
    """Whether scores are divided by the deviation of all so far."""

    def __post_init__(self) -> None:
        """Refuse what rewards length, or nothing."""
        _check_number("shape.per_token", self.per_token, above=False)
        if self.overlong is not None and not 0 <= self.overlong <= 1:
            raise UserError(f"shape.overlong is a share from 0 to 1, not {self.overlong:g}")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise UserError(f"shape.low {self.low:g} must be below shape.high {self.high:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticSettings:
    """The model that says how much is to be expected, where the algorithm has one.

    Example: ``CriticSettings(model=Path("rm/model"), rate=5.0)``
    """

    model: Path | None = None
    """The folder that it begins as; none: the reward's, where that is a reward model, else the policy's."""
    shared: bool = False
    """Whether it is a head on the policy's own layers, in place of a second model."""
    rate: float = 1.0
    """Its learning rate, as a multiple of the policy's."""
    weight: float = 0.1
    """How much its loss counts beside the policy's."""
    clip: float = 0.2
    """How far a value may move within a round before nothing more is gained; 0: no limit."""

    def __post_init__(self) -> None:
        """Refuse a critic that does not learn, or is two things."""
        if self.shared and self.model is not None:
            raise UserError("critic.shared is a head on the policy's own layers: leave out --critic.model")
        _check_number("critic.rate", self.rate, above=True)
        _check_number("critic.weight", self.weight, above=True)
        _check_number("critic.clip", self.clip, above=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustSettings:
    """How far an answer may be from the policy that learns from it.

    Example: ``TrustSettings(cap=2.0)``
    """

    cap: float = 0.0
    """The largest weight of a token for what the sampler drew otherwise than the policy; 0 weighs nothing."""
    rare: float = 0.0
    """Nats a token by which a bad answer may have become rarer in its round, at most; 0 keeps all."""

    def __post_init__(self) -> None:
        """Refuse less than nothing."""
        _check_number("trust.cap", self.cap, above=False)
        _check_number("trust.rare", self.rare, above=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """Who scores held-out prompts and never teaches.

    Example: ``JudgeSettings(by="runs/other-reward", patience=3)``
    """

    by: str | None = None
    """A second reward: a folder, a rule, module:function. Its score chooses the model, and ends the run."""
    chooses: bool = True
    """Whether it does; otherwise it is only shown."""
    patience: int = 3
    """Looks without a better score after which the run ends; 0 never."""
    answers: int = 1
    """How many answers to each held-out prompt."""

    def __post_init__(self) -> None:
        """Refuse to look at nothing."""
        if self.patience < 0:
            raise UserError(f"judge.patience must be at least 0, not {self.patience}")
        if self.answers < 1:
            raise UserError(f"judge.answers must be at least 1, not {self.answers}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxSettings:
    """Text that the policy shall not forget.

    Example: ``PtxSettings(data=Path("demonstrations.jsonl"), weight=27.8)``
    """

    data: Path | None = None
    """Demonstrations or texts; none: nothing is added."""
    weight: float | None = None
    """How much its log-likelihood a token counts; none: as the algorithm has it, else 1."""
    rows: int = 16
    """Rows of it with each move."""

    def __post_init__(self) -> None:
        """Refuse what adds nothing."""
        _check_number("ptx.weight", self.weight, above=True)
        if self.rows < 1:
            raise UserError(f"ptx.rows must be at least 1, not {self.rows}")


def _check_number(name: str, value: int | float | None, *, above: bool) -> None:
    if value is None:
        return
    if not math.isfinite(value) or value < 0 or (value == 0 and above):
        raise UserError(f"{name} must be a number {'above 0' if above else 'from 0 on'}, not {value:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """How the steps of an answer, its lines that hold a word, are paid: each at its last token.

    Example: ``ProcessSettings(pay="min")``
    """

    pay: Literal["no"] | StepPayKind = "no"
    """What a step is paid: its score, its log-odds, or its change of the min, product or last of them."""
    by: str | None = None
    """Who scores the steps, where --reward scores the outcome, which is paid at the end; none: --reward."""
    weight: float = 1.0
    """How much the steps count beside the outcome."""
    baseline: float = 0.0
    """What is taken off the score of each step, so that a step that says nothing is paid nothing."""

    def __post_init__(self) -> None:
        """Refuse what nothing reads."""
        if self.pay == "no" and (self.by is not None or self.weight != 1 or self.baseline):
            raise UserError(
                "process.by, .weight and .baseline are read where steps are paid only: add --process.pay "
                "(score, odds, min, product or last), or leave them out"
            )
        if not math.isfinite(self.weight) or self.weight <= 0:
            raise UserError(f"process.weight must be a number above 0, not {self.weight:g}")
        if self.weight != 1 and self.by is None:
            raise UserError(
                "process.weight weighs steps against the outcome, and there is none beside them: name who "
                "scores the steps by --process.by, or leave it out"
            )
        if not math.isfinite(self.baseline):
            raise UserError(f"process.baseline must be a number, not {self.baseline:g}")
        if self.baseline and self.pay not in ADDITIVE_PAYS:
            raise UserError(
                f"process.baseline is taken off scores that are paid themselves, and {self.pay} pays "
                "changes: leave it out, or use --process.pay score"
            )

    @property
    def adds_up(self) -> bool:
        """Whether an answer of more steps is paid more often."""
        return self.pay in ADDITIVE_PAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig(RunConfig):
    """A run that improves a policy by what a reward says of its answers.

    Example: ``PolicyConfig(model=Path("sft"), prompts=Path("p.jsonl"), reward="number", out=Path("ppo"))``
    """

    data: Path = field(init=False, default=Path())
    """The prompts, under the name that all runs have."""
    prompts: Path
    """Rows with prompts; whatever else they hold is handed to the reward."""
    reward: str | None = None
    """A reward's folder, a rule, http://…, module:function or file.py:function."""
    environment: str | None = None
    """In place of a reward: module:function or file.py:function that answers the policy's turns."""
    max_turns: int | None = None
    """The most turns of the policy in an episode of the environment; none: 8."""
    epochs: float = 1.0
    """How often the prompts are gone through."""
    rounds: int | None = None
    """How many rounds of answers instead."""
    batch_size: int = 16
    """Prompts in a round, over all processes."""
    learning_rate: float = 1e-6
    """The peak learning rate; LoRA wants about ten times more."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    """The cells of the row."""
    draw: DrawSettings = field(default_factory=DrawSettings)
    """How answers are drawn."""
    sampler: Literal["local", "process"] = "local"
    """Where answers are drawn: by the policy itself, or by a process that is sent its weights."""
    shape: ShapeSettings = field(default_factory=ShapeSettings)
    """What is done to scores before they teach."""
    process: ProcessSettings = field(default_factory=ProcessSettings)
    """How the steps of an answer are paid, each at its last token."""
    critic: CriticSettings = field(default_factory=CriticSettings)
    """The model that says how much is to be expected."""
    reference: ReferenceSettings = field(default_factory=ReferenceSettings)
    """The policy that the new one is held near."""
    trust: TrustSettings = field(default_factory=TrustSettings)
    """How far an answer may be from the policy that learns from it."""
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    """Who scores held-out prompts and never teaches."""
    ptx: PtxSettings = field(default_factory=PtxSettings)
    """Text that the policy shall not forget."""
    keep: KeepSettings = field(
        default_factory=lambda: KeepSettings(best="held_out/reward", best_is="highest")
    )
    """Which checkpoints stay."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is loaded."""
        object.__setattr__(self, "data", self.prompts)
        # Without arguments super() has no class to look up in a dataclass with slots.
        super(PolicyConfig, self).__post_init__()
        self._refuse_two_judges_or_none()
        if self.rounds is not None and self.rounds < 1:
            raise UserError(f"rounds must be at least 1, not {self.rounds}")
        if self.rounds is not None and self.steps is not None:
            raise UserError("rounds and steps both say how long the run is: leave one of them out")
        if self.shard:
            raise UserError(
                "--shard is not supported here: answers are drawn with whole weights. Leave it out; several "
                "processes share the work all the same"
            )

    def _refuse_two_judges_or_none(self) -> None:
        """Either a reward scores, or an environment does."""
        if self.reward is None and self.environment is None:
            raise UserError(
                "nothing says what an answer is worth: give --reward (a folder, a rule, file.py:function) or "
                "--environment (file.py:function)"
            )
        if self.reward is not None and self.environment is not None:
            raise UserError(
                "--reward and --environment both say what an answer is worth: leave one of them out; a "
                "second opinion on held-out prompts is --judge.by"
            )
        if self.max_turns is not None and self.environment is None:
            raise UserError(
                "--max-turns is read with --environment only: leave it out, or name an environment"
            )
        if self.max_turns is not None and self.max_turns < 1:
            raise UserError(f"max_turns must be at least 1, not {self.max_turns}")
