"""Whether a policy knows what it knows: how sure it is of answers to closed questions, and how often right.

Of a question with choices c the policy's chance is P(c | x) = softmax over the choices of log π(c | x), the
log-prob of the whole answer with its end. Its confidence is the chance of the likeliest choice. Nothing is
drawn, so all of it is exact but for which questions were asked (Kadavath et al. 2022, arXiv:2207.05221; that
optimisation by feedback spoils it: figure 8 of the GPT-4 report, arXiv:2303.08774).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int

from plaudit.evaluation import stats
from plaudit.evaluation.reward_models.accuracy import RELIABILITY_BINS, equal_mass_bins, reliability_by_width
from plaudit.evaluation.reward_models.pairs import group_index

MIN_BIN_QUESTIONS = 30
"""Questions in a bin: with fewer, chance alone makes most of the error."""
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 1e-3, 1e3
_MAX_MOVE, _HALVINGS = 30.0, 20
_LEAST_SURE, _ROUNDING = 1e-6, 1e-12
Way = Literal["shift", "factor"]
"""How log-odds are moved: all by the same, or by a share of what they are."""
_WAYS: tuple[Way, ...] = get_args(Way)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceLogprobs:
    policy: str
    prompt: str
    category: str | None
    choices: tuple[str, ...]
    logp: tuple[float, ...]
    """log π of each, its end among the tokens."""
    right: int
    """The place of the right one, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCalibration:
    accuracy: stats.Estimate
    """How often the likeliest choice is right; of equally likely ones each counts its share."""
    confidence: stats.Estimate
    surplus: stats.Estimate
    """Confidence less accuracy: above 0 it is surer than right."""
    ece: stats.Estimate
    """Σ_b n_b/N |right_b − confidence_b| over up to ten bins of as many questions, thirty or more (Guo et al.
    2017, arXiv:1706.04599); chance alone makes it larger than 0, which its interval takes off again."""
    brier: stats.Estimate
    """Mean Σ_c (P(c) − [c is right])² (Brier 1950): 0 at best, 2 at worst."""
    log_loss: stats.Estimate
    covered: stats.Estimate
    """The chance that the policy gives to all choices together: what else it says is not looked at."""
    by_width: tuple[stats.Bin, ...]
    surplus_change: stats.Estimate | None = None
    """The surplus less the reference's on the same questions; None for the reference."""
    ece_change: stats.Estimate | None = None
    """The calibration error less the reference's on the same questions; None for the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _QuestionColumns:
    confidence_Q: Float[np.ndarray, " Q"]
    correct_Q: Float[np.ndarray, " Q"]
    brier_Q: Float[np.ndarray, " Q"]
    loss_Q: Float[np.ndarray, " Q"]
    covered_Q: Float[np.ndarray, " Q"]
    prompt_Q: Int[np.ndarray, " Q"]

    @property
    def bin_Q(self) -> Int[np.ndarray, " Q"]:
        bins = min(RELIABILITY_BINS, max(1, len(self.confidence_Q) // MIN_BIN_QUESTIONS))
        return equal_mass_bins(self.confidence_Q, bins=bins)

    @property
    def gaps_QW(self) -> Float[np.ndarray, "Q W"]:
        # A column for each bin, so that every draw's sums by bin come of one matrix product.
        """Confidence less being right, in the column of the question's bin."""
        gaps_QW = np.zeros((len(self.bin_Q), int(self.bin_Q.max()) + 1))
        gaps_QW[np.arange(len(self.bin_Q)), self.bin_Q] = self.confidence_Q - self.correct_Q
        return gaps_QW


