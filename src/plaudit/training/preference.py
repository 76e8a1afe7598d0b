"""The preference trainer: learn a policy from pairs, or from answers called good or bad.

It runs rows of cells (``preference_row``) and knows no algorithm by name. Every row of the data counts the
same: all pairs of a ranking together weigh as much as one comparison, and each answer, as well as the
prompt that answers share, goes through the model once. A label that is no certainty p gives the expected
loss, p · loss(y₁, y₂) + (1 − p) · loss(y₂, y₁).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from plaudit.batches.judged import JudgedRow
from plaudit.batches.tokens import TokenBatch, batch_of
from plaudit.losses.answers import Answers
from plaudit.models.policy import Policy
from plaudit.models.reference import Products, Reference
from plaudit.tensors.masked import masked_sum_rows
from plaudit.training.metrics import Metric, count, largest, mean
from plaudit.training.pairing import Pairing, labels_of, pairing, pairs_of
from plaudit.training.preference_row import Known, PreferenceRow, SingleRow
from plaudit.training.step import Terms

FIGURES = ("loss", "accuracy", "margin", "reward_chosen", "reward_rejected", "logp_chosen", "logp_rejected")
"""What is measured of pairs, on rows that are never trained too; of single answers there is no margin."""

NOTHING = 1e-4
"""A lead of so few nats is rounding: two ways to compute an answer's log-prob differ by as much."""
RowT = TypeVar("RowT", PreferenceRow, SingleRow)
"""A row of cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferencePiece:
    """Rows that go through the model together.

    Example: ``PreferencePiece(rows=(…,), total=64)``: these rows are part of a batch of 64.
    """

    rows: tuple[JudgedRow, ...]
    """The rows."""
    total: int
    """Rows (of single answers: answers) of the **whole** batch, over all pieces and ranks."""
    known: Known = field(default_factory=Known)
    """What the loss knows of the whole batch and of the run so far."""


PreferenceObjective = Callable[[PreferencePiece], Terms]
"""From judged rows to what a step minimises."""


def rows_of(piece: PreferencePiece) -> tuple[PreferencePiece, ...]:
    """Each row alone, still counted as part of the same batch."""
    alone: list[PreferencePiece] = []
    start = 0
    for row in piece.rows:
        known = piece.known
        if known.beside is not None:
            end = start + len(pairs_of(row, ties=False))
            known = replace(known, beside=known.beside.part(slice(start, end)))
            start = end
        alone.append(replace(piece, rows=(row,), known=known))
    return tuple(alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eyes:
    """Who looks at answers: the policy that learns and the one that it is compared with.

    Example: ``Eyes(policy=policy, reference=Nobody(), products=nullcontext)``
    """

    policy: Policy
    """What learns."""
    reference: Reference
    """What it is compared with."""
    products: Products
    """The numbers that products are made in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A piece in the eyes of policy and reference.

    Example: ``seen(eyes, piece.rows)``
    """

    batch: TokenBatch
    """The tokens."""
    logp_NT: Tensor
    """The policy's log-probs."""
    ref_logp_NT: Tensor
    """The reference's."""
    repeat_NT: Tensor | None
    """log Σ_v π(v)², where a weight needs it."""


def seen(eyes: Eyes, rows: Sequence[JudgedRow], *, repeat: bool = False) -> Seen:
    """One look at the answers of these rows."""
    examples = [row.example for row in rows]
    batch = batch_of(examples).to(eyes.policy.device)
    with eyes.products():
        scores = eyes.policy.score(batch, also=("repeat",) if repeat else ())
    ref_NT = eyes.reference.logp(examples, batch).to(scores.logp_NT.dtype)
    return Seen(batch=batch, logp_NT=scores.logp_NT, ref_logp_NT=ref_NT, repeat_NT=scores.repeat_NT)


def sides_of(row: PreferenceRow, look: Seen, pairs: Pairing) -> tuple[Answers, Answers]:
    """Both answers of each pair, as the loss sees them."""
    length_N = look.batch.mask_NT.sum(-1)
    shorter_B = torch.minimum(length_N[pairs.first_B], length_N[pairs.second_B])
    chosen = _answers(row, look, pairs.first_B, shorter_B)
    return chosen, _answers(row, look, pairs.second_B, shorter_B)


def comparing(row: PreferenceRow, eyes: Eyes, *, ties: bool = True) -> PreferenceObjective:
    """Σ loss over the pairs / rows of the whole batch."""

    def objective(piece: PreferencePiece) -> Terms:
        look = seen(eyes, piece.rows, repeat=row.weight is not None)
        pairs = pairing(piece.rows, look.logp_NT, ties=ties)
        chosen, rejected = sides_of(row, look, pairs)
        loss_B = _expected(row, chosen, rejected, pairs.chance_B, piece.known)
        if row.weight is not None:
            loss_B = loss_B * _weights(row, look, pairs)
        if row.nll:
            loss_B = loss_B + row.nll * _likelihood(look, pairs)
        decided_B = (pairs.chance_B != 0.5) & (pairs.weight_B > 0)
        own = (
            *_order(row, chosen, rejected, decided_B),
            *_sides(row, chosen, rejected, decided_B),
            *_distance(row, piece, look),
        )
        rows = sum(one.counts for one in piece.rows)
        return _terms(piece, look, loss_B * pairs.weight_B, own, weight=rows, origins=pairs.origins)

    return objective


