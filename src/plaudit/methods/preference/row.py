"""An algorithm of preference optimisation as a record of cells; the trainer knows records, not names.

    log-prob (sum | mean | …) × link to the reference × length × DPOP × loss × weight × + NLL

A loss of one's own is a function of two records and ``BatchContext``:

    def mine(chosen: CompletionLogps, rejected: CompletionLogps, context: BatchContext) -> Tensor:
        return -logsigmoid(0.1 * (chosen.delta_B - rejected.delta_B))

    algorithm = PreferenceAlgorithm(loss=mine, beta=0.1)
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.errors import UserError
from plaudit.losses.preference import (
    CompletionLogps,
    LogpReduction,
    LogRatioLink,
    SortedPartners,
    completion_logps,
    reverse_kl_link,
    sum_logps,
    with_dpop_penalty,
    with_length_penalty,
)
from plaudit.tensors.needs import needs, needs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContext:
    """Batch-wide context that a loss may read beside its pairs.

    Example: ``BatchContext(baseline=0.02)``
    """

    baseline: float = 0.0
    """A reference point that the trainer keeps: KTO's z₀, BCO's δ."""
    matched: SortedPartners | None = None
    """The matched partners of a sorted batch; None where no cell needs them."""
    changed: CompletionLogps | None = None
    """The preferred answers to changed pictures, Δ = −∞ of rows without; None where nothing is changed."""


PairLoss = Callable[[CompletionLogps, CompletionLogps, BatchContext], Float[Tensor, " B"]]
"""From the preferred and the other answers to a loss for each pair."""
RankingLoss = Callable[[Float[Tensor, "P K"], Float[Tensor, "P K"], Bool[Tensor, "P K"]], Float[Tensor, " P"]]
"""From the Δ of each ranking's answers, their ranks (1 the best) and which are there to a loss for each."""
SingleLoss = Callable[[CompletionLogps, Float[Tensor, " B"], BatchContext], Float[Tensor, " B"]]
"""From answers and their labels, 1 good and 0 bad, to a loss for each answer."""
Weight = Callable[[Float[Tensor, "B T"], Float[Tensor, "B T"], Bool[Tensor, "B T"]], Float[Tensor, " B"]]
"""From log π(y_t), log Σ_v π(v)² and the mask to a factor for each answer; a pair has the product of two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedCells:
    beta: float
    log_prob: LogpReduction = sum_logps
    """How an answer's tokens become one log-prob."""
    link: LogRatioLink = reverse_kl_link
    """From log(π / π_ref) to Δ; ``no_reference_link`` where there is no reference."""
    length_alpha: float = 0.0
    """What a token adds to Δ, so that length itself earns nothing."""
    unread: frozenset[str] = frozenset()
    """Cells that the loss does not read, so that they cannot be set."""
    reference_kind: Literal["auto", "average"] = "auto"
    """What ``--reference.kind auto`` means for it."""
    parts: int = 1
    """In how many parts the data is learnt where the run does not say."""
    name: str = "own"
    formula: str = "a loss of your own"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def completion_logps(self, logp_B: Tensor, ref_logp_B: Tensor, length_B: Tensor) -> CompletionLogps:
        """The log-probs of completions with their reference, lengths and Δ, as losses read them."""
        record = completion_logps(logp_B, ref_logp_B, length_B.to(logp_B.dtype), self.link)
        return with_length_penalty(record, penalty=self.length_alpha) if self.length_alpha else record


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceAlgorithm(_SharedCells):
    """An algorithm that learns from pairs.

    Example: DPO is ``PreferenceAlgorithm(loss=pair_loss(dpo, beta=0.1), beta=0.1)``.
    """

    loss: PairLoss
    """What is minimised, for each pair."""
    ranking_loss: RankingLoss | None = None
    """What is minimised for a ranking as a whole; None: the mean over its pairs."""
    dpop_lambda: float = 0.0
    """How much Δ of a preferred answer loses for each nat by which it has fallen."""
    weight: Weight | None = None
    """A factor for each answer, without gradient; None: all pairs count the same."""
    weight_cap: float = 1.0
    """The largest weight of a pair; 0: no limit."""
    nll_coef: float = 0.0
    """How much the preferred answer's −log π per token counts beside the loss."""

    @classmethod
    def of_rankings(cls, loss: RankingLoss, *, beta: float, **cells: Any) -> "PreferenceAlgorithm":
        """The algorithm of a loss of whole rankings; a comparison is a ranking of two."""

        def of_two(chosen: CompletionLogps, rejected: CompletionLogps, context: BatchContext) -> Tensor:
            delta_B2 = torch.stack((chosen.delta_B, rejected.delta_B), -1)
            rank_B2 = delta_B2.new_tensor([1.0, 2.0]).expand_as(delta_B2)
            return loss(delta_B2, rank_B2, torch.ones_like(delta_B2, dtype=torch.bool))

        unread = frozenset({"ld_alpha", "dpop_lambda", "weighting", "weight_cap"})
        return cls(loss=of_two, ranking_loss=loss, beta=beta, unread=unread, **cells)

    def __post_init__(self) -> None:
        """A weight is one pair's, and a sorted batch compares across pairs."""
        try:
            inspect.signature(self.loss).bind("chosen", "rejected", "context")
        except TypeError as error:
            how = "its loss is called as f(chosen, rejected, context)"
            raise UserError(f"{self.name}: {how}: {error}") from error
        if "sorted_batch" in self.needs and self.weight is not None:
            raise UserError(
                f"{self.name} compares sorted batches, so its pairs have no weight: leave out weighting"
            )

    @property
    def needs(self) -> frozenset[str]:
        """What its cells need: reference, running_mean, sorted_batch or changed (labels are hard), repeat."""
        return needs_of(self.loss, self.link, self.weight, with_dpop_penalty if self.dpop_lambda else None)

    def pair_weight(self, chosen_B: Float[Tensor, " B"], rejected_B: Float[Tensor, " B"]) -> Tensor:
        """The factor of pairs, from those of their answers."""
        # The product is limited and not each: a likely answer may stand for an unlikely partner.
        weight_B = chosen_B * rejected_B
        return weight_B.clamp(max=self.weight_cap) if self.weight_cap else weight_B

    def penalised_sides(
        self, chosen: CompletionLogps, rejected: CompletionLogps
    ) -> tuple[CompletionLogps, CompletionLogps]:
        """The loss inputs of both sides, with the penalty for a fallen chosen log-prob applied."""
        return (with_dpop_penalty(chosen, penalty=self.dpop_lambda) if self.dpop_lambda else chosen), rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpairedAlgorithm(_SharedCells):
    """An algorithm that learns from single answers, each called good or bad.

    Example: KTO is ``UnpairedAlgorithm(loss=unpaired_loss(kto, "mismatched", beta=0.1), beta=0.1)``.
    """

    loss: SingleLoss
    """What is minimised, for each answer."""

    @property
    def needs(self) -> frozenset[str]:
        """What its cells need: reference, running_mean, mismatched."""
        return needs_of(self.loss, self.link)


