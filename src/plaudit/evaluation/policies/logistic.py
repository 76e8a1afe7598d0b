"""What remains of a win rate where the features of two answers are equal: the intercept of a regression.

P(mine is preferred) = σ(θ + x·β) on chances from 0 to 1, so σ(θ) is the win rate at x = 0. It is fitted once,
with all faults looked for, and again for every draw of prompts, all draws at once by Newton's steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from plaudit.evaluation.odds import separating
from plaudit.evaluation.resample import Resampling
from plaudit.evaluation.result import Estimate

EACH = 10
"""Prompts that a fit needs for each of its coefficients (Peduzzi et al. 1996)."""
STEPS = 40
"""Newton's, at most; each doubles the digits that are right, so whatever takes more has no end."""
FARTHEST = 5.0
"""That a coefficient moves in one of them: from far off, Newton's may leap over the top."""
VAGUE = 10.0
"""The standard error of a draw's θ beyond which nothing decides it."""
LOST = 0.05
"""The share of undecided draws beyond which there is no interval."""
SAME = "one policy's answers differ from the other's by the same in every pair"
"""Said where the features make up the intercept."""
FORETOLD = "how the answers look foretells every verdict, and nothing is left to tell worth by"
"""Said where they decide all by themselves."""
_CELLS = 2_000_000
_DAMPING = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class Controlled:
    """A win rate at equal features, or why there is none.

    Example: ``Controlled(value=None, reason="every pair is won, and nothing else can be told")``
    """

    value: Estimate | None
    """σ(θ) with its interval over prompts."""
    reason: str | None = None
    """Why there is none, or what it leaves out."""


def at_equal(
    x_BF: Float[np.ndarray, "B F"],
    chance_B: Float[np.ndarray, " B"],
    prompt_B: Int[np.ndarray, " B"],
    resampling: Resampling,
) -> Controlled:
    """σ(θ) by maximum likelihood, its percentile interval by drawing prompts anew.

    Features that decide pairs alone leave with these pairs, as they do in the limit of the likelihood. θ is
    refused where the features make it up, where they foretell everything, and where prompts are few.

    >>> chance = np.random.default_rng(0)
    >>> x_BF = chance.normal(size=(2000, 1)) + 1
    >>> won_B = (chance.random(2000) < 1 / (1 + np.exp(-x_BF[:, 0]))).astype(float)
    >>> found = at_equal(x_BF, won_B, np.arange(2000), Resampling(times=200)).value
    >>> round(float(won_B.mean()), 1), found.low < 0.5 < found.high
    (0.7, True)
    """
    # Last, so that whatever the features make up is the intercept, and never one of them in its place.
    design_BC = np.column_stack([x_BF[:, (x_BF != 0).any(0)], np.ones(len(chance_B))])
    if _few(prompt_B, 1):
        return Controlled(value=None, reason=_too_few(prompt_B, 1))
    if chance_B.min() == chance_B.max() in (0.0, 1.0):
        outcome = "won" if chance_B[0] == 1 else "lost"
        return Controlled(value=None, reason=f"every pair is {outcome}, whatever the answers look like")
    rows_B = _undecided(design_BC, chance_B)
    kept = _independent(design_BC[rows_B])
    if design_BC.shape[1] - 1 not in kept:
        return Controlled(value=None, reason=SAME if rows_B.all() else FORETOLD)
    if _few(prompt_B[rows_B], len(kept)):
        return Controlled(value=None, reason=_too_few(prompt_B[rows_B], len(kept)))
    drawn = _drawn(design_BC[rows_B][:, kept], chance_B[rows_B], prompt_B[rows_B], resampling)
    if drawn.value is None or rows_B.all():
        return drawn
    return replace(drawn, reason=f"{(~rows_B).sum()} pairs are left out, whose looks alone decide them")


def _undecided(x_BC: Float[np.ndarray, "B C"], chance_B: Float[np.ndarray, " B"]) -> Bool[np.ndarray, " B"]:
    """Without the pairs that some weighing decides which is wrong on none: its coefficients have no end."""
    rows_B = np.ones(len(chance_B), dtype=bool)
    while rows_B.any() and (beta_C := separating(x_BC[rows_B], chance_B[rows_B])) is not None:
        decided_B = rows_B & (np.abs(x_BC @ beta_C) > 1e-7)
        if not decided_B.any():
            break
        rows_B &= ~decided_B
    return rows_B


