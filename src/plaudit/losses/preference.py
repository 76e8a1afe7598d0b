"""Losses that learn a policy from pairs of answers: one number for every pair.

A loss sees of each answer how likely the policy and the reference find it, and Δ, how far the two are apart.
Δ_w and Δ_l are the preferred and the other answer's, and h = Δ_w − Δ_l. How tokens become one log-prob (their
sum, say), how a ratio becomes Δ (link) and what is taken off Δ for length or for falling are functions of
their own, so that every loss can be had with each of them. Reference-free methods (SimPO, CPO, ORPO) are the
same functions of records whose reference is 0. The sum over the batch, the count that divides it, soft labels
and weights are the caller's.

AOT (Melnyk et al. 2024, arXiv:2406.05882) sorts both sides and compares figures of the same rank. Who stands
beside whom is a matter of the **whole** batch; it is found beforehand, without gradient, so that a batch may
come in pieces.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from plaudit.losses.reward import plackett_luce
from plaudit.tensors.masked import masked_sum_rows
from plaudit.tensors.needs import needs

LogpReduction = Callable[[Float[Tensor, "B T"], Bool[Tensor, "B T"], Int[Tensor, " B"]], Float[Tensor, " B"]]
"""Token log-probs to the completion's one, given the mask and the length of the pair's shorter answer."""
LogRatioLink = Callable[[Float[Tensor, " B"]], Float[Tensor, " B"]]
"""From log(π / π_ref) to Δ, both 0 where policy and reference agree."""
_MAX_EXPONENT = 30.0
"""The exponent beyond which a link continues as its tangent: e^89 is not a number in single precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionLogps:
    """Policy and reference log-probs of B completions, and their Δ.

    Example: ``completion_logps(logp_B, ref_logp_B, length_B)``. Without a reference ``ref_logp_B`` is 0: Δ
        = log π.
    """

    logp_B: Float[Tensor, " B"]
    """log π(y|x), as measured."""
    ref_logp_B: Float[Tensor, " B"]
    """log π_ref(y|x), measured in the same way; it has no gradient."""
    length_B: Float[Tensor, " B"]
    """How many tokens count."""
    delta_B: Float[Tensor, " B"]
    """Δ: the log-ratio log π − log π_ref through the link."""


