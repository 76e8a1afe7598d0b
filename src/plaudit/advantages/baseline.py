"""Advantages against a baseline that is known before the batch: one number for every completion."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor


def greedy_baseline(
    reward_N: Float[Tensor, " N"], greedy_P: Float[Tensor, " P"], group_N: Int[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """r − the reward of the prompt's likeliest completion: ReMax. ``group_N`` is the prompt's place.

    Li et al. 2023, arXiv:2310.10505.

    >>> import torch
    >>> greedy_baseline(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 3.0]), torch.tensor([0, 1]))
    tensor([ 0.5000, -1.0000])
    """
    return reward_N - greedy_P[group_N]


def win_probability_advantage(
    score_N: Float[Tensor, " N"], rival_N: Float[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """P(y ≻ y′) − ½ against one answer y′ to the same prompt, P = σ(r − r′) by Bradley and Terry: Nash-MD.

    Munos et al. 2023, arXiv:2312.00886, whose P is a model of its own; it is met where r − r′ is its logit.

    >>> import torch
    >>> win_probability_advantage(torch.tensor([0.0, 0.0]), torch.tensor([0.0, 1.0986]))
    tensor([ 0.0000, -0.2500])
    """
    return (score_N - rival_N).sigmoid() - 0.5


def running_mean_baseline(
    reward_N: Float[Tensor, " N"], *, mean: Float[Tensor, " *N"] | int | float
) -> Float[Tensor, " N"]:
    """r − the mean reward **before** this batch: the baseline of REINFORCE. Williams 1992.

    Where there is none before it the caller gives for each answer the mean of the others: a mean that holds
    the answer's own score would bias the gradient, by a factor of (n − 1) / n.

    >>> import torch
    >>> running_mean_baseline(torch.tensor([1.0, 2.0]), mean=1.5)
    tensor([-0.5000,  0.5000])
    """
    return reward_N - mean


def updated_running_mean(
    mean: Float[Tensor, ""] | int | float, reward_N: Float[Tensor, " N"], *, share: int | float
) -> Float[Tensor, ""]:
    """(1 − share) · mean + share · the batch's mean: what the next batch is measured against.

    With share = n / (all n so far) it is the mean of all that was ever seen.

    >>> import torch
    >>> updated_running_mean(1.0, torch.tensor([2.0, 4.0]), share=0.25).item()
    1.5
    """
    return (1 - share) * mean + share * reward_N.mean()
