"""Losses of a preference model that is shown what a group preferred before (GPO).

Each returns one loss for every judged item of the targets; masks, the sum over episodes and the count that
divides it are the caller's. Zhao, Dang and Grover 2023, arXiv:2310.11523.
"""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor


def choice(score_BK: Float[Tensor, "*B K"], share_BK: Float[Tensor, "*B K"]) -> Float[Tensor, "*B"]:
    """−Σ_k y_k log softmax(s)_k: of K answers to a prompt the group prefers each with its share y_k.

    For the preferred one of two answers it is Bradley and Terry's −log σ(s_w − s_l). Scores of answers to
    different prompts never meet.

    >>> import torch
    >>> round(choice(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0])).item(), 4)
    0.1269
    """
    return -(share_BK * score_BK.log_softmax(-1)).sum(-1)


def gaussian(
    mean_N: Float[Tensor, "*N"], log_std_N: Float[Tensor, "*N"], rating_N: Float[Tensor, "*N"]
) -> Float[Tensor, "*N"]:
    """½ ((y − μ) / σ)² + log σ + ½ log 2π: the group's ratings are normal around the prediction.

    With σ = 1 for all it is half the squared error and a constant.

    >>> import torch
    >>> round(gaussian(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([3.0])).item(), 4)
    2.9189
    """
    gap_N = (rating_N - mean_N) * (-log_std_N).exp()
    return 0.5 * gap_N.square() + log_std_N + 0.5 * math.log(2 * math.pi)
