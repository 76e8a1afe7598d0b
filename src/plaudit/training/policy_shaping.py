"""What is done to the scores of a round before they teach, in a fixed order, and which answers stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.batches.tokens import TokenBatch
from plaudit.rewards.shaping import (
    RunningScale,
    clipped,
    length_penalty,
    missing_end,
    soft_overlong,
)
from plaudit.tensors.masked import last_places
from plaudit.training.metrics import Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is done to scores.

    Example: ``Shape(missing_end=-1.0, low=-5.0, high=5.0)``
    """

    missing_end: int | float | None = None
    """The score of an answer that was cut, in place of its own."""
    soft_overlong: int = 0
    """Tokens below the longest length from which an answer is punished, up to −1."""
    drop_cut: bool = False
    """Whether answers that were cut are left out of the loss."""
    per_token: int | float = 0.0
    """What a token costs."""
    low: int | float | None = None
    """Scores below it become it."""
    high: int | float | None = None
    """Scores above it become it."""
    scale: bool = False
    """Whether scores are divided by the deviation of all so far."""


class Shaper:
    """Shapes the scores of each round; a companion of the run, since it remembers their scale."""

    def __init__(self, shape: Shape, longest: int) -> None:
        """``longest`` is the most tokens that an answer may have."""
        self._shape, self._longest = shape, longest
        self._scale = RunningScale(shift=False) if shape.scale else None

    def of(
        self, score_N: Float[Tensor, " N"], batch: TokenBatch, *, takes_in: bool = True
    ) -> Float[Tensor, " N"]:
        """Cut answers first, then costs of length, then limits, then the scale, which takes them in."""
        shape, length_N = self._shape, batch.mask_NT.sum(-1)
        if shape.missing_end is not None:
            score_N = missing_end(score_N, batch.finished_N, score=shape.missing_end)
        if shape.soft_overlong:
            extra_N = soft_overlong(length_N, longest=self._longest, cache=shape.soft_overlong)
            score_N = score_N + extra_N.to(score_N.dtype)
        if shape.per_token:
            score_N = score_N + length_penalty(length_N, per_token=shape.per_token).to(score_N.dtype)
        if shape.low is not None or shape.high is not None:
            low, high = (_or(shape.low, -torch.inf), _or(shape.high, torch.inf))
            score_N = clipped(score_N, low=low, high=high)
        if self._scale is not None:
            if takes_in:
                self._scale.take_in(score_N)
            score_N = self._scale.of(score_N)
        return score_N

    def on_the_way(
        self, paid_NT: Float[Tensor, "N T"], end_NT: Bool[Tensor, "N T"], finished_N: Bool[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N T"], Bool[Tensor, "N T"]]:
        """Payments before the last token, in the unit of the scores; without them where a score is replaced.

        Whatever else is done to the score of an answer is done at its last token.
        """
        if self._shape.missing_end is not None:
            early_NT = end_NT & ~finished_N[:, None] & ~last_places(end_NT)
            paid_NT, end_NT = paid_NT.masked_fill(early_NT, 0.0), end_NT & ~early_NT
        if self._scale is not None:
            paid_NT = self._scale.of(paid_NT.flatten()).view_as(paid_NT)
        return paid_NT, end_NT

    def kept(self, finished_N: Bool[Tensor, " N"]) -> Bool[Tensor, " N"]:
        """Which answers stay in the loss."""
        return finished_N if self._shape.drop_cut else torch.ones_like(finished_N)

    def after(self, step: int, figures: Mapping[str, Number]) -> None:
        """Nothing: scores are taken in when a round begins."""
        del step, figures

    def tensors(self) -> Mapping[str, Tensor]:
        """What it remembers."""
        return {"none": torch.zeros(1)} if self._scale is None else self._scale.tensors()

    def take_up(self, tensors: Mapping[str, Tensor]) -> None:
        """The scale as it was."""
        if self._scale is not None:
            self._scale.take_up(tensors)


def _or(value: int | float | None, other: float) -> int | float:
    return other if value is None else value
