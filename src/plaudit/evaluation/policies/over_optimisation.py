"""How true worth rises and falls again with the distance from the reference, and where it turned."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from plaudit.data.records import Task
from plaudit.errors import UserError
from plaudit.evaluation.reward_models.accuracy import best_of_n_kl, best_of_n_truth, proxy_and_truth_scores
from plaudit.evaluation.reward_models.pairs import ScoresByAnswer
from plaudit.evaluation.stats import Estimate, Resampling, interval_levels, prompt_draws

Form = Literal["best-of-n", "policy"]
"""Whose distance it is: d(α − β·d) of best-of-n, d(α − β·ln d) of policy optimisation."""
MIN_ANSWERS = 5
"""Answers to a prompt from which best of 1, 2, 4 and all are more points than a curve has coefficients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverOptimisation:
    """A fitted curve of the gain over the reference by d = √KL, and its peak where it was passed."""

    form: str
    """Which of the two curves: best-of-n or policy."""
    alpha: Estimate
    beta: Estimate
    """How fast it bends; at 0 or below it never turns."""
    peak: Estimate | None
    """The d of the largest gain; an end of its interval that was not measured is None."""
    height: float | None
    furthest: float
    """The largest d that was measured: nothing is said beyond it."""
    error: float
    """The root mean square distance of the measured gains from the curve."""
    note: str | None

    @property
    def sentence(self) -> str:
        if self.peak is None or self.height is None:
            return str(self.note)
        shape = "d(α − β·d)" if self.form == "best-of-n" else "d(α − β·ln d)"
        low, high = self.peak.low, self.peak.high
        ends = "beyond what was measured" if high is None else f"{high:.2f}"
        between = f" ({low:.2f} to {ends})" if low is not None else ""
        return (
            f"by the curve {shape}, d = √KL, the gain is highest at d = {self.peak.value:.2f}{between}, with "
            f"{self.height:+.3f}; the curve misses the measured gains by {self.error:.3f}"
        )

    def gain_at(self, distance: int | float) -> float | None:
        """The fitted gain; None beyond what was measured."""
        if not 0 <= distance <= self.furthest:
            return None
        columns = _basis_columns(np.array([distance], dtype=float), self.form)[0]
        return float(columns @ [self.alpha.value, self.beta.value])


def fit_over_optimisation(
    kl_S: Float[np.ndarray, " S"], gain_PS: Float[np.ndarray, "P S"], form: Form, resampling: Resampling
) -> OverOptimisation:
    """Least squares of the mean gain on both terms of the curve (Gao et al. 2023, arXiv:2210.10760).
    With d = √KL the gain is d(α − β·d) for best-of-n, with its peak at α/2β, and d(α − β·ln d) for a trained
    policy, with its peak at exp(α/β − 1). Both are linear in α and β, so the least squares need no starting
    point. d·ln d is 0 at 0. Intervals draw prompts anew and hold the distances as they are."""
    _check_gains(kl_S, gain_PS)
    d_S, mean_S, prompts = np.sqrt(kl_S), gain_PS.mean(0), len(gain_PS)
    columns_S2 = _basis_columns(d_S, form)
    # The pseudo-inverse is made once, and every draw's fit is a matrix product with it.
    solve_2S = np.linalg.pinv(columns_S2)
    fitted_2 = solve_2S @ mean_S
    times_TP = np.concatenate([*prompt_draws(prompts, resampling)])
    # [T, P] counts of prompts → [T, S] mean gains → [T, 2] coefficients.
    resampled_T2 = times_TP / prompts @ gain_PS @ solve_2S.T
    peak, note = _measured_peak(fitted_2, form, d_S)
    return OverOptimisation(
        form=form,
        alpha=_estimate_from_draws(fitted_2[0], resampled_T2[:, 0], gain_PS.shape),
        beta=_estimate_from_draws(fitted_2[1], resampled_T2[:, 1], gain_PS.shape),
        peak=None
        if peak is None
        else _estimate_from_draws(peak, _peak_distances(resampled_T2, form), gain_PS.shape, d_S.max()),
        height=None if peak is None else float(_basis_columns(np.array([peak]), form)[0] @ fitted_2),
        furthest=float(d_S.max()),
        error=float(np.sqrt(((mean_S - columns_S2 @ fitted_2) ** 2).mean())),
        note=note,
    )