def policy_calibration(
    questions: Sequence[ChoiceLogprobs],
    resampling: stats.Resampling,
    reference: Sequence[ChoiceLogprobs] | None = None,
) -> PolicyCalibration:
    """All figures of one policy, and what changed since a reference that was asked the same."""
    if not questions:
        raise ValueError("a calibration of nothing")
    columns = _question_columns(questions)
    reference_columns = None if reference is None else _question_columns(reference)
    if reference is not None and [row.prompt for row in reference] != [row.prompt for row in questions]:
        raise ValueError("the reference was asked other questions")

    def mean(value_Q: Float[np.ndarray, " Q"], *, share: bool = False) -> stats.Estimate:
        return stats.bootstrap_mean(value_Q, columns.prompt_Q, resampling, share=share)

    over_Q = columns.confidence_Q - columns.correct_Q
    return PolicyCalibration(
        accuracy=mean(columns.correct_Q, share=True),
        confidence=mean(columns.confidence_Q),
        surplus=mean(over_Q),
        ece=_calibration_error([columns], resampling),
        brier=mean(columns.brier_Q),
        log_loss=mean(columns.loss_Q),
        covered=mean(columns.covered_Q),
        by_width=reliability_by_width(columns.confidence_Q, columns.correct_Q, lowest=0.0),
        surplus_change=None
        if reference_columns is None
        else mean(over_Q - (reference_columns.confidence_Q - reference_columns.correct_Q)),
        ece_change=None
        if reference_columns is None
        else _calibration_error([columns, reference_columns], resampling),
    )


def at_temperature(
    questions: Sequence[ChoiceLogprobs], temperature: int | float
) -> tuple[ChoiceLogprobs, ...]:
    """The same with log-probs divided by a temperature: above 1 a policy is less sure, and as often right."""
    return tuple(
        replace(question, logp=tuple(value / temperature for value in question.logp))
        for question in questions
    )


def fitted_temperature(questions: Sequence[ChoiceLogprobs]) -> float:
    """The T that makes −ln softmax(log π / T) of the right choices least (Guo et al. 2017, arXiv:1706.04599).
    The loss is convex in 1/T, so where its slope changes sign is found by halving. Fit it on other questions
    than those that it is judged on."""
    logp_QC, right_Q = _padded_logprobs(questions)
    # Padding has p = 0 and log π = −∞, and 0 · −∞ would make the expectation nan.
    finite_QC = np.where(np.isfinite(logp_QC), logp_QC, 0.0)
    right_logp_Q = logp_QC[np.arange(len(right_Q)), right_Q]
    # 1/T on a log scale: 60 halvings of ln 10⁶ use up float64.
    log_low, log_high = np.log(1 / _MAX_TEMPERATURE), np.log(1 / _MIN_TEMPERATURE)
    for _ in range(60):
        middle = (log_low + log_high) / 2
        # The loss has the slope E log π − log π(right) in 1/T, E by the softmax at this temperature.
        expected_Q = (_softmax(logp_QC * np.exp(middle)) * finite_QC).sum(1)
        log_low, log_high = (middle, log_high) if expected_Q.sum() < right_logp_Q.sum() else (log_low, middle)
    return float(np.exp(-(log_low + log_high) / 2))


def _padded_logprobs(
    questions: Sequence[ChoiceLogprobs],
) -> tuple[Float[np.ndarray, "Q C"], Int[np.ndarray, " Q"]]:
    """log π of all choices, −∞ where a question has fewer, and the place of the right one."""
    logp_QC = np.full((len(questions), max(len(question.logp) for question in questions)), -np.inf)
    for row, question in enumerate(questions):
        logp_QC[row, : len(question.logp)] = question.logp
    return logp_QC, np.array([question.right for question in questions], dtype=np.int64)


def _question_columns(questions: Sequence[ChoiceLogprobs]) -> _QuestionColumns:
    logp_QC, right_Q = _padded_logprobs(questions)
    rows_Q, p_QC = np.arange(len(right_Q)), _softmax(logp_QC)
    confidence_Q, p_right_Q = p_QC.max(1), p_QC[rows_Q, right_Q]
    best_QC = p_QC == confidence_Q[:, None]
    return _QuestionColumns(
        confidence_Q=confidence_Q,
        # Choices level at the top share the point, as a fair coin between them would on average.
        correct_Q=best_QC[rows_Q, right_Q] / best_QC.sum(1),
        # Σ_c (p_c − [c is right])², with the square of the right one multiplied out.
        brier_Q=(p_QC**2).sum(1) + 1 - 2 * p_right_Q,
        loss_Q=np.logaddexp.reduce(logp_QC, axis=1) - logp_QC[rows_Q, right_Q],
        # The mass before normalising: where it is small, the policy would say something else.
        covered_Q=np.exp(logp_QC).sum(1),
        prompt_Q=group_index([question.prompt for question in questions]),
    )


