"""The reward trainer: learn one number for an answer from what people said of answers.

Every row counts the same, and with it every prompt: all pairs of a ranking together weigh as much as one
comparison (Ouyang et al. 2022, arXiv:2203.02155), and each answer goes through the model once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from plaudit.batches.judged import Compared, JudgedRow, Labelled, Ranked, Rated, muted
from plaudit.batches.split import portions
from plaudit.batches.tokens import TokenBatch, batch_of
from plaudit.models.reward import RewardModel
from plaudit.training.metrics import Metric, count, largest, mean
from plaudit.training.parallel import Ranks
from plaudit.training.step import Terms
from plaudit.training.supervised import Arithmetic

HELD_OUT = {name: f"held_out/{name}" for name in ("loss", "accuracy", "margin", "error", "reward_mean")}
"""The figures that are also measured on rows that are never trained."""

PairLoss = Callable[
    [Float[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, " B"]], Float[Tensor, " B"]
]
"""From both rewards, the chance that the first is better and the margin to a loss a comparison."""
RankLoss = Callable[[Float[Tensor, "P K"], Float[Tensor, "P K"], Bool[Tensor, "P K"]], Float[Tensor, " P"]]
"""From rewards, ranks and which of them are there to a loss a prompt."""
RateLoss = Callable[[Float[Tensor, " N"], Float[Tensor, " N"]], Float[Tensor, " N"]]
"""From rewards and scores to a loss an answer."""
StepLoss = Callable[[Float[Tensor, "N C"], Float[Tensor, "N C"], Bool[Tensor, "N C"]], Float[Tensor, "N C"]]
"""From the scores of steps, their labels and which of them are there to a loss a step."""

SaidT = TypeVar("SaidT", Compared, Ranked, Rated, Labelled)
"""What was said of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPiece:
    """Rows that go through the model together.

    Example: ``RewardPiece(rows=(…,), total=64)``: these rows are part of a batch of 64.
    """

    rows: tuple[JudgedRow, ...]
    """The rows, all judged in the same way."""
    total: int
    """Rows (of steps: steps) of the **whole** batch, over all pieces and ranks: the denominator."""


RewardObjective = Callable[[RewardPiece], Terms]
"""From judged rows to what a step minimises."""


def pieces_of(rows: Sequence[JudgedRow], ranks: Ranks, tokens_at_once: int) -> tuple[RewardPiece, ...]:
    """This rank's pieces of a batch; every rank holds the same rows, so every rank knows the count."""
    total = sum(len(row.said.ends) if isinstance(row.said, Labelled) else 1 for row in rows)
    mine = portions(rows, muted, ranks=ranks.world, tokens_at_once=tokens_at_once)[ranks.rank]
    return tuple(RewardPiece(rows=piece, total=total) for piece in mine)


def rows_of(piece: RewardPiece) -> tuple[RewardPiece, ...]:
    """Each row alone, still counted as part of the same batch."""
    return tuple(replace(piece, rows=(row,)) for row in piece.rows)


def comparing(model: RewardModel, loss: PairLoss, arithmetic: Arithmetic) -> RewardObjective:
    """Σ loss(r₁, r₂) over the comparisons / comparisons of the whole batch."""

    def objective(piece: RewardPiece) -> Terms:
        read = _read(model, piece, arithmetic)
        said = _said(piece, Compared)
        chance_B = read.reward_N.new_tensor([one.chance for one in said])
        margin_B = read.reward_N.new_tensor([one.margin for one in said])
        first_B, second_B = read.reward_N.view(-1, 2).unbind(1)
        loss_B = loss(first_B, second_B, chance_B, margin_B)
        lead_B = (first_B - second_B).detach() * (chance_B - 0.5).sign()
        decided_B = (chance_B != 0.5) & read.counts_R
        return _terms(piece, read, loss_B, _in_order(lead_B, decided_B))

    return objective


def ranking(model: RewardModel, loss: RankLoss, arithmetic: Arithmetic) -> RewardObjective:
    """Σ loss over the rankings / rankings of the whole batch; each answer is computed once."""

    def objective(piece: RewardPiece) -> Terms:
        read = _read(model, piece, arithmetic)
        ranks = [read.reward_N.new_tensor(one.ranks) for one in _said(piece, Ranked)]
        rank_PK = pad_sequence(ranks, batch_first=True)
        reward_PK = pad_sequence([*read.reward_N.split([len(one) for one in ranks])], batch_first=True)
        mask_PK = pad_sequence([torch.ones_like(one) for one in ranks], batch_first=True).bool()
        loss_P = loss(reward_PK, rank_PK, mask_PK)
        one, other = torch.triu_indices(*[rank_PK.shape[1]] * 2, offset=1, device=rank_PK.device)
        order_PB = (rank_PK[:, other] - rank_PK[:, one]).sign()
        decided_PB = mask_PK[:, one] & mask_PK[:, other] & (order_PB != 0) & read.counts_R[:, None]
        lead_PB = (reward_PK[:, one] - reward_PK[:, other]).detach() * order_PB
        return _terms(piece, read, loss_P, _in_order(lead_PB, decided_PB))

    return objective


