"""Log-ratios of two policies, ratios, and importance weights.

All begins with ``log_ratio``, which is 0 where the mask is False: there every ratio is 1 and has no
gradient, whatever the log-probs of padding are.
"""

from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.tensors.masked import broadcast_to_tokens, masked_mean_rows, masked_sum_rows

WeightBounds = Literal["capped", "masked", "sequence"]
"""How a cap bounds importance weights: each token's, a token left out beyond it, or the whole answer's."""
MAX_LOG_RATIO = 20.0
"""The largest exponent of a ratio: e^±20 are finite in every dtype with 8 exponent bits."""


def log_ratio(
    logp_NT: Float[Tensor, "N T"], old_logp_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]
) -> Float[Tensor, "N T"]:
    """ρ_t = log π(y_t) − log π_old(y_t), without gradient by π_old; 0 where the mask is False.

    >>> import torch
    >>> log_ratio(torch.tensor([[-1.0, -9.0]]), torch.tensor([[-2.0, -1.0]]), torch.tensor([[True, False]]))
    tensor([[1., 0.]])
    """
    # Filled after subtracting: −∞ − (−∞) at padding never reaches an exponential.
    return (logp_NT - old_logp_NT.detach()).masked_fill(~mask_NT, 0.0)


def ratio(log_ratio_N: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """e^ρ; beyond e^±20 it stays as it is and has no gradient: one such token would be the whole step."""
    return log_ratio_N.clamp(min=-MAX_LOG_RATIO, max=MAX_LOG_RATIO).exp()


def completion_log_ratio(
    log_ratio_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]
) -> Float[Tensor, " N"]:
    """log π(y|x) − log π_old(y|x): the sum over the tokens, as P3O has it.

    >>> import torch
    >>> completion_log_ratio(torch.tensor([[1.0, 3.0]]), torch.tensor([[True, True]])).item()
    4.0
    """
    return masked_sum_rows(log_ratio_NT, mask_NT)


def sequence_log_ratio(
    log_ratio_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]
) -> Float[Tensor, "N T"]:
    """log s = (1/|y|) Σ_t ρ_t at every token: the log-ratio of GSPO, for ``ratio`` and a clipped surrogate.

    With ``sequence_mean`` a completion's loss is that of its one ratio s. As a mean of logs it moves little:
    ε is 0.0003 and 0.0004 in Zheng et al. 2025, arXiv:2507.18071.

    >>> import torch
    >>> sequence_log_ratio(torch.tensor([[1.0, 3.0, 0.0]]), torch.tensor([[True, True, False]]))
    tensor([[2., 2., 0.]])
    """
    return broadcast_to_tokens(masked_mean_rows(log_ratio_NT, mask_NT), mask_NT)


def sequence_token_log_ratio(
    log_ratio_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]
) -> Float[Tensor, "N T"]:
    """sg(log s) + ρ_t − sg(ρ_t): GSPO-token, s as the value and each token's own gradient.

    So tokens of one completion may have unlike advantages. Zheng et al. 2025, arXiv:2507.18071.

    >>> import torch
    >>> sequence_token_log_ratio(torch.tensor([[1.0, 3.0]]), torch.tensor([[True, True]]))
    tensor([[2., 2.]])
    """
    # ρ − sg(ρ) is 0 with the gradient of ρ; of a padded NaN it would be NaN.
    masked_NT = log_ratio_NT.masked_fill(~mask_NT, 0.0)
    return sequence_log_ratio(masked_NT, mask_NT).detach() + masked_NT - masked_NT.detach()


def truncated_importance_weight(
    logp_NT: Float[Tensor, "N T"],
    sampler_logp_NT: Float[Tensor, "N T"],
    mask_NT: Bool[Tensor, "N T"],
    *,
    cap: int | float,
    bounds: WeightBounds = "capped",
) -> Float[Tensor, "N T"]:
    """min(π / μ, C) without gradient: what a token's loss is multiplied with, since μ sampled it and not π.

    μ is the sampler's rounding of the same weights, π the trainer's (TIS: Yao et al. 2025, "Your efficient RL
    framework secretly brings you off-policy RL training"), or μ is an older policy and π the one that the
    ratio starts from (Hilton et al. 2021, arXiv:2110.00641). Masked, a token beyond C weighs 0 and not C; by
    sequence, every token has the weight of its answer, the product of all.

    >>> import torch
    >>> seen = torch.tensor([[True, True]])
    >>> truncated_importance_weight(torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -3.0]]), seen, cap=2)
    tensor([[1., 2.]])
    """
    log_ratio_NT = log_ratio(logp_NT.detach(), sampler_logp_NT, mask_NT)
    if bounds == "sequence":
        log_ratio_NT = broadcast_to_tokens(completion_log_ratio(log_ratio_NT, mask_NT), mask_NT)
    weight_NT = ratio(log_ratio_NT)
    return weight_NT.masked_fill(weight_NT > cap, 0.0) if bounds == "masked" else weight_NT.clamp(max=cap)


def effective_share(weight_M: Float[Tensor, " M"]) -> Float[Tensor, ""]:
    """(Σw)² / (M Σw²): the share of M weighted draws that is left, as an average of equal ones would need.

    >>> import torch
    >>> effective_share(torch.tensor([1.0, 1.0, 0.0, 0.0])).item()
    0.5
    """
    return weight_M.sum() ** 2 / (len(weight_M) * weight_M.square().sum())
