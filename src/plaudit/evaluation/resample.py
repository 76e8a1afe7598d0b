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
from plaudit.evaluation.result import Estimate

_CELLS = 2_000_000
_Z = 1.959963984540054


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


def estimate(
    part_B: Float[np.ndarray, " B"],
    prompt_B: Int[np.ndarray, " B"],
    resampling: Resampling,
    *,
    weight_B: Float[np.ndarray, " B"] | None = None,
    share: bool = True,
) -> Estimate:
    """Σ w part / Σ w with its percentile interval over prompts (Efron 1979; clusters: Field and Welsh 2007).

    Where all is 0 or all is 1, every draw says the same and the interval is Wilson's for so many prompts;
    not for what is no ``share``, such as a length.

    >>> found = estimate(np.array([1.0, 0.0, 1.0, 1.0]), np.array([0, 0, 1, 2]), Resampling())
    >>> found.value, found.prompts, found.low < 0.75 < found.high
    (0.75, 3, True)
    """
    if not len(part_B):
        raise ValueError("an estimate of nothing")
    weight_B = np.ones(len(part_B)) if weight_B is None else weight_B
    place_B = np.unique(prompt_B, return_inverse=True)[1]
    part_P = np.bincount(place_B, part_B * weight_B)
    whole_P = np.bincount(place_B, weight_B)
    low, high = _interval(part_P, whole_P, resampling, share=share)
    return Estimate(
        value=float(part_P.sum() / whole_P.sum()), low=low, high=high, n=len(part_B), prompts=len(part_P)
    )


def _interval(
    part_P: Float[np.ndarray, " P"], whole_P: Float[np.ndarray, " P"], resampling: Resampling, *, share: bool
) -> tuple[float | None, float | None]:
    if len(part_P) < 2:
        return None, None
    if share and (part_P == 0).all():
        return 0.0, wilson(0.0, len(part_P))[1]
    if share and (part_P == whole_P).all():
        return wilson(1.0, len(part_P))[0], 1.0
    chance = np.random.default_rng(resampling.seed)
    rows = max(1, _CELLS // len(part_P))
    drawn = []
    for start in range(0, resampling.times, rows):
        size = (min(rows, resampling.times - start), len(part_P))
        place_SP = chance.integers(len(part_P), size=size)
        drawn.append(part_P[place_SP].sum(1) / whole_P[place_SP].sum(1))
    low, high = np.quantile(np.concatenate(drawn), (0.025, 0.975))
    return float(low), float(high)


def wilson(share: int | float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of n that are independent (Wilson 1927).

    >>> [round(end, 3) for end in wilson(0.5, 10)]
    [0.237, 0.763]
    """
    spread = _Z * _Z / n
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)
