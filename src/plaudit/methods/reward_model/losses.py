"""Reward-model losses: which one the rows call for, and its objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from plaudit.errors import UserError
from plaudit.losses.reward import (
    binary,
    bradley_terry,
    centring,
    davidson,
    k_wise,
    plackett_luce,
    process_supervision,
    rao_kupper,
    regression,
    win_tie_lose,
)
from plaudit.methods.config import RowSettings
from plaudit.methods.reward_model.config import RewardSettings
from plaudit.methods.reward_model.language import LanguageTerm
from plaudit.methods.reward_model.objective import (
    RewardObjective,
    comparison_objective,
    ranking_objective,
    rating_objective,
    step_objective,
    thumbs_objective,
)
from plaudit.models.reward_model import RewardModel
from plaudit.tokens.preferences import JudgedRow, Judgement, PairLabel, RankingLabel, RatingLabel, StepLabels

DEFAULT_LOSSES: dict[str, str] = {
    "comparisons": "bradley-terry",
    "rankings": "k-wise",
    "ratings": "regression",
    "thumbs": "binary",
    "steps": "process",
}
"""Each kind of rows, and the loss that auto stands for."""
FORMULAS: dict[str, str] = {
    "davidson": "−log P of win, tie or loss, in proportion to exp r₁, ν exp ½(r₁ + r₂), exp r₂",
    "rao-kupper": "−log P of win, tie or loss, where a win needs a lead",
    "binary": "−log σ(r) of good answers, −log σ(−r) of bad ones",
    "plackett-luce": "−log P of the whole order, the best being drawn first",
    "regression": "(r − rating)²",
    "process": "−log σ(r) at the end of right steps, −log σ(−r) of wrong ones",
}
"""What losses are whose settings change numbers in them only, in a line."""
_LOSSES_BY_KIND: dict[str, tuple[str, ...]] = {
    "comparisons": ("bradley-terry", "davidson", "rao-kupper", "binary"),
    "rankings": ("k-wise", "plackett-luce"),
    "ratings": ("regression",),
    "thumbs": ("binary", "regression"),
    "steps": ("process",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardLoss:
    """The loss of a reward run."""

    sentence: str
    """What is minimised and why, for the user."""
    objective: Callable[[RewardModel, LanguageTerm | None], RewardObjective]
    """What a step minimises, given a model and the language-model loss beside it."""
    on_rating_scale: bool
    metrics: tuple[str, ...]


def select_loss(settings: RewardSettings, rows: Sequence[JudgedRow], row_settings: RowSettings) -> RewardLoss:
    """The loss for these rows: the usual one of their kind, or the one that was named where it fits them."""
    kind = _row_kind(rows[0])
    name = loss_name_for(kind, settings)
    _refuse_impossible_ties(name, settings, rows)
    _refuse_uniform_labels(rows, kind)
    metrics = ("mae",) if name == "regression" else _METRICS_BY_KIND[kind]
    return RewardLoss(
        sentence=f"the rows are {kind}, so the loss is {name}: "
        f"{formula_of(name, settings)}{_language_text(settings)}",
        objective=_OBJECTIVES[kind](name, settings, row_settings),
        on_rating_scale=name == "regression",
        metrics=("loss", *metrics, *(("nll",) if settings.nll_coef else ()), "reward_mean"),
    )


def _language_text(settings: RewardSettings) -> str:
    coef = settings.nll_coef
    return f"; beside it {coef:g} × −log π per token of the preferred answers" if coef else ""


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
    name = DEFAULT_LOSSES[kind] if settings.loss == "auto" else settings.loss
    if name not in _LOSSES_BY_KIND[kind]:
        raise UserError(
            f"reward.loss: {name} does not learn from {kind}; they have {', '.join(_LOSSES_BY_KIND[kind])}"
        )
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


def _comparison_objective(
    name: str, settings: RewardSettings, row_settings: RowSettings
) -> Callable[..., RewardObjective]:
    likelihood = {
        "bradley-terry": _bradley_terry_loss,
        "davidson": partial(_three_way_loss, davidson),
        "rao-kupper": partial(_three_way_loss, rao_kupper),
        "binary": _independent_binary_loss,
    }[name]

    def loss(first_B: Tensor, second_B: Tensor, probability_B: Tensor, margin_B: Tensor) -> Tensor:
        loss_B = likelihood(settings, first_B, second_B, probability_B, margin_B)
        return loss_B + centring(first_B, second_B, weight=settings.centring) if settings.centring else loss_B

    return lambda model, language: comparison_objective(model, loss, language)


def _bradley_terry_loss(
    settings: RewardSettings, first_B: Tensor, second_B: Tensor, probability_B: Tensor, margin_B: Tensor
) -> Tensor:
    # The margin belongs to the preferred answer, whichever of the two it is.
    return bradley_terry(
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
    ties = {"nu": 2 * share / (1 - share)} if model is davidson else {"theta": (1 + share) / (1 - share)}
    # Exactly ½ is a tie; any other share is a chance of winning, with none of a tie.
    tied_B = (probability_B == 0.5).to(probability_B.dtype)
    label_B3 = torch.stack((probability_B * (1 - tied_B), tied_B, (1 - probability_B) * (1 - tied_B)), -1)
    return win_tie_lose(model(first_B, second_B, **ties), label_B3)


def _independent_binary_loss(
    settings: RewardSettings, first_B: Tensor, second_B: Tensor, probability_B: Tensor, margin_B: Tensor
) -> Tensor:
    """Each answer is good or bad by itself: the mean of the two binary losses."""
    weight = settings.positive_weight
    first_loss_B, second_loss_B = (
        binary(reward_B, label_B, positive_weight=weight)
        for reward_B, label_B in ((first_B, probability_B), (second_B, 1 - probability_B))
    )
    # Half of the sum, so that a comparison weighs one row as in every other loss.
    return 0.5 * (first_loss_B + second_loss_B)


def _ranking_objective(
    name: str, settings: RewardSettings, row_settings: RowSettings
) -> Callable[..., RewardObjective]:
    pairwise = partial(
        k_wise,
        tie_weight=1.0 if row_settings.ties == "soft" else 0.0,
        smoothing=settings.smoothing,
        noise=settings.noise,
    )
    loss = pairwise if name == "k-wise" else plackett_luce
    return lambda model, language: ranking_objective(model, loss, language)


def _rating_objective(
    name: str, settings: RewardSettings, row_settings: RowSettings
) -> Callable[..., RewardObjective]:
    return lambda model, _: rating_objective(model, regression)


def _thumb_objective(
    name: str, settings: RewardSettings, row_settings: RowSettings
) -> Callable[..., RewardObjective]:
    if name == "regression":
        return _rating_objective(name, settings, row_settings)
    loss = partial(binary, positive_weight=settings.positive_weight)
    return lambda model, language: thumbs_objective(model, loss, language)


def _step_objective(
    name: str, settings: RewardSettings, row_settings: RowSettings
) -> Callable[..., RewardObjective]:
    loss = partial(process_supervision, positive_weight=settings.positive_weight)
    return lambda model, _: step_objective(model, loss)


_OBJECTIVES = {
    "comparisons": _comparison_objective,
    "rankings": _ranking_objective,
    "ratings": _rating_objective,
    "thumbs": _thumb_objective,
    "steps": _step_objective,
}


_METRICS_BY_KIND: dict[str, tuple[str, ...]] = {
    "comparisons": ("accuracy", "margin"),
    "rankings": ("accuracy", "margin"),
    "thumbs": ("accuracy",),
    "steps": ("accuracy",),
}
"""The metrics of each kind of rows beside the loss; ratings have their error."""
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


def _refuse_uniform_labels(rows: Sequence[JudgedRow], kind: str) -> None:
    values = {value for row in rows for value in _label_values(row.judgement)}
    # Comparisons may all carry one label and still teach, since the preferred answer stands first.
    if all(_is_tied(row.judgement) for row in rows) or (kind in _ABSOLUTE_KINDS and len(values) == 1):
        raise UserError(
            f"{rows[0].origin} and all others, {len(rows):,} {kind} to train on, say the same: "
            f"{_UNIFORM_LABELS[kind]}"
            ", so there is nothing to learn from them; give rows that tell answers apart"
        )


_ABSOLUTE_KINDS = ("ratings", "thumbs", "steps")
_UNIFORM_LABELS = {
    "comparisons": "each is a tie",
    "rankings": "in each all answers are tied",
    "ratings": "they are one number",
    "thumbs": "they all point one way",
    "steps": "every step has the same label",
}


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
