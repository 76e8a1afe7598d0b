"""Sums, means and moments under a mask; what is masked never enters, not even as 0 · NaN."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """What whitening has to know of a whole batch.

    Example: ``moments(torch.tensor([1.0, 3.0]), torch.tensor([True, True]))``: 2 values, mean 2, variance 1.
    """

    count: Float[Tensor, ""]
    mean: Float[Tensor, ""]
    variance: Float[Tensor, ""]
    """Σ (x − mean)² / count, without Bessel's correction; 0 of none."""


def masked_sum(value_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]) -> Float[Tensor, ""]:
    # Filled and not multiplied: a NaN or −∞ at a padded place times 0 is NaN, in the gradient as well.
    return value_NT.masked_fill(~mask_NT, 0.0).sum()


def masked_sum_rows(value_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]) -> Float[Tensor, " N"]:
    return value_NT.masked_fill(~mask_NT, 0.0).sum(-1)


def masked_mean(value_N: Float[Tensor, "*N"], mask_N: Bool[Tensor, "*N"]) -> Float[Tensor, ""]:
    """The mean of the values where the mask is True; 0 where it never is. For parts of one: ``reduce.py``."""
    return value_N.masked_fill(~mask_N, 0.0).sum() / mask_N.sum().clamp(min=1)


def masked_mean_rows(value_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]) -> Float[Tensor, " N"]:
    """The mean over each row where the mask is True; 0 where it never is.

    >>> import torch
    >>> masked_mean_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[True, True], [True, False]]))
    tensor([1.5000, 3.0000])
    """
    return masked_sum_rows(value_NT, mask_NT) / mask_NT.sum(-1).clamp(min=1)


def broadcast_to_tokens(value_N: Float[Tensor, " N"], mask_NT: Bool[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """A completion's number at each of its tokens, 0 where the mask is False.

    >>> import torch
    >>> broadcast_to_tokens(torch.tensor([3.0]), torch.tensor([[True, False]]))
    tensor([[3., 0.]])
    """
    return value_N[:, None].expand(mask_NT.shape).masked_fill(~mask_NT, 0.0)


def last_token_mask(mask_NT: Bool[Tensor, "N T"]) -> Bool[Tensor, "N T"]:
    """True at the last place of each row at which the mask is True."""
    # Counted from the right the last True is the first: the mask may have holes, so its length does not tell.
    return mask_NT & (mask_NT.flip(-1).cumsum(-1).flip(-1) == 1)


def moments(value_N: Float[Tensor, "*N"], mask_N: Bool[Tensor, "*N"]) -> Moments:
    """Count, mean and variance of the values where the mask is True.

    >>> import torch
    >>> moments(torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]])).variance.item()
    1.0
    """
    mean = masked_mean(value_N, mask_N)
    # Two passes: E[x²] − E[x]² would cancel to nothing where the mean is large against the spread.
    variance = masked_mean((value_N - mean).square(), mask_N)
    return Moments(count=mask_N.sum().to(mean.dtype), mean=mean, variance=variance)


def whiten(
    value_N: Float[Tensor, "*N"],
    mask_N: Bool[Tensor, "*N"],
    *,
    shift: bool = True,
    batch_moments: Moments | None = None,
    epsilon: int | float = 1e-8,
) -> Float[Tensor, "*N"]:
    """(x − mean) / √(variance + ε) where the mask is True, 0 elsewhere; without ``shift`` + mean again.

    ``batch_moments`` are those of the whole batch; without them these values are taken for the whole. Ziegler
    et al. 2019 whiten rewards without the shift and advantages with it, arXiv:1909.08593.
    """
    total = moments(value_N, mask_N) if batch_moments is None else batch_moments
    white_N = (value_N - total.mean) * (total.variance + epsilon).rsqrt()
    return (white_N if shift else white_N + total.mean).masked_fill(~mask_N, 0.0)
