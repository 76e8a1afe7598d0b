"""Whether a policy knows what it knows: how sure it is of answers to closed questions, and how often right.

Of a question with choices c the policy's chance is P(c | x) = softmax over the choices of log π(c | x), the
log-prob of the whole answer with its end. Its confidence is the chance of the likeliest choice. Nothing is
drawn, so all of it is exact but for which questions were asked (Kadavath et al. 2022, arXiv:2207.05221; that
optimisation by feedback spoils it: figure 8 of the GPT-4 report, arXiv:2303.08774).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from plaudit.evaluation.calibration import BINS, by_width, mass_places
from plaudit.evaluation.columns import numbered
from plaudit.evaluation.resample import Resampling, estimate
from plaudit.evaluation.result import Bin, Estimate

FEWEST = 30
"""Questions in a bin: with fewer, chance alone makes most of the error."""
_COLDEST, _WARMEST = 1e-3, 1e3
_CELLS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """What one policy thinks of the choices of a question.

    Example: ``Weighed(policy="ppo", prompt="2 + 2?", choices=("4", "5"), logp=(-1.0, -3.0), right=0, …)``
    """

    policy: str
    """Who was asked."""
    prompt: str
    """What was asked."""
    category: str | None
    """The kind of question."""
    choices: tuple[str, ...]
    """All answers that there are."""
    logp: tuple[float, ...]
    """log π of each, its end among the tokens."""
    right: int
    """The place of the right one, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Whether a policy is as often right as it is sure.

    Example: ``calibration(weighed, Resampling()).ece.value``
    """

    accuracy: Estimate
    """How often the likeliest choice is right; of equally likely ones each counts its share."""
    confidence: Estimate
    """The mean chance of the likeliest choice."""
    surplus: Estimate
    """Confidence less accuracy: above 0 it is surer than right."""
    ece: Estimate
    """Σ_b n_b/N |right_b − confidence_b| over up to ten bins of as many questions, thirty or more (Guo et al.
    2017, arXiv:1706.04599); chance alone makes it larger than 0, which its interval takes off again."""
    brier: Estimate
    """Mean Σ_c (P(c) − [c is right])² (Brier 1950): 0 at best, 2 at worst."""
    log_loss: Estimate
    """Mean −ln P(right)."""
    covered: Estimate
    """The chance that the policy gives to all choices together: what else it says is not looked at."""
    by_width: tuple[Bin, ...]
    """Reliability in bins of equal width from 0 to 1, questions counted as pairs; without empty ones."""
    surplus_change: Estimate | None = None
    """The surplus less the reference's on the same questions; None for the reference."""
    ece_change: Estimate | None = None
    """The calibration error less the reference's on the same questions; None for the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """A row for each of Q questions."""

    sure_Q: Float[np.ndarray, " Q"]
    right_Q: Float[np.ndarray, " Q"]
    brier_Q: Float[np.ndarray, " Q"]
    loss_Q: Float[np.ndarray, " Q"]
    covered_Q: Float[np.ndarray, " Q"]
    prompt_Q: Int[np.ndarray, " Q"]

    @property
    def place_Q(self) -> Int[np.ndarray, " Q"]:
        """The bin of each question."""
        return mass_places(self.sure_Q, bins=min(BINS, max(1, len(self.sure_Q) // FEWEST)))

    @property
    def gaps_QW(self) -> Float[np.ndarray, "Q W"]:
        """Confidence less being right, in the column of the question's bin."""
        gaps_QW = np.zeros((len(self.place_Q), int(self.place_Q.max()) + 1))
        gaps_QW[np.arange(len(self.place_Q)), self.place_Q] = self.sure_Q - self.right_Q
        return gaps_QW


