"""Advantages by their definitions on Python's own numbers: lists in, lists out, no tensor."""

from __future__ import annotations

import math
from collections import defaultdict

import torch


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def holes(seed, rows, width, share=0.6):
    """A mask with holes anywhere; a row may be empty."""
    return torch.rand(rows, width, generator=torch.Generator().manual_seed(seed)) < share


def grouped(seed, rows, most=5):
    """Numbers of groups that rise, with gaps, from left to right."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, most, (rows,), generator=generator).sort().values * 3 + 4


def same(found, wanted, tolerance=1e-12):
    """Whether a tensor is a list of numbers, or of lists."""
    torch.testing.assert_close(
        found.double(), torch.tensor(wanted, dtype=torch.float64), rtol=tolerance, atol=tolerance
    )


def members(group):
    """The places of each group, for each completion."""
    places = defaultdict(list)
    for place, number in enumerate(group):
        places[number].append(place)
    return [places[number] for number in group]


def mean(values):
    return math.fsum(values) / len(values)


def std(values):
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / max(1, len(values) - 1))


def z_score(reward, group, epsilon):
    kin = [[reward[place] for place in places] for places in members(group)]
    apart = [value - mean(others) for value, others in zip(reward, kin, strict=True)]
    return [a / (std(others) + epsilon) if a else 0.0 for a, others in zip(apart, kin, strict=True)]


def centred(reward, group):
    kin = [[reward[place] for place in places] for places in members(group)]
    return [value - mean(others) for value, others in zip(reward, kin, strict=True)]


def leave_one_out(reward, group):
    out = []
    for place, places in enumerate(members(group)):
        others = [reward[other] for other in places if other != place]
        out.append(reward[place] - mean(others) if others else 0.0)
    return out


def moments_of(mask, compute):
    """A row of numbers for the moments at which the mask is True, put back where they stood."""
    out = [0.0] * len(mask)
    at = [t for t, seen in enumerate(mask) if seen]
    for t, value in zip(at, compute(at), strict=True):
        out[t] = value
    return out


def to_go(reward, mask, gamma):
    """Σ_k γ^k r of the k-th trained token from here on."""
    return moments_of(
        mask,
        lambda at: [
            math.fsum(gamma**k * reward[t] for k, t in enumerate(at[start:])) for start in range(len(at))
        ],
    )


def gae(reward, value, mask, gamma, lam, end=0.0):
    """Σ_k (γλ)^k δ, with every δ written out."""

    def of(at):
        following = [*(value[t] for t in at), end][1:]
        delta = [reward[t] + gamma * after - value[t] for t, after in zip(at, following, strict=True)]
        return [
            math.fsum((gamma * lam) ** k * d for k, d in enumerate(delta[start:])) for start in range(len(at))
        ]

    return moments_of(mask, of)


def token_rewards(score, kl, mask, beta):
    at = [t for t, seen in enumerate(mask) if seen]
    return [(-beta * kl[t] + (score if t == at[-1] else 0.0)) if seen else 0.0 for t, seen in enumerate(mask)]


def whiten(rows, masks, epsilon=1e-8, shift=True):
    seen = [x for row, mask in zip(rows, masks, strict=True) for x, m in zip(row, mask, strict=True) if m]
    middle = mean(seen)
    scale = math.sqrt(math.fsum((x - middle) ** 2 for x in seen) / len(seen) + epsilon)
    back = 0.0 if shift else middle
    return [
        [(x - middle) / scale + back if m else 0.0 for x, m in zip(row, mask, strict=True)]
        for row, mask in zip(rows, masks, strict=True)
    ]