def _softmax(logp_QC: Float[np.ndarray, "Q C"]) -> Float[np.ndarray, "Q C"]:
    return np.exp(logp_QC - np.logaddexp.reduce(logp_QC, axis=1, keepdims=True))


def _calibration_error(columns: Sequence[_QuestionColumns], resampling: stats.Resampling) -> stats.Estimate:
    """The calibration error of the first, less that of the second if there is one, over the same draws."""
    # A bin's |mean| is above 0 by chance alone, and more so in every draw. For a difference the basic
    # interval, twice the value less the quantiles of the draws (Davison and Hinkley 1997, 5.2), takes this
    # off; for one error alone see `_unsurprising_errors`.
    prompt_Q = columns[0].prompt_Q
    # Bins stay those of the data in every draw; only how often a prompt counts is drawn.
    gaps_by_prompt = [_sum_by_prompt(column.gaps_QW, prompt_Q) for column in columns]
    prompts, questions = len(gaps_by_prompt[0]), len(prompt_Q)
    count_P = np.bincount(prompt_Q)
    # Σ_b n_b/Q · |mean gap of b| is Σ_b |Σ gaps of b| / Q: the sizes of the bins cancel.
    value = float(
        _difference([np.abs(gaps_PW.sum(0)).sum(keepdims=True) / questions for gaps_PW in gaps_by_prompt])[0]
    )
    point = stats.Estimate(value=value, low=None, high=None, n=questions, prompts=prompts)
    if prompts < 2:
        return point
    if len(columns) == 1:
        low, high = _unsurprising_errors(columns[0], value, resampling)
    else:
        resampled_S = np.concatenate(
            [
                _difference(
                    [np.abs(weight_SP @ gaps_PW).sum(1) / (weight_SP @ count_P) for gaps_PW in gaps_by_prompt]
                )
                for weight_SP in stats.prompt_draws(prompts, resampling)
            ]
        )
        lower_S, upper_S = np.quantile(resampled_S, stats.interval_levels(prompts))
        low, high = 2 * value - upper_S, 2 * value - lower_S
    # The correction can push an end past the value itself.
    return replace(point, low=float(min(low, value)), high=float(max(high, value)))