def calibration(
    own: Sequence[Weighed], resampling: Resampling, reference: Sequence[Weighed] | None = None
) -> Calibration:
    """All figures of one policy, and what changed since a reference that was asked the same.

    >>> def asked(*logp):
    ...     return Weighed(policy="a", prompt="?", category=None, choices=("x", "y"), logp=logp, right=0)
    >>> found = calibration([asked(-1.0, -1.0), asked(-0.1, -9.0)], Resampling())
    >>> found.accuracy.value, round(found.confidence.value, 2)
    (0.75, 0.75)
    """
    if not own:
        raise ValueError("a calibration of nothing")
    mine = _columns(own)
    theirs = None if reference is None else _columns(reference)
    if theirs is not None and not np.array_equal(mine.prompt_Q, theirs.prompt_Q):
        raise ValueError("the reference was asked other questions")

    def mean(value_Q: Float[np.ndarray, " Q"], *, share: bool = False) -> Estimate:
        return estimate(value_Q, mine.prompt_Q, resampling, share=share)

    over_Q = mine.sure_Q - mine.right_Q
    return Calibration(
        accuracy=mean(mine.right_Q, share=True),
        confidence=mean(mine.sure_Q),
        surplus=mean(over_Q),
        ece=_error([mine], resampling),
        brier=mean(mine.brier_Q),
        log_loss=mean(mine.loss_Q),
        covered=mean(mine.covered_Q),
        by_width=by_width(mine.sure_Q, mine.right_Q, lowest=0.0),
        surplus_change=None if theirs is None else mean(over_Q - (theirs.sure_Q - theirs.right_Q)),
        ece_change=None if theirs is None else _error([mine, theirs], resampling),
    )


def at_temperature(asked: Sequence[Weighed], heat: int | float) -> tuple[Weighed, ...]:
    """The same with log-probs divided by a temperature: above 1 a policy is less sure, and as often right."""
    return tuple(replace(one, logp=tuple(value / heat for value in one.logp)) for one in asked)


def fitted_temperature(asked: Sequence[Weighed]) -> float:
    """The T that makes −ln softmax(log π / T) of the right choices least (Guo et al. 2017, arXiv:1706.04599).

    The loss is convex in 1/T, so where its slope changes sign is found by halving. Fit it on other questions
    than those that it is judged on.

    >>> def asked(*logp):
    ...     return Weighed(policy="a", prompt="?", category=None, choices=("x", "y"), logp=logp, right=0)
    >>> sure = [asked(0.0, -8.0)] * 3 + [asked(-8.0, 0.0)]  # right in three of four, e^8 to 1 sure
    >>> round(8 / fitted_temperature(sure), 3) == round(float(np.log(3)), 3)
    True
    """
    logp_QC, right_Q = _padded(asked)
    known_QC = np.where(np.isfinite(logp_QC), logp_QC, 0.0)
    said_Q = logp_QC[np.arange(len(right_Q)), right_Q]
    cold, warm = np.log(1 / _WARMEST), np.log(1 / _COLDEST)
    for _ in range(60):
        middle = (cold + warm) / 2
        expected_Q = (_chances(logp_QC * np.exp(middle)) * known_QC).sum(1)
        cold, warm = (middle, warm) if expected_Q.sum() < said_Q.sum() else (cold, middle)
    return float(np.exp(-(cold + warm) / 2))


def _padded(asked: Sequence[Weighed]) -> tuple[Float[np.ndarray, "Q C"], Int[np.ndarray, " Q"]]:
    """log π of all choices, −∞ where a question has fewer, and the place of the right one."""
    logp_QC = np.full((len(asked), max(len(one.logp) for one in asked)), -np.inf)
    for row, one in enumerate(asked):
        logp_QC[row, : len(one.logp)] = one.logp
    return logp_QC, np.array([one.right for one in asked], dtype=np.int64)


def _columns(asked: Sequence[Weighed]) -> _Columns:
    logp_QC, right_Q = _padded(asked)
    rows_Q, p_QC = np.arange(len(right_Q)), _chances(logp_QC)
    sure_Q, told_Q = p_QC.max(1), p_QC[rows_Q, right_Q]
    best_QC = p_QC == sure_Q[:, None]
    return _Columns(
        sure_Q=sure_Q,
        right_Q=best_QC[rows_Q, right_Q] / best_QC.sum(1),
        brier_Q=(p_QC**2).sum(1) + 1 - 2 * told_Q,
        loss_Q=np.logaddexp.reduce(logp_QC, axis=1) - logp_QC[rows_Q, right_Q],
        covered_Q=np.exp(logp_QC).sum(1),
        prompt_Q=numbered([one.prompt for one in asked]),
    )


