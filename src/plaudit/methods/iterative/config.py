"""All that ``plaudit train rejection``, its relatives and ``rlhf`` can be told; without torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from plaudit.bounds import (
    BelowOne,
    Finite,
    FromOne,
    FromTwo,
    FromZero,
    Positive,
    PositiveShare,
    Share,
    check_bounds,
)
from plaudit.data.records import STORE_FILE
from plaudit.engine.settings import KeepSettings
from plaudit.errors import UserError
from plaudit.evaluation.policies import POLICY, WRITTEN
from plaudit.methods.algorithm import is_set
from plaudit.methods.config import ReferenceSettings, RunConfig
from plaudit.methods.iterative.algorithms import ITERATIVE_ALGORITHMS, LoopAlgorithm
from plaudit.methods.policy.algorithms import POLICY_ALGORITHMS
from plaudit.methods.policy.config import (
    CriticSettings,
    DrawSettings,
    JudgeSettings,
    PtxSettings,
    RolloutSettings,
    ServerSettings,
    ShapeSettings,
    all_parameters as all_policy_parameters,
)
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS, preference_algorithm
from plaudit.methods.preference.config import all_parameters, optional_settings
from plaudit.methods.reward_model.config import EnsembleSettings, RewardSettings
from plaudit.models.settings import LoraSettings, SamplingSettings

if TYPE_CHECKING:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class PreferenceSettings:
        """Of the algorithm that learns from pairs; what is not set is as it has it."""

    class PolicySettings(PreferenceSettings):
        """Of the algorithm that improves the policy; what is not set is as it has it."""

else:
    PolicySettings = optional_settings(
        "PolicySettings", all_policy_parameters(), "Of the algorithm that improves the policy."
    )
    PreferenceSettings = optional_settings(
        "PreferenceSettings", all_parameters(), "Of the algorithm that learns from pairs."
    )

SELF = "self"
"""The word of a reward that is the newest model itself."""
_COMMON_SETTINGS = (
    *("rounds", "answers", "prompts", "distinct"),
    *("held_out_judge", "held_out_prompts", "on_fall"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """What is drawn and chosen; what is not set is as the algorithm has it (``plaudit train --list``)."""

    rounds: FromOne | None = None
    """How often it draws, chooses and trains."""
    answers: FromOne | None = None
    """Answers to each prompt."""
    prompts: FromOne | None = None
    """Prompts of a round, others in each until all had their turn; none: all of them."""
    distinct: bool = False
    """Of equal answers to a prompt only the first can be chosen."""
    improves: FromOne | None = None
    """Rounds that learn from the same answers before new ones are drawn (rest)."""
    threshold: tuple[Finite, ...] = ()
    """The least score, one for each round; the last one stays."""
    top: tuple[PositiveShare, ...] = ()
    """In place of a threshold the share of all answers that is kept, the best; one for each round."""
    keep: FromOne | None = None
    """At most so many answers of a prompt, the first that were drawn (expert, rest, rest-em, rso)."""
    beta: Positive | None = None
    """How dear distance from the drawing policy is: small values accept only the best (rso)."""
    gap: FromZero | None = None
    """Pairs have scores further apart than this (rs-dpo); none: half the median gap of the round."""
    teach: str | None = None
    """The row of the preference table that learns from pairs (plaudit train --list)."""
    reference: Literal["auto", "newest", "start"] = "auto"
    """What a round is held near: the model that it trains, or the command's. auto: as the row has it."""
    people: Path | None = None
    """Comparisons by people: in every round the newest model's own judgement is held against them
    (self-rewarding)."""
    held_out_judge: str | None = None
    """Who judges every round's model and never teaches: a reward, or a judge that compares it with the
    start."""
    held_out_prompts: Path | None = None
    """The prompts that it is asked about, which no round learns from."""
    on_fall: Literal["stop", "go-on"] = "stop"
    """What is done when one of these falls: end with the best round's model, or only say so."""

    def __post_init__(self) -> None:
        check_bounds(self, "loop")
        if self.threshold and self.top:
            raise UserError("loop.threshold and loop.top say the same thing in two ways; give one of them")