def rating(model: RewardModel, loss: RateLoss, arithmetic: Arithmetic) -> RewardObjective:
    """Σ loss over points on a scale / answers of the whole batch."""

    def objective(piece: RewardPiece) -> Terms:
        read = _read(model, piece, arithmetic)
        score_N = read.reward_N.new_tensor([one.score for one in _said(piece, Rated)])
        error_N = (read.reward_N.detach() - score_N).abs() * read.counts_R
        error = mean("error", float(error_N.sum()), int(read.counts_R.sum()))
        return _terms(piece, read, loss(read.reward_N, score_N), (error,))

    return objective


def thumbing(model: RewardModel, loss: RateLoss, arithmetic: Arithmetic) -> RewardObjective:
    """Σ loss over thumbs, or shares of them / answers of the whole batch; a reward above 0 is a thumb up."""

    def objective(piece: RewardPiece) -> Terms:
        read = _read(model, piece, arithmetic)
        up_N = read.reward_N.new_tensor([one.score for one in _said(piece, Rated)])
        lead_N = read.reward_N.detach() * (up_N - 0.5).sign()
        decided_N = (up_N != 0.5) & read.counts_R
        return _terms(piece, read, loss(read.reward_N, up_N), _in_order(lead_N, decided_N)[:1])

    return objective


def stepwise(model: RewardModel, loss: StepLoss, arithmetic: Arithmetic) -> RewardObjective:
    """Σ loss over the steps / steps of the whole batch; a score above 0 calls a step right."""

    def objective(piece: RewardPiece) -> Terms:
        said = _said(piece, Labelled)
        ends = [torch.tensor(one.ends, device=model.device) for one in said]
        batch = batch_of([row.example for row in piece.rows]).to(model.device)
        with arithmetic():
            score_NC = model.steps(batch, pad_sequence(ends, batch_first=True, padding_value=-1))
        label_NC = pad_sequence([score_NC.new_tensor(one.labels) for one in said], batch_first=True)
        mask_NC = pad_sequence([torch.ones_like(end) for end in ends], batch_first=True).bool()
        loss_NC = loss(score_NC, label_NC, mask_NC)
        read = _Read(batch=batch, reward_N=score_NC[mask_NC], counts_R=_counts(piece, model.device))
        decided_NC = mask_NC & (label_NC != 0.5) & read.counts_R[:, None]
        lead_NC = score_NC.detach() * (label_NC - 0.5).sign()
        steps = sum(len(one.ends) for one in said)
        return _terms(piece, read, loss_NC.sum(-1), _in_order(lead_NC, decided_NC)[:1], weight=steps)

    return objective


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What the model says of the answers of a piece."""

    batch: TokenBatch
    reward_N: Tensor
    counts_R: Tensor
    """Whether each row counts."""


def _read(model: RewardModel, piece: RewardPiece, arithmetic: Arithmetic) -> _Read:
    batch = batch_of([row.example for row in piece.rows]).to(model.device)
    with arithmetic():
        reward_N = model.rewards(batch)
    return _Read(batch=batch, reward_N=reward_N, counts_R=_counts(piece, model.device))


def _counts(piece: RewardPiece, device: torch.device) -> Tensor:
    return torch.tensor([row.counts for row in piece.rows], device=device)


def _said(piece: RewardPiece, kind: type[SaidT]) -> list[SaidT]:
    said = [row.said for row in piece.rows if isinstance(row.said, kind)]
    assert len(said) == len(piece.rows), f"rows of another kind than {kind.__name__}"
    return said


def _in_order(lead: Tensor, decided: Tensor) -> tuple[Metric, Metric]:
    """How often, and by how much, what is better is ahead; an equal reward counts half."""
    leads = lead[decided]
    right = float((leads > 0).sum()) + 0.5 * float((leads == 0).sum())
    return mean("accuracy", right, leads.numel()), mean("margin", float(leads.sum()), leads.numel())


def _terms(
    piece: RewardPiece, read: _Read, loss_R: Tensor, own: Sequence[Metric], *, weight: int | None = None
) -> Terms:
    """The loss of the rows that count, over the whole batch; ``weight`` is what its mean is taken over."""
    counted_R = loss_R * read.counts_R
    rows = int(read.counts_R.sum())
    muted = rows == 0
    rewards = read.reward_N.detach()[:0] if muted else read.reward_N.detach()
    lengths = [0] if muted else read.batch.length_N.tolist()
    return Terms(
        loss=counted_R.sum() / piece.total,
        loss_N=loss_R.detach(),
        origin_N=tuple(row.origin for row in piece.rows),
        metrics=(
            mean("loss", float(counted_R.detach().sum()), 0 if muted else weight or rows),
            *own,
            mean("reward_mean", float(rewards.sum()), rewards.numel()),
            mean("length_mean", float(sum(lengths)), 0 if muted else len(lengths)),
            largest("length_max", max(lengths)),
            count("tokens", 0 if muted else sum(row.tokens for row in piece.rows)),
            count("rows", rows),
        ),
    )
