"""What remains of a win rate where the features of two answers are equal: the intercept of a regression.

P(mine is preferred) = σ(θ + x·β) on chances from 0 to 1, so σ(θ) is the win rate at x = 0. It is fitted once,
with all faults looked for, and again for every draw of prompts, all draws at once by Newton's steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from plaudit.evaluation.reward_models.result import Estimate
from plaudit.evaluation.stats.bootstrap import Resampling
from plaudit.evaluation.stats.regression import separating_direction

PROMPTS_PER_COEFFICIENT = 10
"""Prompts that a fit needs for each of its coefficients (Peduzzi et al. 1996)."""
MAX_NEWTON_STEPS = 40
"""Newton's, at most; each doubles the digits that are right, so whatever takes more has no end."""
MAX_STEP = 5.0
"""That a coefficient moves in one of them: from far off, Newton's may leap over the top."""
MAX_STANDARD_ERROR = 10.0
"""The standard error of a draw's θ beyond which nothing decides it."""
MAX_UNDECIDED_DRAWS = 0.05
"""The share of undecided draws beyond which there is no interval."""
CONSTANT_DIFFERENCE = "one policy's answers differ from the other's by the same in every pair"
"""Said where the features make up the intercept."""
FULLY_PREDICTED = "how the answers look foretells every verdict, and nothing is left to tell worth by"
"""Said where they decide all by themselves."""
_MAX_CELLS = 2_000_000
_DAMPING = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledWinRate:
    """A win rate at equal features, or why there is none.

    Example: ``ControlledWinRate(value=None, reason="every pair is won, and nothing else can be told")``
    """

    value: Estimate | None
    """σ(θ) with its interval over prompts."""
    reason: str | None = None
    """Why there is none, or what it leaves out."""


def win_rate_at_equal_features(
    x_BF: Float[np.ndarray, "B F"],
    verdict_B: Float[np.ndarray, " B"],
    prompt_B: Int[np.ndarray, " B"],
    resampling: Resampling,
) -> ControlledWinRate:
    """The win rate at equal features, σ(θ) by maximum likelihood, its percentile interval by resampling
    prompts.

    Features that decide pairs alone leave with these pairs, as they do in the limit of the likelihood. θ is
    refused where the features make it up, where they foretell everything, and where prompts are few.

    >>> chance = np.random.default_rng(0)
    >>> x_BF = chance.normal(size=(2000, 1)) + 1
    >>> won_B = (chance.random(2000) < 1 / (1 + np.exp(-x_BF[:, 0]))).astype(float)
    >>> found = win_rate_at_equal_features(x_BF, won_B, np.arange(2000), Resampling(times=200)).value
    >>> round(float(won_B.mean()), 1), found.low < 0.5 < found.high
    (0.7, True)
    """
    # Last, so that whatever the features make up is the intercept, and never one of them in its place.
    design_BC = np.column_stack([x_BF[:, (x_BF != 0).any(0)], np.ones(len(verdict_B))])
    if _needs_more_prompts(prompt_B, 1):
        return ControlledWinRate(value=None, reason=_prompts_needed(prompt_B, 1))
    if verdict_B.min() == verdict_B.max() in (0.0, 1.0):
        outcome = "won" if verdict_B[0] == 1 else "lost"
        return ControlledWinRate(
            value=None, reason=f"every pair is {outcome}, whatever the answers look like"
        )
    rows_B = _undecided_rows(design_BC, verdict_B)
    columns = _independent_columns(design_BC[rows_B])
    if design_BC.shape[1] - 1 not in columns:
        return ControlledWinRate(value=None, reason=CONSTANT_DIFFERENCE if rows_B.all() else FULLY_PREDICTED)
    if _needs_more_prompts(prompt_B[rows_B], len(columns)):
        return ControlledWinRate(value=None, reason=_prompts_needed(prompt_B[rows_B], len(columns)))
    fitted = _fit_with_interval(
        design_BC[rows_B][:, columns], verdict_B[rows_B], prompt_B[rows_B], resampling
    )
    if fitted.value is None or rows_B.all():
        return fitted
    return replace(fitted, reason=f"{(~rows_B).sum()} pairs are left out, whose looks alone decide them")


def _undecided_rows(
    x_BC: Float[np.ndarray, "B C"], verdict_B: Float[np.ndarray, " B"]
) -> Bool[np.ndarray, " B"]:
    """Without the pairs that some weighing decides which is wrong on none: its coefficients have no end."""
    undecided_B = np.ones(len(verdict_B), dtype=bool)
    while (
        undecided_B.any()
        and (beta_C := separating_direction(x_BC[undecided_B], verdict_B[undecided_B])) is not None
    ):
        decided_B = undecided_B & (np.abs(x_BC @ beta_C) > 1e-7)
        if not decided_B.any():
            break
        undecided_B &= ~decided_B
    return undecided_B


