"""Reward-model losses: which one the rows call for, and its objective."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from plaudit.engine.step import ObjectiveResult
from plaudit.errors import UserError
from plaudit.losses import reward
from plaudit.losses.reward import centring
from plaudit.methods.config import RowSettings
from plaudit.methods.reward_model.config import RewardSettings
from plaudit.methods.reward_model.objective import (
    LanguageTerm,
    RewardObjective,
    comparison_result,
    ranking_result,
    rating_result,
    step_result,
    thumbs_result,
)
from plaudit.models.reward_model import RewardModel
from plaudit.tokens.preferences import JudgedRow, Judgement, PairLabel, RankingLabel, RatingLabel, StepLabels

FORMULAS: dict[str, str] = {
    "davidson": "−log P of win, tie or loss, in proportion to exp r₁, ν exp ½(r₁ + r₂), exp r₂",
    "rao-kupper": "−log P of win, tie or loss, where a win needs a lead",
    "binary": "−log σ(r) of good answers, −log σ(−r) of bad ones",
    "plackett-luce": "−log P of the whole order, the best being drawn first",
    "regression": "(r − rating)²",
    "process": "−log σ(r) at the end of right steps, −log σ(−r) of wrong ones",
}
"""What losses are whose settings change numbers in them only, in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowKind:
    losses: tuple[str, ...]
    """What learns from such rows; auto is the first."""
    result: Callable[..., ObjectiveResult]
    """From a model, a loss, the language-model loss and a micro-batch to what a step minimises."""
    metrics: tuple[str, ...]
    """What is measured beside the loss; of a regression it is the error."""
    uniform: str
    """What is true of rows of which there is nothing to learn."""


