"""Losses that learn a policy from single answers called good or bad: one number for every answer.

Δ is an answer's ``delta_B``; a label is 1 for good, 0 for bad, or a share of those who called it good.
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from plaudit.losses.preference import CompletionLogps


def kto(
    logps: CompletionLogps,
    label_B: Float[Tensor, " B"],
    *,
    beta: int | float,
    baseline: int | float,
    desirable: int | float = 1.0,
    undesirable: int | float = 1.0,
) -> Float[Tensor, " B"]:
    """λ_D (1 − σ(β(Δ − z₀))) of good answers, λ_U (1 − σ(β(z₀ − Δ))) of bad ones.

    A value that flattens away from a reference point, as people feel gains and losses. z₀ is the batch's
    estimate of KL(π ‖ π_ref) from answers to other prompts, at least 0 and without gradient; the caller
    makes it. Ethayarajh et al. 2024, arXiv:2402.01306.

    >>> import torch
    >>> from plaudit.losses.preference import completion_logps
    >>> same = completion_logps(torch.zeros(2), torch.zeros(2), torch.ones(2))
    >>> kto(same, torch.tensor([1.0, 0.0]), beta=0.1, baseline=0.0, undesirable=2).tolist()
    [0.5, 1.0]
    """
    # 1 − σ(x) is written σ(−x): near saturation the difference from 1 would round away.
    logit_B = beta * (logps.delta_B - baseline)
    return desirable * label_B * (-logit_B).sigmoid() + undesirable * (1 - label_B) * logit_B.sigmoid()


def bco(
    logps: CompletionLogps,
    label_B: Float[Tensor, " B"],
    *,
    beta: int | float,
    baseline: int | float,
    desirable: int | float = 1.0,
    undesirable: int | float = 1.0,
) -> Float[Tensor, " B"]:
    """−log σ(βΔ − δ) of good answers, −log σ(δ − βΔ) of bad ones: a classifier whose logit is the reward.

    δ, halfway between the mean rewards of good and bad answers so far, is kept by the caller. Jung et al.
    2024, arXiv:2404.04656.

    >>> import torch
    >>> from plaudit.losses.preference import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(bco(same, torch.tensor([1.0]), beta=0.1, baseline=0.0).item(), 4)
    0.6931
    """
    logit_B = beta * logps.delta_B - baseline
    return -desirable * label_B * logsigmoid(logit_B) - undesirable * (1 - label_B) * logsigmoid(-logit_B)
