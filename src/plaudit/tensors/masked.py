"""Sums and means under a mask; what is masked never enters, not even as 0 · NaN."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor


def masked_sum(value_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]) -> Float[Tensor, ""]:
    """Σ of the values where the mask is True.

    >>> import torch
    >>> masked_sum(torch.tensor([[1.0, float("nan")]]), torch.tensor([[True, False]])).item()
    1.0
    """
    return value_NT.masked_fill(~mask_NT, 0.0).sum()


def masked_sum_rows(value_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]) -> Float[Tensor, " N"]:
    """Σ over each row where the mask is True.

    >>> import torch
    >>> masked_sum_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[True, True], [True, False]]))
    tensor([3., 3.])
    """
    return value_NT.masked_fill(~mask_NT, 0.0).sum(-1)
