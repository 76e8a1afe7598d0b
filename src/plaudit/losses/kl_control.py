"""Adaptive KL coefficients: from β and the measured KL to the next β."""

from __future__ import annotations


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
    error = min(max(kl / target - 1.0, -0.2), 0.2)
    return beta * (1.0 + error * samples / horizon)