def judging(row: SingleRow, eyes: Eyes) -> PreferenceObjective:
    """Σ loss over the answers / answers of the whole batch."""

    def objective(piece: PreferencePiece) -> Terms:
        look = seen(eyes, piece.rows)
        all_N = torch.arange(len(look.batch.length_N), device=eyes.policy.device)
        said = _answers(row, look, all_N, look.batch.mask_NT.sum(-1))
        label_N = said.logp_B.new_tensor([label for one in piece.rows for label in labels_of(one)])
        counts_N = _counts(piece, look)
        loss_N = row.loss(said, label_N, piece.known) * counts_N
        good_N, bad_N = (label_N > 0.5) & counts_N, (label_N < 0.5) & counts_N
        shift_N = said.shift_B.detach()
        own = (
            _accuracy(torch.cat((shift_N[good_N], -shift_N[bad_N]))),
            *_side(row, "chosen", said, good_N),
            *_side(row, "rejected", said, bad_N),
            mean("baseline", piece.known.baseline, 1),
            *_distance(row, piece, look),
        )
        return _terms(piece, look, loss_N, own, weight=int(counts_N.sum()))

    return objective


def _expected(
    row: PreferenceRow, chosen: Answers, rejected: Answers, chance_B: Tensor, known: Known
) -> Tensor:
    """The loss under the labels' chances; a certain label needs no second look."""
    loss_B = row.loss(*row.sides(chosen, rejected), known)
    if bool((chance_B == 1).all()):
        return loss_B
    other_B = row.loss(*row.sides(rejected, chosen), known)
    return chance_B * loss_B + (1 - chance_B) * other_B


def _weights(row: PreferenceRow, look: Seen, pairs: Pairing) -> Tensor:
    assert row.weight is not None
    assert look.repeat_NT is not None
    weight_N = row.weight(look.logp_NT, look.repeat_NT, look.batch.mask_NT)
    return weight_N[pairs.first_B] * weight_N[pairs.second_B]


def _likelihood(look: Seen, pairs: Pairing) -> Tensor:
    """−log π per token of the preferred answer."""
    tokens_N = look.batch.mask_NT.sum(-1).clamp(min=1)
    nll_N = -masked_sum_rows(look.logp_NT, look.batch.mask_NT) / tokens_N
    return pairs.chance_B * nll_N[pairs.first_B] + (1 - pairs.chance_B) * nll_N[pairs.second_B]


def _answers(row: RowT, look: Seen, chosen_B: Tensor, shorter_B: Tensor) -> Answers:
    mask_BT = look.batch.mask_NT[chosen_B]
    logp_B, ref_logp_B = (
        row.measure(value_NT[chosen_B], mask_BT, shorter_B) for value_NT in (look.logp_NT, look.ref_logp_NT)
    )
    return row.answers(logp_B, ref_logp_B, mask_BT.sum(-1))


def _order(
    row: PreferenceRow, chosen: Answers, rejected: Answers, decided_B: Tensor
) -> tuple[Metric, Metric]:
    lead_B = (chosen.shift_B - rejected.shift_B).detach()[decided_B]
    return _accuracy(lead_B), mean("margin", row.beta * float(lead_B.sum()), lead_B.numel())


def _accuracy(leads: Tensor) -> Metric:
    """The share of leads above 0; before the first step all are 0 but for rounding, and count half."""
    right = float((leads > NOTHING).sum()) + 0.5 * float((leads.abs() <= NOTHING).sum())
    return mean("accuracy", right, leads.numel())


def _sides(row: PreferenceRow, chosen: Answers, rejected: Answers, decided_B: Tensor) -> tuple[Metric, ...]:
    return (*_side(row, "chosen", chosen, decided_B), *_side(row, "rejected", rejected, decided_B))


def _side(row: RowT, name: str, said: Answers, which_B: Tensor) -> tuple[Metric, Metric]:
    """The mean implicit reward βΔ and log-prob of one side."""
    number = int(which_B.sum())
    shift, logp = (float(value_B.detach()[which_B].sum()) for value_B in (said.shift_B, said.logp_B))
    return mean(f"reward_{name}", row.beta * shift, number), mean(f"logp_{name}", logp, number)


def _counts(piece: PreferencePiece, look: Seen) -> Tensor:
    """Whether each answer counts."""
    counts_P = torch.tensor([one.counts for one in piece.rows], device=look.batch.group_N.device)
    return counts_P[look.batch.group_N]


def _distance(row: RowT, piece: PreferencePiece, look: Seen) -> tuple[Metric, ...]:
    """KL(π_ref ‖ π) where answers were drawn from the reference: Σ_t u − 1 − log u, u = π / π_ref."""
    if not row.referenced:
        return ()
    counts_N = _counts(piece, look)
    ratio_NT = (look.logp_NT.detach() - look.ref_logp_NT).clamp(max=30)
    apart_N = masked_sum_rows(ratio_NT.expm1() - ratio_NT, look.batch.mask_NT)[counts_N]
    return (mean("kl", float(apart_N.sum()), apart_N.numel()),)


def _terms(
    piece: PreferencePiece,
    look: Seen,
    loss_B: Tensor,
    own: Sequence[Metric],
    *,
    weight: int,
    origins: tuple[str, ...] | None = None,
) -> Terms:
    """The loss over the whole batch; ``weight`` is how much of it is in this piece."""
    rows = sum(row.counts for row in piece.rows)
    muted = rows == 0
    lengths = [0] if muted else look.batch.length_N.tolist()
    return Terms(
        loss=loss_B.sum() / piece.total,
        loss_N=loss_B.detach(),
        origin_N=look.batch.origin_N if origins is None else origins,
        metrics=(
            mean("loss", float(loss_B.detach().sum()), weight),
            *own,
            mean("length_mean", float(sum(lengths)), 0 if muted else len(lengths)),
            largest("length_max", max(lengths)),
            count("tokens", 0 if muted else sum(row.tokens for row in piece.rows)),
            count("rows", rows),
        ),
    )
