"""What a win rate would be if both answers were of equal length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plaudit.evaluation.columns import numbered
from plaudit.evaluation.policies.dueled import Dueled, judged, verdicts
from plaudit.evaluation.policies.logistic import Controlled, at_equal
from plaudit.evaluation.resample import Resampling, estimate


def length_controlled(duels: Sequence[Dueled], resampling: Resampling) -> Controlled:
    """σ(θ) of P(mine is preferred) = σ(θ + φ·tanh(Δ/s)), Δ mine less theirs in characters, s its deviation.

    The minimal form of AlpacaEval 2 (Dubois et al. 2024, arXiv:2404.04475), without its terms for the
    difficulty of its own 805 prompts. Both policies are treated alike: seen from the other side it is
    1 − σ(θ). Where all pairs are of equal length there is nothing to control, and it is the raw win rate.

    >>> said = [(f"q{n}", n % 2) for n in range(20)]
    >>> even = [Dueled(prompt=q, mine="ab", theirs="cd", forward=v, backward=v) for q, v in said]
    >>> length_controlled(even, Resampling()).value.value
    0.5
    """
    told = judged(duels)
    if not told:
        return Controlled(value=None, reason="there is no verdict")
    chance_B = verdicts(told)
    prompt_B = numbered([duel.prompt for duel in told])
    longer_B = np.array([len(duel.mine) - len(duel.theirs) for duel in told], dtype=float)
    if not longer_B.any():
        return Controlled(value=estimate(chance_B, prompt_B, resampling))
    # A difference that is the same throughout is refused further down; any yardstick does until then.
    moved_B = np.tanh(longer_B / (longer_B.std() or 1.0))
    return at_equal(moved_B[:, None], chance_B, prompt_B, resampling)
