"""Losses that learn a policy from pairs of answers: one number for every pair.

Δ_w and Δ_l are the preferred and the other answer's ``shift_B``, how much likelier they have become, and
h = Δ_w − Δ_l. The sum over the batch, the count that divides it, soft labels and weights are the caller's.
Reference-free methods (SimPO, CPO, ORPO) are the same functions of records whose reference is 0.

AOT (Melnyk et al. 2024, arXiv:2406.05882) sorts both sides and compares figures of the same rank. Who stands
beside whom is a matter of the **whole** batch; it is found beforehand, without gradient, so that a batch may
come in pieces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from plaudit.losses.preference_inputs import CompletionLogps
from plaudit.tensors.needs import needs


def gap(chosen: CompletionLogps, rejected: CompletionLogps) -> Float[Tensor, " B"]:
    """h = Δ_w − Δ_l.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> zero, one = torch.zeros(1), torch.ones(1)
    >>> gap(*(completion_logps(torch.tensor([x]), zero, one) for x in (-1.0, -3.0))).item()
    2.0
    """
    return chosen.delta_B - rejected.delta_B


def dpo(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """−log σ(βh): the likelihood of the choice, were βΔ the reward. Rafailov et al. 2023, arXiv:2305.18290.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(dpo(same, same, beta=0.1).item(), 4)
    0.6931
    """
    return -logsigmoid(beta * gap(chosen, rejected))


def cdpo(
    chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float, smoothing: int | float
) -> Float[Tensor, " B"]:
    """−(1 − ε) log σ(βh) − ε log σ(−βh): a share ε of the labels is believed to be swapped.

    Mitchell 2023, "A note on DPO with noisy preferences and relationship to IPO".

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(cdpo(same, same, beta=0.1, smoothing=0.2).item(), 4)
    0.6931
    """
    logit_B = beta * gap(chosen, rejected)
    return -(1 - smoothing) * logsigmoid(logit_B) - smoothing * logsigmoid(-logit_B)


def robust(
    chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float, smoothing: int | float
) -> Float[Tensor, " B"]:
    """(−(1 − ε) log σ(βh) + ε log σ(−βh)) / (1 − 2ε): on average DPO's loss on labels that were not swapped.

    Chowdhury et al. 2024, arXiv:2403.00409.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(robust(same, same, beta=0.1, smoothing=0.2).item(), 4)
    0.6931
    """
    logit_B = beta * gap(chosen, rejected)
    clean_B = -(1 - smoothing) * logsigmoid(logit_B) + smoothing * logsigmoid(-logit_B)
    return clean_B / (1 - 2 * smoothing)


def hinge(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """max(0, 1 − βh): no push beyond a margin. Zhao et al. 2023 (SLiC-HF), arXiv:2305.10425.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> hinge(same, same, beta=0.1).item()
    1.0
    """
    return (1 - beta * gap(chosen, rejected)).clamp(min=0)


def ipo(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """(h − 1/2β)²: h goes to a finite value also where all agree. β is the paper's τ.

    Azar et al. 2023, arXiv:2310.12036.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> ipo(same, same, beta=0.25).item()
    4.0
    """
    return (gap(chosen, rejected) - 1 / (2 * beta)).square()


def exo(
    chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float, smoothing: int | float
) -> Float[Tensor, " B"]:
    """Reverse KL from σ(±βh) to (1 − ε, ε), where DPO has forward KL. Ji et al. 2024, arXiv:2402.00856.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> exo(same, same, beta=0.1, smoothing=0.5).abs().item() < 1e-6
    True
    """
    logit_B = beta * gap(chosen, rejected)
    win_B, lose_B = logsigmoid(logit_B), logsigmoid(-logit_B)
    return win_B.exp() * (win_B - math.log1p(-smoothing)) + lose_B.exp() * (lose_B - math.log(smoothing))


def nca(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """−log σ(βΔ_w) − ½ log σ(−βΔ_w) − ½ log σ(−βΔ_l): absolute likelihoods, so y_w is not lowered.

    Chen et al. 2024, arXiv:2402.05369.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(nca(same, same, beta=0.1).item(), 4)
    1.3863
    """
    win_B, lose_B = beta * chosen.delta_B, beta * rejected.delta_B
    return -logsigmoid(win_B) - 0.5 * logsigmoid(-win_B) - 0.5 * logsigmoid(-lose_B)


@needs("running_mean")
def bco_pair(
    chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float, baseline: int | float
) -> Float[Tensor, " B"]:
    """−log σ(βΔ_w − δ) − log σ(δ − βΔ_l): a classifier of good and bad whose threshold is the mean reward δ.

    Jung et al. 2024, arXiv:2404.04656. δ is kept by the caller.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(bco_pair(same, same, beta=0.1, baseline=0.0).item(), 4)
    1.3863
    """
    return -logsigmoid(beta * chosen.delta_B - baseline) - logsigmoid(baseline - beta * rejected.delta_B)


def sppo(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """(Δ_w − 1/2β)² + (Δ_l + 1/2β)²: self-play towards a winner of every pair, with hard labels.

    Wu et al. 2024, arXiv:2405.00675; their η is 1/β.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> sppo(same, same, beta=0.5).item()
    2.0
    """
    target = 1 / (2 * beta)
    return (chosen.delta_B - target).square() + (rejected.delta_B + target).square()


def apo_zero(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """(1 − σ(βΔ_w)) + σ(βΔ_l): y_w up, y_l down; for pairs whose winner is better than the policy.

    D'Oosterlinck et al. 2024, arXiv:2408.06266.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> apo_zero(same, same, beta=0.1).item()
    1.0
    """
    return (-beta * chosen.delta_B).sigmoid() + (beta * rejected.delta_B).sigmoid()


def apo_down(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """σ(βΔ_w) + (1 − σ(βh)): both down, y_l further; for pairs whose winner is worse than the policy.

    D'Oosterlinck et al. 2024, arXiv:2408.06266.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> apo_down(same, same, beta=0.1).item()
    1.0
    """
    return (beta * chosen.delta_B).sigmoid() + (-beta * gap(chosen, rejected)).sigmoid()


def discopop(
    chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float, tau: int | float
) -> Float[Tensor, " B"]:
    """(1 − s)·(−log σ(βh)) + s·exp(−βh), s = σ(βh/τ): a loss that a language model proposed.

    Lu et al. 2024, arXiv:2406.08414.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(discopop(same, same, beta=0.1, tau=0.05).item(), 4)
    0.8466
    """
    logit_B = beta * gap(chosen, rejected)
    share_B = (logit_B / tau).sigmoid()
    # Far below 0 its share falls faster than exp(−βh) grows, so the product is formed as one power.
    power_B = (logsigmoid(logit_B / tau) - logit_B).exp()
    return -(1 - share_B) * logsigmoid(logit_B) + power_B


def simpo(
    chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float, margin: int | float
) -> Float[Tensor, " B"]:
    """−log σ(βh − γ), h of mean log-probs and no reference. Meng et al. 2024, arXiv:2405.14734.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(simpo(same, same, beta=2.0, margin=0.0).item(), 4)
    0.6931
    """
    return -logsigmoid(beta * gap(chosen, rejected) - margin)


def odds_ratio(
    chosen: CompletionLogps, rejected: CompletionLogps, *, odds: int | float
) -> Float[Tensor, " B"]:
    """−λ log σ(log odds_w − log odds_l), odds of e^Δ, the mean token's probability; ORPO adds the NLL.

    Hong et al. 2024, arXiv:2403.07691.

    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.tensor([-1.0]), torch.zeros(1), torch.ones(1))
    >>> round(odds_ratio(same, same, odds=0.1).item(), 4)
    0.0693
    """
    return -odds * logsigmoid(_log_odds(chosen.delta_B) - _log_odds(rejected.delta_B))


def _log_odds(logp_B: Tensor) -> Tensor:
    """log p − log(1 − p); a probability of 1 is taken for the largest one below it."""
    eps = torch.finfo(logp_B.dtype).eps
    safe_B = logp_B.clamp(max=-eps)
    return safe_B - (-safe_B.expm1()).log()


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedPartners:
    """For each pair its partner's values in the sorted batch, of the whole batch and without gradient.

    Example: ``match_sorted(chosen, rejected)``
    """

    for_gap_B: Float[Tensor, " B"]
    """The reference's log π_ref(y_w) − log π_ref(y_l) of the same rank as the policy's own."""
    for_chosen_B: Float[Tensor, " B"]
    """The rejected answers' Δ of the same rank as each preferred answer's."""
    for_rejected_B: Float[Tensor, " B"]
    """The preferred answers' Δ of the same rank as each rejected answer's."""

    def select(self, pairs: slice) -> SortedPartners:
        """The partners of some of the pairs."""
        return SortedPartners(
            for_gap_B=self.for_gap_B[pairs],
            for_chosen_B=self.for_chosen_B[pairs],
            for_rejected_B=self.for_rejected_B[pairs],
        )


def match_sorted(chosen: CompletionLogps, rejected: CompletionLogps) -> SortedPartners:
    """Pairs each completion with the one of the same rank when both sides of the **whole** batch are sorted.

    >>> import torch
    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> good, bad = torch.tensor([-1.0, -2.0]), torch.tensor([-9.0, -8.0])
    >>> sides = [completion_logps(side, torch.zeros(2), torch.ones(2)) for side in (good, bad)]
    >>> match_sorted(*sides).for_chosen_B
    tensor([-8., -9.])
    """
    ref_gap_B = (chosen.ref_logp_B - rejected.ref_logp_B).detach()
    gap_B = (chosen.logp_B - rejected.logp_B).detach()
    return SortedPartners(
        for_gap_B=_value_of_same_rank(gap_B, ref_gap_B),
        for_chosen_B=_value_of_same_rank(chosen.delta_B.detach(), rejected.delta_B.detach()),
        for_rejected_B=_value_of_same_rank(rejected.delta_B.detach(), chosen.delta_B.detach()),
    )


@needs("sorted_batch")
def aot(
    chosen: CompletionLogps,
    rejected: CompletionLogps,
    partners: SortedPartners,
    *,
    beta: int | float,
    smoothing: int | float = 0.0,
) -> Float[Tensor, " B"]:
    """cDPO on sorted batches: the policy's gaps against the reference's, smallest with smallest.

    >>> import torch
    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(2), torch.zeros(2), torch.ones(2))
    >>> aot(same, same, match_sorted(same, same), beta=0.1)
    tensor([0.6931, 0.6931])
    """
    return _smoothed_logistic_loss(beta * (chosen.logp_B - rejected.logp_B - partners.for_gap_B), smoothing)


@needs("sorted_batch")
def aot_unpaired(
    chosen: CompletionLogps,
    rejected: CompletionLogps,
    partners: SortedPartners,
    *,
    beta: int | float,
    smoothing: int | float = 0.0,
) -> Float[Tensor, " B"]:
    """cDPO on sorted batches: the preferred answers' Δ against the rejected ones', smallest with smallest.

    Each answer stands against its partner's figure, held fixed: half of the value from either side, and
    with it the whole gradient.

    >>> import torch
    >>> from plaudit.losses.preference_inputs import completion_logps
    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(aot_unpaired(same, same, match_sorted(same, same), beta=0.1).item(), 4)
    0.6931
    """
    from_chosen_B = _smoothed_logistic_loss(beta * (chosen.delta_B - partners.for_chosen_B), smoothing)
    from_rejected_B = _smoothed_logistic_loss(beta * (partners.for_rejected_B - rejected.delta_B), smoothing)
    sum_B = from_chosen_B + from_rejected_B
    return sum_B - 0.5 * sum_B.detach()


def _value_of_same_rank(value_B: Tensor, other_B: Tensor) -> Tensor:
    return other_B.sort().values[value_B.argsort(stable=True).argsort(stable=True)]


def _smoothed_logistic_loss(logit_B: Tensor, smoothing: int | float) -> Tensor:
    return -(1 - smoothing) * logsigmoid(logit_B) - smoothing * logsigmoid(-logit_B)