def best_of_n_over_optimisation(
    tasks: Sequence[Task], proxies: ScoresByAnswer, truths: ScoresByAnswer, resampling: Resampling
) -> OverOptimisation | None:
    """The curve of best-of-n, from the prompts on whose every answer there is a verdict.
    The distance of n is √(ln n − (n − 1)/n), an upper bound where answers share a reward. None with fewer
    than five answers to a prompt."""
    rows = [row for task in tasks if (row := proxy_and_truth_scores(task, proxies, truths)) is not None]
    answers = min((len(proxy_N) for proxy_N, _ in rows), default=0)
    if answers < MIN_ANSWERS:
        return None
    # Powers of two lie evenly on the scale of ln n; the last point uses every answer.
    sizes = [n for n in (2**power for power in range(32)) if n < answers] + [answers]
    truth_PS = np.stack([best_of_n_truth(proxy_N, truth_N, sizes) for proxy_N, truth_N in rows])
    kl_S = np.array([best_of_n_kl(n) for n in sizes])
    # Less n = 1 prompt by prompt: how easy a prompt is drops out of the draws.
    return fit_over_optimisation(kl_S, truth_PS - truth_PS[:, :1], "best-of-n", resampling)


def _check_gains(kl_S: Float[np.ndarray, " S"], gain_PS: Float[np.ndarray, "P S"]) -> None:
    if not (np.isfinite(kl_S).all() and np.isfinite(gain_PS).all()):
        raise ValueError("over-optimisation: a distance or a gain is no finite number")
    if (kl_S < 0).any():
        raise ValueError(f"over-optimisation: a KL of {kl_S.min():g}; a divergence is never below 0")
    if len(np.unique(kl_S[kl_S > 0])) < 3 or not len(gain_PS):
        raise UserError(
            "over-optimisation: a curve of two coefficients needs three policies or more at different "
            "distances from the reference, and a prompt"
        )


def _basis_columns(d_S: Float[np.ndarray, " S"], form: str) -> Float[np.ndarray, "S 2"]:
    bend_S = d_S if form == "best-of-n" else np.log(np.where(d_S > 0, d_S, 1.0))
    return np.stack([d_S, -d_S * bend_S], 1)


def _peak_distances(beta_T2: Float[np.ndarray, "T 2"], form: str) -> Float[np.ndarray, " T"]:
    """Where each curve is highest: 0 where it falls from the start, infinite where it never turns."""
    alpha_T, beta_T = beta_T2.T
    has_peak_T = beta_T > 0
    # With β barely above 0 the peak is out of reach, and infinity is the right word for it.
    with np.errstate(over="ignore"):
        ratio_T = alpha_T / np.where(has_peak_T, beta_T, 1.0)
        peak_T = np.maximum(ratio_T / 2, 0.0) if form == "best-of-n" else np.exp(ratio_T - 1)
    return np.where(has_peak_T, peak_T, np.inf)


def _measured_peak(
    alpha_beta: Float[np.ndarray, " 2"], form: str, d_S: Float[np.ndarray, " S"]
) -> tuple[float | None, str | None]:
    peak = float(_peak_distances(alpha_beta[None], form)[0])
    if peak > d_S.max():
        return (
            None,
            f"the gain has not turned: a peak would lie beyond what was measured, √KL {d_S.max():.3g}",
        )
    if peak < d_S[d_S > 0].min():
        return None, f"the gain falls from the first distance that was measured, √KL {d_S[d_S > 0].min():.3g}"
    return peak, None


def _estimate_from_draws(
    value: float, resampled_T: Float[np.ndarray, " T"], shape: tuple[int, ...], furthest: float = np.inf
) -> Estimate:
    """With the interval of the draws; an end further than what was measured is None."""
    low, high = None, None
    if shape[0] > 1:
        # Without interpolation, which has no answer between a number and infinity.
        low, high = map(float, np.quantile(resampled_T, interval_levels(shape[0]), method="inverted_cdf"))
    return Estimate(
        value=float(value),
        low=None if low is None or low > furthest else low,
        high=None if high is None or high > furthest else high,
        n=shape[0] * shape[1],
        prompts=shape[0],
    )
