"""By which loss a reward is learnt: it follows the rows, and says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from plaudit.batches.judged import (
    Compared,
    JudgedRow,
    Labelled,
    Ranked,
    Rated,
    Said,
)
from plaudit.errors import UserError
from plaudit.losses.reward import (
    binary,
    bradley_terry,
    centring,
    davidson,
    k_wise,
    plackett_luce,
    process,
    rao_kupper,
    regression,
    win_tie_lose,
)
from plaudit.models.reward import RewardModel
from plaudit.recipes.config import RowSettings
from plaudit.recipes.reward_config import RewardSettings
from plaudit.training.reward import RewardObjective, comparing, ranking, rating, stepwise, thumbing
from plaudit.training.supervised import Arithmetic

USUAL: dict[str, str] = {
    "comparisons": "bradley-terry",
    "rankings": "k-wise",
    "ratings": "regression",
    "thumbs": "binary",
    "steps": "process",
}
"""Each kind of rows, and the loss that auto stands for."""
FORMULAS: dict[str, str] = {
    "bradley-terry": "−log σ(r₁ − r₂ − margin)",
    "davidson": "−log P of win, tie or loss, in proportion to exp r₁, ν exp ½(r₁ + r₂), exp r₂",
    "rao-kupper": "−log P of win, tie or loss, where a win needs a lead",
    "binary": "−log σ(r) of good answers, −log σ(−r) of bad ones",
    "k-wise": "the mean of −log σ(r₁ − r₂) over the pairs of a ranking",
    "plackett-luce": "−log P of the whole order, the best being drawn first",
    "regression": "(r − rating)²",
    "process": "−log σ(r) at the end of right steps, −log σ(−r) of wrong ones",
}
"""What each loss is, in a line."""
_FITTING: dict[str, tuple[str, ...]] = {
    "comparisons": ("bradley-terry", "davidson", "rao-kupper", "binary"),
    "rankings": ("k-wise", "plackett-luce"),
    "ratings": ("regression",),
    "thumbs": ("binary", "regression"),
    "steps": ("process",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The loss of a run.

    Example: ``chosen_loss(settings, rows, RowSettings()).sentence``
    """

    sentence: str
    """What is minimised and why, for the user."""
    objective: Callable[[RewardModel, Arithmetic], RewardObjective]
    """What a step minimises."""
    on_a_scale: bool
    """Whether rewards are points, so that they should begin on the scale of the ratings."""
    measured: tuple[str, ...]
    """The figures that there are of held-out rows."""


def chosen_loss(settings: RewardSettings, rows: Sequence[JudgedRow], read: RowSettings) -> Chosen:
    """The loss that the rows ask for, or the one that was named where it fits them."""
    kind = _kind_of_row(rows[0])
    name = loss_of(kind, settings)
    _refuse_impossible_ties(name, settings, rows)
    _refuse_what_teaches_nothing(rows, kind)
    return Chosen(
        sentence=f"the rows are {kind}, so the loss is {name}: {FORMULAS[name]}",
        objective=_OBJECTIVES[kind](name, settings, read),
        on_a_scale=name == "regression",
        measured=("loss", *(("error",) if name == "regression" else _MEASURED[kind]), "reward_mean"),
    )


def loss_of(kind: str, settings: RewardSettings) -> str:
    """The name of the loss for rows of a kind; refuses one that does not fit, and settings not read."""
    name = USUAL[kind] if settings.loss == "auto" else settings.loss
    if name not in _FITTING[kind]:
        raise UserError(
            f"reward.loss: {name} does not learn from {kind}; they have {', '.join(_FITTING[kind])}"
        )
    _refuse_what_is_not_read(name, settings)
    return name


def _refuse_impossible_ties(name: str, settings: RewardSettings, rows: Sequence[JudgedRow]) -> None:
    if name not in ("davidson", "rao-kupper") or settings.tie_chance > 0:
        return
    tied = next((row for row in rows if isinstance(row.said, Compared) and row.said.chance == 0.5), None)
    if tied is not None:
        raise UserError(
            f"{tied.origin}: this row is a tie, which --reward.tie-chance 0 calls impossible; give a chance "
            "above 0, or leave ties out with --rows.ties drop"
        )


def refuse_other_kind(train: Sequence[JudgedRow], held_out: Sequence[JudgedRow]) -> None:
    """A file of held-out rows is measured by the loss of the training rows, so it holds the same kind."""
    mine, other = (_kind_of_row(rows[0]) if rows else None for rows in (train, held_out))
    if other not in (None, mine):
        raise UserError(f"the rows are {mine} and the held-out ones {other}: hold out rows of the same kind")


def _kind_of_row(row: JudgedRow) -> str:
    match row.said:
        case Compared():
            return "comparisons"
        case Ranked():
            return "rankings"
        case Rated():
            return "thumbs" if row.said.thumb else "ratings"
        case Labelled():
            return "steps"


def _comparisons(name: str, settings: RewardSettings, read: RowSettings) -> Callable[..., RewardObjective]:
    del read
    likelihood = {
        "bradley-terry": _bradley_terry,
        "davidson": partial(_three_ways, davidson),
        "rao-kupper": partial(_three_ways, rao_kupper),
        "binary": _each_alone,
    }[name]

    def loss(first_B: Tensor, second_B: Tensor, chance_B: Tensor, margin_B: Tensor) -> Tensor:
        own_B = likelihood(settings, first_B, second_B, chance_B, margin_B)
        return own_B + centring(first_B, second_B, weight=settings.centring) if settings.centring else own_B

    return lambda model, arithmetic: comparing(model, loss, arithmetic)


