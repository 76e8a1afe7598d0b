"""What the truth says of the answer that a model likes best of n."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, log

import numpy as np
from jaxtyping import Float

from plaudit.errors import UserError
from plaudit.evaluation.pairs import Scores
from plaudit.evaluation.resample import Resampling, estimate
from plaudit.evaluation.result import BestOf, BestOfCurve
from plaudit.records.judging import Task


def best_of_kl(n: int) -> float:
    """ln n − (n − 1)/n: how far best-of-n is from the policy at most, in nats.

    Exact where no two answers share a reward, an upper bound elsewhere (Beirami et al. 2024,
    arXiv:2401.01879).

    >>> best_of_kl(1), round(best_of_kl(4), 3)
    (0.0, 0.636)
    """
    return log(n) - (n - 1) / n


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


def best_of(
    proxy_N: Float[np.ndarray, " N"], truth_N: Float[np.ndarray, " N"], sizes: Sequence[int]
) -> Float[np.ndarray, " S"]:
    """E_n = Σ_{i=n..N} C(i−1, n−1)/C(N, n) · truth_(i), i the place by proxy from the lowest up.

    The mean truth of the best by proxy over all choices of n from N; answers of the same proxy share the mean
    of their truths, as a fair coin between them does. Nakano et al. 2021 (WebGPT), arXiv:2112.09332.

    >>> best_of(np.array([1.0, 3.0, 2.0]), np.array([0.0, 0.6, 0.9]), [1, 3]).round(6).tolist()
    [0.5, 0.6]
    """
    order = np.argsort(proxy_N, kind="stable")
    _, level_N = np.unique(proxy_N[order], return_inverse=True)
    shared = np.bincount(level_N, truth_N[order]) / np.bincount(level_N)
    total = len(proxy_N)
    return np.array([_weights(total, n) @ shared[level_N] for n in sizes])


def best_of_curve(
    tasks: Sequence[Task], proxies: Scores, truths: Scores, resampling: Resampling
) -> BestOfCurve:
    """The curve over all prompts; a prompt with an answer without verdict is left out of it."""
    rows = [scored_row(task, proxies, truths) for task in tasks]
    kept = [row for row in rows if row is not None]
    if not kept:
        raise UserError("best-of-n: there is no prompt on whose every answer there is a verdict")
    answers = min(len(proxy_N) for proxy_N, _ in kept)
    sizes = [n for n in (2**power for power in range(32)) if n < answers] + [answers]
    truth_PS, proxy_PS, possible_PS = (
        np.stack([best_of(row[by], row[what], sizes) for row in kept])
        for by, what in ((0, 1), (0, 0), (1, 1))
    )
    names = [task.prompt for task, row in zip(tasks, rows, strict=True) if row is not None]
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    prompt_P = np.array([places[name] for name in names], dtype=np.int64)
    return BestOfCurve(
        answers=answers,
        prompts=len(places),
        left_out=len(rows) - len(kept),
        points=tuple(
            BestOf(
                n=n,
                kl=best_of_kl(n),
                truth=estimate(truth_PS[:, place], prompt_P, resampling),
                proxy=float(proxy_PS[:, place].mean()),
                possible=float(possible_PS[:, place].mean()),
            )
            for place, n in enumerate(sizes)
        ),
    )


def scored_row(
    task: Task, proxies: Scores, truths: Scores
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]] | None:
    """The proxies and the truths of a task's answers; None where one of them has no verdict."""
    both = [
        [scores[task.prompt, task.answers, answer] for answer in task.answers] for scores in (proxies, truths)
    ]
    if any(score is None for scores in both for score in scores):
        return None
    return np.array(both[0], dtype=float), np.array(both[1], dtype=float)


def _weights(total: int, n: int) -> Float[np.ndarray, " N"]:
    """C(i−1, n−1)/C(N, n) for i = 1 … N."""
    return np.array([comb(i, n - 1) / comb(total, n) for i in range(total)])
