"""Claims about the best of n answers: how far it is from the reference, and how well that is spent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.evaluation.best_of import best_of_kl, exact_kl
from plaudit.proof.claim import Claim, Lab
from plaudit.proof.exact import kl, tilted
from plaudit.proof.language import Language

TOPIC = "best-of-n"
"""What these claims are asked for by."""
SIZES = (2, 4, 16, 64)
"""Of how many answers the best is taken."""


def chosen(spoken: Language, n: int) -> Float[Tensor, "P Y"]:
    """log of the chance of each answer to be the best of n draws from π_ref; no two share a reward.

    m(y) = F(r(y))ⁿ − F(below r(y))ⁿ, F the reward's distribution (Beirami et al. 2024, arXiv:2401.01879).
    """
    order_PY = spoken.reward_PY.argsort(-1)
    up_to_PY = spoken.ref_logp_PY.exp().gather(-1, order_PY).cumsum(-1).clamp(max=1.0)
    sorted_PY = torch.diff(up_to_PY**n, prepend=torch.zeros_like(up_to_PY[:, :1]))
    return torch.zeros_like(sorted_PY).scatter(-1, order_PY, sorted_PY).log()


def _above_bound(lab: Lab) -> float:
    return max(value - best_of_kl(n) for n in SIZES for value in _kls(lab.spoken, lab.spoken.reward_PY, n))


def _shared(lab: Lab) -> float:
    """Where answers are good or bad and nothing else: KL less −ln of the chance of a good one."""
    good_PY = (lab.spoken.reward_PY > lab.spoken.reward_PY.median()).double()
    rare_P = -(good_PY * lab.spoken.ref_logp_PY.exp()).sum(-1).log()
    found = [zip(_kls(lab.spoken, good_PY, n), rare_P.tolist(), strict=True) for n in SIZES]
    return max(value - rare for pairs in found for value, rare in pairs)


def _error(lab: Lab) -> float:
    """Of the formula by levels of reward, against the distribution itself."""
    spoken = lab.spoken
    found = [
        abs(value - exact)
        for n in SIZES
        for value, exact in zip(
            _kls(spoken, spoken.reward_PY, n), kl(chosen(spoken, n), spoken.ref_logp_PY).tolist(), strict=True
        )
    ]
    return max(found)


def _lost(lab: Lab) -> float:
    """The largest share of π*'s gain in reward, at the same KL, that the best of n lacks."""
    return max(_lack(lab.spoken, n).max().item() for n in SIZES)


def _gained(lab: Lab) -> float:
    """The least of these shares: below 0 the best of n would beat the optimum."""
    return min(_lack(lab.spoken, n).min().item() for n in SIZES)


def _lack(spoken: Language, n: int) -> Float[Tensor, " P"]:
    best_PY = chosen(spoken, n)
    star_PY = _as_far(spoken, kl(best_PY, spoken.ref_logp_PY))

    def worth(logp_PY: Float[Tensor, "P Y"]) -> Float[Tensor, " P"]:
        return (logp_PY.exp() * spoken.reward_PY).sum(-1)

    start_P = worth(spoken.ref_logp_PY)
    return 1 - (worth(best_PY) - start_P) / (worth(star_PY) - start_P)


def _as_far(spoken: Language, far_P: Float[Tensor, " P"]) -> Float[Tensor, "P Y"]:
    """π* of the β at which it is so far from π_ref; KL rises with 1/β."""
    low_P, high_P = torch.zeros_like(far_P), torch.full_like(far_P, 1e3)
    for _ in range(100):
        middle_P = (low_P + high_P) / 2
        near_P = kl(_tilted(spoken, middle_P), spoken.ref_logp_PY) < far_P
        low_P, high_P = torch.where(near_P, middle_P, low_P), torch.where(near_P, high_P, middle_P)
    return _tilted(spoken, low_P)


def _tilted(spoken: Language, inverse_P: Float[Tensor, " P"]) -> Float[Tensor, "P Y"]:
    return tilted(spoken.ref_logp_PY, inverse_P[:, None] * spoken.reward_PY)


def _kls(spoken: Language, reward_PY: Float[Tensor, "P Y"], n: int) -> list[float]:
    p_PY = spoken.ref_logp_PY.exp().numpy().astype(np.float64)
    return [exact_kl(p_Y, reward_Y, n) for p_Y, reward_Y in zip(p_PY, reward_PY.numpy(), strict=True)]


def _claim(sentence: str, measure: Callable[[Lab], float], **bounds: float) -> Claim:
    return Claim(name=TOPIC, sentence=sentence, measure=measure, **bounds)


BEST = (
    _claim("KL by levels of the reward: that of the distribution; error", _error, high=1e-9),
    _claim("KL at most ln n − (n − 1)/n; largest excess", _above_bound, high=1e-12),
    _claim("good or bad alone: at most −ln of the chance of a good one; largest excess", _shared, high=1e-12),
    _claim("never above π* of the same KL; least share of its gain lost", _gained, low=-1e-9),
    _claim("not far below π* of the same KL; largest share of its gain lost", _lost, high=0.25),
)
"""Claims about the best of 2 to 64 answers."""
