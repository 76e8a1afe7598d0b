"""Logistic regressions of preferences on differences between two answers, with errors clustered by prompt.

P(first preferred) = σ(Σ β_f · (f(first) − f(second))), without an intercept, so that it does not matter which
answer is called the first. Several judges of the same pairs are fitted together: their coefficients do not
touch, but their errors are clustered by prompt across judges, which gives ratios of odds an honest interval.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

NEVER_DIFFERS = "no two answers differ in it"
"""The fault of a feature that says nothing of any pair."""
DECIDED_BY_OTHERS = "wherever two answers differ in it, they also differ in what decides alone"
"""The fault of one that says something only where another has decided already."""
COLLINEAR = "it always comes along with other features, and cannot be told apart from them"
"""The fault of one that the features before it make up."""
ALWAYS_PREFERRED = "always for"
"""The fault of one that is preferred wherever two answers differ in it."""
NEVER_PREFERRED = "always against"
"""The fault of one that is never preferred."""
PERFECTLY_SEPARATED = "the features together foretell every preference, so that no odds can be given"
"""The fault of features that decide together, none of them alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFit:
    """The coefficients of one judge.

    Example: ``JudgeFit(coefficient_index={0: 0, 2: 1}, faults={1: "no two answers differ in it"},
        is_fitted_B=…)``
    """

    coefficient_index: Mapping[int, int]
    """The index of each fitted feature's coefficient among all coefficients."""
    faults: Mapping[int, str]
    """Why each of the others has none."""
    is_fitted_B: Bool[np.ndarray, " B"]
    """The pairs that it was fitted on: without those that a single feature decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionFit:
    """The coefficients of all judges and how sure they are.

    Example: ``fit_judges(x_BF, {"model": y_B}, prompt_B).beta``
    """

    beta: Float[np.ndarray, " C"]
    """The log-odds for one unit of each feature, judge after judge."""
    covariance: Float[np.ndarray, "C C"]
    """Clustered by prompt (Liang and Zeger 1986)."""
    fits: Mapping[str, JudgeFit]
    """By judge."""


def fit_judges(
    x_BF: Float[np.ndarray, "B F"],
    preferred_by_judge: Mapping[str, Float[np.ndarray, " B"]],
    prompt_B: Int[np.ndarray, " B"],
) -> RegressionFit:
    """Fit every judge on what can be fitted; a preference is a chance from 0 to 1, ½ prefers neither.

    >>> x_BF = np.array([[1.0]] * 4 + [[-1.0]] * 4)
    >>> found = fit_judges(x_BF, {"ada": np.array([1.0, 1, 1, 0, 0, 0, 0, 1])}, np.arange(8))
    >>> round(float(np.exp(found.beta[0])), 2)  # three times for, once against
    3.0
    """
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
    """The features that have a finite coefficient, why the others have none, and the pairs that are left.

    A feature that decides a preference wherever it differs has an infinite one; in the limit the pairs that
    it decides say nothing about the others, so they leave with it.
    """
    is_fitted_B = np.ones(len(y_B), dtype=bool)
    estimable = list(range(x_BF.shape[1]))
    faults: dict[int, str] = {}
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
    signed = (2 * y_B[is_decided_B] - 1)[:, None] * x_BF[is_decided_B]
    if not is_decided_B.any():
        return None
    undecided = x_BF[~is_decided_B]
    equal = {"A_eq": undecided, "b_eq": np.zeros(len(undecided))} if len(undecided) else {}
    solution = linprog(-signed.sum(0), A_ub=-signed, b_ub=np.zeros(len(signed)), bounds=(-1, 1), **equal)
    return np.asarray(solution.x, dtype=float) if solution.success and -solution.fun > 1e-7 else None


def _stack_judges(
    x_BF: Float[np.ndarray, "B F"],
    preferred_by_judge: Mapping[str, Float[np.ndarray, " B"]],
    prompt_B: Int[np.ndarray, " B"],
    fits: Mapping[str, JudgeFit],
    size: int,
) -> tuple[Float[np.ndarray, "R C"], Float[np.ndarray, " R"], Int[np.ndarray, " R"]]:
    """The design matrix, outcomes and prompts of all judges below each other, each judge with columns of
    its own.
    """
    blocks, outcomes, prompts = [], [], []
    for name, one in fits.items():
        block = np.zeros((int(one.is_fitted_B.sum()), size))
        for feature, column in one.coefficient_index.items():
            block[:, column] = x_BF[one.is_fitted_B, feature]
        has_difference = (block != 0).any(1)
        blocks.append(block[has_difference])
        outcomes.append(preferred_by_judge[name][one.is_fitted_B][has_difference])
        prompts.append(prompt_B[one.is_fitted_B][has_difference])
    return np.concatenate(blocks), np.concatenate(outcomes), np.concatenate(prompts)


def _fit_logistic(
    x_RC: Float[np.ndarray, "R C"], y_R: Float[np.ndarray, " R"], prompt_R: Int[np.ndarray, " R"]
) -> tuple[Float[np.ndarray, " C"], Float[np.ndarray, "C C"]]:
    from statsmodels.genmod.families import Binomial
    from statsmodels.genmod.generalized_linear_model import GLM

    with warnings.catch_warnings():
        # Separation was looked for above; what is left of it shows as a wide interval.
        warnings.simplefilter("ignore")
        result = GLM(y_R, x_RC, family=Binomial()).fit()
    beta = np.asarray(result.params, dtype=float)
    return beta, _clustered_covariance(x_RC, y_R, prompt_R, beta)


def _clustered_covariance(
    x_RC: Float[np.ndarray, "R C"],
    y_R: Float[np.ndarray, " R"],
    prompt_R: Int[np.ndarray, " R"],
    beta_C: Float[np.ndarray, " C"],
) -> Float[np.ndarray, "C C"]:
    """(XᵀWX)⁻¹ Σ_prompts s sᵀ (XᵀWX)⁻¹, s the score of a prompt, with the usual factor for few prompts.

    Statsmodels gives the same, but no number where a fitted chance has come to 0 or 1.
    """
    p_R = 1 / (1 + np.exp(-np.clip(x_RC @ beta_C, -500, 500)))
    cluster_R = np.unique(prompt_R, return_inverse=True)[1]
    score_GC = np.zeros((int(cluster_R.max()) + 1, x_RC.shape[1]))
    np.add.at(score_GC, cluster_R, x_RC * (y_R - p_R)[:, None])
    bread_CC = np.linalg.pinv((x_RC * (p_R * (1 - p_R))[:, None]).T @ x_RC)
    clusters, rows, size = len(score_GC), len(y_R), x_RC.shape[1]
    small_sample_factor = clusters / max(1, clusters - 1) * (rows - 1) / max(1, rows - size)
    return small_sample_factor * bread_CC @ (score_GC.T @ score_GC) @ bread_CC


def contrast_and_error(fitted: RegressionFit, weights: Mapping[int, float]) -> tuple[float, float]:
    """Σ w β over some coefficients, and its standard error."""
    row = np.zeros(len(fitted.beta))
    for index, weight in weights.items():
        row[index] += weight
    variance = float(row @ fitted.covariance @ row)
    assert variance >= -1e-9, f"a variance of {variance}"
    return float(row @ fitted.beta), float(np.sqrt(max(0.0, variance)))
