"""Supervised fine-tuning on one page: from demonstrations to a model that answers like them.

Ouyang et al. 2022, arXiv:2203.02155, section 3.5. The demonstrated answers become likelier, token by token:
L = −Σ log π(y_t | x, y_<t) / tokens. The prompt is read and not learnt.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils import clip_grad_norm_

from plaudit.data.records import Demonstration
from plaudit.errors import UserError
from plaudit.losses.reduce import token_mean
from plaudit.losses.supervised import negative_log_likelihood
from plaudit.models.policy import Policy
from plaudit.tokens.batch import Example, batch_of
from plaudit.tokens.encode import Encoder, encode_record


@dataclass(frozen=True, slots=True, kw_only=True)
class SftSettings:
    epochs: int = 3
    """How often the demonstrations are gone through."""
    batch_size: int = 16
    """Demonstrations of a step."""
    learning_rate: float = 1e-5
    """Of AdamW."""
    max_grad_norm: float = 1.0
    """Longer gradients are scaled down to this norm."""
    seed: int = 0
    """Of the order of the demonstrations."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1:
            raise UserError(f"epochs {self.epochs} and batch_size {self.batch_size} must be at least 1")


def sft_by_hand(
    policy: Policy, encoder: Encoder, demonstrations: Sequence[Demonstration], settings: SftSettings
) -> Iterator[float]:
    """Train the policy in place; yields the loss of each step, before it changes the policy."""
    # Text becomes tokens once. An example knows which of them the assistant says: its end of turn is one.
    examples = [encode_record(demonstration, encoder) for demonstration in demonstrations]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    for rows in _batches(examples, settings):
        batch = batch_of(rows).to(policy.device)
        # [N, T]: a row for each answer, a column for each of its tokens; the prompt has no place in it.
        logp_NT = policy.score(batch).logp_NT
        loss_NT = negative_log_likelihood(logp_NT)
        # Every token counts the same: a mean of the answers' means would let short answers weigh more.
        loss = token_mean(loss_NT, batch.mask_NT, tokens=int(batch.mask_NT.sum()))
        loss.backward()
        clip_grad_norm_(policy.parameters(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        yield float(loss.detach())


def _batches(examples: Sequence[Example], settings: SftSettings) -> Iterator[list[Example]]:
    """Every example once an epoch, in an order that is drawn anew for each."""
    for epoch in range(settings.epochs):
        order = [*examples]
        random.Random(f"{settings.seed}/{epoch}").shuffle(order)
        for start in range(0, len(order), settings.batch_size):
            yield order[start : start + settings.batch_size]
