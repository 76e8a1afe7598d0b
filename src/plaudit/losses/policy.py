"""Losses of a policy and of its critic: surrogates of the policy ratio, masks of trust, losses of values.

``ratio_NT`` is r = π / π_old of ``ratio.py``, of a token or of its completion; the advantage A has no
gradient. All losses are to be minimised. Where r = 1 each surrogate has the gradient of REINFORCE, −A ∇log π.

A mask says which tokens or completions are trusted, by their distance from the policy that sampled them, and
has no gradient. A token that is not trusted loses nothing and is still counted: its loss is filled with 0,
the denominator stays.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from plaudit.losses.ratio import ratio
from plaudit.tensors.masked import masked_mean_rows, masked_sum, moments


def policy_gradient(
    logp_NT: Float[Tensor, "N T"], advantage_NT: Float[Tensor, "N T"]
) -> Float[Tensor, "N T"]:
    """−A log π: REINFORCE, Williams 1992; with its advantage RLOO, Ahmadian et al. 2024, arXiv:2402.14740.

    >>> policy_gradient(torch.tensor([[-2.0]]), torch.tensor([[3.0]])).item()
    6.0
    """
    # Detached: a critic's values are in A, and this loss must not train it.
    return -advantage_NT.detach() * logp_NT


def unclipped(ratio_NT: Float[Tensor, "N T"], advantage_NT: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """−r A: the surrogate that TRPO holds within a KL. Schulman et al. 2015, arXiv:1502.05477.

    >>> unclipped(torch.tensor([[1.5]]), torch.tensor([[2.0]])).item()
    -3.0
    """
    return -ratio_NT * advantage_NT.detach()


def clipped(
    ratio_NT: Float[Tensor, "N T"], advantage_NT: Float[Tensor, "N T"], *, low: int | float, high: int | float
) -> Float[Tensor, "N T"]:
    """−min(r A, clip(r, 1 − ε_low, 1 + ε_high) A): PPO, and DAPO's clip-higher where the two differ.

    Both 0.2 in Schulman et al. 2017, arXiv:1707.06347; 0.2 and 0.28 in Yu et al. 2025, arXiv:2503.14476.

    >>> clipped(torch.tensor([[1.5, 1.5]]), torch.tensor([[2.0, -2.0]]), low=0.2, high=0.2)
    tensor([[-2.4000,  3.0000]])
    """
    # Above the range with A > 0 and below it with A < 0 the minimum takes this side, which has no gradient.
    bounded_NT = ratio_NT.clamp(min=1 - low, max=1 + high)
    return _pessimistic_surrogate(ratio_NT, bounded_NT, advantage_NT)


def dual_clipped(
    ratio_NT: Float[Tensor, "N T"],
    advantage_NT: Float[Tensor, "N T"],
    *,
    low: int | float,
    high: int | float,
    ceiling: int | float,
) -> Float[Tensor, "N T"]:
    """PPO whose loss where A < 0 is at most −c A: a bad token that has become likely pulls no harder.

    c = 3 in Ye et al. 2019, arXiv:1912.09729.

    >>> dual_clipped(torch.tensor([[9.0]]), torch.tensor([[-2.0]]), low=0.2, high=0.2, ceiling=3).item()
    6.0
    """
    loss_NT = clipped(ratio_NT, advantage_NT, low=low, high=high)
    fixed_NT = advantage_NT.detach()
    # Where A < 0 and r → ∞ PPO's loss −r A has no bound, as the minimum never takes the clipped side.
    return torch.where(fixed_NT < 0, torch.minimum(loss_NT, -ceiling * fixed_NT), loss_NT)


def rolled_back(
    ratio_NT: Float[Tensor, "N T"],
    advantage_NT: Float[Tensor, "N T"],
    *,
    low: int | float,
    high: int | float,
    slope: int | float,
) -> Float[Tensor, "N T"]:
    """−min(r A, F A), F = c − α (r − c), c = clip(r): PPO-RB, a ratio beyond its range is pulled back.

    α = 0.3 (0.1 for Humanoid) and ε = 0.2 in Wang et al. 2019, arXiv:1903.07940; α = 0 is PPO.

    >>> rolled_back(torch.tensor([[1.5]]), torch.tensor([[2.0]]), low=0.2, high=0.2, slope=0.5)
    tensor([[-2.1000]])
    """
    bounded_NT = ratio_NT.clamp(min=1 - low, max=1 + high)
    return _pessimistic_surrogate(ratio_NT, bounded_NT - slope * (ratio_NT - bounded_NT), advantage_NT)


def kl_triggered(
    ratio_NT: Float[Tensor, "N T"],
    advantage_NT: Float[Tensor, "N T"],
    kl_NT: Float[Tensor, "N T"],
    *,
    limit: int | float,
    slope: int | float = 0.0,
) -> Float[Tensor, "N T"]:
    """−min(r A, F A), F = 1 − α (r − 1) where KL(π_old ‖ π) ≥ δ at the token, else r: TR-PPO, TR-PPO-RB.

    Without a slope δ = 0.025, with one δ = 0.03 and α = 0.05 in Wang et al. 2019, arXiv:1903.07940. The
    paper's F of TR-PPO-RB is −α r, the same slope; here it meets r at 1, so that the minimum lets a token
    that goes back to π_old go, as in TR-PPO. The trigger has no gradient.

    >>> there, near = torch.tensor([[1.5]]), torch.tensor([[0.01]])
    >>> [kl_triggered(there, torch.tensor([[2.0]]), kl, limit=0.025).item() for kl in (near, 9 * near)]
    [-3.0, -2.0]
    """
    pulled_NT = 1 - slope * (ratio_NT - 1)
    return _pessimistic_surrogate(ratio_NT, torch.where(kl_NT >= limit, pulled_NT, ratio_NT), advantage_NT)


def kl_penalised(
    ratio_NT: Float[Tensor, "N T"],
    advantage_NT: Float[Tensor, "N T"],
    kl_NT: Float[Tensor, "N T"],
    *,
    beta: int | float,
) -> Float[Tensor, "N T"]:
    """−r A + β KL(π_old ‖ π): PPO with a penalty; ``double_or_halve_beta`` adapts β, the KL has its gradient.

    Schulman et al. 2017, arXiv:1707.06347.

    >>> kl_penalised(torch.tensor([[1.5]]), torch.tensor([[2.0]]), torch.tensor([[0.5]]), beta=2).item()
    -2.0
    """
    return unclipped(ratio_NT, advantage_NT) + beta * kl_NT


def cispo(
    logp_NT: Float[Tensor, "N T"],
    ratio_NT: Float[Tensor, "N T"],
    advantage_NT: Float[Tensor, "N T"],
    *,
    high: int | float,
    low: int | float = 1.0,
) -> Float[Tensor, "N T"]:
    """−sg(clip(r, 1 − ε_low, 1 + ε_high)) A log π: the weight is clipped, and no token loses its gradient.

    ε_low = 1 leaves the lower end open, as in the experiments of MiniMax 2025 (M1), arXiv:2506.13585.

    >>> cispo(torch.tensor([[-1.0]]), torch.tensor([[9.0]]), torch.tensor([[2.0]]), high=3).item()
    8.0
    """
    # The clamp is on a weight: unlike PPO's, it cuts no path from the loss to log π.
    weight_NT = ratio_NT.detach().clamp(min=1 - low, max=1 + high)
    return weight_NT * policy_gradient(logp_NT, advantage_NT)


def p3o_separate(
    log_ratio_N: Float[Tensor, " N"], advantage_N: Float[Tensor, " N"], *, clip: int | float
) -> Float[Tensor, " N"]:
    """−min(w r A, w clip(r, 1 ± ε) A) with w = sg(r of the other): P3O-V1, one clip for each of a pair.

    Completions 2k and 2k + 1 answer one prompt, r = e^ρ is of the whole completion (``completion_log_ratio``)
    and A the reward less the other's (``leave_one_out``). Wu et al. 2023, arXiv:2310.00212.

    >>> p3o_separate(torch.zeros(2), torch.tensor([3.0, -3.0]), clip=0.2)
    tensor([-3.,  3.])
    """
    ratio_N = ratio(log_ratio_N)
    weight_N = _pair_partner(ratio_N).detach()
    # w > 0, so that weighting after the minimum is weighting both of its sides.
    return weight_N * _pessimistic_surrogate(ratio_N, ratio_N.clamp(min=1 - clip, max=1 + clip), advantage_N)


def p3o_joint(
    log_ratio_N: Float[Tensor, " N"], advantage_N: Float[Tensor, " N"], *, clip: int | float
) -> Float[Tensor, " N"]:
    """−½ min(w h A, w clip(h, ±ε) A), h = ρ − ρ of the other, w = sg(r · r of the other): P3O-V2.

    One clip for the pair's relative log-ratio. Both of a pair lose the same, and the mean over completions
    has at r = 1 the gradient of ``p3o_separate``. The paper writes log π − log π of the other in place of h,
    clipped around what it was: a constant apart, and the same gradient. Wu et al. 2023, arXiv:2310.00212.

    >>> p3o_joint(torch.tensor([0.5, -0.5]), torch.tensor([3.0, -3.0]), clip=0.2)
    tensor([-0.3000, -0.3000])
    """
    gap_N = log_ratio_N - _pair_partner(log_ratio_N)
    weight_N = ratio(log_ratio_N + _pair_partner(log_ratio_N)).detach()
    # Both rows of a pair carry its loss; the ½ keeps the gradient that one of them alone would have.
    return 0.5 * weight_N * _pessimistic_surrogate(gap_N, gap_N.clamp(min=-clip, max=clip), advantage_N)


def online_dpo(
    ref_log_ratio_N: Float[Tensor, " N"], advantage_N: Float[Tensor, " N"], *, beta: int | float
) -> Float[Tensor, " N"]:
    """−log σ(β (Δ_w − Δ_l)) of fresh pairs: online DPO; two answers of equal reward lose 0.

    Completions 2k and 2k + 1 answer one prompt, Δ = log π − log π_ref of the whole completion, and the sign
    of the advantage says which is better. Both of a pair lose the same. Guo et al. 2024, arXiv:2402.04792.

    >>> round(online_dpo(torch.zeros(2), torch.tensor([1.0, -1.0]), beta=0.1)[0].item(), 4)
    0.6931
    """
    lead_N = advantage_N.detach().sign() * (ref_log_ratio_N - _pair_partner(ref_log_ratio_N))
    # Of a tie the sign is 0 and the loss log 2, without gradient: taken away, so that none lifts the mean.
    return -logsigmoid(beta * lead_N) * (advantage_N != 0)


def online_ipo(
    ref_log_ratio_N: Float[Tensor, " N"], advantage_N: Float[Tensor, " N"], *, beta: int | float
) -> Float[Tensor, " N"]:
    """(Δ_w − Δ_l − 1/2β)² of fresh pairs: online IPO; two answers of equal reward lose 0.

    Calandriello et al. 2024, arXiv:2403.08635.

    >>> online_ipo(torch.zeros(2), torch.tensor([1.0, -1.0]), beta=0.5).tolist()
    [1.0, 1.0]
    """
    lead_N = advantage_N.detach().sign() * (ref_log_ratio_N - _pair_partner(ref_log_ratio_N))
    return (lead_N - 1 / (2 * beta)).square() * (advantage_N != 0)


def _pessimistic_surrogate(unbounded_N: Tensor, bounded_N: Tensor, advantage_N: Tensor) -> Tensor:
    fixed_N = advantage_N.detach()
    # The minimum after multiplying by A: its sign decides which side of the clip is the pessimistic one.
    return -torch.minimum(unbounded_N * fixed_N, bounded_N * fixed_N)


def _pair_partner(value_N: Tensor) -> Tensor:
    return value_N.reshape(-1, 2).flip(1).flatten()


def ratio_within(ratio_N: Float[Tensor, "*N"], *, low: int | float, high: int | float) -> Bool[Tensor, "*N"]:
    """1 − ε_low ≤ r ≤ 1 + ε_high, whatever the advantage; r may be the trainer's over the sampler's.

    >>> ratio_within(torch.tensor([0.5, 1.0, 1.5]), low=0.2, high=0.2).tolist()
    [False, True, False]
    """
    return (ratio_N >= 1 - low) & (ratio_N <= 1 + high)


def clipped_low(
    ratio_NT: Float[Tensor, "N T"], advantage_NT: Float[Tensor, "N T"], *, low: int | float
) -> Bool[Tensor, "N T"]:
    """r < 1 − ε_low and A < 0: a bad token that PPO's clip makes no rarer.

    >>> clipped_low(torch.tensor([[0.5, 0.5]]), torch.tensor([[-1.0, 1.0]]), low=0.2).tolist()
    [[True, False]]
    """
    return (ratio_NT < 1 - low) & (advantage_NT < 0)


def clipped_high(
    ratio_NT: Float[Tensor, "N T"], advantage_NT: Float[Tensor, "N T"], *, high: int | float
) -> Bool[Tensor, "N T"]:
    """r > 1 + ε_high and A > 0: a good token that PPO's clip makes no likelier.

    >>> clipped_high(torch.tensor([[1.5, 1.5]]), torch.tensor([[-1.0, 1.0]]), high=0.2).tolist()
    [[False, True]]
    """
    return (ratio_NT > 1 + high) & (advantage_NT > 0)


def unclipped_tokens(
    ratio_NT: Float[Tensor, "N T"], advantage_NT: Float[Tensor, "N T"], *, low: int | float, high: int | float
) -> Bool[Tensor, "N T"]:
    """Where PPO's clip leaves a gradient: with this mask the unclipped ratio learns what PPO learns.

    >>> unclipped_tokens(torch.tensor([[1.5, 1.5]]), torch.tensor([[-1.0, 1.0]]), low=0.2, high=0.2).tolist()
    [[True, False]]
    """
    return ~(clipped_low(ratio_NT, advantage_NT, low=low) | clipped_high(ratio_NT, advantage_NT, high=high))


def clip_fraction(
    clipped_NT: Bool[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"], *, tokens: int
) -> Float[Tensor, ""]:
    """The share of the batch's tokens that are clipped; parts of a batch add up.

    >>> clip_fraction(torch.tensor([[True, True]]), torch.tensor([[True, False]]), tokens=4).item()
    0.25
    """
    return masked_sum(clipped_NT.float(), mask_NT) / tokens


def kl_below(kl_NT: Float[Tensor, "N T"], *, limit: int | float) -> Bool[Tensor, "N T"]:
    """KL < δ at the token: where TR-PPO is not triggered. Wang et al. 2019, arXiv:1903.07940.

    >>> kl_below(torch.tensor([[0.01, 0.04]]), limit=0.025).tolist()
    [[True, False]]
    """
    return kl_NT < limit


def recently_sampled(age_N: Int[Tensor, "*N"], *, limit: int) -> Bool[Tensor, "*N"]:
    """Sampled at most ``limit`` updates of the policy ago.

    >>> recently_sampled(torch.tensor([0, 1, 2]), limit=1).tolist()
    [True, True, False]
    """
    return age_N <= limit


def trusted_completions(
    log_ratio_NT: Float[Tensor, "N T"],
    advantage_N: Float[Tensor, " N"],
    mask_NT: Bool[Tensor, "N T"],
    *,
    limit: int | float,
) -> Bool[Tensor, " N"]:
    """A ≥ 0, or mean of log π_old − log π ≤ δ: a bad completion that is already rare teaches nothing more.

    DeepSeek-AI 2025 (DeepSeek-V3.2, off-policy sequence masking), arXiv:2512.02556.

    >>> seen = torch.tensor([[True], [True]])
    >>> trusted_completions(torch.tensor([[-3.0], [-3.0]]), torch.tensor([1.0, -1.0]), seen, limit=2).tolist()
    [True, False]
    """
    # By A: a good completion keeps its pull however rare it has become.
    return (advantage_N >= 0) | (-masked_mean_rows(log_ratio_NT, mask_NT) <= limit)


def squared_error(value_NT: Float[Tensor, "N T"], return_NT: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """½ (V − R)²; the return has no gradient.

    >>> squared_error(torch.tensor([[1.0]]), torch.tensor([[4.0]])).item()
    4.5
    """
    return 0.5 * (value_NT - return_NT.detach()).square()


def clipped_squared_error(
    value_NT: Float[Tensor, "N T"],
    old_value_NT: Float[Tensor, "N T"],
    return_NT: Float[Tensor, "N T"],
    *,
    clip: int | float,
) -> Float[Tensor, "N T"]:
    """½ max((V − R)², (clip(V, V_old ± c) − R)²): once V has moved c towards R it is left where it is.

    c = 0.2 in Ziegler et al. 2019, arXiv:1909.08593.

    >>> clipped_squared_error(torch.tensor([[1.0]]), torch.tensor([[0.0]]), torch.tensor([[4.0]]), clip=0.5)
    tensor([[6.1250]])
    """
    # By how far V has moved since the rollout, not by its error: the clip of PPO carried over to the critic.
    change_NT = (value_NT - old_value_NT.detach()).clamp(min=-clip, max=clip)
    clipped_error_NT = squared_error(old_value_NT.detach() + change_NT, return_NT)
    # The larger of the two: a value that moved away from R is pulled back with its full gradient.
    return torch.maximum(squared_error(value_NT, return_NT), clipped_error_NT)


def explained_variance(
    value_NT: Float[Tensor, "N T"], return_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]
) -> Float[Tensor, ""]:
    """1 − Var(R − V) / Var(R): 1 of a perfect critic, 0 of a constant one; 0 where all returns are the same.

    A number of the whole batch: those of its parts do not add up.

    >>> seen, told = torch.tensor([[True, True]]), torch.tensor([[0.0, 4.0]])
    >>> explained_variance(torch.tensor([[0.0, 2.0]]), told, seen).item()
    0.75
    """
    return_variance = moments(return_NT, mask_NT).variance
    error_variance = moments(return_NT - value_NT, mask_NT).variance
    # Filled after dividing: where all returns are equal this is 0 / 0.
    return (1 - error_variance / return_variance).masked_fill(return_variance == 0, 0.0).detach()