_KINDS = {
    "comparisons": _RowKind(
        losses=("bradley-terry", "davidson", "rao-kupper", "binary"),
        result=comparison_result,
        metrics=("accuracy", "margin"),
        uniform="each is a tie",
    ),
    "rankings": _RowKind(
        losses=("k-wise", "plackett-luce"),
        result=ranking_result,
        metrics=("accuracy", "margin"),
        uniform="in each all answers are tied",
    ),
    "ratings": _RowKind(
        losses=("regression",), result=rating_result, metrics=("mae",), uniform="they are one number"
    ),
    "thumbs": _RowKind(
        losses=("binary", "regression"),
        result=thumbs_result,
        metrics=("accuracy",),
        uniform="they all point one way",
    ),
    "steps": _RowKind(
        losses=("process",),
        result=step_result,
        metrics=("accuracy",),
        uniform="every step has the same label",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardLoss:
    """The loss of a reward run."""

    sentence: str
    objective: Callable[[RewardModel, LanguageTerm | None], RewardObjective]
    """What a step minimises, given a model and the language-model loss beside it."""
    on_rating_scale: bool
    metrics: tuple[str, ...]


def select_loss(settings: RewardSettings, rows: Sequence[JudgedRow], row_settings: RowSettings) -> RewardLoss:
    """The loss for these rows: the usual one of their kind, or the one that was named where it fits them."""
    kind = _row_kind(rows[0])
    name = loss_name_for(kind, settings)
    _refuse_impossible_ties(name, settings, rows)
    # Comparisons may all carry one label and still teach, since the preferred answer stands first.
    values = {value for row in rows for value in _label_values(row.judgement)}
    if all(_is_tied(row.judgement) for row in rows) or len(values) == 1:
        raise UserError(
            f"{rows[0].origin} and all others, {len(rows):,} {kind} to train on, say the same: "
            f"{_KINDS[kind].uniform}, so there is nothing to learn from them; give rows that tell answers "
            "apart"
        )
    # A thumb that is read as points is a rating.
    read_as = _KINDS["ratings" if name == "regression" else kind]
    loss = _loss_function(name, kind, settings, row_settings)
    addition = f"; beside it {settings.nll_coef:g} × −log π per token of the preferred answers"
    formula = formula_of(name, settings) + addition * bool(settings.nll_coef)
    return RewardLoss(
        sentence=f"the rows are {kind}, so the loss is {name}: {formula}",
        objective=lambda model, language: partial(read_as.result, model, loss, language),
        on_rating_scale=name == "regression",
        metrics=("loss", *read_as.metrics, *(("nll",) if settings.nll_coef else ()), "reward_mean"),
    )


def formula_of(name: str, settings: RewardSettings) -> str:
    """What is minimised with these settings: noise, smoothing, centring and weights as they are.

    >>> formula_of("bradley-terry", RewardSettings(noise=0.1, centring=0.01))
    '−log P + 0.01 (r₁ + r₂)², P = 0.9 σ(r₁ − r₂ − margin) + 0.05'
    """
    centre = f" + {settings.centring:g} (r₁ + r₂)²" if settings.centring else ""
    if name in ("bradley-terry", "k-wise"):
        return _coin_formula(name, settings, centre)
    weight = settings.positive_weight
    formula = FORMULAS[name] if weight == 1 else FORMULAS[name].replace("−log σ(r)", f"−{weight:g} log σ(r)")
    if name in ("davidson", "rao-kupper"):
        formula += f"; a tie has chance {settings.tie_probability:g} at equal rewards"
    return f"{formula};{centre}" if centre else formula


def _coin_formula(name: str, settings: RewardSettings, centre: str) -> str:
    """The cross-entropy of one coin (`losses.reward.bradley_terry`) where the label is certain."""
    noise, swapped = settings.noise, settings.smoothing
    win = "σ(r₁ − r₂)" if name == "k-wise" or settings.margin == "none" else "σ(r₁ − r₂ − margin)"
    if noise or swapped:
        where = f", P = {1 - noise:g} {win} + {noise / 2:g}" if noise else f", P = {win}"
        win = "P"
    else:
        where = ""
    loss = f"−{1 - swapped:g} log P − {swapped:g} log(1 − P)" if swapped else f"−log {win}"
    return f"{loss}{centre}{where}" + ("; the mean over the pairs of a ranking" if name == "k-wise" else "")


def loss_name_for(kind: str, settings: RewardSettings) -> str:
    """The name of the loss for rows of a kind; refuses one that does not fit, and settings not read."""
    losses = _KINDS[kind].losses
    name = losses[0] if settings.loss == "auto" else settings.loss
    if name not in losses:
        raise UserError(f"reward.loss: {name} does not learn from {kind}; they have {', '.join(losses)}")
    _refuse_unused_settings(name, settings)
    return name


def _refuse_impossible_ties(name: str, settings: RewardSettings, rows: Sequence[JudgedRow]) -> None:
    if name not in ("davidson", "rao-kupper") or settings.tie_probability > 0:
        return
    tied = next(
        (row for row in rows if isinstance(row.judgement, PairLabel) and row.judgement.probability == 0.5),
        None,
    )
    if tied is not None:
        raise UserError(
            f"{tied.origin}: this row is a tie, which --reward.tie-probability 0 calls impossible; give "
            "one above 0, or leave ties out with --rows.ties drop"
        )


def refuse_other_held_out_kind(train: Sequence[JudgedRow], held_out: Sequence[JudgedRow]) -> None:
    """Raise for held-out rows of another kind than the training rows, since both are measured by one loss."""
    train_kind, held_out_kind = (_row_kind(rows[0]) if rows else None for rows in (train, held_out))
    if held_out_kind not in (None, train_kind):
        raise UserError(
            f"the rows are {train_kind} and the held-out ones {held_out_kind}: hold out rows of the same kind"
        )


def _row_kind(row: JudgedRow) -> str:
    match row.judgement:
        case PairLabel():
            return "comparisons"
        case RankingLabel():
            return "rankings"
        case RatingLabel():
            return "thumbs" if row.judgement.thumb else "ratings"
        case StepLabels():
            return "steps"


def _loss_function(
    name: str, kind: str, settings: RewardSettings, row_settings: RowSettings
) -> Callable[..., Tensor]:
    """The loss with its settings, as the objective of its kind of rows calls it."""
    if kind == "comparisons":
        return partial(_comparison_loss, _PAIR_LIKELIHOODS[name], settings)
    tie_weight = 1.0 if row_settings.ties == "soft" else 0.0
    return {
        "k-wise": partial(
            reward.k_wise, tie_weight=tie_weight, smoothing=settings.smoothing, noise=settings.noise
        ),
        "plackett-luce": reward.plackett_luce,
        "regression": reward.regression,
        "binary": partial(reward.binary, positive_weight=settings.positive_weight),
        "process": partial(reward.process_supervision, positive_weight=settings.positive_weight),
    }[name]


def _comparison_loss(
    likelihood: Callable[..., Tensor],
    settings: RewardSettings,
    first_B: Tensor,
    second_B: Tensor,
    *labels: Tensor,
) -> Tensor:
    loss_B = likelihood(settings, first_B, second_B, *labels)
    return loss_B + centring(first_B, second_B, weight=settings.centring) if settings.centring else loss_B


def _bradley_terry_loss(
    settings: RewardSettings, first_B: Tensor, second_B: Tensor, probability_B: Tensor, margin_B: Tensor
) -> Tensor:
    # The margin belongs to the preferred answer, whichever of the two it is.
    return reward.bradley_terry(
        first_B,
        second_B,
        margin=margin_B * (probability_B - 0.5).sign(),
        label=probability_B,
        smoothing=settings.smoothing,
        noise=settings.noise,
    )


def _three_way_loss(model: Callable[..., Tensor], settings: RewardSettings, *inputs: Tensor) -> Tensor:
    """Win, tie or loss; ``tie_probability`` is the probability of a tie at equal rewards."""
    first_B, second_B, probability_B, _ = inputs
    share = settings.tie_probability
    # At equal rewards a tie has chance ν / (2 + ν) for Davidson and (θ − 1) / (θ + 1) for Rao–Kupper;
    # set equal to tie_probability these give ν and θ.
    ties = (
        {"nu": 2 * share / (1 - share)} if model is reward.davidson else {"theta": (1 + share) / (1 - share)}
    )
    # Exactly ½ is a tie; any other share is a chance of winning, with none of a tie.
    tied_B = (probability_B == 0.5).to(probability_B.dtype)
    label_B3 = torch.stack((probability_B * (1 - tied_B), tied_B, (1 - probability_B) * (1 - tied_B)), -1)
    return reward.win_tie_lose(model(first_B, second_B, **ties), label_B3)


def _independent_binary_loss(
    settings: RewardSettings, first_B: Tensor, second_B: Tensor, probability_B: Tensor, margin_B: Tensor
) -> Tensor:
    weight = settings.positive_weight
    first_loss_B, second_loss_B = (
        reward.binary(reward_B, label_B, positive_weight=weight)
        for reward_B, label_B in ((first_B, probability_B), (second_B, 1 - probability_B))
    )
    # Half of the sum, so that a comparison weighs one row as in every other loss.
    return 0.5 * (first_loss_B + second_loss_B)


_PAIR_LIKELIHOODS: dict[str, Callable[..., Tensor]] = {
    "bradley-terry": _bradley_terry_loss,
    "davidson": partial(_three_way_loss, reward.davidson),
    "rao-kupper": partial(_three_way_loss, reward.rao_kupper),
    "binary": _independent_binary_loss,
}
_SETTINGS_BY_LOSS: dict[str, tuple[str, ...]] = {
    "bradley-terry": ("smoothing", "noise", "centring", "margin", "nll_coef"),
    "davidson": ("tie_probability", "centring", "nll_coef"),
    "rao-kupper": ("tie_probability", "centring", "nll_coef"),
    "binary": ("positive_weight", "centring", "nll_coef"),
    "k-wise": ("smoothing", "noise", "nll_coef"),
    "plackett-luce": ("nll_coef",),
    "regression": (),
    "process": ("positive_weight",),
}


def _refuse_unused_settings(name: str, settings: RewardSettings) -> None:
    defaults = RewardSettings()
    for setting in dict.fromkeys(name for names in _SETTINGS_BY_LOSS.values() for name in names):
        if (
            getattr(settings, setting) != getattr(defaults, setting)
            and setting not in _SETTINGS_BY_LOSS[name]
        ):
            readers = ", ".join(loss for loss, names in _SETTINGS_BY_LOSS.items() if setting in names)
            raise UserError(
                f"reward.{setting} is not part of {name}: leave it out, or choose among {readers}"
            )


def _is_tied(judgement: Judgement) -> bool:
    match judgement:
        case PairLabel():
            return judgement.probability == 0.5
        case RankingLabel():
            return len(set(judgement.ranks)) == 1
        case RatingLabel() | StepLabels():
            return False


def _label_values(judgement: Judgement) -> tuple[float, ...]:
    match judgement:
        case RatingLabel():
            return (judgement.score,)
        case StepLabels():
            return judgement.labels
        case _:
            return ()