@needs("reference")
def reverse_kl_link(log_ratio_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Δ = log u, for a leash of reverse KL, KL(π ‖ π_ref): what DPO has. u = π / π_ref.

    >>> reverse_kl_link(torch.tensor([0.5])).item()
    0.5
    """
    return log_ratio_B


@needs("reference")
def forward_kl_link(log_ratio_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Δ = 1 − 1/u, for a leash of KL(π_ref ‖ π). Wang et al. 2023 (f-DPO), arXiv:2309.16240.

    >>> forward_kl_link(torch.tensor([math.log(2)]))
    tensor([0.5000])
    """
    # 1 − 1/u = −(e^−ρ − 1): expm1 keeps the digits where policy and reference hardly differ.
    return -_linear_beyond_expm1(-log_ratio_B)


@needs("reference")
def jensen_shannon_link(log_ratio_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Δ = log 2u / (1 + u): at most log 2. Wang et al. 2023 (f-DPO), arXiv:2309.16240.

    >>> jensen_shannon_link(torch.tensor([0.0])).item()
    0.0
    """
    # 2u / (1 + u) = 2 σ(ρ): logsigmoid has no overflow where u = e^ρ would.
    return math.log(2) + logsigmoid(log_ratio_B)


@needs("reference")
def alpha_divergence_link(log_ratio_B: Float[Tensor, " B"], *, alpha: int | float) -> Float[Tensor, " B"]:
    """Δ = (1 − u^−α) / α: from reverse KL at α → 0 to forward KL at α = 1.

    Wang et al. 2023 (f-DPO), arXiv:2309.16240.

    >>> alpha_divergence_link(torch.tensor([math.log(2)]), alpha=2)
    tensor([0.3750])
    """
    return -_linear_beyond_expm1(-alpha * log_ratio_B) / alpha


def no_reference_link(logp_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Δ = log π: there is no reference, and its log-prob is taken for 0.

    >>> no_reference_link(torch.tensor([-2.0])).item()
    -2.0
    """
    return logp_B


def completion_logps(
    logp_B: Float[Tensor, " B"],
    ref_logp_B: Float[Tensor, " B"],
    length_B: Float[Tensor, " B"],
    link: LogRatioLink = reverse_kl_link,
) -> CompletionLogps:
    """The log-probs with their Δ = link(log π − log π_ref).

    >>> said = completion_logps(torch.tensor([-3.0]), torch.tensor([-4.0]), torch.tensor([2.0]))
    >>> said.delta_B.item()
    1.0
    """
    delta_B = link(logp_B - ref_logp_B)
    return CompletionLogps(logp_B=logp_B, ref_logp_B=ref_logp_B, length_B=length_B, delta_B=delta_B)


def sum_logps(
    logp_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"], shorter_B: Int[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """log π(y|x): the sum over the tokens.

    >>> sum_logps(torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, True]]), torch.tensor([1])).item()
    -4.0
    """
    return masked_sum_rows(logp_BT, mask_BT)


def mean_logps(
    logp_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"], shorter_B: Int[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """The mean over the tokens: a long answer weighs no more than a short one.

    >>> mean_logps(torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, True]]), torch.tensor([1])).item()
    -2.0
    """
    # At least 1: a stand-in without trained tokens measures 0 and not 0 / 0.
    return sum_logps(logp_BT, mask_BT, shorter_B) / mask_BT.sum(-1).clamp(min=1)


def length_desensitised_logps(
    logp_BT: Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    shorter_B: Int[Tensor, " B"],
    *,
    share: int | float,
) -> Float[Tensor, " B"]:
    """The sum, in which tokens beyond the shorter answer's length count by ``share``; 1 is the plain sum.

    Liu et al. 2024 (LD-DPO), arXiv:2409.06411.

    >>> length_desensitised_logps(torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, True]]),
    ...     torch.tensor([1]), share=0.5)
    tensor([-2.5000])
    """
    # Counted along trained tokens: what a tool wrote in between is no length.
    shared_BT = mask_BT & (mask_BT.cumsum(-1) <= shorter_B[:, None])
    return masked_sum_rows(logp_BT, shared_BT) + share * masked_sum_rows(logp_BT, mask_BT & ~shared_BT)


def with_length_penalty(logps: CompletionLogps, *, penalty: int | float) -> CompletionLogps:
    """Δ + penalty · |y|: the policy is asked for the reward less a price for each token, over β.

    Park et al. 2024 (R-DPO), arXiv:2403.19159; their α is β · penalty.

    >>> said = completion_logps(torch.tensor([-3.0]), torch.tensor([-4.0]), torch.tensor([2.0]))
    >>> with_length_penalty(said, penalty=0.5).delta_B.item()
    2.0
    """
    return replace(logps, delta_B=logps.delta_B + penalty * logps.length_B)


@needs("reference")
def with_dpop_penalty(chosen: CompletionLogps, *, penalty: int | float) -> CompletionLogps:
    """Δ − penalty · max(0, log π_ref − log π): chosen answers may not fall below the reference.

    Pal et al. 2024 (DPO-Positive, Smaug), arXiv:2402.13228.

    >>> said = completion_logps(torch.tensor([-5.0]), torch.tensor([-4.0]), torch.tensor([2.0]))
    >>> with_dpop_penalty(said, penalty=50).delta_B.item()
    -51.0
    """
    # In log-probs and not in Δ: a link or a length penalty may not hide that y_w has become rarer.
    fallen_B = (chosen.ref_logp_B - chosen.logp_B).clamp(min=0)
    return replace(chosen, delta_B=chosen.delta_B - penalty * fallen_B)


@needs("repeat")
def wpo_weight(
    logp_BT: Float[Tensor, "B T"], power_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"]
) -> Float[Tensor, " B"]:
    """How likely the policy would have said an answer itself, per token, as a weight without gradient.

    exp of the mean of log π(y_t) − log Σ_v π(v)²: at about 1 for what it samples. ``power_BT`` is that
    second term. Zhou et al. 2024 (WPO, sampled alignment), arXiv:2406.11827.

    >>> wpo_weight(torch.tensor([[-2.0]]), torch.tensor([[-2.0]]), torch.tensor([[True]])).item()
    1.0
    """
    mean_log_weight_B = masked_sum_rows(logp_BT - power_BT, mask_BT) / mask_BT.sum(-1).clamp(min=1)
    # A weight: with a gradient the policy could lower its loss by finding its own answers unlikely.
    return mean_log_weight_B.detach().exp()


def _linear_beyond_expm1(exponent_B: Tensor) -> Tensor:
    """e^x − 1; from x = 30 on its tangent, so that what has become unlikely keeps a finite Δ and slope."""
    beyond_B = (exponent_B - _MAX_EXPONENT).relu()
    return exponent_B.clamp(max=_MAX_EXPONENT).expm1() + math.exp(_MAX_EXPONENT) * beyond_B


def gap(chosen: CompletionLogps, rejected: CompletionLogps) -> Float[Tensor, " B"]:
    """h = Δ_w − Δ_l.

    >>> zero, one = torch.zeros(1), torch.ones(1)
    >>> gap(*(completion_logps(torch.tensor([x]), zero, one) for x in (-1.0, -3.0))).item()
    2.0
    """
    return chosen.delta_B - rejected.delta_B


def dpo(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """−log σ(βh): the likelihood of the choice, were βΔ the reward. Rafailov et al. 2023, arXiv:2305.18290.

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

    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(cdpo(same, same, beta=0.1, smoothing=0.2).item(), 4)
    0.6931
    """
    return _smoothed_logistic_loss(beta * gap(chosen, rejected), smoothing)


def robust(
    chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float, smoothing: int | float
) -> Float[Tensor, " B"]:
    """(−(1 − ε) log σ(βh) + ε log σ(−βh)) / (1 − 2ε): on average DPO's loss on labels that were not swapped.

    Chowdhury et al. 2024, arXiv:2403.00409.

    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(robust(same, same, beta=0.1, smoothing=0.2).item(), 4)
    0.6931
    """
    logit_B = beta * gap(chosen, rejected)
    clean_B = -(1 - smoothing) * logsigmoid(logit_B) + smoothing * logsigmoid(-logit_B)
    # The swapped part enters with a minus: unbiased, but unbounded below, unlike cDPO.
    return clean_B / (1 - 2 * smoothing)


def hinge(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """max(0, 1 − βh): no push beyond a margin. Zhao et al. 2023 (SLiC-HF), arXiv:2305.10425.

    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> hinge(same, same, beta=0.1).item()
    1.0
    """
    return (1 - beta * gap(chosen, rejected)).clamp(min=0)


def ipo(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """(h − 1/2β)²: h goes to a finite value also where all agree. β is the paper's τ.

    Azar et al. 2023, arXiv:2310.12036.

    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> ipo(same, same, beta=0.25).item()
    4.0
    """
    return (gap(chosen, rejected) - 1 / (2 * beta)).square()


def exo(
    chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float, smoothing: int | float
) -> Float[Tensor, " B"]:
    """Reverse KL from σ(±βh) to (1 − ε, ε), where DPO has forward KL. Ji et al. 2024, arXiv:2402.00856.

    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> exo(same, same, beta=0.1, smoothing=0.5).abs().item() < 1e-6
    True
    """
    logit_B = beta * gap(chosen, rejected)
    win_B, lose_B = logsigmoid(logit_B), logsigmoid(-logit_B)
    # σ · (log σ − log target) for both outcomes, in logs
    # throughout: σ itself rounds to 0 or 1 far from h = 0.
    return win_B.exp() * (win_B - math.log1p(-smoothing)) + lose_B.exp() * (lose_B - math.log(smoothing))


def nca(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """−log σ(βΔ_w) − ½ log σ(−βΔ_w) − ½ log σ(−βΔ_l): absolute likelihoods, so y_w is not lowered.

    Chen et al. 2024, arXiv:2402.05369.

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

    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(bco_pair(same, same, beta=0.1, baseline=0.0).item(), 4)
    1.3863
    """
    return -logsigmoid(beta * chosen.delta_B - baseline) - logsigmoid(baseline - beta * rejected.delta_B)


def sppo(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """(Δ_w − 1/2β)² + (Δ_l + 1/2β)²: self-play towards a winner of every pair, with hard labels.

    Wu et al. 2024, arXiv:2405.00675; their η is 1/β.

    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> sppo(same, same, beta=0.5).item()
    2.0
    """
    target = 1 / (2 * beta)
    return (chosen.delta_B - target).square() + (rejected.delta_B + target).square()


def apo_zero(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """(1 − σ(βΔ_w)) + σ(βΔ_l): y_w up, y_l down; for pairs whose winner is better than the policy.

    D'Oosterlinck et al. 2024, arXiv:2408.06266.

    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> apo_zero(same, same, beta=0.1).item()
    1.0
    """
    return (-beta * chosen.delta_B).sigmoid() + (beta * rejected.delta_B).sigmoid()


def apo_down(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: int | float) -> Float[Tensor, " B"]:
    """σ(βΔ_w) + (1 − σ(βh)): both down, y_l further; for pairs whose winner is worse than the policy.

    D'Oosterlinck et al. 2024, arXiv:2408.06266.

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

    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(simpo(same, same, beta=2.0, margin=0.0).item(), 4)
    0.6931
    """
    return -logsigmoid(beta * gap(chosen, rejected) - margin)


@needs("changed")
def mdpo(
    chosen: CompletionLogps,
    rejected: CompletionLogps,
    *,
    changed: CompletionLogps | None,
    beta: int | float,
    anchor: int | float,
) -> Float[Tensor, " B"]:
    """−log σ(βh) − log σ(β(Δ_w − Δ_w′)) − log σ(βΔ_w − δ), Δ_w′ of the same answer to a changed picture.

    Where nothing was changed Δ_w′ is −∞ or None. Wang et al. 2024, arXiv:2406.11839.

    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(mdpo(same, same, changed=same, beta=0.1, anchor=0.0).item() / math.log(2), 4)
    3.0
    """
    loss_B = -logsigmoid(beta * gap(chosen, rejected)) - logsigmoid(beta * chosen.delta_B - anchor)
    return loss_B if changed is None else loss_B - logsigmoid(beta * gap(chosen, changed))


def odds_ratio(
    chosen: CompletionLogps, rejected: CompletionLogps, *, odds: int | float
) -> Float[Tensor, " B"]:
    """−λ log σ(log odds_w − log odds_l), odds of e^Δ, the mean token's probability; ORPO adds the NLL.

    Hong et al. 2024, arXiv:2403.07691.

    >>> same = completion_logps(torch.tensor([-1.0]), torch.zeros(1), torch.ones(1))
    >>> round(odds_ratio(same, same, odds=0.1).item(), 4)
    0.0693
    """
    return -odds * logsigmoid(_log_odds(chosen.delta_B) - _log_odds(rejected.delta_B))


def _log_odds(logp_B: Tensor) -> Tensor:
    """log p − log(1 − p); a probability of 1 is taken for the largest one below it."""
    eps = torch.finfo(logp_B.dtype).eps
    # A mean log-prob rounds to 0 where each token is certain, and log(1 − e^0) is −∞.
    safe_B = logp_B.clamp(max=-eps)
    # log(1 − p) by expm1: 1 − e^x would cancel where p is near 1.
    return safe_B - (-safe_B.expm1()).log()


def plackett_luce_dpo(
    delta_PK: Float[Tensor, "P K"],
    rank_PK: Float[Tensor, "P K"],
    mask_PK: Bool[Tensor, "P K"],
    *,
    beta: int | float,
) -> Float[Tensor, " P"]:
    """−Σ_k log(exp βΔ_k / Σ_{j not before k} exp βΔ_j): a whole ranking, were βΔ the reward.

    Of two answers it is DPO. Equal ranks count as in `losses.reward.plackett_luce`. Rafailov et al. 2023,
    arXiv:2305.18290, appendix A.3.

    >>> level_PK, seen_PK = torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool)
    >>> plackett_luce_dpo(level_PK, torch.tensor([[2.0, 3.0, 1.0]]), seen_PK, beta=0.1).exp()
    tensor([6.])
    """
    return plackett_luce(beta * delta_PK, rank_PK, mask_PK)


def ranking_hinge(
    logp_PK: Float[Tensor, "P K"], rank_PK: Float[Tensor, "P K"], mask_PK: Bool[Tensor, "P K"]
) -> Float[Tensor, " P"]:
    """Σ over pairs of unlike rank of max(0, p_worse − p_better), p the mean log-prob of an answer's tokens.

    Yuan et al. 2023 (RRHF), arXiv:2304.05302; the likelihood of the best answer comes beside it.

    >>> seen_PK = torch.ones(1, 3, dtype=torch.bool)
    >>> ranking_hinge(torch.tensor([[-1.0, -3.0, -2.0]]), torch.tensor([[1.0, 2.0, 3.0]]), seen_PK)
    tensor([1.])
    """
    safe_PK = logp_PK.masked_fill(~mask_PK, 0.0)
    # [P, k, j]: how much likelier j is than k, counted where k is the better one.
    lead_PKK = (safe_PK[:, None, :] - safe_PK[:, :, None]).clamp(min=0)
    better_PKK = (rank_PK[:, :, None] < rank_PK[:, None, :]) & mask_PK[:, :, None] & mask_PK[:, None, :]
    return (lead_PKK * better_PKK).sum((-1, -2))


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

    def select(self, pairs: slice) -> "SortedPartners":
        """The partners of some of the pairs."""
        return self.map(lambda value_B: value_B[pairs])

    def map(self, change: Callable[[Tensor], Tensor]) -> "SortedPartners":
        """The partners with the same done to each of their values."""
        return SortedPartners(
            for_gap_B=change(self.for_gap_B),
            for_chosen_B=change(self.for_chosen_B),
            for_rejected_B=change(self.for_rejected_B),
        )


def match_sorted(chosen: CompletionLogps, rejected: CompletionLogps) -> SortedPartners:
    """Pairs each completion with the one of the same rank when both sides of the **whole** batch are sorted.

    >>> good, bad = torch.tensor([-1.0, -2.0]), torch.tensor([-9.0, -8.0])
    >>> sides = [completion_logps(side, torch.zeros(2), torch.ones(2)) for side in (good, bad)]
    >>> match_sorted(*sides).for_chosen_B
    tensor([-8., -9.])
    """
    # Of the whole batch and detached: who stands beside whom has no gradient, as in sorting itself.
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

    >>> same = completion_logps(torch.zeros(1), torch.zeros(1), torch.ones(1))
    >>> round(aot_unpaired(same, same, match_sorted(same, same), beta=0.1).item(), 4)
    0.6931
    """
    from_chosen_B = _smoothed_logistic_loss(beta * (chosen.delta_B - partners.for_chosen_B), smoothing)
    from_rejected_B = _smoothed_logistic_loss(beta * (partners.for_rejected_B - rejected.delta_B), smoothing)
    sum_B = from_chosen_B + from_rejected_B
    # x − ½ sg(x): half the value with all of the gradient, since each side is held fixed in the other's term.
    return sum_B - 0.5 * sum_B.detach()


def _value_of_same_rank(value_B: Tensor, other_B: Tensor) -> Tensor:
    # argsort twice is each value's rank; stable, so that ties match alike however the batch is run.
    return other_B.sort().values[value_B.argsort(stable=True).argsort(stable=True)]


def _smoothed_logistic_loss(logit_B: Tensor, smoothing: int | float) -> Tensor:
    return -(1 - smoothing) * logsigmoid(logit_B) - smoothing * logsigmoid(-logit_B)
