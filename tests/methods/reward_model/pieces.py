"""Judged rows of random tokens for a tiny float64 reward model, and what an objective makes of them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from plaudit.engine.metrics import Metric, values_of
from plaudit.engine.step_report import Number
from plaudit.methods.config import RowSettings
from plaudit.methods.reward_model.config import RewardSettings
from plaudit.methods.reward_model.losses import select_loss
from plaudit.methods.reward_model.objective import LanguageTerm, RewardMicrobatch, RewardObjective
from plaudit.models.reward_model import RewardModel
from plaudit.tokens.batch import Example, batch_of
from plaudit.tokens.preferences import JudgedRow, Judgement, PairLabel, RankingLabel, RatingLabel, StepLabels
from tests.methods.ragged import ragged_rows

SAID: dict[str, tuple[Judgement, ...]] = {
    "comparisons": (
        PairLabel(probability=1.0, margin=0.5),
        PairLabel(probability=0.5, margin=0.5),
        PairLabel(probability=0.2, margin=0.25),
        PairLabel(probability=0.7, margin=0.0),
        PairLabel(probability=1.0, margin=0.0),
    ),
    "rankings": (
        RankingLabel(ranks=(1.0, 2.0)),
        RankingLabel(ranks=(2.0, 1.0, 2.0)),
        RankingLabel(ranks=(4.0, 1.0, 3.0, 2.0)),
        RankingLabel(ranks=(1.0, 1.0)),
        RankingLabel(ranks=(1.0, 3.0, 2.0)),
    ),
    "ratings": tuple(RatingLabel(score=score, thumb=False) for score in (1.0, 5.0, 2.5, -1.0, 3.0)),
    "thumbs": tuple(RatingLabel(score=score, thumb=True) for score in (1.0, 0.0, 0.0, 1.0, 0.5)),
    "steps": (
        StepLabels(ends=(0, 3), labels=(1.0, 0.0)),
        StepLabels(ends=(1, 2, 4), labels=(1.0, 1.0, 0.5)),
        StepLabels(ends=(2,), labels=(0.0,)),
        StepLabels(ends=(0, 1, 2, 3), labels=(1.0, 0.75, 1.0, 0.0)),
        StepLabels(ends=(4,), labels=(1.0,)),
    ),
}
"""For each kind, what was said of five rows: ragged, soft, tied."""


def rows_of_kind(kind: str, seed: int = 0) -> tuple[JudgedRow, ...]:
    """Five rows; each answer has at least five tokens."""
    return ragged_rows(kind, SAID[kind], seed=seed, lengths=(4, 9))


def objective_of(
    model: RewardModel,
    rows: Sequence[JudgedRow],
    settings: RewardSettings | None = None,
    read: RowSettings | None = None,
    language: LanguageTerm | None = None,
) -> RewardObjective:
    chosen = select_loss(settings or RewardSettings(), rows, read or RowSettings())
    return chosen.objective(model, language)


def learnt(
    model: RewardModel, objective: RewardObjective, pieces: Sequence[RewardMicrobatch]
) -> tuple[float, dict[str, Tensor], dict[str, Number]]:
    model.zero_grad(set_to_none=True)
    loss, metrics = 0.0, list[Metric]()
    for piece in pieces:
        terms = objective(piece)
        terms.loss.backward()
        loss += terms.loss.item()
        metrics += terms.metrics
    return loss, gradients(model), values_of(metrics)


def gradients(model: RewardModel) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def same_gradients(found: dict[str, Tensor], wanted: dict[str, Tensor], atol: float = 1e-12) -> None:
    assert found.keys() == wanted.keys()
    assert max(float(grad.abs().max()) for grad in wanted.values()) > 1e-3
    for name, grad in wanted.items():
        torch.testing.assert_close(found[name], grad, rtol=0, atol=atol, msg=name)


def one_by_one(model: RewardModel, row: JudgedRow) -> list[Tensor]:
    """Each answer's reward from a pass of its own."""
    alone = (
        Example(prompt=row.prompt, completions=(answer,), origin=row.origin)
        for answer in row.example.completions
    )
    return [model.rewards(batch_of([example]).to(model.device))[0] for example in alone]