AnyPreferenceAlgorithm = PreferenceAlgorithm | UnpairedAlgorithm


def pair_loss(loss: Callable[..., Tensor], **settings: float) -> PairLoss:
    """A pair loss with its settings bound; of the batch context it gets what it needs.

    >>> from plaudit.losses.preference import hinge
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> pair_loss(hinge, beta=0.1)(same, same, BatchContext()).item()
    1.0
    """
    # The trainer sees the bound function alone, so the needs of the loss have to pass on to it.
    wanted = needs_of(loss)

    @needs(*wanted)
    def bound(chosen: CompletionLogps, rejected: CompletionLogps, context: BatchContext) -> Tensor:
        if "sorted_batch" in wanted:
            assert context.matched is not None, "the batch was not sorted"
            return loss(chosen, rejected, context.matched, **settings)
        if "running_mean" in wanted:
            return loss(chosen, rejected, baseline=context.baseline, **settings)
        if "changed" in wanted:
            return loss(chosen, rejected, changed=context.changed, **settings)
        return loss(chosen, rejected, **settings)

    return bound


def unpaired_loss(loss: Callable[..., Tensor], *baseline: str, **settings: float) -> SingleLoss:
    """A loss of single answers with its settings bound.

    ``baseline`` is what it measures from: running_mean, mismatched, or nothing (then it is 0).
    """

    @needs(*baseline)
    def bound(completions: CompletionLogps, label_B: Tensor, context: BatchContext) -> Tensor:
        return loss(completions, label_B, baseline=context.baseline, **settings)

    return bound


def with_mixed_losses(
    parts: Sequence[tuple[float, PreferenceAlgorithm]], algorithm: PreferenceAlgorithm
) -> PreferenceAlgorithm:
    """The algorithm with a weighted sum of other ones' losses; of these only the losses are taken.

    Wang et al. 2024 (MPO), arXiv:2411.10442.
    """

    @needs(*needs_of(*(part.loss for _, part in parts)))
    def loss(chosen: CompletionLogps, rejected: CompletionLogps, context: BatchContext) -> Tensor:
        total_B = chosen.delta_B.new_zeros(chosen.delta_B.shape)
        for weight, part in parts:
            total_B = total_B + weight * part.loss(chosen, rejected, context)
        return total_B

    return replace(algorithm, loss=loss)