def _independent_columns(x_BC: Float[np.ndarray, "B C"]) -> list[int]:
    """The columns that those before them do not make up."""
    columns: list[int] = []
    for column in range(x_BC.shape[1]):
        if np.linalg.matrix_rank(x_BC[:, [*columns, column]]) > len(columns):
            columns.append(column)
    return columns


def _needs_more_prompts(prompt_B: Int[np.ndarray, " B"], size: int) -> bool:
    return len(np.unique(prompt_B)) < PROMPTS_PER_COEFFICIENT * size


def _prompts_needed(prompt_B: Int[np.ndarray, " B"], size: int) -> str:
    coefficients = "one coefficient" if size == 1 else f"{size} coefficients"
    return (
        f"{len(np.unique(prompt_B))} prompts are too few for {coefficients}: it takes "
        f"{PROMPTS_PER_COEFFICIENT * size}"
    )


def _fit_with_interval(
    x_BC: Float[np.ndarray, "B C"],
    verdict_B: Float[np.ndarray, " B"],
    prompt_B: Int[np.ndarray, " B"],
    resampling: Resampling,
) -> ControlledWinRate:
    theta, is_decided = _newton_fits(x_BC, verdict_B, np.ones((1, len(verdict_B))))
    if not is_decided.all():
        return ControlledWinRate(value=None, reason="the verdicts leave it all but open")
    fits = [_newton_fits(x_BC, verdict_B, times_SB) for times_SB in _bootstrap_counts(prompt_B, resampling)]
    theta_S, is_decided_S = (np.concatenate(column) for column in zip(*fits, strict=True))
    if (undecided_share := float((~is_decided_S).mean())) > MAX_UNDECIDED_DRAWS:
        return ControlledWinRate(
            value=None,
            reason=f"in {undecided_share:.0%} of the draws of prompts no pair speaks against the rest",
        )
    low, high = np.quantile(_sigmoid(theta_S), (0.025, 0.975))
    return ControlledWinRate(
        value=Estimate(
            value=float(_sigmoid(theta)[0]),
            low=float(low),
            high=float(high),
            n=len(verdict_B),
            prompts=len(np.unique(prompt_B)),
        )
    )


def _bootstrap_counts(
    prompt_B: Int[np.ndarray, " B"], resampling: Resampling
) -> Iterator[Float[np.ndarray, "S B"]]:
    """How often each pair comes up in each draw of prompts, some draws at a time."""
    prompt_index_B = np.unique(prompt_B, return_inverse=True)[1]
    prompts = int(prompt_index_B.max()) + 1
    rng = np.random.default_rng(resampling.seed)
    rows = max(1, _MAX_CELLS // max(len(prompt_B), prompts))
    for start in range(0, resampling.times, rows):
        size = min(rows, resampling.times - start)
        times_SP = rng.multinomial(prompts, np.full(prompts, 1 / prompts), size=size)
        yield times_SP[:, prompt_index_B].astype(float)


def _newton_fits(
    x_BC: Float[np.ndarray, "B C"], verdict_B: Float[np.ndarray, " B"], times_SB: Float[np.ndarray, "S B"]
) -> tuple[Float[np.ndarray, " S"], Bool[np.ndarray, " S"]]:
    """θ of every draw, and whether it is decided.

    The damping moves no optimum; it holds what has none, and what does not come up in a draw.
    """
    size = x_BC.shape[1]
    square_BCC = (x_BC[:, :, None] * x_BC[:, None, :]).reshape(len(x_BC), size * size)
    whole_S = times_SB.sum(1)
    beta_SC = np.zeros((len(times_SB), size))
    step_SC = np.full_like(beta_SC, np.inf)
    inverse_SCC = np.zeros((len(times_SB), size, size))
    for _ in range(MAX_NEWTON_STEPS):
        fitted_SB = _sigmoid(beta_SC @ x_BC.T)
        slope_SC = (times_SB * (verdict_B - fitted_SB)) @ x_BC
        bend_SCC = ((times_SB * fitted_SB * (1 - fitted_SB)) @ square_BCC).reshape(-1, size, size)
        damping_SCC = _DAMPING * whole_S[:, None, None] * np.eye(size)
        inverse_SCC = np.linalg.inv(bend_SCC + damping_SCC)
        step_SC = np.clip(np.einsum("scd,sd->sc", inverse_SCC, slope_SC), -MAX_STEP, MAX_STEP)
        beta_SC = beta_SC + step_SC
        if np.abs(step_SC).max() < 1e-9:
            break
    decided_S = (np.abs(step_SC[:, -1]) < 1e-6) & (inverse_SCC[:, -1, -1] < MAX_STANDARD_ERROR**2)
    return beta_SC[:, -1], decided_S


def _sigmoid(x: Float[np.ndarray, "*A"]) -> Float[np.ndarray, "*A"]:
    return np.exp(-np.logaddexp(0, -x))
