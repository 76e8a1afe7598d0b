"""From a loss for each token to one number; the **global** count is handed in.

A batch is split over micro-batches and ranks, so each part divides by the count of the whole: the parts
then add up to the same loss and the same gradient, however the batch was split.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.tensors.masked import masked_sum, masked_sum_rows


def token_mean(
    loss_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"], *, tokens: int
) -> Float[Tensor, ""]:
    """Every trained token of the whole batch counts the same: Σ loss / tokens (DAPO).

    >>> import torch
    >>> token_mean(torch.tensor([[2.0, 4.0]]), torch.tensor([[True, True]]), tokens=4).item()
    1.5
    """
    return masked_sum(loss_NT, mask_NT) / tokens


def sequence_mean(
    loss_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"], *, completions: int
) -> Float[Tensor, ""]:
    """Every completion counts the same: the mean of its tokens, then Σ / completions (GRPO).

    >>> import torch
    >>> sequence_mean(torch.tensor([[2.0, 4.0]]), torch.tensor([[True, True]]), completions=2).item()
    1.5
    """
    # A completion lies in one micro-batch whole, so its length may divide here; their count may not.
    length_N = mask_NT.sum(-1).clamp(min=1)
    return (masked_sum_rows(loss_NT, mask_NT) / length_N).sum() / completions


def fixed_length(
    loss_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"], *, completions: int, longest: int
) -> Float[Tensor, ""]:
    """Every token counts the same, however long its completion and its batch: Σ / (completions · longest).

    ``longest`` is the length that a completion may have. Liu et al. 2025 (Dr. GRPO), arXiv:2503.20783.

    >>> import torch
    >>> seen = torch.tensor([[True, True]])
    >>> fixed_length(torch.tensor([[2.0, 4.0]]), seen, completions=1, longest=4).item()
    1.5
    """
    return masked_sum(loss_NT, mask_NT) / (completions * longest)
