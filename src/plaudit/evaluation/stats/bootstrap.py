"""Shares and means with an interval that resamples prompts.

Pairs of one prompt share its difficulty, and often an answer: resampling them one by one would make the
interval too narrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from jaxtyping import Float, Int

from plaudit.errors import UserError
from plaudit.evaluation.reward_models.result import Estimate

_MAX_CELLS = 2_000_000
_Z_95 = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampling:
    """How the bootstrap draws.

    Example: ``Resampling(times=1000, seed=0)``
    """

    times: int = 1000
    """How often the prompts are drawn anew, with replacement."""
    seed: int = 0
    """The same seed gives the same interval."""

    def __post_init__(self) -> None:
        if self.times < 2:
            raise UserError(f"a bootstrap of {self.times} draws gives no interval: ask for 100 or more")


def bootstrap_mean(
    value_B: Float[np.ndarray, " B"],
    prompt_B: Int[np.ndarray, " B"],
    resampling: Resampling,
    *,
    weight_B: Float[np.ndarray, " B"] | None = None,
    share: bool = True,
) -> Estimate:
    """Σ w part / Σ w with its percentile interval over prompts (Efron 1979; clusters: Field and Welsh 2007).

    Where all is 0 or all is 1, every draw says the same and the interval is Wilson's for so many prompts;
    not for what is no ``share``, such as a length.

    >>> found = bootstrap_mean(np.array([1.0, 0.0, 1.0, 1.0]), np.array([0, 0, 1, 2]), Resampling())
    >>> found.value, found.prompts, found.low < 0.75 < found.high
    (0.75, 3, True)
    """
    if not len(value_B):
        raise ValueError("an estimate of nothing")
    weight_B = np.ones(len(value_B)) if weight_B is None else weight_B
    prompt_index_B = np.unique(prompt_B, return_inverse=True)[1]
    sum_P = np.bincount(prompt_index_B, value_B * weight_B)
    weight_P = np.bincount(prompt_index_B, weight_B)
    low, high = _bootstrap_interval(sum_P, weight_P, resampling, share=share)
    return Estimate(
        value=float(sum_P.sum() / weight_P.sum()), low=low, high=high, n=len(value_B), prompts=len(sum_P)
    )


def _bootstrap_interval(
    sum_P: Float[np.ndarray, " P"], weight_P: Float[np.ndarray, " P"], resampling: Resampling, *, share: bool
) -> tuple[float | None, float | None]:
    if len(sum_P) < 2:
        return None, None
    if share and (sum_P == 0).all():
        return 0.0, wilson_interval(0.0, len(sum_P))[1]
    if share and (sum_P == weight_P).all():
        return wilson_interval(1.0, len(sum_P))[0], 1.0
    rng = np.random.default_rng(resampling.seed)
    rows = max(1, _MAX_CELLS // len(sum_P))
    resampled_means = []
    for start in range(0, resampling.times, rows):
        size = (min(rows, resampling.times - start), len(sum_P))
        prompt_SP = rng.integers(len(sum_P), size=size)
        resampled_means.append(sum_P[prompt_SP].sum(1) / weight_P[prompt_SP].sum(1))
    low, high = np.quantile(np.concatenate(resampled_means), (0.025, 0.975))
    return float(low), float(high)


def wilson_interval(share: int | float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of n that are independent (Wilson 1927).

    >>> [round(end, 3) for end in wilson_interval(0.5, 10)]
    [0.237, 0.763]
    """
    spread = _Z_95 * _Z_95 / n
    middle = (share + spread / 2) / (1 + spread)
    half = _Z_95 * sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)
