"""Losses of a critic, and its explained variance."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.tensors.masked import moments


def squared_error(value_NT: Float[Tensor, "N T"], return_NT: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """½ (V − R)²; the return has no gradient.

    >>> squared_error(torch.tensor([[1.0]]), torch.tensor([[4.0]])).item()
    4.5
    """
    return 0.5 * (value_NT - return_NT.detach()).square()


def clipped_squared_error(
    value_NT: Float[Tensor, "N T"],
    old_value_NT: Float[Tensor, "N T"],
    return_NT: Float[Tensor, "N T"],
    *,
    clip: int | float,
) -> Float[Tensor, "N T"]:
    """½ max((V − R)², (clip(V, V_old ± c) − R)²): once V has moved c towards R it is left where it is.

    c = 0.2 in Ziegler et al. 2019, arXiv:1909.08593.

    >>> clipped_squared_error(torch.tensor([[1.0]]), torch.tensor([[0.0]]), torch.tensor([[4.0]]), clip=0.5)
    tensor([[6.1250]])
    """
    change_NT = (value_NT - old_value_NT.detach()).clamp(min=-clip, max=clip)
    clipped_error_NT = squared_error(old_value_NT.detach() + change_NT, return_NT)
    return torch.maximum(squared_error(value_NT, return_NT), clipped_error_NT)


def explained_variance(
    value_NT: Float[Tensor, "N T"], return_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]
) -> Float[Tensor, ""]:
    """1 − Var(R − V) / Var(R): 1 of a perfect critic, 0 of a constant one; 0 where all returns are the same.

    A number of the whole batch: those of its parts do not add up.

    >>> seen, told = torch.tensor([[True, True]]), torch.tensor([[0.0, 4.0]])
    >>> explained_variance(torch.tensor([[0.0, 2.0]]), told, seen).item()
    0.75
    """
    return_variance = moments(return_NT, mask_NT).variance
    error_variance = moments(return_NT - value_NT, mask_NT).variance
    return (1 - error_variance / return_variance).masked_fill(return_variance == 0, 0.0).detach()
