"""All that ``plaudit train dpo`` and its relatives can be told; importing this does not import torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from plaudit.errors import UserError
from plaudit.recipes.config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceSettings:
    """The cells of a row; what is not set is as the algorithm has it (``plaudit train --list``).

    Example: ``PreferenceSettings(beta=0.05, smoothing=0.2)``
    """

    beta: float | None = None
    """How dear distance from the reference is: small values let the policy go far."""
    smoothing: float | None = None
    """The share of labels believed to be swapped (cdpo, robust-dpo, exo, aot)."""
    margin: float | None = None
    """The lead that is asked for (simpo's γ)."""
    tau: float | None = None
    """How sharply the two halves are joined (discopop)."""
    odds: float | None = None
    """Weight of the odds ratio (orpo's λ)."""
    desirable: float | None = None
    """Weight of good answers (kto, bco)."""
    undesirable: float | None = None
    """Weight of bad answers (kto, bco)."""
    measure: Literal["auto", "sum", "mean"] = "auto"
    """An answer's log-prob: the sum over its tokens, or their mean."""
    link: Literal["auto", "kl", "forward-kl", "js", "alpha"] = "auto"
    """The divergence from the reference that the loss stands for."""
    alpha: float | None = None
    """Which one of the alpha divergences; 0.5 where none is given (link alpha)."""
    price: float | None = None
    """What a token is charged, in units of Δ (r-dpo's α / β)."""
    tail: float | None = None
    """How much tokens beyond the shorter answer's length count (ld-dpo's α)."""
    hold: float | None = None
    """How much a nat is charged by which a preferred answer has fallen (dpop's λ)."""
    weigh: Literal["auto", "no", "on-policy"] = "auto"
    """Whether pairs count by how likely the policy would say both answers (wpo)."""
    nll: float | None = None
    """How much −log π per token of the preferred answers counts beside the loss."""
    mix: tuple[str, ...] = ()
    """The losses that are added up, as name=weight (mpo)."""

    def __post_init__(self) -> None:
        """Refuse what no loss has a meaning for."""
        for name in ("beta", "tau", "odds"):
            _above(f"preference.{name}", getattr(self, name), inclusive=False)
        for name in ("margin", "desirable", "undesirable", "hold", "nll"):
            _above(f"preference.{name}", getattr(self, name), inclusive=True)
        if self.smoothing is not None and not 0 <= self.smoothing < 0.5:
            raise UserError(f"preference.smoothing is from 0 to below 0.5, not {self.smoothing:g}")
        if self.tau is not None and self.tau > 1:
            raise UserError(
                f"preference.tau is at most 1, not {self.tau:g}: above it the loss can be infinite"
            )
        if self.tail is not None and not 0 <= self.tail <= 1:
            raise UserError(f"preference.tail is from 0 to 1, not {self.tail:g}")
        if self.price is not None and not math.isfinite(self.price):
            raise UserError(f"preference.price is a number, not {self.price}")
        if self.alpha is not None and not (math.isfinite(self.alpha) and self.alpha != 0):
            raise UserError(f"preference.alpha is a number other than 0 (0 is link kl), not {self.alpha}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSettings:
    """The policy that the new one is compared with.

    Example: ``ReferenceSettings(kind="live")``
    """

    kind: Literal["auto", "precomputed", "live", "average", "none"] = "auto"
    """Computed once and kept, asked at each step, following, or none. auto: precomputed, or live."""
    model: Path | None = None
    """Its folder; none: the model that the run starts from."""
    cache: Path | None = None
    """Where precomputed log-probs are kept; none: plaudit in the user's cache folder."""
    every: int | None = None
    """Steps between moves of an average reference; none: 64."""
    share: float | None = None
    """How far it moves towards the policy; 1 copies it. none: 0.6."""

    def __post_init__(self) -> None:
        """Refuse a reference that never moves."""
        if self.every is not None and self.every < 1:
            raise UserError(f"reference.every must be at least 1, not {self.every}")
        if self.share is not None and not 0 < self.share <= 1:
            raise UserError(f"reference.share is above 0 and at most 1, not {self.share:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSettings:
    """The data in parts, one after another; each part's result is the next one's start and reference.

    Example: ``StageSettings(parts=3)``
    """

    parts: int = 1
    """How many; above 1 they lie in parts/0, parts/1 …, and their prompts follow the file's order."""
    part: int | None = None
    """Which of them this run trains; none: all of them, or the only one."""

    def __post_init__(self) -> None:
        """Refuse a run without parts."""
        if self.parts < 1:
            raise UserError(f"stages.parts must be at least 1, not {self.parts}")
        if self.part is not None and not 0 <= self.part < self.parts:
            raise UserError(f"stages.part is from 0 to {self.parts - 1}, not {self.part}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceConfig(RunConfig):
    """A run that learns a policy from what people preferred.

    Example: ``PreferenceConfig(model=Path("sft/model"), data=Path("pairs.jsonl"), out=Path("runs/dpo"))``
    """

    epochs: float = 1.0
    """How often the data is gone through."""
    learning_rate: float = 1e-6
    """The peak learning rate; a tenth of what demonstrations are learnt with, LoRA about ten times more."""
    preference: PreferenceSettings = field(default_factory=PreferenceSettings)
    """The cells of the row."""
    reference: ReferenceSettings = field(default_factory=ReferenceSettings)
    """The policy that the new one is compared with."""
    stages: StageSettings = field(default_factory=StageSettings)
    """The data in parts."""


def _above(name: str, value: float | None, *, inclusive: bool) -> None:
    if value is None:
        return
    if not math.isfinite(value) or value < 0 or (value == 0 and not inclusive):
        raise UserError(f"{name} must be a number {'from 0 on' if inclusive else 'above 0'}, not {value:g}")
