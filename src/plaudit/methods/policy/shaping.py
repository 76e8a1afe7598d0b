"""Shaping of scores before they become rewards, in a fixed order, and which completions stay in the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.engine.step_report import Number
from plaudit.rewards.shaping import RunningScale, clipped, length_penalty, replace_unfinished, soft_overlong
from plaudit.tensors.masked import last_token_mask
from plaudit.tokens.batch import TokenBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreShape:
    """How scores are shaped.

    Example: ``ScoreShape(missing_end=-1.0, low=-5.0, high=5.0)``
    """

    missing_end: int | float | None = None
    """The score of a truncated completion, in place of its own."""
    soft_overlong: int = 0
    """Tokens below the maximum length from which a completion is penalised, up to −1."""
    drop_truncated: bool = False
    """Whether truncated completions are left out of the loss."""
    per_token: int | float = 0.0
    """The penalty of a token."""
    low: int | float | None = None
    """The lower clipping bound."""
    high: int | float | None = None
    """The upper clipping bound."""
    scale: bool = False
    """Whether scores are divided by their running standard deviation."""


class ScoreShaper:
    """Shapes the scores of each round; stateful, since it keeps their running scale."""

    def __init__(self, shape: ScoreShape, longest: int) -> None:
        """``longest`` is the most tokens that an answer may have."""
        self._settings, self._max_tokens = shape, longest
        self._scale = RunningScale(shift=False) if shape.scale else None

    def shape(
        self, score_N: Float[Tensor, " N"], batch: TokenBatch, *, update_scale: bool = True
    ) -> Float[Tensor, " N"]:
        """Cut answers first, then costs of length, then limits, then the scale, which takes them in."""
        settings, length_N = self._settings, batch.mask_NT.sum(-1)
        if settings.missing_end is not None:
            score_N = replace_unfinished(score_N, batch.finished_N, score=settings.missing_end)
        if settings.soft_overlong:
            extra_N = soft_overlong(length_N, longest=self._max_tokens, cache=settings.soft_overlong)
            score_N = score_N + extra_N.to(score_N.dtype)
        if settings.per_token:
            score_N = score_N + length_penalty(length_N, per_token=settings.per_token).to(score_N.dtype)
        if settings.low is not None or settings.high is not None:
            low, high = (_value_or(settings.low, -torch.inf), _value_or(settings.high, torch.inf))
            score_N = clipped(score_N, low=low, high=high)
        if self._scale is not None:
            if update_scale:
                self._scale.update(score_N)
            score_N = self._scale.normalise(score_N)
        return score_N

    def shape_payments(
        self, paid_NT: Float[Tensor, "N T"], end_NT: Bool[Tensor, "N T"], finished_N: Bool[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N T"], Bool[Tensor, "N T"]]:
        """Payments before the last token, in the unit of the scores; without them where a score is replaced.

        Whatever else is done to the score of an answer is done at its last token.
        """
        if self._settings.missing_end is not None:
            early_NT = end_NT & ~finished_N[:, None] & ~last_token_mask(end_NT)
            paid_NT, end_NT = paid_NT.masked_fill(early_NT, 0.0), end_NT & ~early_NT
        if self._scale is not None:
            paid_NT = self._scale.normalise(paid_NT.flatten()).view_as(paid_NT)
        return paid_NT, end_NT

    def loss_mask(self, finished_N: Bool[Tensor, " N"]) -> Bool[Tensor, " N"]:
        """The mask of completions that stay in the loss."""
        return finished_N if self._settings.drop_truncated else torch.ones_like(finished_N)

    def after_step(self, step: int, metrics: Mapping[str, Number]) -> None:
        """Does nothing: the scale is updated when a round begins."""
        del step, metrics

    def tensors(self) -> Mapping[str, Tensor]:
        """The running scale."""
        return {"none": torch.zeros(1)} if self._scale is None else self._scale.tensors()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the running scale."""
        if self._scale is not None:
            self._scale.load_tensors(tensors)


def _value_or(value: int | float | None, other: float) -> int | float:
    return other if value is None else value
