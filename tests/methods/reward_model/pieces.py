"""Judged rows of random tokens for a tiny float64 reward model, and what an objective makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plaudit.engine.metrics import Metric, values_of
from plaudit.engine.step_report import Number
from plaudit.methods.config import RowSettings
from plaudit.methods.reward_model.config import RewardSettings
from plaudit.methods.reward_model.language import LanguageTerm
from plaudit.methods.reward_model.losses import select_loss
from plaudit.methods.reward_model.objective import RewardMicrobatch, RewardObjective
from plaudit.models.reward_model import RewardModel
from plaudit.tokens.batch import Completion, Example, batch_of
from plaudit.tokens.preferences import JudgedRow, Judgement, PairLabel, RankingLabel, RatingLabel, StepLabels
from tests.models.zoo import VOCABULARY

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
    generator = torch.Generator().manual_seed(seed)

    def ids(least: int, most: int) -> tuple[int, ...]:
        length = int(torch.randint(least, most + 1, (1,), generator=generator))
        return tuple(torch.randint(8, VOCABULARY, (length,), generator=generator).tolist())

    def answer() -> Completion:
        own = (*ids(4, 9), 2)
        return Completion(ids=own, mask=(True,) * len(own), finished=True)

    rows: list[JudgedRow] = []
    for number, said in enumerate(SAID[kind], start=1):
        count = {PairLabel: 2, RankingLabel: len(getattr(said, "ranks", ()))}.get(type(said), 1)
        answers = tuple(answer() for _ in range(count))
        example = Example(prompt=ids(1, 6), completions=answers, origin=f"{kind}:{number}")
        rows.append(JudgedRow(example=example, judgement=said))
    return tuple(rows)


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
    """Loss, gradients and figures of all pieces together."""
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
