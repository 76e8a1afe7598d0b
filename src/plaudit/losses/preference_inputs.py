"""Inputs of a preference loss: log-probs of completions, and the functions that turn log-ratios into Δ.

A loss sees of each answer how likely the policy and the reference find it, and Δ, how far the two are
apart. How tokens become one log-prob (measure), how a ratio becomes Δ (link) and what is taken off Δ for
length or for falling are functions of their own, so that every loss can be had with each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from plaudit.tensors.masked import masked_sum_rows
from plaudit.tensors.needs import needs

LogpReduction = Callable[[Float[Tensor, "B T"], Bool[Tensor, "B T"], Int[Tensor, " B"]], Float[Tensor, " B"]]
"""Reduces token log-probs to one for the completion, given the mask and the length of the pair's shorter
answer.
"""
LogRatioLink = Callable[[Float[Tensor, " B"]], Float[Tensor, " B"]]
"""From log(π / π_ref) to Δ, both 0 where policy and reference agree."""
_MAX_EXPONENT = 30.0
"""The exponent beyond which a link continues as its tangent: e^89 is not a number in single precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionLogps:
    """Policy and reference log-probs of B completions, and their Δ.

    Example: ``completion_logps(logp_B, ref_logp_B, length_B)``. Without a reference ``ref_logp_B`` is 0: Δ
        = log π.
    """

    logp_B: Float[Tensor, " B"]
    """log π(y|x), as measured."""
    ref_logp_B: Float[Tensor, " B"]
    """log π_ref(y|x), measured in the same way; it has no gradient."""
    length_B: Float[Tensor, " B"]
    """How many tokens count."""
    delta_B: Float[Tensor, " B"]
    """Δ: the log-ratio log π − log π_ref through the link."""


