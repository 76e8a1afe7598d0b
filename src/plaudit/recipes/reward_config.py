"""All that ``plaudit train reward`` can be told; importing this does not import torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from plaudit.errors import UserError
from plaudit.recipes.config import RunConfig

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
"""What a reward can be learnt by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSettings:
    """What is learnt from judged answers, and where a reward is read.

    Example: ``RewardSettings(noise=0.1, normalise=Path("demonstrations.jsonl"))``
    """

    rows: Literal["auto", "comparisons", "rankings", "ratings", "thumbs", "steps"] = "auto"
    """Which rows count, where a file gives several kinds; auto: it gives one."""
    loss: LossName = "auto"
    """What is minimised; auto: bradley-terry, k-wise, regression, binary or process, as the rows are."""
    pooling: Literal["auto", "last", "mean"] = "auto"
    """Read at the end of the answer, or on average over it; auto: last, or what the model was made with."""
    margin: Literal["given", "none", "small", "large"] = "given"
    """The gap to ask for: each row's own; none; or by its strength 0–3, up to 1 (small) or 3 (large)."""
    smoothing: float = 0.0
    """The share of labels believed to be swapped."""
    noise: float = 0.0
    """The share of labels believed to be given blindly (0.1 in Christiano et al. 2017)."""
    centring: float = 0.0
    """Weight of (r₁ + r₂)², which keeps rewards of comparisons near 0."""
    tie_chance: float = 0.3
    """How often two equally good answers are called equal (davidson, rao-kupper)."""
    positive_weight: float = 1.0
    """How much a good label weighs against a bad one (binary, process)."""
    aspect: str | None = None
    """Which aspect's ratings count, where rows rate several."""
    head_std: float | None = None
    """Spread of a new head's weights; none: 1/√(width + 1)."""
    normalise: Path | None = None
    """Demonstrations that shall score 0 on average; kept in the model folder."""

    def __post_init__(self) -> None:
        """Refuse what no chance can be."""
        _within("reward.smoothing", self.smoothing, 0.0, 0.5)
        _within("reward.noise", self.noise, 0.0, 1.0)
        _within("reward.tie_chance", self.tie_chance, 0.0, 1.0)
        for name in ("centring", "positive_weight"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise UserError(f"reward.{name} must be a number from 0 on, not {value}")
        if self.head_std is not None and not 0 <= self.head_std < math.inf:
            raise UserError(f"reward.head_std must be a number from 0 on, not {self.head_std}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleSettings:
    """Several reward models that learn from the same rows drawn anew.

    Example: ``EnsembleSettings(members=5, combine="cautious", caution=1.0)``
    """

    members: int = 1
    """How many models; above 1 they lie in members/0, members/1 …"""
    bootstrap: bool = True
    """Whether each draws its own prompts, with replacement; their heads always differ."""
    combine: Literal["mean", "min", "cautious"] = "mean"
    """What they say together: the mean, the least, or the mean less caution times their deviation."""
    caution: float = 1.0
    """How many deviations are taken off (cautious)."""
    member: int | None = None
    """Which of the members this run trains; none: all of them, or the only one."""

    def __post_init__(self) -> None:
        """Refuse a choir without voices."""
        if self.members < 1:
            raise UserError(f"ensemble.members must be at least 1, not {self.members}")
        if self.member is not None and not 0 <= self.member < self.members:
            raise UserError(f"ensemble.member is from 0 to {self.members - 1}, not {self.member}")
        if not 0 <= self.caution < math.inf:
            raise UserError(f"ensemble.caution must be a number from 0 on, not {self.caution}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainingSettings:
    """A first stage on many rows of another kind: preference-model pre-training (Askell et al. 2021).

    Example: ``PretrainingSettings(data=Path("votes.jsonl"))``
    """

    data: Path | None = None
    """Its rows; none: there is no such stage."""
    loss: LossName = "auto"
    """What it minimises; auto: binary for comparisons and thumbs, each answer being good or bad."""
    epochs: float = 1.0
    """How often it goes through them."""
    learning_rate: float | None = None
    """Its peak rate; none: the main stage's."""

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        for name in ("epochs", "learning_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UserError(f"pretraining.{name} must be a number above 0, not {value}")


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


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value < most:
        raise UserError(f"{name} is from {least:g} to below {most:g}, not {value:g}")
