"""A policy whose weights are elsewhere for a moment, and then bit by bit where they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from plaudit.checks.drawn import plain_logits, policy_of
from plaudit.checks.subject import Subject

FIRST, GROWTH, TRIES = 0.02, 3.0, 6
"""The first move as a share of each weight's own size, by how much the next is larger, how many there are."""


@contextmanager
def moved(subject: Subject, text: Sequence[int], *, clearly: int | float) -> Iterator[float]:
    """While this lasts, all weights that learn are moved at random, so far that log-probs change clearly.

    Gives by how many nats they change on average, over the tokens of a text and all that could follow each.
    """
    policy = policy_of(subject)
    weights = [weight for weight in policy.parameters() if weight.requires_grad]
    kept = [weight.detach().to("cpu", copy=True) for weight in weights]
    before_TV = _logps(subject, text)
    shift, share = 0.0, FIRST
    try:
        for _ in range(TRIES):
            _move(weights, kept, share)
            shift = float((_logps(subject, text) - before_TV).abs().mean())
            if shift >= clearly:
                break
            share *= GROWTH
        yield shift
    finally:
        with torch.no_grad():
            for weight, own in zip(weights, kept, strict=True):
                weight.copy_(own)


def _move(weights: Sequence[nn.Parameter], kept: Sequence[Tensor], share: float) -> None:
    """Each by a share of its own size; what is still zero, as fresh adapters are, by that of the others."""
    sizes = [float(own.float().square().mean().sqrt()) for own in kept]
    usual = sum(sizes) / max(1, sum(size > 0 for size in sizes)) or 1.0
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight, own, size in zip(weights, kept, sizes, strict=True):
            step = torch.randn(own.shape, generator=chance) * (share * (size or usual))
            weight.copy_((own.float() + step).to(own.dtype) if own.dtype != torch.float64 else own + step)


def _logps(subject: Subject, text: Sequence[int]) -> Tensor:
    return plain_logits(subject, text[:1], text[1:] or text[:1]).log_softmax(-1)
