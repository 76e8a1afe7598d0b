"""Direct preference optimisation on one page: from comparisons to a better policy, without a reward model.

Rafailov et al. 2023, arXiv:2305.18290. Were the policy optimal for a reward less β · KL from the reference,
that reward would be β (log π − log π_ref), up to a constant of the prompt. So the likelihood of the choices,
σ(reward of the chosen − reward of the rejected), is a loss of the policy itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.nn.utils import clip_grad_norm_

from plaudit.data.records import Comparison, preference_probability
from plaudit.errors import UserError
from plaudit.models.policy import Policy
from plaudit.tensors.masked import masked_sum_rows
from plaudit.tokens.batch import Example, TokenBatch, batch_of
from plaudit.tokens.encode import Encoder, encode_record


@dataclass(frozen=True, slots=True, kw_only=True)
class DpoSettings:
    """The settings of ``dpo_by_hand``."""

    epochs: int = 1
    """How often the comparisons are gone through."""
    batch_size: int = 16
    """Comparisons of a step."""
    learning_rate: float = 1e-6
    """Of AdamW."""
    beta: float = 0.1
    """How dear distance from the reference is: the smaller, the further the policy goes."""
    max_grad_norm: float = 1.0
    """Longer gradients are scaled down to this norm."""
    seed: int = 0
    """Of the order of the comparisons."""

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise UserError(
                f"beta {self.beta:g}: without it all answers have the same reward; give more than 0"
            )
        if self.epochs < 1 or self.batch_size < 1:
            raise UserError(f"epochs {self.epochs} and batch_size {self.batch_size} must be at least 1")


def dpo_by_hand(
    policy: Policy,
    reference: Policy,
    encoder: Encoder,
    comparisons: Sequence[Comparison],
    settings: DpoSettings,
) -> Iterator[float]:
    """Train the policy in place; yields the loss of each step, before it changes the policy.

    The reference is what the policy begins as; it is asked at every step and never learns.
    """
    # A prompt and its two completions, the chosen one first, so that the prompt goes through the model once.
    pairs = [
        (encode_record(comparison, encoder), preference_probability(comparison)) for comparison in comparisons
    ]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    for rows in _batches(pairs, settings):
        batch = batch_of([example for example, _ in rows]).to(policy.device)
        with torch.no_grad():
            ref_logp_N = _completion_logps(reference, batch)
        # Δ = log π − log π_ref: how much likelier an answer has become. At the first step it is 0.
        delta_N = _completion_logps(policy, batch) - ref_logp_N
        chosen_B, rejected_B = delta_N.view(-1, 2).unbind(1)
        logit_B = settings.beta * (chosen_B - rejected_B)
        # Of a sure label −log σ(logit); a label p that is no certainty weighs both outcomes, a tie alike.
        better_B = logit_B.new_tensor([probability for _, probability in rows])
        loss_B = -better_B * logsigmoid(logit_B) - (1 - better_B) * logsigmoid(-logit_B)
        loss = loss_B.mean()
        loss.backward()
        clip_grad_norm_(policy.parameters(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        yield float(loss.detach())


def _completion_logps(model: Policy, batch: TokenBatch) -> Tensor:
    """log π(y | x) of every completion: the sum over its tokens. A mean would be another algorithm."""
    return masked_sum_rows(model.score(batch).logp_NT, batch.mask_NT)


def _batches(
    pairs: Sequence[tuple[Example, float]], settings: DpoSettings
) -> Iterator[list[tuple[Example, float]]]:
    """Every pair once an epoch, in an order that is drawn anew for each."""
    for epoch in range(settings.epochs):
        order = [*pairs]
        random.Random(f"{settings.seed}/{epoch}").shuffle(order)
        for start in range(0, len(order), settings.batch_size):
            yield order[start : start + settings.batch_size]