def _chances(logp_QC: Float[np.ndarray, "Q C"]) -> Float[np.ndarray, "Q C"]:
    return np.exp(logp_QC - np.logaddexp.reduce(logp_QC, axis=1, keepdims=True))


def _error(columns: Sequence[_Columns], resampling: Resampling) -> Estimate:
    """The calibration error of the first, less that of the second if there is one, over the same draws.

    A bin's |mean| is above 0 by chance alone, and more so in every draw. The basic interval, twice the value
    less the quantiles of the draws (Davison and Hinkley 1997, 5.2), takes this off. Near 0 that is not all:
    an error that whoever is right as often as sure would exceed once in forty times (right and wrong drawn by
    the confidences: Bröcker and Smith 2007) lies between 0 and the quantile itself.
    """
    prompt_Q = columns[0].prompt_Q
    whole = [_by_prompt(one.gaps_QW, prompt_Q) for one in columns]
    prompts, questions = len(whole[0]), len(prompt_Q)
    count_P = np.bincount(prompt_Q).astype(float)
    value = float(_less([np.abs(gaps_PW.sum(0)).sum(keepdims=True) / questions for gaps_PW in whole])[0])
    found = Estimate(value=value, low=None, high=None, n=questions, prompts=prompts)
    if prompts < 2:
        return found
    drawn_S = np.concatenate(
        [
            _less([np.abs(weight_SP @ gaps_PW).sum(1) / (weight_SP @ count_P) for gaps_PW in whole])
            for weight_SP in _draws(prompts, resampling)
        ]
    )
    least, most = np.quantile(drawn_S, (0.025, 0.975))
    low, high = 2 * value - most, 2 * value - least
    if len(columns) == 1:
        low, high = (max(low, 0.0), high) if value > _by_chance(columns[0], resampling) else (0.0, most)
    return replace(found, low=float(min(low, value)), high=float(max(high, value)))


def _by_chance(one: _Columns, resampling: Resampling) -> float:
    """The error that whoever is right as often as sure exceeds once in forty times."""
    chance, width = np.random.default_rng(resampling.seed), int(one.place_Q.max()) + 1
    bin_QW = np.eye(width)[one.place_Q]
    found = []
    for times in _pieces(len(bin_QW), resampling):
        gap_SQ = one.sure_Q - (chance.random((times, len(bin_QW))) < one.sure_Q)
        found.append(np.abs(gap_SQ @ bin_QW).sum(1) / len(bin_QW))
    return float(np.quantile(np.concatenate(found), 0.975))


def _draws(prompts: int, resampling: Resampling) -> Iterator[Float[np.ndarray, "S P"]]:
    """How often each prompt is drawn, some draws at a time."""
    chance = np.random.default_rng(resampling.seed)
    for times in _pieces(prompts, resampling):
        place_SP = chance.integers(prompts, size=(times, prompts))
        flat = (place_SP + prompts * np.arange(times)[:, None]).ravel()
        yield np.bincount(flat, minlength=times * prompts).reshape(times, prompts).astype(float)


def _pieces(width: int, resampling: Resampling) -> Iterator[int]:
    """So many draws at a time that a table of this width has room."""
    rows = max(1, _CELLS // width)
    for start in range(0, resampling.times, rows):
        yield min(rows, resampling.times - start)


def _by_prompt(
    gaps_QW: Float[np.ndarray, "Q W"], prompt_Q: Int[np.ndarray, " Q"]
) -> Float[np.ndarray, "P W"]:
    sums_PW = np.zeros((int(prompt_Q.max()) + 1, gaps_QW.shape[1]))
    np.add.at(sums_PW, prompt_Q, gaps_QW)
    return sums_PW


def _less(values: Sequence[Float[np.ndarray, " S"]]) -> Float[np.ndarray, " S"]:
    """The first, less the second where there is one."""
    return values[0] if len(values) == 1 else values[0] - values[1]
