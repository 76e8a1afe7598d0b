"""Which differences between two answers sway preferences: logistic regressions with shared uncertainty.

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

CONSTANT = "no two answers differ in it"
"""The fault of a feature that says nothing of any pair."""
DECIDED = "wherever two answers differ in it, they also differ in what decides alone"
"""The fault of one that says something only where another has decided already."""
COLLINEAR = "it always comes along with other features, and cannot be told apart from them"
"""The fault of one that the features before it make up."""
ALWAYS = "always for"
"""The fault of one that is preferred wherever two answers differ in it."""
NEVER = "always against"
"""The fault of one that is never preferred."""
TOGETHER = "the features together foretell every preference, so that no odds can be given"
"""The fault of features that decide together, none of them alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The coefficients of one judge.

    Example: ``Fit(places={0: 0, 2: 1}, faults={1: "no two answers differ in it"}, rows_B=…)``
    """

    places: Mapping[int, int]
    """Where the coefficient of each fitted feature stands among all coefficients."""
    faults: Mapping[int, str]
    """Why each of the others has none."""
    rows_B: Bool[np.ndarray, " B"]
    """The pairs that it was fitted on: without those that a feature decides alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The coefficients of all judges and how sure they are.

    Example: ``fit(x_BF, {"model": y_B}, prompt_B).beta``
    """

    beta: Float[np.ndarray, " C"]
    """The log-odds for one unit of each feature, judge after judge."""
    covariance: Float[np.ndarray, "C C"]
    """Clustered by prompt (Liang and Zeger 1986)."""
    fits: Mapping[str, Fit]
    """By judge."""


def fit(
    x_BF: Float[np.ndarray, "B F"],
    preferred_B: Mapping[str, Float[np.ndarray, " B"]],
    prompt_B: Int[np.ndarray, " B"],
) -> Fitted:
    """Fit every judge on what can be fitted; a preference is a chance from 0 to 1, ½ prefers neither.

    >>> x_BF = np.array([[1.0]] * 4 + [[-1.0]] * 4)
    >>> found = fit(x_BF, {"ada": np.array([1.0, 1, 1, 0, 0, 0, 0, 1])}, np.arange(8))
    >>> round(float(np.exp(found.beta[0])), 2)  # three times for, once against
    3.0
    """
    fits: dict[str, Fit] = {}
    start = 0
    for name, y_B in preferred_B.items():
        kept, faults, rows_B = _possible(x_BF, y_B)
        places = {feature: start + place for place, feature in enumerate(kept)}
        fits[name] = Fit(places=places, faults=faults, rows_B=rows_B)
        start += len(kept)
    if not start:
        return Fitted(beta=np.zeros(0), covariance=np.zeros((0, 0)), fits=fits)
    beta, covariance = _regress(*_stacked(x_BF, preferred_B, prompt_B, fits, start))
    return Fitted(beta=beta, covariance=covariance, fits=fits)


def _possible(
    x_BF: Float[np.ndarray, "B F"], y_B: Float[np.ndarray, " B"]
) -> tuple[list[int], dict[int, str], Bool[np.ndarray, " B"]]:
    """The features that have a finite coefficient, why the others have none, and the pairs that are left.

    A feature that decides a preference wherever it differs has an infinite one; in the limit the pairs that
    it decides say nothing about the others, so they leave with it.
    """
    rows_B = np.ones(len(y_B), dtype=bool)
    kept = list(range(x_BF.shape[1]))
    faults: dict[int, str] = {}
    while True:
        found = next(((f, why) for f in kept if (why := _fault(x_BF[rows_B, f], y_B[rows_B]))), None)
        if found is None:
            break
        feature, why = found
        kept.remove(feature)
        faults[feature] = DECIDED if why == CONSTANT and (x_BF[:, feature] != 0).any() else why
        if why != CONSTANT:
            rows_B = rows_B & (x_BF[:, feature] == 0)
    for feature in list(kept):
        earlier = [other for other in kept if other < feature]
        if np.linalg.matrix_rank(x_BF[rows_B][:, [*earlier, feature]]) <= len(earlier):
            faults[feature] = COLLINEAR
            kept.remove(feature)
    if kept and separating(x_BF[rows_B][:, kept], y_B[rows_B]) is not None:
        faults.update(dict.fromkeys(kept, TOGETHER))
        kept = []
    return kept, faults, rows_B


def _fault(x_B: Float[np.ndarray, " B"], y_B: Float[np.ndarray, " B"]) -> str | None:
    differ = x_B != 0
    if not differ.any():
        return CONSTANT
    agrees_B = np.sign(x_B[differ]) * (2 * y_B[differ] - 1)
    return ALWAYS if (agrees_B == 1).all() else NEVER if (agrees_B == -1).all() else None


def separating(
    x_BF: Float[np.ndarray, "B F"], y_B: Float[np.ndarray, " B"]
) -> Float[np.ndarray, " F"] | None:
    """A weighing of the features that is never wrong and not always silent (Albert, Anderson 1984).

    >>> separating(np.array([[1.0], [2.0]]), np.array([1.0, 1.0])), separating(np.eye(1), np.array([0.5]))
    (array([1.]), None)
    """
    from scipy.optimize import linprog

    hard_B = (y_B == 0) | (y_B == 1)
    signed = (2 * y_B[hard_B] - 1)[:, None] * x_BF[hard_B]
    if not hard_B.any():
        return None
    soft = x_BF[~hard_B]
    equal = {"A_eq": soft, "b_eq": np.zeros(len(soft))} if len(soft) else {}
    best = linprog(-signed.sum(0), A_ub=-signed, b_ub=np.zeros(len(signed)), bounds=(-1, 1), **equal)
    return np.asarray(best.x, dtype=float) if best.success and -best.fun > 1e-7 else None


def _stacked(
    x_BF: Float[np.ndarray, "B F"],
    preferred_B: Mapping[str, Float[np.ndarray, " B"]],
    prompt_B: Int[np.ndarray, " B"],
    fits: Mapping[str, Fit],
    size: int,
) -> tuple[Float[np.ndarray, "R C"], Float[np.ndarray, " R"], Int[np.ndarray, " R"]]:
    """The judges below each other, each with columns of its own."""
    blocks, said, prompts = [], [], []
    for name, one in fits.items():
        block = np.zeros((int(one.rows_B.sum()), size))
        for feature, place in one.places.items():
            block[:, place] = x_BF[one.rows_B, feature]
        moved = (block != 0).any(1)
        blocks.append(block[moved])
        said.append(preferred_B[name][one.rows_B][moved])
        prompts.append(prompt_B[one.rows_B][moved])
    return np.concatenate(blocks), np.concatenate(said), np.concatenate(prompts)


def _regress(
    x_RC: Float[np.ndarray, "R C"], y_R: Float[np.ndarray, " R"], prompt_R: Int[np.ndarray, " R"]
) -> tuple[Float[np.ndarray, " C"], Float[np.ndarray, "C C"]]:
    from statsmodels.genmod.families import Binomial
    from statsmodels.genmod.generalized_linear_model import GLM

    with warnings.catch_warnings():
        # Separation was looked for above; what is left of it shows as a wide interval.
        warnings.simplefilter("ignore")
        found = GLM(y_R, x_RC, family=Binomial()).fit()
    beta = np.asarray(found.params, dtype=float)
    return beta, _clustered(x_RC, y_R, prompt_R, beta)


def _clustered(
    x_RC: Float[np.ndarray, "R C"],
    y_R: Float[np.ndarray, " R"],
    prompt_R: Int[np.ndarray, " R"],
    beta_C: Float[np.ndarray, " C"],
) -> Float[np.ndarray, "C C"]:
    """(XᵀWX)⁻¹ Σ_prompts s sᵀ (XᵀWX)⁻¹, s the score of a prompt, with the usual factor for few prompts.

    Statsmodels gives the same, but no number where a fitted chance has come to 0 or 1.
    """
    chance_R = 1 / (1 + np.exp(-np.clip(x_RC @ beta_C, -500, 500)))
    cluster_R = np.unique(prompt_R, return_inverse=True)[1]
    score_GC = np.zeros((int(cluster_R.max()) + 1, x_RC.shape[1]))
    np.add.at(score_GC, cluster_R, x_RC * (y_R - chance_R)[:, None])
    bread_CC = np.linalg.pinv((x_RC * (chance_R * (1 - chance_R))[:, None]).T @ x_RC)
    clusters, rows, size = len(score_GC), len(y_R), x_RC.shape[1]
    few = clusters / max(1, clusters - 1) * (rows - 1) / max(1, rows - size)
    return few * bread_CC @ (score_GC.T @ score_GC) @ bread_CC


def contrast(fitted: Fitted, weights: Mapping[int, float]) -> tuple[float, float]:
    """Σ w β over some coefficients, and its standard error."""
    row = np.zeros(len(fitted.beta))
    for place, weight in weights.items():
        row[place] += weight
    variance = float(row @ fitted.covariance @ row)
    assert variance >= -1e-9, f"a variance of {variance}"
    return float(row @ fitted.beta), float(np.sqrt(max(0.0, variance)))