def _refuse_what_rounds_lack(config: LoopConfig | RlhfConfig) -> None:
    # Rounds ask their model as it was trained: another way of asking would hold for half of a round.
    if config.text is not None or config.template is not None:
        raise UserError(
            "rounds ask and train --model as its own folder says: leave --text and --template out, and train "
            "a model with them first (plaudit train sft), which keeps them"
        )
    config.server.refuse_unread(config.sampler)
    if config.server.adapters:
        raise UserError(
            "server.adapters: a round begins with the whole model of the one before, and has no adapters to "
            "send alone; leave it out"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig(RunConfig):
    """Rounds of drawing, choosing and training; training settings are those of each round.

    Example: ``LoopConfig(model=Path("sft"), prompts=Path("p.jsonl"), reward="number", out=Path("runs/r"))``
    """

    data: Path = field(init=False)
    """The prompts, under the name that every run has for its rows."""
    prompts: Path
    """The prompts: rows of any kind, of which only the prompts are read, and a reference answer."""
    reward: str
    """What scores answers: a reward's folder, a rule, http://…, module:function or file.py:function."""
    held_out: str = "0"
    """Rows of a round that it does not train: a share of them, or a file; 0 for none."""
    epochs: float = 1.0
    """How often each round goes through its rows."""
    learning_rate: float = 1e-6
    """The peak learning rate, as pairs want it; answers (sft) want about ten times more, LoRA as well."""
    loop: LoopSettings = field(default_factory=LoopSettings)
    """What is drawn and chosen."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How answers are drawn."""
    sampler: str = "local"
    """Who draws them: local (each process has the model), vllm, or http://host:port,…"""
    server: ServerSettings = field(default_factory=ServerSettings)
    """The servers that draw answers, where they are not drawn locally."""
    preference: PreferenceSettings = field(default_factory=PreferenceSettings)
    """The settings of the preference algorithm, where one learns."""
    _compares_passes: ClassVar[bool] = True
    _takes_deepspeed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is loaded."""
        object.__setattr__(self, "data", self.prompts)
        RunConfig.__post_init__(self)
        _refuse_what_rounds_lack(self)
        if self.max_prompt_tokens < 1:
            raise UserError(
                f"sampling.max_tokens {self.sampling.max_tokens} leaves no room for a prompt within "
                f"max_length {self.max_length}; let answers be shorter, or rows longer"
            )

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt, in tokens, that leaves room for the longest completion."""
        return self.max_length - self.sampling.max_tokens


def loop_config_type(name: str) -> type[LoopConfig]:
    """The config of a row: one that scores its answers in a way of its own needs no reward.

    >>> loop_config_type("spin").__name__
    'SpinConfig'
    """
    return _OWN_CONFIGS.get(ITERATIVE_ALGORITHMS[name].scored_by, LoopConfig)


def _config_with_reward(name: str, doc: str, reward: Any) -> type[LoopConfig]:
    return make_dataclass(
        name,
        [("reward", str, reward)],
        bases=(LoopConfig,),
        namespace={"generated": True, "__doc__": doc},
        frozen=True,
        slots=True,
        kw_only=True,
    )


_SELF_DOC = "The model itself: self, or self,points=5,rubric=FILE with what else judges are told."
SelfRewardingConfig = _config_with_reward(
    "SelfRewardingConfig",
    "Rounds whose newest model judges its own answers.",
    field(default=SELF, metadata={"doc": _SELF_DOC}),
)
SpinConfig = _config_with_reward(
    "SpinConfig",
    "Rounds in which a demonstration is preferred to the model's own answer.",
    field(init=False, default=""),
)
_OWN_CONFIGS: Mapping[str, type[LoopConfig]] = {"itself": SelfRewardingConfig, "demonstrations": SpinConfig}


def refuse_other_reward(facts: LoopAlgorithm, reward: str) -> None:
    """Raise where the word of a reward is not one that the row can have."""
    is_self = reward.partition(",")[0] == SELF
    if facts.scored_by == "itself" and not is_self:
        raise UserError(
            f"reward {reward}: {facts.name} has its answers judged by the newest model itself (self, or "
            f"self,points=5,rubric=FILE). Rounds by another reward are `plaudit train iterated`"
        )
    if facts.scored_by == "demonstrations" and reward:
        raise UserError(
            f"reward {reward}: {facts.name} has no reward, for demonstrations are preferred; leave it out"
        )
    if facts.scored_by == "reward" and is_self:
        raise UserError(
            f"reward {reward}: only self-rewarding is judged by the newest model; for {facts.name} name a "
            "reward (docs/rewards.md), or a model that stays as it is: judge:model:DIR"
        )


def resolve_settings(facts: LoopAlgorithm, config: LoopConfig) -> LoopSettings:
    """The user's settings, and the algorithm's where none was given; raises for one that is not read."""
    refuse_other_reward(facts, config.reward)
    given, defaults = config.loop, LoopSettings()
    changed = [
        setting.name
        for setting in fields(given)
        if getattr(given, setting.name) != getattr(defaults, setting.name)
    ]
    unused = [
        name for name in changed if name not in (*facts.defaults, *facts.optional_settings, *_COMMON_SETTINGS)
    ]
    if unused:
        words = " and ".join(f"loop.{name}" for name in unused)
        raise UserError(f"{words}: {facts.name} has no such setting; leave it out")
    if (given.held_out_judge is None) != (given.held_out_prompts is None):
        raise UserError(
            "loop.held_out_judge and loop.held_out_prompts go together: who judges, and on which prompts"
        )
    if not facts.pairs and config.preference != PreferenceSettings():
        raise UserError(f"preference: {facts.name} learns answers, not pairs; leave out what is said of it")
    # One stands for the other: where the user gives either, the row's default of both is void.
    alternatives = {"threshold", "top"} if {"threshold", "top"} & {*changed} else set[str]()
    row_defaults = {
        name: value for name, value in facts.defaults.items() if name not in {*changed} | alternatives
    }
    settings = replace(given, **row_defaults)
    _refuse_no_selection(facts, config, settings)
    _refuse_unknown_trainer(facts, settings)
    return settings


def preference_settings(config: LoopConfig) -> dict[str, Any]:
    return _set_values(config.preference, all_parameters())


def policy_settings(config: RlhfConfig) -> dict[str, Any]:
    return _set_values(config.policy, all_policy_parameters())


def _set_values(settings: object, names: Iterable[str]) -> dict[str, Any]:
    values = {name: getattr(settings, name) for name in names}
    return {name: value for name, value in values.items() if is_set(value)}


def _refuse_no_selection(facts: LoopAlgorithm, config: LoopConfig, settings: LoopSettings) -> None:
    assert settings.answers is not None
    if settings.answers < facts.min_answers:
        raise UserError(
            f"loop.answers {settings.answers}: {facts.name} chooses among the answers to a prompt; draw "
            f"{facts.min_answers} or more"
        )
    if config.sampling.greedy and settings.answers > 1:
        raise UserError(
            "sampling.temperature 0 draws the same answer every time, so there is nothing to choose; "
            "give a number above 0"
        )


def _refuse_unknown_trainer(facts: LoopAlgorithm, settings: LoopSettings) -> None:
    trainer = settings.teach or facts.trainer
    if facts.pairs and trainer not in PREFERENCE_ALGORITHMS:
        raise UserError(f"loop.teach {trainer!r}: give a row of the preference table (plaudit train --list)")
    if (
        facts.pairs
        and settings.reference == "newest"
        and "reference" not in preference_algorithm(trainer).needs
    ):
        raise UserError(f"loop.reference newest: {trainer} has no reference; leave it out")


PEOPLE = "people"
"""The value of ``comparisons`` for people, who answer in a label store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """What is asked and compared in a round, and what a round begins with."""

    rounds: FromOne = 3
    """How often answers are compared, a reward is trained and the policy improved."""
    prompts: FromOne | None = None
    """Prompts of a round whose answers are compared, others in each until all had their turn; none: all."""
    answers: FromTwo = 4
    """Answers drawn to each of them; the first two that differ are compared."""
    against: tuple[str, ...] = (POLICY,)
    """Whose the other answer of a pair is, in turn: policy, the newest model itself; start, the command's;
    reference; written, what the rows of prompts hold; or a model's folder."""
    choose: str | None = None
    """Which of a round's pairs are compared, by the reward of the round before: d-optimal, disagreement …;
    the first round's are drawn at random. None: all."""
    most: FromOne | None = None
    """How many are compared where choose says which."""
    at_random: Share = 0.2
    """The share of them that is drawn at random, and measures."""
    noise: FromZero = 0.0
    """How noisily a reward compares: what the difference of two scores is divided by; 0: the higher wins."""
    data: Path | None = None
    """Comparisons that there are before the first round."""
    store: str | None = None
    """Where people compare: a file, or postgresql+pg8000://…; none: labels.db in the loop's folder."""
    project: str = "rlhf"
    """Under which name people are asked in that store."""
    teach: str = "ppo"
    """The row of policy optimisation that improves the policy (plaudit train --list)."""
    starts: Literal["newest", "start"] = "newest"
    """Which policy each round improves: that of the round before, or the command's."""
    reference: Literal["start", "newest"] = "start"
    """What a round is held near: the command's model, or the one that it improves."""

    def __post_init__(self) -> None:
        check_bounds(self, "loop")
        if self.teach not in POLICY_ALGORITHMS:
            raise UserError(
                f"loop.teach {self.teach!r}: give a row of policy optimisation (plaudit train --list)"
            )
        for word in self.against:
            if word not in (POLICY, WRITTEN, "start", "reference") and not Path(word).is_dir():
                raise UserError(
                    f"loop.against {word!r}: expected policy, start, reference, written, or a model's folder"
                )
        if (self.choose is None) != (self.most is None):
            raise UserError("loop.choose says which pairs are compared, and loop.most how many: give both")
        if not self.against:
            raise UserError("loop.against names nobody; leave it out, for two answers of the policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRunSettings:
    """How each round's reward is trained; numbers, device and optimiser are those of the command."""

    start: Literal["anew", "newest"] = "anew"
    """anew: a new head on the command's model, from all comparisons so far; newest: the reward of the round
    before goes on with the new ones."""
    held_out: BelowOne = 0.1
    """The chance of a prompt that its comparisons are never trained, in any round, and measure instead."""
    epochs: Positive = 1.0
    """How often the comparisons are gone through."""
    batch_size: FromOne = 16
    """Comparisons in a step, over all processes."""
    learning_rate: Positive = 1e-5
    """The peak learning rate; LoRA wants about ten times more."""
    reward: RewardSettings = field(default_factory=RewardSettings)
    """What is learnt, and where a reward is read."""
    ensemble: EnsembleSettings = field(default_factory=EnsembleSettings)
    """Several models instead of one."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """Small matrices beside frozen weights."""

    def __post_init__(self) -> None:
        check_bounds(self, "reward_run")
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
    """The settings of the algorithm that improves the policy."""
    draw: DrawSettings = field(default_factory=DrawSettings)
    """How answers are drawn, to be compared and to be learnt from."""
    sampler: str = "local"
    """Who draws them: local (each process has the model), vllm, or http://host:port,…"""
    server: ServerSettings = field(default_factory=ServerSettings)
    """The servers that draw answers, where they are not drawn locally."""
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    """How drawing and learning share the time, where servers draw."""
    critic: CriticSettings = field(default_factory=CriticSettings)
    """Of rows with a critic: the model that says how much is to be expected."""
    shape: ShapeSettings = field(default_factory=ShapeSettings)
    """What is done to a round's scores before they teach."""
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
    _compares_passes: ClassVar[bool] = True
    _takes_deepspeed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is loaded."""
        object.__setattr__(self, "data", self.prompts)
        RunConfig.__post_init__(self)
        _refuse_what_rounds_lack(self)
        if self.draw.growth:
            raise UserError("draw.growth is for rounds of grpo, ppo and their relatives; leave it out here")
        if self.max_prompt_tokens < 1:
            raise UserError(
                f"draw.max_tokens {self.draw.max_tokens} leaves no room for a prompt within max_length "
                f"{self.max_length}; let answers be shorter, or rows longer"
            )
        if self.comparisons == PEOPLE and self.loop.noise:
            raise UserError(
                "loop.noise is that of a reward that compares; people have their own, leave it out"
            )
        if self.comparisons != PEOPLE and self.loop.store is not None:
            raise UserError(
                f"loop.store is where people compare, and here {self.comparisons} does; leave it out"
            )

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt, in tokens, that leaves room for the longest completion."""
        return self.max_length - self.draw.max_tokens

    @property
    def store(self) -> str:
        """The label store in which people compare."""
        return str(self.out / STORE_FILE) if self.loop.store is None else self.loop.store
