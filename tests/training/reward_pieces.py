"""Judged rows of random tokens for a tiny float64 reward model, and what an objective makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from plaudit.batches.judged import Compared, JudgedRow, Labelled, Ranked, Rated, Said
from plaudit.batches.tokens import Completion, Example, batch_of
from plaudit.models.reward import RewardModel
from plaudit.recipes.config import RowSettings
from plaudit.recipes.reward_config import RewardSettings
from plaudit.recipes.reward_losses import chosen_loss
from plaudit.training.metrics import Metric, Number, values_of
from plaudit.training.reward import RewardObjective, RewardPiece
from tests.models.zoo import VOCABULARY

SAID: dict[str, tuple[Said, ...]] = {
    "comparisons": (
        Compared(chance=1.0, margin=0.5),
        Compared(chance=0.5, margin=0.5),
        Compared(chance=0.2, margin=0.25),
        Compared(chance=0.7, margin=0.0),
        Compared(chance=1.0, margin=0.0),
    ),
    "rankings": (
        Ranked(ranks=(1.0, 2.0)),
        Ranked(ranks=(2.0, 1.0, 2.0)),
        Ranked(ranks=(4.0, 1.0, 3.0, 2.0)),
        Ranked(ranks=(1.0, 1.0)),
        Ranked(ranks=(1.0, 3.0, 2.0)),
    ),
    "ratings": tuple(Rated(score=score, thumb=False) for score in (1.0, 5.0, 2.5, -1.0, 3.0)),
    "thumbs": tuple(Rated(score=score, thumb=True) for score in (1.0, 0.0, 0.0, 1.0, 0.5)),
    "steps": (
        Labelled(ends=(0, 3), labels=(1.0, 0.0)),
        Labelled(ends=(1, 2, 4), labels=(1.0, 1.0, 0.5)),
        Labelled(ends=(2,), labels=(0.0,)),
        Labelled(ends=(0, 1, 2, 3), labels=(1.0, 0.75, 1.0, 0.0)),
        Labelled(ends=(4,), labels=(1.0,)),
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
        count = {Compared: 2, Ranked: len(getattr(said, "ranks", ()))}.get(type(said), 1)
        answers = tuple(answer() for _ in range(count))
        example = Example(prompt=ids(1, 6), completions=answers, origin=f"{kind}:{number}")
        rows.append(JudgedRow(example=example, said=said))
    return tuple(rows)


def objective_of(
    model: RewardModel,
    rows: Sequence[JudgedRow],
    settings: RewardSettings | None = None,
    read: RowSettings | None = None,
) -> RewardObjective:
    """What a run with these settings minimises."""
    chosen = chosen_loss(settings or RewardSettings(), rows, read or RowSettings())
    return chosen.objective(model, nullcontext)


def learnt(
    model: RewardModel, objective: RewardObjective, pieces: Sequence[RewardPiece]
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
    """Each weight's gradient, as it is now."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def same_gradients(found: dict[str, Tensor], wanted: dict[str, Tensor], atol: float = 1e-12) -> None:
    """Equal, and not for want of any."""
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
    return [model.rewards(batch_of([example]))[0] for example in alone]
