"""A reward model on one page: from comparisons to a number for an answer.

Bradley and Terry 1952; of language models Stiennon et al. 2020, arXiv:2009.01325. It is a language model with
one number for a head, read where the answer ends. The better of two answers shall have the higher number:
P(y₁ beats y₂) = σ(r₁ − r₂), and the loss is −log P of what people chose.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import logsigmoid
from torch.nn.utils import clip_grad_norm_

from plaudit.data.records import Comparison, preference_probability
from plaudit.errors import UserError
from plaudit.models.reward_model import RewardModel
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import Encoder, encode_record


@dataclass(frozen=True, slots=True, kw_only=True)
class BradleyTerrySettings:
    epochs: int = 1
    """How often the comparisons are gone through: a second time they are soon learnt by heart."""
    batch_size: int = 16
    """Comparisons of a step."""
    learning_rate: float = 1e-5
    """Of AdamW."""
    max_grad_norm: float = 1.0
    """Longer gradients are scaled down to this norm."""
    seed: int = 0
    """Of the order of the comparisons."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1:
            raise UserError(f"epochs {self.epochs} and batch_size {self.batch_size} must be at least 1")


def reward_by_hand(
    model: RewardModel, encoder: Encoder, comparisons: Sequence[Comparison], settings: BradleyTerrySettings
) -> Iterator[float]:
    """Train the model in place; yields the loss of each step, before it changes the model."""
    # A prompt and its two completions, the chosen one first, so that the prompt goes through the model once.
    pairs = [(encode_record(comparison, encoder), comparison) for comparison in comparisons]
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    for epoch in range(settings.epochs):
        order = [*pairs]
        random.Random(f"{settings.seed}/{epoch}").shuffle(order)
        for start in range(0, len(order), settings.batch_size):
            rows = order[start : start + settings.batch_size]
            # One number for each completion, read at its end-of-turn token: [N], chosen and rejected in turn.
            reward_N = model.rewards(batch_of([example for example, _ in rows]).to(model.device))
            chosen_B, rejected_B = reward_N.view(-1, 2).unbind(1)
            better_B = reward_N.new_tensor([preference_probability(row) for _, row in rows])
            # A margin is the lead that the likelier winner shall have (Llama 2), whichever side it is.
            margin_B = reward_N.new_tensor([row.margin or 0.0 for _, row in rows])
            logit_B = chosen_B - rejected_B - margin_B * (better_B - 0.5).sign()
            # Of a sure label −log σ(logit); a label p that is no certainty weighs both outcomes, a tie alike.
            loss_B = -better_B * logsigmoid(logit_B) - (1 - better_B) * logsigmoid(-logit_B)
            loss = loss_B.mean()
            loss.backward()
            clip_grad_norm_(model.parameters(), settings.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()
            yield float(loss.detach())
