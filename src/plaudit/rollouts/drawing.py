"""Chance: which numbers an answer is drawn with, and which token each of them falls on."""

from __future__ import annotations

from hashlib import blake2b

import torch
from jaxtyping import Float, Int
from torch import Tensor

from plaudit.errors import UserError
from plaudit.rollouts.sampling import SamplingSettings


def next_tokens(
    logits_NV: Float[Tensor, "N V"], chance_N: Float[Tensor, " N"], settings: SamplingSettings
) -> Int[Tensor, " N"]:
    """The token that each row's chance falls on, once its scores are divided by the temperature.

    With top-p, tokens are walked from the likeliest down, and those before which the probability already
    reached top_p are left out (Holtzman et al. 2020, arXiv:1904.09751).

    >>> likely = torch.tensor([[0.5, 0.2, 0.3]]).log()
    >>> half = SamplingSettings(top_p=0.5)
    >>> [int(next_tokens(likely, torch.tensor([c]), SamplingSettings())) for c in (0.4, 0.6, 0.9)]
    [0, 1, 2]
    >>> [int(next_tokens(likely, torch.tensor([c]), half)) for c in (0.4, 0.6, 0.9)]
    [0, 0, 0]
    """
    logits_NV = logits_NV.float()
    if not logits_NV.logsumexp(-1).isfinite().all():
        raise UserError(
            "the model's scores are not numbers: its weights are damaged, or a training run diverged"
        )
    if settings.greedy:
        return logits_NV.argmax(-1)
    # With the largest at zero, no temperature is too small to divide by.
    logits_NV = (logits_NV - logits_NV.max(-1, keepdim=True).values) / settings.temperature
    p_NV = logits_NV.softmax(-1)
    if settings.top_p == 1:
        return _drawn(p_NV, chance_N)
    p_NV, word_NV = p_NV.sort(dim=-1, descending=True, stable=True)
    p_NV = p_NV.where(p_NV.cumsum(-1) - p_NV < settings.top_p, 0)
    return word_NV.gather(1, _drawn(p_NV, chance_N)[:, None])[:, 0]


def _drawn(p_NV: Tensor, chance_N: Tensor) -> Tensor:
    """The place at which the sum of the probabilities passes chance, as a share of all of them."""
    sum_NV = p_NV.double().cumsum(-1)
    return torch.searchsorted(sum_NV, chance_N.double()[:, None] * sum_NV[:, -1:], right=True)[:, 0]


def chances(settings: SamplingSettings, ids: tuple[int, ...], draw: int, room: int) -> Tensor:
    """A number from 0 to 1 for each token that one answer has room for.

    They depend on nothing but the seed, the prompt's tokens and which answer to it this is (``draw``); more
    room only adds numbers.
    """
    if settings.greedy:
        return torch.zeros(room, dtype=torch.float64)
    name = blake2b(f"{settings.seed}/{draw}/{ids}".encode(), digest_size=8)
    generator = torch.Generator().manual_seed(int.from_bytes(name.digest()))
    return torch.rand(room, dtype=torch.float64, generator=generator)
