"""Whether a difference between two that were asked the same could be chance: signs are flipped by prompt."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

FLIPS = 9999
"""Ways to flip signs that are drawn, where there are more."""


def flip_test(gain_B: Float[np.ndarray, " B"], prompt_B: Int[np.ndarray, " B"]) -> float:
    """The two-sided p-value of Σ gain, when each prompt's sum is as likely to have the other sign.

    Exact where at most 13 prompts differ; with 9,999 drawn ways and a fixed seed elsewhere, so that 0.0002 is
    the least (Fisher 1935; drawn ways: Phipson and Smyth 2010).

    >>> flip_test(np.ones(4), np.arange(4))  # 2 of 2⁴ ways go so far
    0.125
    """
    from scipy.stats import permutation_test

    gain_P = np.bincount(np.unique(prompt_B, return_inverse=True)[1], gain_B)
    moved_P = gain_P[np.abs(gain_P) > 1e-12]
    if len(moved_P) < 2:
        return 1.0
    found = permutation_test(
        (moved_P,),
        lambda flipped, axis: flipped.sum(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=FLIPS,
        batch=max(1, 2_000_000 // len(moved_P)),
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)
