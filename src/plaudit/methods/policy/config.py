"""All that ``plaudit train ppo`` and its relatives can be told; importing this does not import torch.

There is a class for each group of flags.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from plaudit.bounds import BelowOne, Count, Finite, FromOne, FromZero, Positive, check_bounds
from plaudit.engine.settings import KeepSettings
from plaudit.errors import UserError
from plaudit.methods.chapter import Chapter, own_config_type
from plaudit.methods.config import ReferenceSettings, RunConfig
from plaudit.methods.policy import algorithms
from plaudit.methods.policy.cells import CELLS
from plaudit.models.settings import SamplingSettings
from plaudit.rewards.base import ADDITIVE_PAYS, StepPayKind

if TYPE_CHECKING:
    from plaudit.methods.policy.row import PolicyAlgorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawSettings:
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
    growth: tuple[str, ...] = ()
    """Room that grows: ROUND:TOKENS from which round on an answer may have so many (100:24576 200:32768)."""
    stop: tuple[str, ...] = ()
    """An answer ends before any of these."""
    resample_limit: Count = 3
    """How often dynamic sampling asks for other prompts in a round, at most."""
    curriculum: bool = False
    """Whether prompts that are passed sometimes are asked more often than those passed always or never."""
    pass_threshold: float = 0.5
    """The score from which on an answer passes, for the curriculum."""
    replay: BelowOne = 0.0
    """The share of a round's prompts that come with the answers of an earlier round."""
    max_staleness: FromOne = 4
    """How many rounds ago these may have been drawn, at most."""
    flat_rounds: Count = 3
    """After so many rounds in which all answers to each prompt have one score a run ends; 0 is never."""

    def __post_init__(self) -> None:
        check_bounds(self, "draw")
        if self.temperature == 0:
            raise UserError(
                "draw.temperature 0 gives the same answer each time, so there is nothing to compare; use 1"
            )
        # Made for their refusals alone.
        self.sampling(0)
        rooms = [(1, self.max_tokens), *self._grown]
        if any(begin >= later or room >= more for (begin, room), (later, more) in pairwise(rooms)):
            raise UserError(
                "draw.growth: rounds and tokens have to grow, from round 2 on and from draw.max_tokens "
                f"{self.max_tokens}, not {', '.join(self.growth)}"
            )

    @property
    def _grown(self) -> list[tuple[int, int]]:
        words = [word.split(":") for word in self.growth]
        if any(len(word) != 2 or not all(part.isdecimal() for part in word) for word in words):
            raise UserError(f"draw.growth is ROUND:TOKENS, as 100:24576, not {', '.join(self.growth)}")
        return [(int(begin), int(room)) for begin, room in words]

    @property
    def longest(self) -> int:
        """The most tokens that an answer of any round may have."""
        return self._grown[-1][1] if self.growth else self.max_tokens

    def room(self, round_number: int) -> int:
        """The most tokens that an answer of this round may have.

        >>> draw = DrawSettings(max_tokens=16, growth=("3:24", "5:32"))
        >>> [draw.room(number) for number in (1, 2, 3, 4, 5, 6)]
        [16, 16, 24, 24, 32, 32]
        """
        return max([self.max_tokens, *(room for begin, room in self._grown if begin <= round_number)])

    def sampling(self, seed: int) -> SamplingSettings:
        """How answers are drawn, with the room of the last round, as held-out ones always have it."""
        return SamplingSettings(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            max_tokens=self.longest,
            stop=self.stop,
            seed=seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeSettings:
    per_token: FromZero = 0.0
    """What a token costs."""
    low: float | None = None
    """Scores below it become it."""
    high: float | None = None
    """Scores above it become it."""
    scale: bool = False
    """Whether scores are divided by the deviation of all so far."""

    def __post_init__(self) -> None:
        check_bounds(self, "shape")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise UserError(f"shape.low {self.low:g} must be below shape.high {self.high:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticSettings:
    """The model that says how much is to be expected, where the algorithm has one."""

    model: Path | None = None
    """The folder that it begins as; none: the reward's, where that is a reward model, else the policy's."""
    shared: bool = False
    """Whether it is a head on the policy's own layers, in place of a second model."""
    clip: FromZero = 0.2
    """How far a value may move within a round before nothing more is gained; 0: no limit."""

    def __post_init__(self) -> None:
        if self.shared and self.model is not None:
            raise UserError("critic.shared is a head on the policy's own layers: leave out --critic.model")
        check_bounds(self, "critic")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    by: str | None = None
    """A second reward: a folder, a rule, module:function. Its score chooses the model, and ends the run."""
    chooses: bool = True
    """Whether it does; otherwise it is only shown."""
    patience: Count = 3
    """Looks without a better score after which the run ends; 0 never."""
    answers: FromOne = 1
    """How many answers to each held-out prompt."""

    def __post_init__(self) -> None:
        check_bounds(self, "judge")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The servers that answers are drawn by, where --sampler names some, or vllm."""

    python: Path | None = None
    """The Python that has vLLM, for --sampler vllm."""
    count: FromOne = 1
    """How many servers --sampler vllm starts."""
    gpus: str = ""
    """The GPUs that are shared out among them, as 4,5,6,7; none: those that the run sees."""
    arguments: str = ""
    """Further arguments of each server, as one string."""
    folder: Path | None = None
    """Through which folder weights go, which servers see too; none: memory, on one machine."""
    seconds: Positive = 600.0
    """How long a server may take for the answers to a prompt, and a run waits while none is there."""
    token_from: str | None = None
    """The environment variable with the token that servers on other machines want."""
    adapters: bool = False
    """Whether adapters (LoRA) are sent alone, to servers that serve their base; else merged, all weights."""

    def __post_init__(self) -> None:
        check_bounds(self, "server")

    def refuse_unread(self, sampler: str) -> None:
        """Raise where ``sampler`` names nobody who draws, or nobody who reads these settings."""
        words = [word for word in sampler.split(",") if word]
        are_addresses = bool(words) and all(word.startswith(("http://", "https://")) for word in words)
        if sampler not in ("local", "vllm") and not are_addresses:
            raise UserError(
                f"--sampler {sampler}: expected local, vllm, or http://host:port of running servers, "
                "with commas between them"
            )
        if sampler == "local" and self != ServerSettings():
            raise UserError("--server.… is read with a --sampler of servers: leave it out, or name some")
        if sampler == "vllm" and self.python is None:
            raise UserError(
                "--sampler vllm needs --server.python, the Python of an environment with vLLM: it wants "
                "other releases than plaudit, so it has one of its own (docs/scale.md)"
            )


VLLM_WORDS = (
    *("-m", "vllm.entrypoints.openai.api_server", "--enable-scale-out"),
    *("--weight-transfer-config", '{"backend": "files"}', "--logprobs-mode", "processed_logprobs"),
)
"""With what a vLLM server is started that draws for a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """How drawing and learning share the time, where servers draw."""

    lag: Count = 0
    """How many rounds are drawn ahead of the one that is learnt from, with the weights of that moment."""
    stream: bool = True
    """Whether answers are learnt from as they come, or once a round is drawn; the weights are the same."""
    weights: Literal["capped", "masked", "sequence"] = "capped"
    """How tis_cap bounds weights: a token's, a token left out beyond it, or a whole answer's."""

    def __post_init__(self) -> None:
        check_bounds(self, "rollout")


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxSettings:
    data: Path | None = None
    """Demonstrations or texts; none: nothing is added."""
    rows: FromOne = 16
    """Rows of it with each move."""

    def __post_init__(self) -> None:
        check_bounds(self, "ptx")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """How the steps of an answer, its lines that hold a word, are paid: each at its last token."""

    pay: Literal["no"] | StepPayKind = "no"
    """What a step is paid: its score, its log-odds, or its change of the min, product or last of them."""
    by: str | None = None
    """Who scores the steps, where --reward scores the outcome, which is paid at the end; none: --reward."""
    weight: Positive = 1.0
    """How much the steps count beside the outcome."""
    baseline: Finite = 0.0
    """What is taken off the score of each step, so that a step that says nothing is paid nothing."""

    def __post_init__(self) -> None:
        check_bounds(self, "process")
        if self.pay == "no" and (self.by is not None or self.weight != 1 or self.baseline):
            raise UserError(
                "process.by, .weight and .baseline are read where steps are paid only: add --process.pay "
                "(score, odds, min, product or last), or leave them out"
            )
        if self.weight != 1 and self.by is None:
            raise UserError(
                "process.weight weighs steps against the outcome, and there is none beside them: name who "
                "scores the steps by --process.by, or leave it out"
            )
        if self.baseline and self.pay not in ADDITIVE_PAYS:
            raise UserError(
                f"process.baseline is taken off scores that are paid themselves, and {self.pay} pays "
                "changes: leave it out, or use --process.pay score"
            )

    @property
    def adds_up(self) -> bool:
        return self.pay in ADDITIVE_PAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig(RunConfig):
    """A run that improves a policy by what a reward says of its answers.

    Those of one algorithm, with its settings, are ``policy_config_type("grpo")``.

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
    max_turns: FromOne | None = None
    """The most turns of the policy in an episode of the environment; none: 8."""
    epochs: Positive = 1.0
    """How often the prompts are gone through."""
    rounds: FromOne | None = None
    """How many rounds of answers instead."""
    batch_size: FromOne = 16
    """Prompts in a round, over all processes."""
    learning_rate: Positive = 1e-6
    """The peak learning rate; with LoRA ten times as high where none is given."""
    draw: DrawSettings = field(default_factory=DrawSettings)
    """How answers are drawn."""
    sampler: str = "local"
    """Who draws answers: local (the policy, or a whole copy of a divided one), vllm, http://host:port,…"""
    server: ServerSettings = field(default_factory=ServerSettings)
    """The servers that draw answers, where they are not drawn locally."""
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    """How drawing and learning share the time, where servers draw."""
    shape: ShapeSettings = field(default_factory=ShapeSettings)
    """What is done to scores before they teach."""
    process: ProcessSettings = field(default_factory=ProcessSettings)
    """How the steps of an answer are paid, each at its last token."""
    critic: CriticSettings = field(default_factory=CriticSettings)
    """The model that says how much is to be expected."""
    reference: ReferenceSettings = field(default_factory=ReferenceSettings)
    """The policy that the new one is held near."""
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    """Who scores held-out prompts and never teaches."""
    ptx: PtxSettings = field(default_factory=PtxSettings)
    """Text that the policy shall not forget."""
    keep: KeepSettings = field(
        default_factory=lambda: KeepSettings(best="held_out/reward", best_is="highest")
    )
    """Which checkpoints stay."""
    _compares_passes: ClassVar[bool] = True
    _takes_deepspeed: ClassVar[bool] = False
    _shares_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is loaded."""
        object.__setattr__(self, "data", self.prompts)
        # Without arguments super() has no class to look up in a dataclass with slots.
        super(PolicyConfig, self).__post_init__()
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
        self.server.refuse_unread(self.sampler)
        self._refuse_for_servers()
        if self.rounds is not None and self.steps is not None:
            raise UserError("rounds and steps both say how long the run is: leave one of them out")

    def _refuse_for_servers(self) -> None:
        if self.sampler == "local" and (self.rollout.lag or not self.rollout.stream):
            setting = f"--rollout.lag {self.rollout.lag}" if self.rollout.lag else "--no-rollout.stream"
            raise UserError(
                f"{setting}: rounds are drawn ahead, or while they are learnt from, by servers alone; name "
                "some by --sampler, or leave it out"
            )
        if self.sampler != "local" and self.sequence_ranks > 1:
            raise UserError("--sequence-ranks: answers are drawn locally then; leave out --sampler")
        if self.sampler != "local" and not self.draw.sampling(0).is_unrestricted:
            raise UserError(
                "a server tells one log-prob of a token, and with top-k, top-p or min-p there are two: "
                "leave these out, or draw by --sampler local"
            )


OwnPolicyConfig = own_config_type(PolicyConfig)
"""A run of an algorithm of the user's own, before it is known which settings it has."""
POLICY: Chapter[PolicyAlgorithm, PolicyConfig] = Chapter(
    own_method=algorithms.OWN,
    algorithms=algorithms.POLICY_ALGORITHMS,
    cells=CELLS,
    config=PolicyConfig,
    own_config=OwnPolicyConfig,
    find=algorithms.find_policy_algorithm,
    load=algorithms.own_algorithm,
    make=algorithms.make_algorithm,
)
policy_config_type = POLICY.config_type
"""From an algorithm's name to its config: ``policy_config_type("grpo")(model=…, kl_coef=0.02)``."""
all_parameters = POLICY.parameters
"""Every setting that an algorithm or a cell has, by its name."""