def _bradley_terry(
    settings: RewardSettings, first_B: Tensor, second_B: Tensor, chance_B: Tensor, margin_B: Tensor
) -> Tensor:
    # The margin belongs to the preferred answer, whichever of the two it is.
    return bradley_terry(
        first_B,
        second_B,
        margin=margin_B * (chance_B - 0.5).sign(),
        label=chance_B,
        smoothing=settings.smoothing,
        noise=settings.noise,
    )


def _three_ways(model: Callable[..., Tensor], settings: RewardSettings, *told: Tensor) -> Tensor:
    """Win, tie, loss; ``tie_chance`` is what the model says of two answers of equal reward."""
    first_B, second_B, chance_B, _ = told
    share = settings.tie_chance
    ties = {"nu": 2 * share / (1 - share)} if model is davidson else {"theta": (1 + share) / (1 - share)}
    tied_B = (chance_B == 0.5).to(chance_B.dtype)
    label_B3 = torch.stack((chance_B * (1 - tied_B), tied_B, (1 - chance_B) * (1 - tied_B)), -1)
    return win_tie_lose(model(first_B, second_B, **ties), label_B3)


def _each_alone(
    settings: RewardSettings, first_B: Tensor, second_B: Tensor, chance_B: Tensor, margin_B: Tensor
) -> Tensor:
    """Each answer is good or bad by itself: the mean of the two."""
    del margin_B
    weight = settings.positive_weight
    one_B, other_B = (
        binary(reward_B, label_B, positive_weight=weight)
        for reward_B, label_B in ((first_B, chance_B), (second_B, 1 - chance_B))
    )
    return 0.5 * (one_B + other_B)


def _rankings(name: str, settings: RewardSettings, read: RowSettings) -> Callable[..., RewardObjective]:
    pairs = partial(
        k_wise,
        tie_weight=1.0 if read.ties == "soft" else 0.0,
        smoothing=settings.smoothing,
        noise=settings.noise,
    )
    loss = pairs if name == "k-wise" else plackett_luce
    return lambda model, arithmetic: ranking(model, loss, arithmetic)


def _ratings(name: str, settings: RewardSettings, read: RowSettings) -> Callable[..., RewardObjective]:
    del name, settings, read
    return lambda model, arithmetic: rating(model, regression, arithmetic)


def _thumbs(name: str, settings: RewardSettings, read: RowSettings) -> Callable[..., RewardObjective]:
    if name == "regression":
        return _ratings(name, settings, read)
    loss = partial(binary, positive_weight=settings.positive_weight)
    return lambda model, arithmetic: thumbing(model, loss, arithmetic)


def _steps(name: str, settings: RewardSettings, read: RowSettings) -> Callable[..., RewardObjective]:
    del name, read
    loss = partial(process, positive_weight=settings.positive_weight)
    return lambda model, arithmetic: stepwise(model, loss, arithmetic)


_OBJECTIVES = {
    "comparisons": _comparisons,
    "rankings": _rankings,
    "ratings": _ratings,
    "thumbs": _thumbs,
    "steps": _steps,
}


_MEASURED: dict[str, tuple[str, ...]] = {
    "comparisons": ("accuracy", "margin"),
    "rankings": ("accuracy", "margin"),
    "thumbs": ("accuracy",),
    "steps": ("accuracy",),
}
"""What is measured of each kind beside its loss; of points on a scale it is their error."""
_READ: dict[str, tuple[str, ...]] = {
    "bradley-terry": ("smoothing", "noise", "centring", "margin"),
    "davidson": ("tie_chance", "centring"),
    "rao-kupper": ("tie_chance", "centring"),
    "binary": ("positive_weight", "centring"),
    "k-wise": ("smoothing", "noise"),
    "plackett-luce": (),
    "regression": (),
    "process": ("positive_weight",),
}
"""The settings that each loss reads."""


def _refuse_what_is_not_read(name: str, settings: RewardSettings) -> None:
    usual = RewardSettings()
    for setting in ("smoothing", "noise", "centring", "tie_chance", "positive_weight", "margin"):
        if getattr(settings, setting) != getattr(usual, setting) and setting not in _READ[name]:
            readers = ", ".join(loss for loss, read in _READ.items() if setting in read)
            raise UserError(
                f"reward.{setting} is not part of {name}: leave it out, or choose among {readers}"
            )


def _refuse_what_teaches_nothing(rows: Sequence[JudgedRow], kind: str) -> None:
    """Where all answers are judged alike there is nothing to tell apart."""
    values = {value for row in rows for value in _values(row.said)}
    if all(_is_flat(row.said) for row in rows) or (kind in _ALONE and len(values) == 1):
        raise UserError(
            f"{rows[0].origin} and all others, {len(rows):,} {kind} to train on, say the same: {_FLAT[kind]}"
            ", so there is nothing to learn from them; give rows that tell answers apart"
        )


_ALONE = ("ratings", "thumbs", "steps")
_FLAT = {
    "comparisons": "each is a tie",
    "rankings": "in each all answers are tied",
    "ratings": "they are one number",
    "thumbs": "they all point one way",
    "steps": "every step has the same label",
}


def _is_flat(said: Said) -> bool:
    match said:
        case Compared():
            return said.chance == 0.5
        case Ranked():
            return len(set(said.ranks)) == 1
        case Rated() | Labelled():
            return False


def _values(said: Said) -> tuple[float, ...]:
    match said:
        case Rated():
            return (said.score,)
        case Labelled():
            return said.labels
        case _:
            return ()
