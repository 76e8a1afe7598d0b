"""What becomes of the reference where a reward chooses among its answers, and how far that leads from it."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np
from jaxtyping import Float

from plaudit.evaluation.best_of import best_of_curve
from plaudit.evaluation.pairs import task_scores
from plaudit.evaluation.policies.drawn import Asked
from plaudit.evaluation.policies.over_optimisation import OverOptimisation, of_best_of
from plaudit.evaluation.resample import Resampling
from plaudit.evaluation.result import BestOfCurve
from plaudit.rewards.reward import Reward
from plaudit.rollouts.sampling import Rollout


def chosen_curve(
    asked: Sequence[Asked],
    groups: Sequence[Sequence[Rollout]],
    scorers: tuple[Reward, Reward],
    resampling: Resampling,
) -> tuple[BestOfCurve, OverOptimisation | None]:
    """The worth by the second scorer of the answer that the first one likes best of n, and where it turns."""
    tasks = [
        question.task((one.answer.text, one.answer.ended) for one in group)
        for question, group in zip(asked, groups, strict=True)
    ]
    proxies, truths = (task_scores(tasks, scorer) for scorer in scorers)
    curve = best_of_curve(tasks, proxies, truths, resampling)
    return curve, of_best_of(tasks, proxies, truths, resampling)


def exact_kl(p_Y: Float[np.ndarray, " Y"], reward_Y: Float[np.ndarray, " Y"], n: int) -> float:
    """KL(best-of-n ‖ π) = Σ_ℓ m_ℓ ln(m_ℓ / q_ℓ), in nats, where all answers can be written out.

    q_ℓ is the chance of an answer of reward ℓ, and m_ℓ = F_ℓⁿ − F_{<ℓ}ⁿ that the best of n has it; among
    equals a fair coin decides, so that within a level nothing changes. At most ln n − (n − 1)/n, and less
    where answers share a reward (Beirami et al. 2024, arXiv:2401.01879).

    >>> same = np.full(8, 1 / 8)
    >>> round(exact_kl(same, np.arange(8.0), 64), 3), exact_kl(same, np.zeros(8), 64)
    (2.078, 0.0)
    """
    if n < 1 or not np.isclose(p_Y.sum(), 1):
        raise ValueError(f"n {n} and chances that add up to {p_Y.sum()}: expected 1 or more, and 1")
    _, level_Y = np.unique(reward_Y, return_inverse=True)
    q_L = np.bincount(level_Y, p_Y)
    up_to_L = np.cumsum(q_L) / q_L.sum()
    below_L = np.concatenate(([0.0], up_to_L[:-1]))
    m_L = up_to_L**n - below_L**n
    return float(sum(m * log(m / q) for m, q in zip(m_L, q_L / q_L.sum(), strict=True) if m > 0))
