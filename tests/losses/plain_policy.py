"""Surrogates by their papers' words on Python's own numbers, and batches of tokens to try them on."""

from __future__ import annotations

import math
from functools import partial

import torch

from plaudit.losses import policy
from plaudit.losses.ratio import log_ratio, ratio

LOW, HIGH, CEILING, SLOPE, DELTA, BETA = 0.2, 0.28, 3.0, 0.3, 0.025, 0.7


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def holes(seed, rows, width, share=0.6):
    mask_NT = torch.rand(rows, width, generator=torch.Generator().manual_seed(seed)) < share
    mask_NT[:, 0] = True
    return mask_NT


def clip(r, low, high):
    return 1 - low if r < 1 - low else 1 + high if r > 1 + high else r


def clipped(r, a, kl):
    return -min(r * a, clip(r, LOW, HIGH) * a)


def dual_clipped(r, a, kl):
    gain = min(r * a, clip(r, LOW, HIGH) * a)
    return -(max(gain, CEILING * a) if a < 0 else gain)


def rolled_back(r, a, kl):
    """The paper's own cases: −α r + (1 + α)(1 ± ε) outside."""
    held = r
    if r >= 1 + HIGH:
        held = -SLOPE * r + (1 + SLOPE) * (1 + HIGH)
    if r <= 1 - LOW:
        held = -SLOPE * r + (1 + SLOPE) * (1 - LOW)
    return -min(r * a, held * a)


def kl_triggered(r, a, kl):
    """The paper's: the ratio of the old policy, which is 1, where the KL is δ or more."""
    return -min(r * a, (1.0 if kl >= DELTA else r) * a)


def kl_triggered_back(r, a, kl):
    return -min(r * a, (1 + SLOPE - SLOPE * r if kl >= DELTA else r) * a)


SURROGATES = {
    "unclipped": (lambda r, a, kl: policy.unclipped(r, a), lambda r, a, kl: -r * a),
    "clipped": (lambda r, a, kl: policy.clipped(r, a, low=LOW, high=HIGH), clipped),
    "dual": (lambda r, a, kl: policy.dual_clipped(r, a, low=LOW, high=HIGH, ceiling=CEILING), dual_clipped),
    "rb": (lambda r, a, kl: policy.rolled_back(r, a, low=LOW, high=HIGH, slope=SLOPE), rolled_back),
    "tr": (partial(policy.kl_triggered, limit=DELTA), kl_triggered),
    "tr-rb": (partial(policy.kl_triggered, limit=DELTA, slope=SLOPE), kl_triggered_back),
    "penalty": (partial(policy.kl_penalised, beta=BETA), lambda r, a, kl: -(r * a - BETA * kl)),
}
"""From the ratio, the advantage and the KL of a token to its loss: ours, and by the paper."""


def p3o(log_ratios, advantage, eps):
    """Both losses of one pair, P3O-V1 for each and P3O-V2 for each, from the pair's log-ratios."""
    r = [math.exp(x) for x in log_ratios]
    apart = []
    for own, other in ((0, 1), (1, 0)):
        scale = advantage[own] * r[other]
        apart.append(-min(scale * r[own], scale * clip(r[own], eps, eps)))
    h = log_ratios[0] - log_ratios[1]
    scale = advantage[0] * r[0] * r[1]
    both = -0.5 * min(scale * h, scale * min(max(h, -eps), eps))
    return apart, [both, both]


def losses_of(name, logp_NT, old_NT, advantage_NT, mask_NT, kl_NT):
    """The loss of each token as a trainer would have it, from log-probs."""
    ratio_NT = ratio(log_ratio(logp_NT, old_NT, mask_NT))
    if name == "log-prob":
        return policy.policy_gradient(logp_NT, advantage_NT)
    if name == "cispo":
        return policy.cispo(logp_NT, ratio_NT, advantage_NT, high=HIGH, low=LOW)
    return SURROGATES[name][0](ratio_NT, advantage_NT, kl_NT)


ALL = ("log-prob", "cispo", *SURROGATES)
