"""Answers drawn at random, and what a row makes of tokens, written out as its cells say."""

import math
from dataclasses import dataclass

import torch

from plaudit.losses.preference import completion_logps, match_sorted
from plaudit.methods.preference.row import BatchContext


def numbers(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2


def sigma(value):
    return 1 / (1 + math.exp(-value))


def said(shift_B, length=4.0):
    """Answers without a reference: Δ is what is given."""
    return completion_logps(shift_B, torch.zeros_like(shift_B), torch.full_like(shift_B, length))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Log-probs of tokens: of the policy, of the reference, of Σ π², and which of them count."""

    logp_NT: torch.Tensor
    ref_NT: torch.Tensor
    power_NT: torch.Tensor
    mask_NT: torch.Tensor


def tokens(seed, count=5, width=7):
    """Answers of unlike lengths whose log-probs lie below 0, with NaN where no token counts."""
    logp_NT, ref_NT, power_NT = (-drawn(seed + part, count, width).abs() - 0.05 for part in range(3))
    ends_N = torch.randint(1, width + 1, (count,), generator=torch.Generator().manual_seed(seed))
    mask_NT = torch.arange(width) < ends_N[:, None]
    unread = torch.where(mask_NT, 0.0, torch.nan).double()
    logp_NT = (logp_NT + unread).requires_grad_()
    return Tokens(logp_NT=logp_NT, ref_NT=ref_NT + unread, power_NT=power_NT, mask_NT=mask_NT)


def shorter_of(chosen, rejected):
    return torch.minimum(chosen.mask_NT.sum(-1), rejected.mask_NT.sum(-1))


def record(row, side, shorter_N):
    """Measure, reference, link and price of one side."""
    logp_N = row.log_prob(side.logp_NT, side.mask_NT, shorter_N)
    ref_N = torch.zeros_like(logp_N)
    if "reference" in row.needs:
        ref_N = row.log_prob(side.ref_NT, side.mask_NT, shorter_N)
    return row.completion_logps(logp_N, ref_N, side.mask_NT.sum(-1))


def records(row, chosen, rejected):
    shorter_N = shorter_of(chosen, rejected)
    return row.penalised_sides(record(row, chosen, shorter_N), record(row, rejected, shorter_N))


def pair_losses(row, chosen, rejected, baseline=0.0):
    """Loss × weight + NLL of each pair; a row that sorts is told of these pairs as the whole batch."""
    sides = records(row, chosen, rejected)
    matched = match_sorted(*sides) if "sorted_batch" in row.needs else None
    loss_N = row.loss(*sides, BatchContext(baseline=baseline, matched=matched))
    if row.weight is not None:
        sides = [row.weight(side.logp_NT, side.power_NT, side.mask_NT) for side in (chosen, rejected)]
        loss_N = loss_N * row.pair_weight(*sides)
    if row.nll_coef:
        told_N = chosen.logp_NT.masked_fill(~chosen.mask_NT, 0.0).sum(-1)
        loss_N = loss_N - row.nll_coef * told_N / chosen.mask_NT.sum(-1)
    return loss_N


def single_losses(row, one, label_N, baseline=0.0):
    return row.loss(record(row, one, one.mask_NT.sum(-1)), label_N, BatchContext(baseline=baseline))
