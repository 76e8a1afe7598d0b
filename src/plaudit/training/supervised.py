"""The supervised trainer: learn from given answers, or from a teacher's view of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plaudit.batches.split import split
from plaudit.batches.tokens import Example, TokenBatch, batch_of
from plaudit.losses.reduce import token_mean
from plaudit.losses.supervised import negative_log_likelihood
from plaudit.models.policy import Policy
from plaudit.tensors.masked import masked_sum, masked_sum_rows
from plaudit.training.metrics import Metric, add, count, largest, mean, perplexity, values_of
from plaudit.training.parallel import Ranks
from plaudit.training.plan import Pause
from plaudit.training.step import Terms, add_over_ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedPiece:
    """Rows that go through the model together.

    Example: ``SupervisedPiece(examples=(…,), tokens=512)``: these rows are part of a batch of 512 tokens.
    """

    examples: tuple[Example, ...]
    """The rows."""
    tokens: int
    """Trained tokens of the **whole** batch, over all pieces and ranks: the denominator."""


Objective = Callable[[SupervisedPiece], Terms]
"""From rows to what a step minimises."""
Arithmetic = Callable[[], AbstractContextManager[object]]
"""The context in which products are made: autocast, or nothing."""
HELD_OUT = ("held_out/loss", "held_out/token_accuracy", "held_out/entropy", "held_out/perplexity")
"""What `evaluation` reports."""


def pieces_of(examples: Sequence[Example], ranks: Ranks, tokens_at_once: int) -> tuple[SupervisedPiece, ...]:
    """This rank's pieces of a batch; every rank holds the same rows, so every rank knows the counts."""
    tokens = sum(example.trained_tokens for example in examples)
    mine = split(examples, ranks=ranks.world, tokens_at_once=tokens_at_once)[ranks.rank]
    return tuple(SupervisedPiece(examples=piece, tokens=tokens) for piece in mine)


def rows_of(piece: SupervisedPiece) -> tuple[SupervisedPiece, ...]:
    """Each row alone, still counted as part of the same batch."""
    return tuple(replace(piece, examples=(example,)) for example in piece.examples)


def likelihood(policy: Policy, arithmetic: Arithmetic) -> Objective:
    """Maximum likelihood: −Σ log π over the mask / tokens of the whole batch."""

    def objective(piece: SupervisedPiece) -> Terms:
        batch = batch_of(piece.examples).to(policy.device)
        with arithmetic():
            scores = policy.score_alike(batch)
        loss_NT = negative_log_likelihood(scores.logp_NT)
        right_NT = scores.greedy_NT & batch.mask_NT
        return Terms(
            loss=token_mean(loss_NT, batch.mask_NT, tokens=piece.tokens),
            loss_N=masked_sum_rows(loss_NT, batch.mask_NT).detach(),
            origin_N=batch.origin_N,
            metrics=piece_metrics(piece, batch, masked_sum(loss_NT, batch.mask_NT), right_NT),
        )

    return objective


def evaluation(
    policy: Policy, examples: Sequence[Example], ranks: Ranks, tokens_at_once: int, arithmetic: Arithmetic
) -> Callable[[Pause], tuple[Metric, ...]]:
    """Held-out loss, token accuracy, entropy and perplexity, over all ranks."""
    pieces = pieces_of(examples, ranks, tokens_at_once)

    def evaluate(pause: Pause) -> tuple[Metric, ...]:
        metrics: list[Metric] = []
        with torch.no_grad():
            for piece in pieces:
                pause()
                batch = batch_of(piece.examples).to(policy.device)
                with arithmetic():
                    scores = policy.score(batch, also=("entropy",))
                assert scores.entropy_NT is not None
                trained = float(batch.mask_NT.sum())
                metrics += [
                    mean("held_out/loss", float(-masked_sum(scores.logp_NT, batch.mask_NT)), trained),
                    mean("held_out/token_accuracy", float(scores.greedy_NT.sum()), trained),
                    mean("held_out/entropy", float(masked_sum(scores.entropy_NT, batch.mask_NT)), trained),
                ]
        together = add_over_ranks(metrics, ranks)
        loss = values_of(together)["held_out/loss"]
        return add([*together, mean("held_out/perplexity", perplexity(loss), 1)])

    return evaluate


def piece_metrics(
    piece: SupervisedPiece, batch: TokenBatch, loss: Tensor, right_NT: Tensor
) -> tuple[Metric, ...]:
    """What every supervised objective reports of a piece; a muted one has no weight."""
    trained = float(batch.mask_NT.sum())
    muted = trained == 0
    lengths = [0] if muted else batch.length_N.tolist()
    return (
        mean("loss", float(loss.detach()), trained),
        mean("token_accuracy", float(right_NT.sum()), trained),
        mean("length_mean", float(sum(lengths)), 0 if muted else len(lengths)),
        largest("length_max", max(lengths)),
        count("tokens", 0 if muted else sum(example.tokens for example in piece.examples)),
        count("rows", 0 if muted else len(piece.examples)),
    )