def _unsurprising_errors(
    columns: _QuestionColumns, value: float, resampling: stats.Resampling
) -> tuple[float, float]:
    """The least and the largest true error under which the measured one would be no surprise."""
    # Chances to be right are moved away from the confidences, until luck makes an error as large as the
    # measured one in one case of forty, and on until it makes one as small in one of forty (a test turned
    # round: Casella and Berger 2002, 9.2.1). How far an error varies hangs on where it sits, so chances are
    # moved in two ways, by a shift and by a factor of the log-odds, and the wider ends count. Twice the value
    # less quantiles of resampled ones would be too narrow: a bin in which all were right by luck varies in no
    # draw.
    bins = _open_bins(columns)
    sign = -1.0 if float((columns.confidence_Q - columns.correct_Q).sum()) > 0 else 1.0

    def error(way: Way, is_found: Callable[[Float[np.ndarray, " S"]], bool]) -> float:
        near, far = 0.0, _MAX_MOVE
        if is_found(bins.errors(bins.moved(way, 0.0), resampling)):
            return 0.0
        # Errors grow with the size of the move, so where the answer turns is found by halving.
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            turned = is_found(bins.errors(bins.moved(way, sign * middle), resampling))
            near, far = (near, middle) if turned else (middle, far)
        return bins.true_error(bins.moved(way, sign * far))

    lows = [error(way, lambda error_S: (error_S >= value - _ROUNDING).mean() > 0.025) for way in _WAYS]
    highs = [error(way, lambda error_S: (error_S <= value + _ROUNDING).mean() < 0.025) for way in _WAYS]
    return min(lows), max(highs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenBins:
    logit_Q: Float[np.ndarray, " Q"]
    open_QW: Float[np.ndarray, "Q W"]
    """1 in the column of its bin for a question that is right or wrong; choices level at the top are neither.
    """
    sure_W: Float[np.ndarray, " W"]
    """Σ confidence of these, and Σ (confidence − share) of the others."""
    spread: float

    def moved(self, way: Way, size: float) -> Float[np.ndarray, " W"]:
        logit_Q = self.logit_Q + size if way == "shift" else self.logit_Q * (1 + size)
        return (0.5 + 0.5 * np.tanh(logit_Q / 2)) @ self.open_QW

    def true_error(self, right_W: Float[np.ndarray, " W"]) -> float:
        return float(np.abs(self.sure_W - right_W).sum() / len(self.logit_Q))

    def errors(
        self, right_W: Float[np.ndarray, " W"], resampling: stats.Resampling
    ) -> Float[np.ndarray, " S"]:
        """Errors that are measured where so many are right on average."""
        open_W = self.open_QW.sum(0)
        probability_W = np.clip(right_W / np.maximum(open_W, 1.0), 0.0, 1.0)
        # The same seed wherever chances are moved to: luck is not what differs.
        rng = np.random.default_rng(resampling.seed)
        drawn_SW = rng.binomial(open_W.astype(np.int64), probability_W, size=(resampling.times, len(open_W)))
        right_SW = right_W + self.spread * (drawn_SW - right_W)
        return np.abs(self.sure_W - right_SW).sum(1) / len(self.logit_Q)


def _open_bins(columns: _QuestionColumns) -> _OpenBins:
    bin_Q, gap_Q = columns.bin_Q, columns.confidence_Q - columns.correct_Q
    is_open_Q = np.isin(columns.correct_Q, (0.0, 1.0))
    sure_Q = np.clip(columns.confidence_Q, _LEAST_SURE, 1 - _LEAST_SURE)
    return _OpenBins(
        logit_Q=np.log(sure_Q / (1 - sure_Q)),
        open_QW=np.eye(int(bin_Q.max()) + 1)[bin_Q] * is_open_Q[:, None],
        sure_W=np.bincount(bin_Q, np.where(is_open_Q, columns.confidence_Q, gap_Q)),
        spread=_spread(columns, is_open_Q),
    )


def _spread(columns: _QuestionColumns, is_open_Q: Bool[np.ndarray, " Q"]) -> float:
    """How many times as far sums of gaps vary as by being right or wrong alone, at least once."""
    # Questions of one prompt go together, and other prompts would have other confidences.
    gap_Q = columns.confidence_Q - columns.correct_Q
    by_prompt = (np.bincount(columns.prompt_Q, gap_Q - gap_Q.mean()) ** 2).sum()
    bin_Q = columns.bin_Q
    open_W = np.bincount(bin_Q, is_open_Q)
    # Laplace's estimate: a bin in which all were right by luck does vary.
    right_W = (np.bincount(bin_Q, columns.correct_Q * is_open_Q) + 1) / (open_W + 2)
    by_luck = (open_W * right_W * (1 - right_W)).sum()
    return max(1.0, float(np.sqrt(by_prompt / by_luck))) if by_luck else 1.0


def _sum_by_prompt(
    gaps_QW: Float[np.ndarray, "Q W"], prompt_Q: Int[np.ndarray, " Q"]
) -> Float[np.ndarray, "P W"]:
    sums_PW = np.zeros((int(prompt_Q.max()) + 1, gaps_QW.shape[1]))
    np.add.at(sums_PW, prompt_Q, gaps_QW)
    return sums_PW


def _difference(values: Sequence[Float[np.ndarray, " S"]]) -> Float[np.ndarray, " S"]:
    return values[0] if len(values) == 1 else values[0] - values[1]
