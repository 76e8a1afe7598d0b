"""Losses on sorted batches: one side's figures against the other's of the same rank (AOT).

Who stands beside whom is a matter of the **whole** batch; it is found beforehand, without gradient, so that
a batch may come in pieces. Melnyk et al. 2024, arXiv:2406.05882.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from plaudit.losses.answers import Answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """For each answer its partner in the sorted batch: figures of the whole batch, without gradient.

    Example: ``matched(chosen, rejected)``
    """

    for_gap_B: Float[Tensor, " B"]
    """The reference's log π_ref(y_w) − log π_ref(y_l) of the same rank as the policy's own."""
    for_chosen_B: Float[Tensor, " B"]
    """The rejected answers' Δ of the same rank as each preferred answer's."""
    for_rejected_B: Float[Tensor, " B"]
    """The preferred answers' Δ of the same rank as each rejected answer's."""

    def part(self, which: slice) -> Matched:
        """Those of some of the pairs."""
        return Matched(
            for_gap_B=self.for_gap_B[which],
            for_chosen_B=self.for_chosen_B[which],
            for_rejected_B=self.for_rejected_B[which],
        )


def matched(chosen: Answers, rejected: Answers) -> Matched:
    """Who stands beside whom when both sides of the **whole** batch are sorted.

    >>> import torch
    >>> from plaudit.losses.answers import answers
    >>> good, bad = torch.tensor([-1.0, -2.0]), torch.tensor([-9.0, -8.0])
    >>> sides = [answers(side, torch.zeros(2), torch.ones(2)) for side in (good, bad)]
    >>> matched(*sides).for_chosen_B
    tensor([-8., -9.])
    """
    ref_gap_B = (chosen.ref_logp_B - rejected.ref_logp_B).detach()
    gap_B = (chosen.logp_B - rejected.logp_B).detach()
    return Matched(
        for_gap_B=_of_same_rank(gap_B, ref_gap_B),
        for_chosen_B=_of_same_rank(chosen.shift_B.detach(), rejected.shift_B.detach()),
        for_rejected_B=_of_same_rank(rejected.shift_B.detach(), chosen.shift_B.detach()),
    )


def aot(
    chosen: Answers,
    rejected: Answers,
    beside: Matched,
    *,
    beta: int | float,
    smoothing: int | float = 0.0,
) -> Float[Tensor, " B"]:
    """cDPO on sorted batches: the policy's gaps against the reference's, smallest with smallest.

    >>> import torch
    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(2), torch.zeros(2), torch.ones(2))
    >>> aot(same, same, matched(same, same), beta=0.1)
    tensor([0.6931, 0.6931])
    """
    return _smoothed(beta * (chosen.logp_B - rejected.logp_B - beside.for_gap_B), smoothing)


def aot_unpaired(
    chosen: Answers,
    rejected: Answers,
    beside: Matched,
    *,
    beta: int | float,
    smoothing: int | float = 0.0,
) -> Float[Tensor, " B"]:
    """cDPO on sorted batches: the preferred answers' Δ against the rejected ones', smallest with smallest.

    Each answer stands against its partner's figure, held fixed: half of the value from either side, and
    with it the whole gradient.

    >>> import torch
    >>> from plaudit.losses.answers import answers
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(aot_unpaired(same, same, matched(same, same), beta=0.1).item(), 4)
    0.6931
    """
    from_chosen_B = _smoothed(beta * (chosen.shift_B - beside.for_chosen_B), smoothing)
    from_rejected_B = _smoothed(beta * (beside.for_rejected_B - rejected.shift_B), smoothing)
    sum_B = from_chosen_B + from_rejected_B
    return sum_B - 0.5 * sum_B.detach()


def _of_same_rank(value_B: Tensor, other_B: Tensor) -> Tensor:
    return other_B.sort().values[value_B.argsort(stable=True).argsort(stable=True)]


def _smoothed(logit_B: Tensor, smoothing: int | float) -> Tensor:
    return -(1 - smoothing) * logsigmoid(logit_B) - smoothing * logsigmoid(-logit_B)
