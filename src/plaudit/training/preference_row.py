"""An algorithm of preference optimisation as a row of cells; the trainer knows rows, not names.

    log-prob (sum | mean | …) × reference × link × price of length × hold × loss × weight × + NLL

A loss of one's own is a function of two records and ``Known``:

    def mine(chosen: Answers, rejected: Answers, known: Known) -> Tensor:
        return -logsigmoid(0.1 * (chosen.shift_B - rejected.shift_B))

    row = PreferenceRow(loss=mine, beta=0.1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.losses.answers import Answers, Link, Measure, answers, held_up, lengthened, log_ratio, total
from plaudit.losses.transport import Matched


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a loss may know beside the answers at hand.

    Example: ``Known(baseline=0.02)``
    """

    baseline: float = 0.0
    """A reference point that the trainer keeps: KTO's z₀, BCO's δ."""
    beside: Matched | None = None
    """Each answer's partner in the sorted batch; None where the row did not ask for it."""


Baseline = Literal["none", "running", "mismatched"]
"""What a loss measures from: nothing, a running mean of rewards, the mean Δ of answers to other prompts."""
PairLoss = Callable[[Answers, Answers, Known], Float[Tensor, " B"]]
"""From the preferred and the other answers to a loss for each pair."""
SingleLoss = Callable[[Answers, Float[Tensor, " B"], Known], Float[Tensor, " B"]]
"""From answers and their labels, 1 good and 0 bad, to a loss for each answer."""
Weight = Callable[[Float[Tensor, "B T"], Float[Tensor, "B T"], Bool[Tensor, "B T"]], Float[Tensor, " B"]]
"""From log π(y_t), log Σ_v π(v)² and the mask to a factor for each answer; a pair has the product of two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """What rows for pairs and rows for single answers have in common."""

    beta: float
    """What Δ is multiplied with to be a reward."""
    measure: Measure = total
    """How an answer's tokens become one log-prob."""
    referenced: bool = True
    """Whether there is a reference; without one Δ = log π."""
    link: Link = log_ratio
    """From log(π / π_ref) to Δ."""
    price: float = 0.0
    """What a token adds to Δ, so that length itself earns nothing."""
    baseline: Baseline = "none"
    """The loss's reference point."""

    def answers(self, logp_B: Tensor, ref_logp_B: Tensor, length_B: Tensor) -> Answers:
        """The record that losses read."""
        said = answers(logp_B, ref_logp_B, length_B.to(logp_B.dtype), self.link)
        return lengthened(said, penalty=self.price) if self.price else said


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRow(_Cells):
    """An algorithm that learns from pairs.

    Example: DPO is ``PreferenceRow(loss=plain(dpo, beta=0.1), beta=0.1)``.
    """

    loss: PairLoss
    """What is minimised, for each pair."""
    hold: float = 0.0
    """How much Δ of a preferred answer loses for each nat by which it has fallen."""
    weight: Weight | None = None
    """A factor for each answer, without gradient; None: all pairs count the same."""
    nll: float = 0.0
    """How much the preferred answer's −log π per token counts beside the loss."""
    sorts: bool = False
    """Whether the loss compares the sorted batch; its labels are then hard."""

    def sides(self, chosen: Answers, rejected: Answers) -> tuple[Answers, Answers]:
        """Both records as the loss sees them."""
        return (held_up(chosen, penalty=self.hold) if self.hold else chosen), rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleRow(_Cells):
    """An algorithm that learns from single answers, each called good or bad.

    Example: KTO is ``SingleRow(loss=…, beta=0.1, baseline="mismatched")``.
    """

    loss: SingleLoss
    """What is minimised, for each answer."""


def plain(loss: Callable[..., Tensor], **settings: float) -> PairLoss:
    """A loss of two records alone, with its settings.

    >>> import torch
    >>> from plaudit.losses.preference import hinge
    >>> same = answers(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> plain(hinge, beta=0.1)(same, same, Known()).item()
    1.0
    """
    return lambda chosen, rejected, known: loss(chosen, rejected, **settings)


def mixed(parts: Sequence[tuple[float, PreferenceRow]], row: PreferenceRow) -> PreferenceRow:
    """The row with a weighted sum of other rows' losses; of these only the losses are taken.

    Wang et al. 2024 (MPO), arXiv:2411.10442.
    """

    def loss(chosen: Answers, rejected: Answers, known: Known) -> Tensor:
        total_B = chosen.shift_B.new_zeros(chosen.shift_B.shape)
        for weight, part in parts:
            total_B = total_B + weight * part.loss(chosen, rejected, known)
        return total_B

    kept = any(part.baseline == "running" for _, part in parts)
    return replace(
        row,
        loss=loss,
        baseline="running" if kept else row.baseline,
        sorts=any(part.sorts for _, part in parts),
    )