@needs("reference")
def reverse_kl_link(log_ratio_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Δ = log u, for a leash of reverse KL, KL(π ‖ π_ref): what DPO has. u = π / π_ref.

    >>> import torch
    >>> reverse_kl_link(torch.tensor([0.5])).item()
    0.5
    """
    return log_ratio_B


@needs("reference")
def forward_kl_link(log_ratio_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Δ = 1 − 1/u, for a leash of KL(π_ref ‖ π). Wang et al. 2023 (f-DPO), arXiv:2309.16240.

    >>> import torch
    >>> forward_kl_link(torch.tensor([math.log(2)]))
    tensor([0.5000])
    """
    return -_linear_beyond_expm1(-log_ratio_B)


@needs("reference")
def jensen_shannon_link(log_ratio_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Δ = log 2u / (1 + u): at most log 2. Wang et al. 2023 (f-DPO), arXiv:2309.16240.

    >>> import torch
    >>> jensen_shannon_link(torch.tensor([0.0])).item()
    0.0
    """
    return math.log(2) + logsigmoid(log_ratio_B)


@needs("reference")
def alpha_divergence_link(log_ratio_B: Float[Tensor, " B"], *, alpha: int | float) -> Float[Tensor, " B"]:
    """Δ = (1 − u^−α) / α: from reverse KL at α → 0 to forward KL at α = 1.

    Wang et al. 2023 (f-DPO), arXiv:2309.16240.

    >>> import torch
    >>> alpha_divergence_link(torch.tensor([math.log(2)]), alpha=2)
    tensor([0.3750])
    """
    return -_linear_beyond_expm1(-alpha * log_ratio_B) / alpha


def no_reference_link(logp_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Δ = log π: there is no reference, and its log-prob is taken for 0.

    >>> import torch
    >>> no_reference_link(torch.tensor([-2.0])).item()
    -2.0
    """
    return logp_B


def completion_logps(
    logp_B: Float[Tensor, " B"],
    ref_logp_B: Float[Tensor, " B"],
    length_B: Float[Tensor, " B"],
    link: LogRatioLink = reverse_kl_link,
) -> CompletionLogps:
    """The log-probs with their Δ = link(log π − log π_ref).

    >>> import torch
    >>> said = completion_logps(torch.tensor([-3.0]), torch.tensor([-4.0]), torch.tensor([2.0]))
    >>> said.delta_B.item()
    1.0
    """
    delta_B = link(logp_B - ref_logp_B)
    return CompletionLogps(logp_B=logp_B, ref_logp_B=ref_logp_B, length_B=length_B, delta_B=delta_B)


def sum_logps(
    logp_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"], shorter_B: Int[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """log π(y|x): the sum over the tokens.

    >>> import torch
    >>> sum_logps(torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, True]]), torch.tensor([1])).item()
    -4.0
    """
    del shorter_B
    return masked_sum_rows(logp_BT, mask_BT)


def mean_logps(
    logp_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"], shorter_B: Int[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """The mean over the tokens: a long answer weighs no more than a short one.

    >>> import torch
    >>> mean_logps(torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, True]]), torch.tensor([1])).item()
    -2.0
    """
    return sum_logps(logp_BT, mask_BT, shorter_B) / mask_BT.sum(-1).clamp(min=1)


def length_desensitised_logps(
    logp_BT: Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    shorter_B: Int[Tensor, " B"],
    *,
    share: int | float,
) -> Float[Tensor, " B"]:
    """The sum, in which tokens beyond the shorter answer's length count by ``share``; 1 is the plain sum.

    Liu et al. 2024 (LD-DPO), arXiv:2409.06411.

    >>> import torch
    >>> length_desensitised_logps(torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, True]]),
    ...     torch.tensor([1]), share=0.5)
    tensor([-2.5000])
    """
    shared_BT = mask_BT & (mask_BT.cumsum(-1) <= shorter_B[:, None])
    return masked_sum_rows(logp_BT, shared_BT) + share * masked_sum_rows(logp_BT, mask_BT & ~shared_BT)


def with_length_penalty(logps: CompletionLogps, *, penalty: int | float) -> CompletionLogps:
    """Δ + penalty · |y|: the policy is asked for the reward less a price for each token, over β.

    Park et al. 2024 (R-DPO), arXiv:2403.19159; their α is β · penalty.

    >>> import torch
    >>> said = completion_logps(torch.tensor([-3.0]), torch.tensor([-4.0]), torch.tensor([2.0]))
    >>> with_length_penalty(said, penalty=0.5).delta_B.item()
    2.0
    """
    return replace(logps, delta_B=logps.delta_B + penalty * logps.length_B)


@needs("reference")
def with_dpop_penalty(chosen: CompletionLogps, *, penalty: int | float) -> CompletionLogps:
    """Δ − penalty · max(0, log π_ref − log π): chosen answers may not fall below the reference.

    Pal et al. 2024 (DPO-Positive, Smaug), arXiv:2402.13228.

    >>> import torch
    >>> said = completion_logps(torch.tensor([-5.0]), torch.tensor([-4.0]), torch.tensor([2.0]))
    >>> with_dpop_penalty(said, penalty=50).delta_B.item()
    -51.0
    """
    fallen_B = (chosen.ref_logp_B - chosen.logp_B).clamp(min=0)
    return replace(chosen, delta_B=chosen.delta_B - penalty * fallen_B)


@needs("repeat")
def wpo_weight(
    logp_BT: Float[Tensor, "B T"], power_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"]
) -> Float[Tensor, " B"]:
    """How likely the policy would have said an answer itself, per token, as a weight without gradient.

    exp of the mean of log π(y_t) − log Σ_v π(v)²: at about 1 for what it samples. ``power_BT`` is that
    second term. Zhou et al. 2024 (WPO, sampled alignment), arXiv:2406.11827.

    >>> import torch
    >>> wpo_weight(torch.tensor([[-2.0]]), torch.tensor([[-2.0]]), torch.tensor([[True]])).item()
    1.0
    """
    mean_log_weight_B = masked_sum_rows(logp_BT - power_BT, mask_BT) / mask_BT.sum(-1).clamp(min=1)
    return mean_log_weight_B.detach().exp()


def _linear_beyond_expm1(exponent_B: Tensor) -> Tensor:
    """e^x − 1; from x = 30 on its tangent, so that what has become unlikely keeps a finite Δ and slope."""
    beyond_B = (exponent_B - _MAX_EXPONENT).relu()
    return exponent_B.clamp(max=_MAX_EXPONENT).expm1() + math.exp(_MAX_EXPONENT) * beyond_B
