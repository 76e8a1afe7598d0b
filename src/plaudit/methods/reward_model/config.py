"""All that the methods that train a reward can be told; importing this does not import torch.

They are ``plaudit train reward``, ``group``, and the three ways to judge in words.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from plaudit.bounds import BelowHalf, BelowOne, FromOne, FromZero, Positive, check_bounds
from plaudit.data.generative_judging import (
    CritiqueSettings,
    GenerativeRewardSettings,
    PairwiseRankerSettings,
    QuoteSettings,
)
from plaudit.errors import UserError
from plaudit.methods.config import RunConfig, SampleSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What a group shows of itself, and the shape of the module that looks at it."""

    held_out: tuple[str, ...] = ()
    """Groups that are never trained, by name; none: a share of them, as --held-out says."""
    least: int = 0
    """Fewest comparisons of a group that are shown; with 0 it also learns what groups prefer in general."""
    most: int = 32
    """Most comparisons that are shown."""
    targets: FromOne = 32
    """Most comparisons that are asked about at once."""
    width: FromOne = 64
    """Size of a point inside the module."""
    layers: FromOne = 3
    """How many times points look at each other."""
    heads: FromOne = 4
    """In how many ways at once."""

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise UserError(f"group.least {self.least}, group.most {self.most}: take 0 ≤ least ≤ most")
        check_bounds(self, "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(RunConfig):
    """A run that learns how groups of people differ; the model folder stays as it is and embeds answers."""

    learning_rate: float = 1e-3
    """The peak learning rate."""
    epochs: float = 10.0
    """How many episodes: so many times as there are comparisons."""
    held_out: str = "0.2"
    """The share of the groups that is never trained, at least one; 0 for none."""
    group: GroupSettings = field(default_factory=GroupSettings)
    """What a group shows, and the module."""
    _takes_deepspeed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        # A dataclass with slots is made anew, and a bare super() would still mean the one before.
        RunConfig.__post_init__(self)
        if self.lora.rank or self.shard or self.compile:
            raise UserError(
                "a group run trains a small module beside a frozen model: leave out lora, shard and compile"
            )
        if self.sample != SampleSettings():
            raise UserError("a group run has nothing to say: leave out the settings of sample")
        if self.held_out_share is None:
            raise UserError(f"held_out is the share of the groups that is held out, not {self.held_out}")


LossName = Literal[
    "auto",
    "bradley-terry",
    "davidson",
    "rao-kupper",
    "binary",
    "k-wise",
    "plackett-luce",
    "regression",
    "process",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSettings:
    """What is learnt from judged answers, and where a reward is read."""

    rows: Literal["auto", "comparisons", "rankings", "ratings", "thumbs", "steps"] = "auto"
    """Which rows count, where a file gives several kinds; auto: it gives one."""
    loss: LossName = "auto"
    """What is minimised; auto: bradley-terry, k-wise, regression, binary or process, as the rows are."""
    pooling: Literal["auto", "last", "mean"] = "auto"
    """Read at the end of the answer, or on average over it; auto: last, or what the model was made with."""
    layer: float | None = None
    """Read after this layer, below 1 a share of all, and those above cut off; none: after the last."""
    margin: Literal["given", "none", "small", "large"] = "given"
    """The gap to ask for: each row's own; none; or by its strength 0–3, up to 1 (small) or 3 (large)."""
    smoothing: BelowHalf = 0.0
    """The share of labels believed to be swapped."""
    noise: BelowOne = 0.0
    """The share of labels believed to be given blindly (0.1 in Christiano et al. 2017)."""
    centring: FromZero = 0.0
    """Weight of (r₁ + r₂)², which keeps rewards of comparisons near 0."""
    nll_coef: FromZero = 0.0
    """Weight of −log π per token of the preferred answers, by the language model's frozen head."""
    tie_probability: BelowOne = 0.3
    """How often two equally good answers are called equal (davidson, rao-kupper)."""
    positive_weight: FromZero = 1.0
    """How much a good label weighs against a bad one (binary, process)."""
    aspect: str | None = None
    """Which aspect's ratings count, where rows rate several."""
    head_std: FromZero | None = None
    """Spread of a new head's weights; none: 1/√(width + 1)."""
    normalise: Path | None = None
    """Demonstrations that shall score 0 on average; kept in the model folder."""
    facts: bool = False
    """Read what the rows' field ``facts`` says (a caption) in front of the question; kept in the folder."""

    def __post_init__(self) -> None:
        check_bounds(self, "reward")
        layer = self.layer
        if layer is not None and not (0 < layer < 1 or (layer >= 1 and layer == int(layer))):
            raise UserError(f"reward.layer is a layer from 1 on, or a share of all below 1, not {layer:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleSettings:
    """Several reward models that learn from the same rows drawn anew."""

    members: FromOne = 1
    """How many models; above 1 they lie in members/0, members/1 …"""
    bootstrap: bool = True
    """Whether each draws its own prompts, with replacement; their heads always differ."""
    combine: Literal["mean", "min", "cautious"] = "mean"
    """What they say together: the mean, the least, or the mean less caution times their deviation."""
    caution: FromZero = 1.0
    """How many deviations are taken off (cautious)."""
    member: int | None = None
    """Which of the members this run trains; none: all of them, or the only one."""

    def __post_init__(self) -> None:
        check_bounds(self, "ensemble")
        if self.member is not None and not 0 <= self.member < self.members:
            raise UserError(f"ensemble.member is from 0 to {self.members - 1}, not {self.member}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainingSettings:
    """A first stage on many rows of another kind: preference-model pre-training (Askell et al. 2021)."""

    data: Path | None = None
    """Its rows; none: there is no such stage."""
    loss: LossName = "auto"
    """What it minimises; auto: binary for comparisons and thumbs, each answer being good or bad."""
    epochs: Positive = 1.0
    """How often it goes through them."""
    learning_rate: Positive | None = None
    """Its peak rate; none: the main stage's."""

    def __post_init__(self) -> None:
        check_bounds(self, "pretraining")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig(RunConfig):
    """A run that learns what people want: from judged answers to a model that scores answers.

    Example: ``RewardConfig(model=Path("sft/model"), data=Path("pairs.jsonl"), out=Path("runs/reward"))``
    """

    epochs: float = 1.0
    """How often the data is gone through; reward models overfit after the first time."""
    reward: RewardSettings = field(default_factory=RewardSettings)
    """What is learnt, and where a reward is read."""
    ensemble: EnsembleSettings = field(default_factory=EnsembleSettings)
    """Several models instead of one."""
    pretraining: PretrainingSettings = field(default_factory=PretrainingSettings)
    """A first stage on other rows."""
    _shares_rows: ClassVar[bool] = True
    keeps_best: ClassVar[bool] = True
    """A reward model that has read its rows too often is right on those alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRewardConfig(RunConfig):
    """A run in which a model learns to say whether an answer is good."""

    words: GenerativeRewardSettings = field(default_factory=GenerativeRewardSettings)
    """What is asked and replied."""
    quote: QuoteSettings = field(default_factory=QuoteSettings)
    """How texts are quoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankerConfig(RunConfig):
    """A run in which a model learns to say which of two answers is better."""

    words: PairwiseRankerSettings = field(default_factory=PairwiseRankerSettings)
    """What is asked and replied."""
    quote: QuoteSettings = field(default_factory=QuoteSettings)
    """How texts are quoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticConfig(RunConfig):
    """A run in which a model learns to write critiques, and points that follow from them."""

    words: CritiqueSettings = field(default_factory=CritiqueSettings)
    """What is asked and replied."""
    quote: QuoteSettings = field(default_factory=QuoteSettings)
    """How texts are quoted."""
