"""KL(π ‖ π_ref) at each token, from ρ = log π − log π_ref of the token that was said, or from all of V.

Tokens are sampled from π. Then, in expectation:

    estimator   value                      gradient, when it is a loss
    k1 = ρ      KL                         0: it holds nothing
    k2 = ½ρ²    not KL, near it if small   that of KL(π ‖ π_ref)
    k3          KL, and never below 0      that of KL(π_ref ‖ π)

So in a loss k2 is right. In a reward k1 is: k3 has the right value there, but what a policy then climbs
lacks k3's own gradient. Of tokens the gradients are those of their KL, the prefixes held. All of this is
measured in docs/proof.md. Schulman 2020, "Approximating KL divergence"; of gradients Tang and
Munos 2025, arXiv:2506.09477.

The KL's coefficient β may adapt: from β and the measured KL to the next β.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.losses.supervised import reverse_kl

K3_MAX_EXPONENT = 10.0
"""−ρ from which k3 goes on as its tangent: π says such a token e^10 times more rarely than the reference."""


def k1(log_ratio_NT: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """ρ: unbiased as a value, of either sign; as a loss its expected gradient is 0.

    >>> k1(torch.tensor([[0.5]])).item()
    0.5
    """
    return log_ratio_NT


def k2(log_ratio_NT: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """½ρ²: biased as a value; as a loss it has on average the gradient of KL(π ‖ π_ref).

    >>> k2(torch.tensor([[2.0]])).item()
    2.0
    """
    return 0.5 * log_ratio_NT.square()


def k3(log_ratio_NT: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """e^−ρ − 1 + ρ: unbiased as a value and never below 0; the divergence in GRPO's loss.

    From ρ = −10 down it is its tangent. A clamp would leave such a token without a pull back (or, of the
    exponent alone, push it away); the slope stays at 1 − e^10. Upwards nothing overflows and nothing is
    changed. Shao et al. 2024, arXiv:2402.03300.

    >>> k3(torch.tensor([[0.0, math.log(2)]]))
    tensor([[0.0000, 0.1931]])
    """
    # e^10 is slope and not value: clamp stops at −ρ = 10 with none beyond it, there the tangent goes on.
    beyond_NT = (-log_ratio_NT - K3_MAX_EXPONENT).relu()
    clamped_NT = (-log_ratio_NT).clamp(max=K3_MAX_EXPONENT)
    return torch.expm1(clamped_NT) + math.exp(K3_MAX_EXPONENT) * beyond_NT + log_ratio_NT


def full_vocabulary_kl(
    logp_MV: Float[Tensor, "M V"], ref_logp_MV: Float[Tensor, "M V"]
) -> Float[Tensor, " M"]:
    """Σ_v π(v) (log π(v) − log π_ref(v)): the KL itself, with its gradient, for any who has all of V.

    >>> sure, even = torch.tensor([[0.0, -math.inf]]), torch.tensor([[0.5, 0.5]]).log()
    >>> round(full_vocabulary_kl(sure, even).item(), 4)
    0.6931
    """
    return reverse_kl(ref_logp_MV, logp_MV)


def double_or_halve_beta(beta: int | float, *, kl: int | float, target: int | float) -> float:
    """2β where KL > 1.5 · target, ½β where KL < target / 1.5, else β: PPO's penalty.

    The KL is that of the new policy from the old one. Schulman et al. 2017, arXiv:1707.06347.

    >>> [double_or_halve_beta(1.0, kl=kl, target=1.0) for kl in (0.5, 1.0, 2.0)]
    [0.5, 1.0, 2.0]
    """
    if kl > 1.5 * target:
        return 2.0 * beta
    return beta / 2.0 if kl < target / 1.5 else float(beta)


def proportional_beta(
    beta: int | float, *, kl: int | float, target: int | float, samples: int, horizon: int | float
) -> float:
    """β (1 + e · n / horizon), e = KL / target − 1 held within ±0.2, after n samples.

    The KL is that of whole completions from the reference; in the paper's code the target is 6 nats and the
    horizon 10,000 samples. Ziegler et al. 2019, arXiv:1909.08593.

    >>> proportional_beta(1.0, kl=9.0, target=6.0, samples=500, horizon=1000)
    1.1
    """
    # Held, since one round's KL is noisy: β moves by at most 20 % in `horizon` samples.
    error = min(max(kl / target - 1.0, -0.2), 0.2)
    return beta * (1.0 + error * samples / horizon)
