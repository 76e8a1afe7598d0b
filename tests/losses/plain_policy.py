"""Surrogates at settings of tests, and batches of tokens to try them on."""

from functools import partial

import torch

from plaudit.losses import policy
from plaudit.losses.ratio import log_ratio, ratio
from plaudit.losses.reduce import fixed_length, sequence_mean, token_mean

LOW, HIGH, CEILING, SLOPE, DELTA, BETA = 0.2, 0.28, 3.0, 0.3, 0.025, 0.7


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def holes(seed, rows, width, share=0.6):
    mask_NT = torch.rand(rows, width, generator=torch.Generator().manual_seed(seed)) < share
    mask_NT[:, 0] = True
    return mask_NT


SURROGATES = {
    "unclipped": lambda r, a, kl: policy.unclipped(r, a),
    "clipped": lambda r, a, kl: policy.clipped(r, a, low=LOW, high=HIGH),
    "dual": lambda r, a, kl: policy.dual_clipped(r, a, low=LOW, high=HIGH, ceiling=CEILING),
    "rb": lambda r, a, kl: policy.rolled_back(r, a, low=LOW, high=HIGH, slope=SLOPE),
    "tr": partial(policy.kl_triggered, limit=DELTA),
    "tr-rb": partial(policy.kl_triggered, limit=DELTA, slope=SLOPE),
    "penalty": partial(policy.kl_penalised, beta=BETA),
}
"""From the ratio, the advantage and the KL of a token to its loss; tests/oracles has what papers say."""


def losses_of(name, logp_NT, old_NT, advantage_NT, mask_NT, kl_NT):
    """The loss of each token as a trainer would have it, from log-probs."""
    ratio_NT = ratio(log_ratio(logp_NT, old_NT, mask_NT))
    if name == "log-prob":
        return policy.policy_gradient(logp_NT, advantage_NT)
    if name == "cispo":
        return policy.cispo(logp_NT, ratio_NT, advantage_NT, high=HIGH, low=LOW)
    return SURROGATES[name](ratio_NT, advantage_NT, kl_NT)


REDUCED = {
    "token": lambda loss, mask, whole: token_mean(loss, mask, tokens=int(whole.sum())),
    "sequence": lambda loss, mask, whole: sequence_mean(loss, mask, completions=len(whole)),
    "fixed": lambda loss, mask, whole: fixed_length(loss, mask, completions=len(whole), longest=30),
}
ALL = ("log-prob", "cispo", *SURROGATES)
