"""What a preference loss is told of answers, and the cells that come before it: measures and links.

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

Measure = Callable[[Float[Tensor, "B T"], Bool[Tensor, "B T"], Int[Tensor, " B"]], Float[Tensor, " B"]]
"""From the log-probs of tokens, which of them count, and the length of the shorter answer of the pair."""
Link = Callable[[Float[Tensor, " B"]], Float[Tensor, " B"]]
"""From log(π / π_ref) to Δ, both 0 where policy and reference agree."""
_STEEP = 30.0
"""The exponent from which a link goes on as its tangent: e^89 is not a number in single precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """B answers in the eyes of the policy and of its reference.

    Example: ``answers(logp_B, ref_logp_B, length_B)``. Without a reference ``ref_logp_B`` is 0: Δ = log π.
    """

    logp_B: Float[Tensor, " B"]
    """log π(y|x), as measured."""
    ref_logp_B: Float[Tensor, " B"]
    """log π_ref(y|x), measured in the same way; it has no gradient."""
    length_B: Float[Tensor, " B"]
    """How many tokens count."""
    shift_B: Float[Tensor, " B"]
    """Δ: how much likelier than under the reference, through the link."""


def log_ratio(ratio_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Δ = log u, for a leash of reverse KL, KL(π ‖ π_ref): what DPO has. u = π / π_ref.

    >>> import torch
    >>> log_ratio(torch.tensor([0.5])).item()
    0.5
    """
    return ratio_B


def forward_kl(ratio_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Δ = 1 − 1/u, for a leash of KL(π_ref ‖ π). Wang et al. 2023 (f-DPO), arXiv:2309.16240.

    >>> import torch
    >>> forward_kl(torch.tensor([math.log(2)]))
    tensor([0.5000])
    """
    return -_rise(-ratio_B)


def jensen_shannon(ratio_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Δ = log 2u / (1 + u): at most log 2. Wang et al. 2023 (f-DPO), arXiv:2309.16240.

    >>> import torch
    >>> jensen_shannon(torch.tensor([0.0])).item()
    0.0
    """
    return math.log(2) + logsigmoid(ratio_B)


def alpha_divergence(ratio_B: Float[Tensor, " B"], *, alpha: int | float) -> Float[Tensor, " B"]:
    """Δ = (1 − u^−α) / α: from reverse KL at α → 0 to forward KL at α = 1.

    Wang et al. 2023 (f-DPO), arXiv:2309.16240.

    >>> import torch
    >>> alpha_divergence(torch.tensor([math.log(2)]), alpha=2)
    tensor([0.3750])
    """
    return -_rise(-alpha * ratio_B) / alpha


def answers(
    logp_B: Float[Tensor, " B"],
    ref_logp_B: Float[Tensor, " B"],
    length_B: Float[Tensor, " B"],
    link: Link = log_ratio,
) -> Answers:
    """The record with its Δ.

    >>> import torch
    >>> said = answers(torch.tensor([-3.0]), torch.tensor([-4.0]), torch.tensor([2.0]))
    >>> said.shift_B.item()
    1.0
    """
    shift_B = link(logp_B - ref_logp_B)
    return Answers(logp_B=logp_B, ref_logp_B=ref_logp_B, length_B=length_B, shift_B=shift_B)


def total(
    logp_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"], shorter_B: Int[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """log π(y|x): the sum over the tokens.

    >>> import torch
    >>> total(torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, True]]), torch.tensor([1])).item()
    -4.0
    """
    del shorter_B
    return masked_sum_rows(logp_BT, mask_BT)


def per_token(
    logp_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"], shorter_B: Int[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """The mean over the tokens: a long answer weighs no more than a short one.

    >>> import torch
    >>> per_token(torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, True]]), torch.tensor([1])).item()
    -2.0
    """
    return total(logp_BT, mask_BT, shorter_B) / mask_BT.sum(-1).clamp(min=1)


def desensitised(
    logp_BT: Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    shorter_B: Int[Tensor, " B"],
    *,
    share: int | float,
) -> Float[Tensor, " B"]:
    """The sum, in which tokens beyond the shorter answer's length count by ``share``; 1 is the plain sum.

    Liu et al. 2024 (LD-DPO), arXiv:2409.06411.

    >>> import torch
    >>> desensitised(torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, True]]), torch.tensor([1]), share=0.5)
    tensor([-2.5000])
    """
    own_BT = mask_BT & (mask_BT.cumsum(-1) <= shorter_B[:, None])
    return masked_sum_rows(logp_BT, own_BT) + share * masked_sum_rows(logp_BT, mask_BT & ~own_BT)


def lengthened(said: Answers, *, penalty: int | float) -> Answers:
    """Δ + penalty · |y|: the policy is asked for the reward less a price for each token, over β.

    Park et al. 2024 (R-DPO), arXiv:2403.19159; their α is β · penalty.

    >>> import torch
    >>> said = answers(torch.tensor([-3.0]), torch.tensor([-4.0]), torch.tensor([2.0]))
    >>> lengthened(said, penalty=0.5).shift_B.item()
    2.0
    """
    return replace(said, shift_B=said.shift_B + penalty * said.length_B)


def held_up(chosen: Answers, *, penalty: int | float) -> Answers:
    """Δ − penalty · max(0, log π_ref − log π): a preferred answer may not become unlikely.

    Pal et al. 2024 (DPO-Positive, Smaug), arXiv:2402.13228.

    >>> import torch
    >>> said = answers(torch.tensor([-5.0]), torch.tensor([-4.0]), torch.tensor([2.0]))
    >>> held_up(said, penalty=50).shift_B.item()
    -51.0
    """
    fallen_B = (chosen.ref_logp_B - chosen.logp_B).clamp(min=0)
    return replace(chosen, shift_B=chosen.shift_B - penalty * fallen_B)


def on_policy(
    logp_BT: Float[Tensor, "B T"], power_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"]
) -> Float[Tensor, " B"]:
    """How likely the policy would have said an answer itself, per token, as a weight without gradient.

    exp of the mean of log π(y_t) − log Σ_v π(v)²: at about 1 for what it samples. ``power_BT`` is that
    second term. Zhou et al. 2024 (WPO, sampled alignment), arXiv:2406.11827.

    >>> import torch
    >>> on_policy(torch.tensor([[-2.0]]), torch.tensor([[-2.0]]), torch.tensor([[True]])).item()
    1.0
    """
    apart_B = masked_sum_rows(logp_BT - power_BT, mask_BT) / mask_BT.sum(-1).clamp(min=1)
    return apart_B.detach().exp()


def _rise(exponent_B: Tensor) -> Tensor:
    """e^x − 1; from x = 30 on its tangent, so that what has become unlikely keeps a finite Δ and slope."""
    beyond_B = (exponent_B - _STEEP).relu()
    return exponent_B.clamp(max=_STEEP).expm1() + math.exp(_STEEP) * beyond_B
