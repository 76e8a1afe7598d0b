"""Chance: which numbers an answer is drawn with, and which token each of them falls on."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import torch
from jaxtyping import Float, Int
from torch import Tensor

from plaudit.errors import UserError
from plaudit.rollouts.sampling import SamplingSettings

BLOCK = 256
"""Tokens whose probabilities are added up first, so that a place is looked for in a few sums."""
FEW = (256, 4096)
"""How many of the likeliest tokens are sorted, before all of them are, to find those of top-p."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A token for each of N answers.

    Example: ``draw(logits_NV, chance_N, SamplingSettings(top_p=0.9)).logp_N``
    """

    token_N: Int[Tensor, " N"]
    """The tokens."""
    logp_N: Float[Tensor, " N"]
    """Log-probability among the tokens that could be drawn: those that top-k, top-p and min-p left."""
    whole_N: Float[Tensor, " N"]
    """Log-probability among all tokens, at the same temperature (at 1 where the likeliest is taken)."""


def draw(logits_NV: Float[Tensor, "N V"], chance_N: Float[Tensor, " N"], settings: SamplingSettings) -> Drawn:
    """The token that each row's chance falls on, once its scores are divided by the temperature.

    Then top-k, top-p and min-p leave tokens out, in this order. With top-p, tokens are walked from the
    likeliest down, and those before which the probability already reached it are left out (Holtzman et al.
    2020, arXiv:1904.09751); with min-p those less likely than a share of the likeliest (Nguyen et al. 2024,
    arXiv:2407.01082).

    >>> likely = torch.tensor([[0.5, 0.2, 0.3]]).log()
    >>> [int(draw(likely, torch.tensor([c]), SamplingSettings()).token_N) for c in (0.4, 0.6, 0.9)]
    [0, 1, 2]
    >>> one = draw(likely, torch.tensor([0.9]), SamplingSettings(top_p=0.6))
    >>> int(one.token_N), round(float(one.logp_N.exp()), 3), round(float(one.whole_N.exp()), 3)
    (2, 0.375, 0.3)
    """
    logits_NV = logits_NV.float()
    top_N1 = logits_NV.amax(-1, keepdim=True)
    if not top_N1.isfinite().all():
        raise UserError(
            "the model's scores are not numbers: its weights are damaged, or a training run diverged"
        )
    # With the largest at zero, no temperature is too small to divide by.
    heat = 1.0 if settings.greedy else settings.temperature
    p_NV = (logits_NV - top_N1).div_(heat).exp_()
    whole_NC = _blocks(p_NV)
    kept_NV = p_NV if settings.greedy else _kept(p_NV, settings)
    kept_NC = whole_NC if kept_NV is p_NV else _blocks(kept_NV)
    token_N = logits_NV.argmax(-1) if settings.greedy else _drawn(kept_NV, kept_NC, chance_N)
    chosen_N = ((logits_NV.gather(1, token_N[:, None]) - top_N1) / heat)[:, 0]
    whole_N = chosen_N - whole_NC.sum(-1).log().float()
    logp_N = torch.zeros_like(whole_N) if settings.greedy else chosen_N - kept_NC.sum(-1).log().float()
    return Drawn(token_N=token_N, logp_N=logp_N, whole_N=whole_N)


def _blocks(p_NV: Tensor) -> Float[Tensor, "N C"]:
    whole = p_NV.shape[1] // BLOCK * BLOCK
    # Word by word, as the decoder's product leaves them on a CPU: from the other side it is ten times slower.
    sum_NC = p_NV.T[:whole].unflatten(0, (-1, BLOCK)).sum(1).T
    return torch.cat((sum_NC, p_NV[:, whole:].sum(-1, keepdim=True)), dim=1).double()


def _drawn(p_NV: Tensor, sum_NC: Tensor, chance_N: Tensor) -> Tensor:
    """The place at which the sum of the probabilities passes chance, as a share of all of them."""
    wanted_N = chance_N.double() * sum_NC.sum(-1)
    block_N = _passed(sum_NC, wanted_N)
    before_N = (sum_NC.cumsum(-1) - sum_NC).gather(1, block_N[:, None])[:, 0]
    place_NB = block_N[:, None] * BLOCK + torch.arange(BLOCK, device=p_NV.device)
    there_NB = place_NB < p_NV.shape[1]
    within_NB = p_NV.gather(1, place_NB.clamp(max=p_NV.shape[1] - 1)).double().where(there_NB, 0)
    return block_N * BLOCK + _passed(within_NB, wanted_N - before_N)


def _passed(mass_NX: Tensor, wanted_N: Tensor) -> Tensor:
    """Where the running sum first passes what is wanted; where rounding keeps it below, the last mass."""
    place_N = torch.searchsorted(mass_NX.cumsum(-1), wanted_N[:, None], right=True)[:, 0]
    number_X = torch.arange(mass_NX.shape[1], device=mass_NX.device)
    return place_N.minimum(number_X.where(mass_NX > 0, 0).amax(-1))


def _kept(p_NV: Tensor, settings: SamplingSettings) -> Tensor:
    """The same with 0 for every token that is left out; the likeliest one has 1 and stays."""
    if 0 < settings.top_k < p_NV.shape[1]:
        top_NK, word_NK = p_NV.topk(settings.top_k)
        p_NV = torch.zeros_like(p_NV).scatter_(1, word_NK, top_NK)
    if settings.top_p < 1:
        p_NV = _nucleus(p_NV, settings.top_p)
    return p_NV.where(p_NV >= settings.min_p, 0) if settings.min_p else p_NV


def _nucleus(p_NV: Tensor, share: int | float) -> Tensor:
    wanted_N1 = share * p_NV.sum(-1, keepdim=True, dtype=torch.float64)
    for count in (few for few in FEW if few < p_NV.shape[1]):
        top_NK, word_NK = p_NV.topk(count)
        if (top_NK.sum(-1, keepdim=True, dtype=torch.float64) >= wanted_N1).all():
            return _fewest(p_NV, top_NK, word_NK, wanted_N1)
    return _fewest(p_NV, *p_NV.sort(dim=-1, descending=True, stable=True), wanted_N1)


def _fewest(p_NV: Tensor, top_NK: Tensor, word_NK: Tensor, wanted_N1: Tensor) -> Tensor:
    """Only as many of the likeliest tokens as reach together what is wanted."""
    before_NK = top_NK.double().cumsum(-1) - top_NK
    return torch.zeros_like(p_NV).scatter_(1, word_NK, top_NK.where(before_NK < wanted_N1, 0))


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
