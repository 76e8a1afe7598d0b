"""Sums, means and spreads within a group: the completions of one prompt, which lie side by side.

What is asked for each prompt needs ``groups``, how many there are, and takes ``group_N`` as places from 0.
What is told to each completion needs neither: nothing waits for the device.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def group_sums(
    value_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"], *, groups: int
) -> Float[Tensor, " P"]:
    """Σ over the completions of each prompt; 0 of a prompt without any."""
    # index_add and not a loop over prompts: groups of unlike sizes need no padding to [P, K].
    return value_N.new_zeros(groups).index_add(0, group_N, value_N)


def group_means(
    value_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"], *, groups: int
) -> Float[Tensor, " P"]:
    """The mean over the completions of each prompt; 0 of a prompt without any.

    >>> group_means(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 0, 1]), groups=2)
    tensor([1.5000, 4.0000])
    """
    size_P = group_sums(value_N.new_ones(len(value_N)), group_N, groups=groups)
    return group_sums(value_N, group_N, groups=groups) / size_P.clamp(min=1)


def group_lowest(
    value_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"], *, groups: int
) -> Float[Tensor, " P"]:
    """The lowest value of each prompt; ∞ of a prompt without any.

    >>> group_lowest(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 0, 1]), groups=2)
    tensor([1., 4.])
    """
    return value_N.new_full((groups,), math.inf).scatter_reduce(0, group_N.long(), value_N, "amin")


def group_highest(
    value_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"], *, groups: int
) -> Float[Tensor, " P"]:
    """The highest value of each prompt; −∞ of a prompt without any.

    >>> group_highest(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 0, 1]), groups=2)
    tensor([2., 4.])
    """
    return -group_lowest(-value_N, group_N, groups=groups)


def group_index(group_N: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
    """An index of each completion's group, counted from 0 in order of appearance."""
    # Neighbours are compared, which is why a group's completions have to lie side by side.
    return torch.diff(group_N, prepend=group_N[:1]).ne(0).cumsum(0)


def sum_of_group(value_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Σ over its group, for each completion.

    >>> sum_of_group(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([7, 7, 9]))
    tensor([3., 3., 4.])
    """
    index_N = group_index(group_N)
    # N is a bound on the groups that is known without asking the device for the largest index.
    return group_sums(value_N, index_N, groups=len(value_N))[index_N]


def size_of_group(value_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The size of its group, for each completion, in the dtype of the values.

    >>> size_of_group(torch.zeros(3), torch.tensor([7, 7, 9]))
    tensor([2., 2., 1.])
    """
    return sum_of_group(value_N.new_ones(len(value_N)), group_N)


def mean_of_group(value_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The mean of its group, for each completion; of equal values it is that value to the last bit.

    >>> mean_of_group(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([7, 7, 9]))
    tensor([1.5000, 1.5000, 4.0000])
    """
    index_N = group_index(group_N)
    # Σ 0.1 / 3 need not be 0.1; measured from a member of the group, equal values are 0.
    origin_N = group_lowest(value_N.detach(), index_N, groups=len(value_N))[index_N]
    return origin_N + sum_of_group(value_N - origin_N, group_N) / size_of_group(value_N, group_N)


def std_of_group(
    value_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"], *, correction: int = 1
) -> Float[Tensor, " N"]:
    """√(Σ (x − mean)² / (K − correction)) of its group of K, for each completion; 0 in a group of one."""
    square_N = (value_N - mean_of_group(value_N, group_N)).square()
    # A group of one has no spread: clamped, it is √(0 / 1) in place of 0 / 0.
    freedom_N = (size_of_group(value_N, group_N) - correction).clamp(min=1)
    return (sum_of_group(square_N, group_N) / freedom_N).sqrt()


def mean_of_others(value_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The mean of the K − 1 others of its group, for each completion; its own value in a group of one.

    >>> mean_of_others(torch.tensor([1.0, 2.0, 6.0, 5.0]), torch.tensor([7, 7, 7, 9]))
    tensor([4.0000, 3.5000, 1.5000, 5.0000])
    """
    mean_N, size_N = mean_of_group(value_N, group_N), size_of_group(value_N, group_N)
    # (K · mean − x) / (K − 1), rearranged: of equal values the second term is exactly 0.
    return mean_N - (value_N - mean_N) / (size_N - 1).clamp(min=1)
