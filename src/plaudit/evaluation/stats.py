"""Intervals by the bootstrap over prompts, and logistic regressions of preferences on features.

P(first preferred) = σ(Σ β_f · (f(first) − f(second))), without an intercept, so that it does not matter which
answer is called the first. Several judges of the same pairs are fitted together: their coefficients do not
touch, but their errors are clustered by prompt across judges, which gives ratios of odds an honest interval.

What remains of a win rate where the features of two answers are equal: the intercept of a regression.

P(mine is preferred) = σ(θ + x·β) on chances from 0 to 1, so σ(θ) is the win rate at x = 0. It is fitted once,
with all faults looked for, and again for every draw of prompts, all draws at once by Newton's steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from plaudit.errors import UserError

# The label store reads this module, and must not load what only names shapes.
if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

_MAX_CELLS = 2_000_000
_Z_95 = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its 95 % interval.

    Example: ``Estimate(value=0.71, low=0.66, high=0.75, n=400, prompts=180)``
    """

    value: float
    """The estimate."""
    low: float | None
    """The lower end of the interval; None where one prompt alone cannot give one."""
    high: float | None
    """The upper end of the interval."""
    n: int
    """How many pairs (or answers) it rests on."""
    prompts: int
    """How many prompts these belong to: the units that are resampled."""

    def text(self, form: str = ".1%") -> str:
        """The number and its interval, where it has one: 71.0% (66.0%–75.0%)."""
        ends = [format(end, form) for end in (self.low, self.high) if end is not None]
        return f"{self.value:{form}}" + (f" ({'–'.join(ends)})" if len(ends) == 2 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    low: float
    high: float
    confidence: float
    """The mean of σ(|r₁ − r₂|), from ½ to 1."""
    right: float
    """How often the answer that the model prefers is the preferred one."""
    pairs: int


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
    Where all is 0 or all is 1, every draw says the same and the interval is Wilson's for so many prompts; not
    for what is no ``share``, such as a length."""
    if not len(value_B):
        raise ValueError("an estimate of nothing")
    weight_B = np.ones(len(value_B)) if weight_B is None else weight_B
    # Whole prompts are drawn, never rows: answers to one prompt agree, and rows would narrow the interval.
    prompt_index_B = np.unique(prompt_B, return_inverse=True)[1]
    sum_P = np.bincount(prompt_index_B, value_B * weight_B)
    weight_P = np.bincount(prompt_index_B, weight_B)
    low, high = _bootstrap_interval(sum_P, weight_P, resampling, share=share)
    value = float(sum_P.sum() / weight_P.sum())
    return Estimate(value=value, low=low, high=high, n=len(value_B), prompts=len(sum_P))


def bootstrap_gap(
    value_B: Float[np.ndarray, " B"],
    prompt_B: Int[np.ndarray, " B"],
    in_first_B: Bool[np.ndarray, " B"],
    resampling: Resampling,
) -> Estimate:
    """The mean of the first part less that of the rest, with its percentile interval over prompts.
    Prompts are drawn once for both parts: what they share in difficulty cancels.

    >>> values, first = np.array([1.0, 0.0, 1.0, 0.0]), np.array([True, False, True, False])
    >>> bootstrap_gap(values, np.array([0, 0, 1, 1]), first, Resampling()).value
    1.0
    """
    prompt_index_B = np.unique(prompt_B, return_inverse=True)[1]
    prompts = int(prompt_index_B.max()) + 1
    parts = [
        (np.bincount(prompt_index_B, value_B * part_B, prompts), np.bincount(prompt_index_B, part_B, prompts))
        for part_B in (in_first_B.astype(float), 1.0 - in_first_B)
    ]
    value = [float(sum_P.sum() / weight_P.sum()) for sum_P, weight_P in parts]
    rng, gaps = np.random.default_rng(resampling.seed), list[float]()
    for _ in range(resampling.times):
        prompt_P = rng.integers(prompts, size=prompts)
        weights = [weight_P[prompt_P].sum() for _, weight_P in parts]
        # A draw without anybody of one part says nothing of how far both are apart.
        if all(weights):
            first, other = (sum_P[prompt_P].sum() for sum_P, _ in parts)
            gaps.append(float(first / weights[0] - other / weights[1]))
    low = high = None
    if prompts > 1 and gaps:
        low, high = map(float, np.quantile(gaps, interval_levels(prompts)))
    return Estimate(value=value[0] - value[1], low=low, high=high, n=len(value_B), prompts=prompts)


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
    # Draws × prompts indices at once would not fit in memory for a large set.
    rows = max(1, _MAX_CELLS // len(sum_P))
    resampled_means = []
    for start in range(0, resampling.times, rows):
        size = (min(rows, resampling.times - start), len(sum_P))
        prompt_SP = rng.integers(len(sum_P), size=size)
        # A ratio of sums and not a mean of means: a prompt with more answers weighs more, as in the estimate.
        resampled_means.append(sum_P[prompt_SP].sum(1) / weight_P[prompt_SP].sum(1))
    low, high = np.quantile(np.concatenate(resampled_means), interval_levels(len(sum_P)))
    return float(low), float(high)


def interval_levels(prompts: int) -> tuple[float, float]:
    """The quantiles of a bootstrap's draws between which a 95 % interval lies.
    Draws of few prompts lie too close together, by √((n − 1)/n), and know of no t distribution: percentiles
    that are taken further out make up for both (Hesterberg 2015, arXiv:1411.5279).

    >>> [round(interval_levels(prompts)[0], 4) for prompts in (10, 40, 1000)]
    [0.0086, 0.0203, 0.0248]
    """
    from scipy.special import ndtr, stdtrit

    low = float(ndtr(sqrt(prompts / (prompts - 1)) * stdtrit(prompts - 1, 0.025)))
    return low, 1 - low


def wilson_interval(share: int | float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of n that are independent (Wilson 1927).

    >>> [round(end, 3) for end in wilson_interval(0.5, 10)]
    [0.237, 0.763]
    """
    spread = _Z_95 * _Z_95 / n
    middle = (share + spread / 2) / (1 + spread)
    half = _Z_95 * sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


NEVER_DIFFERS = "no two answers differ in it"
DECIDED_BY_OTHERS = "wherever two answers differ in it, they also differ in what decides alone"
COLLINEAR = "it always comes along with other features, and cannot be told apart from them"
ALWAYS_PREFERRED = "always for"
NEVER_PREFERRED = "always against"
PERFECTLY_SEPARATED = "the features together foretell every preference, so that no odds can be given"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFit:
    coefficient_index: Mapping[int, int]
    faults: Mapping[int, str]
    is_fitted_B: Bool[np.ndarray, " B"]
    """The pairs that it was fitted on: without those that a single feature decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionFit:
    beta: Float[np.ndarray, " C"]
    """The log-odds for one unit of each feature, judge after judge."""
    covariance: Float[np.ndarray, "C C"]
    """Clustered by prompt (Liang and Zeger 1986)."""
    fits: Mapping[str, JudgeFit]


def fit_judges(
    x_BF: Float[np.ndarray, "B F"],
    preferred_by_judge: Mapping[str, Float[np.ndarray, " B"]],
    prompt_B: Int[np.ndarray, " B"],
) -> RegressionFit:
    """Fit every judge on what can be fitted; a preference is a chance from 0 to 1, ½ prefers neither."""
    fits: dict[str, JudgeFit] = {}
    start = 0
    for name, y_B in preferred_by_judge.items():
        estimable, faults, is_fitted_B = _estimable_features(x_BF, y_B)
        coefficient_index = {feature: start + index for index, feature in enumerate(estimable)}
        fits[name] = JudgeFit(coefficient_index=coefficient_index, faults=faults, is_fitted_B=is_fitted_B)
        start += len(estimable)
    if not start:
        return RegressionFit(beta=np.zeros(0), covariance=np.zeros((0, 0)), fits=fits)
    beta, covariance = _fit_logistic(*_stack_judges(x_BF, preferred_by_judge, prompt_B, fits, start))
    return RegressionFit(beta=beta, covariance=covariance, fits=fits)


def _estimable_features(
    x_BF: Float[np.ndarray, "B F"], y_B: Float[np.ndarray, " B"]
) -> tuple[list[int], dict[int, str], Bool[np.ndarray, " B"]]:
    """The features that have a finite coefficient, why the others have none, and the pairs that are left."""
    # A feature that decides a preference wherever it differs has an infinite one; in the limit the pairs that
    # it decides say nothing about the others, so they leave with it.
    is_fitted_B = np.ones(len(y_B), dtype=bool)
    estimable = list(range(x_BF.shape[1]))
    faults: dict[int, str] = {}
    # One fault at a time: the pairs that leave with a feature can leave another one without any.
    while True:
        fault_found = next(
            ((f, why) for f in estimable if (why := _feature_fault(x_BF[is_fitted_B, f], y_B[is_fitted_B]))),
            None,
        )
        if fault_found is None:
            break
        feature, why = fault_found
        estimable.remove(feature)
        faults[feature] = DECIDED_BY_OTHERS if why == NEVER_DIFFERS and (x_BF[:, feature] != 0).any() else why
        if why != NEVER_DIFFERS:
            is_fitted_B = is_fitted_B & (x_BF[:, feature] == 0)
    # Only now, on the pairs that stay, for rank can fall as pairs leave; the later column takes the blame.
    for feature in list(estimable):
        earlier = [other for other in estimable if other < feature]
        if np.linalg.matrix_rank(x_BF[is_fitted_B][:, [*earlier, feature]]) <= len(earlier):
            faults[feature] = COLLINEAR
            estimable.remove(feature)
    if estimable and separating_direction(x_BF[is_fitted_B][:, estimable], y_B[is_fitted_B]) is not None:
        faults.update(dict.fromkeys(estimable, PERFECTLY_SEPARATED))
        estimable = []
    return estimable, faults, is_fitted_B


def _feature_fault(x_B: Float[np.ndarray, " B"], y_B: Float[np.ndarray, " B"]) -> str | None:
    differs_B = x_B != 0
    if not differs_B.any():
        return NEVER_DIFFERS
    # A soft label lands strictly between −1 and 1 and decides nothing, so its odds stay finite.
    agrees_B = np.sign(x_B[differs_B]) * (2 * y_B[differs_B] - 1)
    return ALWAYS_PREFERRED if (agrees_B == 1).all() else NEVER_PREFERRED if (agrees_B == -1).all() else None


def separating_direction(
    x_BF: Float[np.ndarray, "B F"], y_B: Float[np.ndarray, " B"]
) -> Float[np.ndarray, " F"] | None:
    """A weighing of the features that is never wrong and not always silent (Albert, Anderson 1984).

    >>> separating_direction(np.array([[1.0], [2.0]]), np.array([1.0,
    ...     1.0])), separating_direction(np.eye(1), np.array([0.5]))
    (array([1.]), None)
    """
    from scipy.optimize import linprog

    is_decided_B = (y_B == 0) | (y_B == 1)
    # Signed so that the preferred side is positive: w separates where signed @ w ≥ 0, and > 0 somewhere.
    signed = (2 * y_B[is_decided_B] - 1)[:, None] * x_BF[is_decided_B]
    if not is_decided_B.any():
        return None
    # A soft label punishes large x @ w either way, so only w with x @ w = 0 there can grow without end.
    undecided = x_BF[~is_decided_B]
    equal = {"A_eq": undecided, "b_eq": np.zeros(len(undecided))} if len(undecided) else {}
    # Bounded, since every multiple of a separating w separates too, and the maximum would be infinite.
    solution = linprog(-signed.sum(0), A_ub=-signed, b_ub=np.zeros(len(signed)), bounds=(-1, 1), **equal)
    return np.asarray(solution.x, dtype=float) if solution.success and -solution.fun > 1e-7 else None


def _stack_judges(
    x_BF: Float[np.ndarray, "B F"],
    preferred_by_judge: Mapping[str, Float[np.ndarray, " B"]],
    prompt_B: Int[np.ndarray, " B"],
    fits: Mapping[str, JudgeFit],
    size: int,
) -> tuple[Float[np.ndarray, "R C"], Float[np.ndarray, " R"], Int[np.ndarray, " R"]]:
    blocks, outcomes, prompts = [], [], []
    for name, fit in fits.items():
        block = np.zeros((int(fit.is_fitted_B.sum()), size))
        for feature, column in fit.coefficient_index.items():
            block[:, column] = x_BF[fit.is_fitted_B, feature]
        # A row of zeros is fitted ½ at every β; kept, it would still count in the small-sample factor.
        has_difference = (block != 0).any(1)
        blocks.append(block[has_difference])
        outcomes.append(preferred_by_judge[name][fit.is_fitted_B][has_difference])
        prompts.append(prompt_B[fit.is_fitted_B][has_difference])
    return np.concatenate(blocks), np.concatenate(outcomes), np.concatenate(prompts)


def _fit_logistic(
    x_RC: Float[np.ndarray, "R C"], y_R: Float[np.ndarray, " R"], prompt_R: Int[np.ndarray, " R"]
) -> tuple[Float[np.ndarray, " C"], Float[np.ndarray, "C C"]]:
    beta_C = np.zeros(x_RC.shape[1])
    for _ in range(MAX_NEWTON_STEPS):
        fitted_R = sigmoid(x_RC @ beta_C)
        # pinv: separation was looked for above, and what is left of it makes the information nearly singular.
        bend_CC = np.linalg.pinv((x_RC * (fitted_R * (1 - fitted_R))[:, None]).T @ x_RC)
        step_C = np.clip(bend_CC @ (x_RC.T @ (y_R - fitted_R)), -MAX_STEP, MAX_STEP)
        beta_C = beta_C + step_C
        if np.abs(step_C).max(initial=0.0) < 1e-10:
            break
    # (XᵀWX)⁻¹ Σ_prompts s sᵀ (XᵀWX)⁻¹, s the score of a prompt, with the usual factor for few prompts.
    # Statsmodels gives the same, but no number where a fitted chance has come to 0 or 1.
    # exp overflows float64 near 709; at 500 the chance is as good as 0 or 1.
    p_R = 1 / (1 + np.exp(-np.clip(x_RC @ beta_C, -500, 500)))
    cluster_R = np.unique(prompt_R, return_inverse=True)[1]
    score_GC = np.zeros((int(cluster_R.max()) + 1, x_RC.shape[1]))
    np.add.at(score_GC, cluster_R, x_RC * (y_R - p_R)[:, None])
    # pinv: the information is singular where a column's fitted chances are all 0 or 1, and inv would raise.
    bread_CC = np.linalg.pinv((x_RC * (p_R * (1 - p_R))[:, None]).T @ x_RC)
    clusters, rows, size = len(score_GC), len(y_R), x_RC.shape[1]
    small_sample_factor = clusters / max(1, clusters - 1) * (rows - 1) / max(1, rows - size)
    return beta_C, small_sample_factor * bread_CC @ (score_GC.T @ score_GC) @ bread_CC


def contrast_and_error(fitted: RegressionFit, weights: Mapping[int, float]) -> tuple[float, float]:
    row = np.zeros(len(fitted.beta))
    for index, weight in weights.items():
        row[index] += weight
    variance = float(row @ fitted.covariance @ row)
    # Rounding may push a variance of 0 a little below it; more than that is a fault of the sandwich.
    assert variance >= -1e-9, f"a variance of {variance}"
    return float(row @ fitted.beta), float(np.sqrt(max(0.0, variance)))


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
FULLY_PREDICTED = "how the answers look foretells every verdict, and nothing is left to tell worth by"
_DAMPING = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledWinRate:
    value: Estimate | None
    """σ(θ) with its interval over prompts."""
    reason: str | None = None


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
        reason = f"every pair is {outcome}, whatever the answers look like"
        return ControlledWinRate(value=None, reason=reason)
    # With the intercept among the columns: θ itself can be what has no end.
    rows_B = _undecided_rows(design_BC, verdict_B)
    x_BC = design_BC[rows_B]
    columns: list[int] = []
    # Of no rows no column is independent, and not every numpy gives a matrix without rows a rank.
    for column in range(x_BC.shape[1] if len(x_BC) else 0):
        if np.linalg.matrix_rank(x_BC[:, [*columns, column]]) > len(columns):
            columns.append(column)
    # The intercept is the last column; where those before it make it up, θ is not identified.
    if design_BC.shape[1] - 1 not in columns:
        return ControlledWinRate(value=None, reason=CONSTANT_DIFFERENCE if rows_B.all() else FULLY_PREDICTED)
    if _needs_more_prompts(prompt_B[rows_B], len(columns)):
        return ControlledWinRate(value=None, reason=_prompts_needed(prompt_B[rows_B], len(columns)))
    fitted = _fit_with_interval(
        design_BC[rows_B][:, columns], verdict_B[rows_B], prompt_B[rows_B], resampling
    )
    if fitted.value is None or rows_B.all():
        return fitted
    count = int((~rows_B).sum())
    left_out, them = ("1 pair is", "it") if count == 1 else (f"{count} pairs are", "them")
    return replace(fitted, reason=f"{left_out} left out, whose looks alone decide {them}")


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
        # Within the solver's tolerance nothing was decided: without this the loop would not end.
        if not decided_B.any():
            break
        undecided_B &= ~decided_B
    return undecided_B


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
    prompt_index_B = np.unique(prompt_B, return_inverse=True)[1]
    prompts = int(prompt_index_B.max()) + 1
    fits = [
        # Counts instead of indices: every draw has the same shape, and Newton takes all of them at once.
        _newton_fits(x_BC, verdict_B, times_SP[:, prompt_index_B].astype(float))
        for times_SP in prompt_draws(prompts, resampling, len(prompt_B))
    ]
    theta_S, is_decided_S = (np.concatenate(column) for column in zip(*fits, strict=True))
    if (undecided_share := float((~is_decided_S).mean())) > MAX_UNDECIDED_DRAWS:
        reason = f"in {undecided_share:.0%} of the draws of prompts no pair speaks against the rest"
        return ControlledWinRate(value=None, reason=reason)
    low, high = map(float, np.quantile(sigmoid(theta_S), interval_levels(prompts)))
    value = float(sigmoid(theta)[0])
    return ControlledWinRate(
        value=Estimate(value=value, low=low, high=high, n=len(verdict_B), prompts=prompts)
    )


def prompt_draws(
    prompts: int, resampling: Resampling, width: int | None = None
) -> Iterator[Int[np.ndarray, "S P"]]:
    """How often each prompt comes up in each draw, some draws at a time.
    ``width`` is how many numbers the caller makes of a draw, where that is more than its prompts."""
    rng = np.random.default_rng(resampling.seed)
    rows = max(1, _MAX_CELLS // (width or prompts))
    for start in range(0, resampling.times, rows):
        size = min(rows, resampling.times - start)
        yield rng.multinomial(prompts, np.full(prompts, 1 / prompts), size=size)


def _newton_fits(
    x_BC: Float[np.ndarray, "B C"], verdict_B: Float[np.ndarray, " B"], times_SB: Float[np.ndarray, "S B"]
) -> tuple[Float[np.ndarray, " S"], Bool[np.ndarray, " S"]]:
    """θ of every draw, and whether it is decided."""
    # The damping moves no optimum; it holds what has none, and what does not come up in a draw.
    size = x_BC.shape[1]
    # x xᵀ of every pair once: all Hessians of a step are then one product, [S, B] @ [B, C²].
    square_BCC = (x_BC[:, :, None] * x_BC[:, None, :]).reshape(len(x_BC), size * size)
    whole_S = times_SB.sum(1)
    beta_SC = np.zeros((len(times_SB), size))
    step_SC = np.full_like(beta_SC, np.inf)
    inverse_SCC = np.zeros((len(times_SB), size, size))
    for _ in range(MAX_NEWTON_STEPS):
        fitted_SB = sigmoid(beta_SC @ x_BC.T)
        slope_SC = (times_SB * (verdict_B - fitted_SB)) @ x_BC
        bend_SCC = ((times_SB * fitted_SB * (1 - fitted_SB)) @ square_BCC).reshape(-1, size, size)
        # In proportion to the pairs of a draw, as the Hessian is: equally faint whatever their number.
        inverse_SCC = np.linalg.inv(bend_SCC + _DAMPING * whole_S[:, None, None] * np.eye(size))
        step_SC = np.clip(np.einsum("scd,sd->sc", inverse_SCC, slope_SC), -MAX_STEP, MAX_STEP)
        beta_SC = beta_SC + step_SC
        if np.abs(step_SC).max() < 1e-9:
            break
    # θ is the last column. A runaway shows as a step that goes on, a flat likelihood as a large inverse.
    decided_S = (np.abs(step_SC[:, -1]) < 1e-6) & (inverse_SCC[:, -1, -1] < MAX_STANDARD_ERROR**2)
    return beta_SC[:, -1], decided_S


def holm(p: Sequence[float]) -> list[float]:
    """P-values corrected for how many they are (Holm 1979).

    >>> [round(value, 3) for value in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    p_K = np.asarray(p, dtype=float)
    order_K = np.argsort(p_K)
    # The smallest times how many there are, the next times one less; none below one that comes before it.
    steps_K = np.maximum.accumulate(p_K[order_K] * (len(p_K) - np.arange(len(p_K))))
    corrected_K = np.empty(len(p_K))
    corrected_K[order_K] = np.minimum(steps_K, 1.0)
    return corrected_K.tolist()


def sigmoid(x: Float[np.ndarray, "*A"]) -> Float[np.ndarray, "*A"]:
    # Through log(1 + e⁻ˣ), which neither overflows nor warns where 1 / (1 + exp(−x)) would.
    return np.exp(-np.logaddexp(0, -x))