def _independent(x_BC: Float[np.ndarray, "B C"]) -> list[int]:
    """The columns that those before them do not make up."""
    kept: list[int] = []
    for column in range(x_BC.shape[1]):
        if np.linalg.matrix_rank(x_BC[:, [*kept, column]]) > len(kept):
            kept.append(column)
    return kept


def _few(prompt_B: Int[np.ndarray, " B"], size: int) -> bool:
    return len(np.unique(prompt_B)) < EACH * size


def _too_few(prompt_B: Int[np.ndarray, " B"], size: int) -> str:
    coefficients = "one coefficient" if size == 1 else f"{size} coefficients"
    return f"{len(np.unique(prompt_B))} prompts are too few for {coefficients}: it takes {EACH * size}"


def _drawn(
    x_BC: Float[np.ndarray, "B C"],
    chance_B: Float[np.ndarray, " B"],
    prompt_B: Int[np.ndarray, " B"],
    resampling: Resampling,
) -> Controlled:
    theta, told = _newton(x_BC, chance_B, np.ones((1, len(chance_B))))
    if not told.all():
        return Controlled(value=None, reason="the verdicts leave it all but open")
    parts = [_newton(x_BC, chance_B, times_SB) for times_SB in _times(prompt_B, resampling)]
    theta_S, told_S = (np.concatenate(column) for column in zip(*parts, strict=True))
    if (lost := float((~told_S).mean())) > LOST:
        return Controlled(
            value=None, reason=f"in {lost:.0%} of the draws of prompts no pair speaks against the rest"
        )
    low, high = np.quantile(_sigmoid(theta_S), (0.025, 0.975))
    return Controlled(
        value=Estimate(
            value=float(_sigmoid(theta)[0]),
            low=float(low),
            high=float(high),
            n=len(chance_B),
            prompts=len(np.unique(prompt_B)),
        )
    )


def _times(prompt_B: Int[np.ndarray, " B"], resampling: Resampling) -> Iterator[Float[np.ndarray, "S B"]]:
    """How often each pair comes up in each draw of prompts, some draws at a time."""
    place_B = np.unique(prompt_B, return_inverse=True)[1]
    prompts = int(place_B.max()) + 1
    chance = np.random.default_rng(resampling.seed)
    rows = max(1, _CELLS // max(len(prompt_B), prompts))
    for start in range(0, resampling.times, rows):
        size = min(rows, resampling.times - start)
        times_SP = chance.multinomial(prompts, np.full(prompts, 1 / prompts), size=size)
        yield times_SP[:, place_B].astype(float)


def _newton(
    x_BC: Float[np.ndarray, "B C"], chance_B: Float[np.ndarray, " B"], times_SB: Float[np.ndarray, "S B"]
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
    for _ in range(STEPS):
        fitted_SB = _sigmoid(beta_SC @ x_BC.T)
        slope_SC = (times_SB * (chance_B - fitted_SB)) @ x_BC
        bend_SCC = ((times_SB * fitted_SB * (1 - fitted_SB)) @ square_BCC).reshape(-1, size, size)
        damping_SCC = _DAMPING * whole_S[:, None, None] * np.eye(size)
        inverse_SCC = np.linalg.inv(bend_SCC + damping_SCC)
        step_SC = np.clip(np.einsum("scd,sd->sc", inverse_SCC, slope_SC), -FARTHEST, FARTHEST)
        beta_SC = beta_SC + step_SC
        if np.abs(step_SC).max() < 1e-9:
            break
    decided_S = (np.abs(step_SC[:, -1]) < 1e-6) & (inverse_SCC[:, -1, -1] < VAGUE**2)
    return beta_SC[:, -1], decided_S


def _sigmoid(x: Float[np.ndarray, "*A"]) -> Float[np.ndarray, "*A"]:
    return np.exp(-np.logaddexp(0, -x))
