"""Masks of trusted tokens and completions by their distance from the sampling policy, and the clip fraction.

A token that is not trusted loses nothing and is still counted: its loss is filled with 0, the denominator
stays. No mask has a gradient.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

from plaudit.tensors.masked import masked_mean_rows, masked_sum


def ratio_within(ratio_N: Float[Tensor, "*N"], *, low: int | float, high: int | float) -> Bool[Tensor, "*N"]:
    """1 − ε_low ≤ r ≤ 1 + ε_high, whatever the advantage; r may be the trainer's over the sampler's.

    >>> import torch
    >>> ratio_within(torch.tensor([0.5, 1.0, 1.5]), low=0.2, high=0.2).tolist()
    [False, True, False]
    """
    return (ratio_N >= 1 - low) & (ratio_N <= 1 + high)


def clipped_low(
    ratio_NT: Float[Tensor, "N T"], advantage_NT: Float[Tensor, "N T"], *, low: int | float
) -> Bool[Tensor, "N T"]:
    """r < 1 − ε_low and A < 0: a bad token that PPO's clip makes no rarer.

    >>> import torch
    >>> clipped_low(torch.tensor([[0.5, 0.5]]), torch.tensor([[-1.0, 1.0]]), low=0.2).tolist()
    [[True, False]]
    """
    return (ratio_NT < 1 - low) & (advantage_NT < 0)


def clipped_high(
    ratio_NT: Float[Tensor, "N T"], advantage_NT: Float[Tensor, "N T"], *, high: int | float
) -> Bool[Tensor, "N T"]:
    """r > 1 + ε_high and A > 0: a good token that PPO's clip makes no likelier.

    >>> import torch
    >>> clipped_high(torch.tensor([[1.5, 1.5]]), torch.tensor([[-1.0, 1.0]]), high=0.2).tolist()
    [[False, True]]
    """
    return (ratio_NT > 1 + high) & (advantage_NT > 0)


def unclipped_tokens(
    ratio_NT: Float[Tensor, "N T"],
    advantage_NT: Float[Tensor, "N T"],
    *,
    low: int | float,
    high: int | float,
) -> Bool[Tensor, "N T"]:
    """Where PPO's clip leaves a gradient: with this mask the unclipped ratio learns what PPO learns.

    >>> import torch
    >>> unclipped_tokens(torch.tensor([[1.5, 1.5]]), torch.tensor([[-1.0, 1.0]]), low=0.2, high=0.2).tolist()
    [[True, False]]
    """
    return ~(clipped_low(ratio_NT, advantage_NT, low=low) | clipped_high(ratio_NT, advantage_NT, high=high))


def clip_fraction(
    clipped_NT: Bool[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"], *, tokens: int
) -> Float[Tensor, ""]:
    """The share of the batch's tokens that are clipped; parts of a batch add up.

    >>> import torch
    >>> clip_fraction(torch.tensor([[True, True]]), torch.tensor([[True, False]]), tokens=4).item()
    0.25
    """
    return masked_sum(clipped_NT.float(), mask_NT) / tokens


def kl_below(kl_NT: Float[Tensor, "N T"], *, limit: int | float) -> Bool[Tensor, "N T"]:
    """KL < δ at the token: where TR-PPO is not triggered. Wang et al. 2019, arXiv:1903.07940.

    >>> import torch
    >>> kl_below(torch.tensor([[0.01, 0.04]]), limit=0.025).tolist()
    [[True, False]]
    """
    return kl_NT < limit


def recently_sampled(age_N: Int[Tensor, "*N"], *, limit: int) -> Bool[Tensor, "*N"]:
    """Sampled at most ``limit`` updates of the policy ago.

    >>> import torch
    >>> recently_sampled(torch.tensor([0, 1, 2]), limit=1).tolist()
    [True, True, False]
    """
    return age_N <= limit


def trusted_completions(
    log_ratio_NT: Float[Tensor, "N T"],
    advantage_N: Float[Tensor, " N"],
    mask_NT: Bool[Tensor, "N T"],
    *,
    limit: int | float,
) -> Bool[Tensor, " N"]:
    """A ≥ 0, or mean of log π_old − log π ≤ δ: a bad completion that is already rare teaches nothing more.

    DeepSeek-AI 2025 (DeepSeek-V3.2, off-policy sequence masking), arXiv:2512.02556.

    >>> import torch
    >>> seen = torch.tensor([[True], [True]])
    >>> trusted_completions(torch.tensor([[-3.0], [-3.0]]), torch.tensor([1.0, -1.0]), seen, limit=2).tolist()
    [True, False]
    """
    return (advantage_N >= 0) | (-masked_mean_rows(log_ratio_NT, mask_NT) <= limit)
