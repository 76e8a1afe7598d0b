"""The supervised objective: maximum likelihood of given completions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plaudit.engine.distributed import Ranks
from plaudit.engine.metrics import (
    Metric,
    length_metrics,
    mean_metric,
    merge_metrics,
    perplexity,
    sum_metric,
    values_of,
)
from plaudit.engine.step import InterruptCheck, ObjectiveResult, merge_over_ranks
from plaudit.losses.reduce import token_mean
from plaudit.losses.supervised import negative_log_likelihood
from plaudit.models.policy import Policy
from plaudit.tensors.masked import masked_sum, masked_sum_rows
from plaudit.tokens.batch import Example, batch_of
from plaudit.tokens.microbatch import split_examples


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedMicrobatch:
    """Rows that go through the model together.

    Example: ``SupervisedMicrobatch(examples=(…,), total_tokens=512)``: these rows are part of a batch of 512
        tokens.
    """

    examples: tuple[Example, ...]
    total_tokens: int
    """Trained tokens of the **whole** batch, over all micro-batches and ranks: the denominator."""

    @property
    def tokens(self) -> int:
        return sum(example.tokens for example in self.examples)

    def rows(self) -> "tuple[SupervisedMicrobatch, ...]":
        return tuple(replace(self, examples=(example,)) for example in self.examples)

    def shares(self, ranks: int, budget: int) -> "tuple[tuple[SupervisedMicrobatch, ...], ...]":
        divided = split_examples(self.examples, ranks=ranks, tokens_at_once=budget)
        return tuple(tuple(replace(self, examples=examples) for examples in share) for share in divided)


SupervisedObjective = Callable[[SupervisedMicrobatch], ObjectiveResult]
HELD_OUT_METRICS = ("held_out/loss", "held_out/token_accuracy", "held_out/entropy", "held_out/perplexity")


def microbatches_of(
    examples: Sequence[Example], ranks: Ranks, tokens_at_once: int
) -> tuple[SupervisedMicrobatch, ...]:
    """This rank's micro-batches of a batch; every rank holds the same rows, so each knows the counts."""
    tokens = sum(example.trained_tokens for example in examples)
    whole = SupervisedMicrobatch(examples=tuple(examples), total_tokens=tokens)
    return whole.shares(ranks.rows.world_size, tokens_at_once)[ranks.rows.rank]


def likelihood_objective(policy: Policy) -> SupervisedObjective:
    """Maximum likelihood: −Σ log π over the mask / tokens of the whole batch."""

    def objective(microbatch: SupervisedMicrobatch) -> ObjectiveResult:
        batch = batch_of(microbatch.examples).to(policy.device)
        scores = policy.score_equally_weighted(batch)
        loss_NT = negative_log_likelihood(scores.logp_NT)
        right_NT = scores.greedy_NT & batch.mask_NT
        return ObjectiveResult(
            loss=token_mean(loss_NT, batch.mask_NT, tokens=microbatch.total_tokens),
            loss_N=masked_sum_rows(loss_NT, batch.mask_NT).detach(),
            origin_N=batch.origin_N,
            metrics=microbatch_metrics(microbatch, masked_sum(loss_NT, batch.mask_NT), right_NT),
        )

    return objective


def likelihood_evaluator(
    policy: Policy, examples: Sequence[Example], ranks: Ranks, tokens_at_once: int
) -> Callable[[InterruptCheck], tuple[Metric, ...]]:
    """Held-out loss, token accuracy, entropy and perplexity, over all ranks."""
    microbatches = microbatches_of(examples, ranks, tokens_at_once)

    def evaluate(check_interrupt: InterruptCheck) -> tuple[Metric, ...]:
        metrics: list[Metric] = []
        with torch.no_grad():
            for microbatch in microbatches:
                check_interrupt()
                batch = batch_of(microbatch.examples).to(policy.device)
                scores = policy.score(batch, also=("entropy",))
                assert scores.entropy_NT is not None
                trained = sum(example.trained_tokens for example in microbatch.examples)
                metrics += [
                    mean_metric("held_out/loss", -masked_sum(scores.logp_NT, batch.mask_NT), trained),
                    mean_metric("held_out/token_accuracy", scores.greedy_NT.sum(), trained),
                    mean_metric("held_out/entropy", masked_sum(scores.entropy_NT, batch.mask_NT), trained),
                ]
        merged = merge_over_ranks(metrics, ranks)
        # exp of the merged mean: a mean of perplexities would depend on how rows were divided.
        loss = values_of(merged)["held_out/loss"]
        return merge_metrics([*merged, mean_metric("held_out/perplexity", perplexity(loss), 1)])

    return evaluate


def microbatch_metrics(
    microbatch: SupervisedMicrobatch, loss: Tensor, right_NT: Tensor
) -> tuple[Metric, ...]:
    """What every supervised objective reports of a micro-batch; a muted one has no weight."""
    examples = microbatch.examples
    trained = sum(example.trained_tokens for example in examples)
    # A muted row stands in for one that another rank counts.
    is_muted = trained == 0
    return (
        mean_metric("loss", loss.detach(), trained),
        mean_metric("token_accuracy", right_NT.sum(), trained),
        *length_metrics([] if is_muted else examples),
        sum_metric("tokens", 0 if is_muted else microbatch.tokens),
        sum_metric("rows", 0 if is_muted else len(examples)),
    )
