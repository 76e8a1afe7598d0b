"""Shares and paired gains of rows of which several belong to one prompt: intervals, and a test."""

from __future__ import annotations

from math import inf, sqrt
from typing import TYPE_CHECKING

import numpy as np

from plaudit.evaluation.stats import Estimate

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def share_estimate(value_B: Float[np.ndarray, " B"], prompt_B: Int[np.ndarray, " B"]) -> Estimate:
    """The mean of numbers from 0 to 1 with Wilson's interval at the size that rows of few prompts are worth.

    The size is p(1 − p)/v, v the variance of the mean by prompts (Kish 1965; Korn and Graubard 1998), and
    Student's t with a degree of freedom for each prompt but one stands for the normal quantile. Percentiles
    of a bootstrap, which centre at the estimate and not between the shares that it could come of, hold the
    truth a little less often. Where all rows are 0 or all are 1, each prompt counts once.
    """
    prompt_index_B = np.unique(prompt_B, return_inverse=True)[1]
    sum_P, rows_P = np.bincount(prompt_index_B, value_B), np.bincount(prompt_index_B)
    prompts, share = len(sum_P), float(value_B.mean())
    low = high = None
    if prompts > 1:
        variance = float(((sum_P - share * rows_P) ** 2).sum()) * prompts / (prompts - 1) / len(value_B) ** 2
        size = prompts if share in (0.0, 1.0) else share * (1 - share) / variance if variance else inf
        low, high = wilson_at_size(share, size, prompts - 1)
    return Estimate(value=share, low=low, high=high, n=len(value_B), prompts=prompts)


def wilson_at_size(share: float, size: float, freedom: int) -> tuple[float, float]:
    """Wilson's interval of a share that is worth so many independent rows, by Student's t."""
    from scipy.stats import t

    spread = float(t.ppf(0.975, freedom)) ** 2 / size
    middle = (share + spread / 2) / (1 + spread)
    half = sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


MAX_SIGN_FLIPS = 9999
"""Sign flips that are sampled where there are more."""


def sign_flip_test(gain_B: Float[np.ndarray, " B"], prompt_B: Int[np.ndarray, " B"]) -> float:
    """The two-sided p-value of Σ gain, when each prompt's sum is as likely to have the other sign.
    Exact where at most 13 prompts differ; with 9,999 drawn ways and a fixed seed elsewhere, so that 0.0002 is
    the least (Fisher 1935; drawn ways: Phipson and Smyth 2010).

    >>> sign_flip_test(np.ones(4), np.arange(4))  # 2 of 2⁴ ways go so far
    0.125
    """
    from scipy.stats import permutation_test

    # One sum a prompt: signs of answers to the same prompt are not independent.
    gain_P = np.bincount(np.unique(prompt_B, return_inverse=True)[1], gain_B)
    # A zero has no sign: it would double the ways and change no sum, and use up what can be exact.
    nonzero_P = gain_P[np.abs(gain_P) > 1e-12]
    if len(nonzero_P) < 2:
        return 1.0
    result = permutation_test(
        (nonzero_P,),
        lambda flipped, axis: flipped.sum(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=MAX_SIGN_FLIPS,
        # SciPy would hold all flips × prompts at once.
        batch=max(1, 2_000_000 // len(nonzero_P)),
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)
