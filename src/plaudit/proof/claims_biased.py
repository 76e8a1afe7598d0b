"""Claims about estimators that aim elsewhere than at ∇J: by how much, and at what.

A known bias that vanished would be news, and the claim would fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor

from plaudit.losses.policy import log_prob
from plaudit.losses.reduce import token_mean
from plaudit.proof.claim import Claim, Lab
from plaudit.proof.claims_unbiased import EXACT, TOPIC
from plaudit.proof.estimator_cells import (
    by_sequence,
    leave_out,
    reinforce,
    stale_values,
    with_values,
    z_scored,
)
from plaudit.proof.estimators import (
    Estimator,
    Sampled,
    cosine,
    error,
    expected_gradient,
    sampled,
    wandered,
)
from plaudit.proof.exact import objective_gradient
from plaudit.tensors.groups import size_of_group, sum_of_group

SIZES = (2, 4, 8, 16, 32, 64)
"""Groups that are written out where prompts have two answers."""
Figure = Callable[[Float[Tensor, "P Y"], Float[Tensor, "P Y"]], float]
"""Of a found and an exact gradient."""


def beside(lab: Lab, estimator: Estimator, figure: Figure) -> float:
    """A figure of the expected gradient, from groups of 3 answers of the policy itself, beside ∇ E r."""
    logp_PY = wandered(lab.spoken)
    seen = sampled(lab.spoken, logp_PY, size=3)
    return figure(expected_gradient(estimator, seen), objective_gradient(logp_PY, lab.spoken, 0.0))


def length(found_PY: Float[Tensor, "P Y"], exact_PY: Float[Tensor, "P Y"]) -> float:
    """How long it is, over the exact one.

    >>> import torch
    >>> length(torch.tensor([[3.0]]), torch.tensor([[2.0]]))
    1.5
    """
    return (found_PY.norm() / exact_PY.norm()).item()


def _reweighted(lab: Lab) -> list[float]:
    """GRPO's error against Σ over prompts of ∇J over the std of its rewards, at each size of groups."""
    spoken, logp_PY = lab.two, wandered(lab.two)
    prob_PY = logp_PY.exp()
    centred_PY = spoken.reward_PY - (prob_PY * spoken.reward_PY).sum(-1, keepdim=True)
    std_P1 = (prob_PY * centred_PY.square()).sum(-1, keepdim=True).sqrt()
    exact_PY = objective_gradient(logp_PY, spoken, 0.0) / std_P1
    return [
        error(
            expected_gradient(reinforce(z_scored), sampled(spoken, logp_PY, size=size, ordered=False)),
            exact_PY,
        )
        for size in SIZES
    ]


def _sequence_mean(seen: Sampled) -> Tensor:
    return by_sequence(log_prob(seen.logp_NT, leave_out(seen)), seen)


def _token_mean(seen: Sampled) -> Tensor:
    """A batch is one group: Σ over its tokens / how many it has."""
    length_N = seen.mask_NT.sum(-1).to(seen.share_N.dtype)
    tokens_N = sum_of_group(length_N, seen.group_N) / size_of_group(length_N, seen.group_N)
    loss_NT = log_prob(seen.logp_NT, leave_out(seen)) / tokens_N[:, None]
    return token_mean(seen.weighed(loss_NT), seen.mask_NT, tokens=1)


def _shortened(lab: Lab) -> float:
    """∇ E (r − V) / |y| with V = E r of each prompt held, which is what the sequence mean climbs."""
    logp_PY = wandered(lab.spoken)
    prob_PY = logp_PY.exp()
    value_P1 = (prob_PY * lab.spoken.reward_PY).sum(-1, keepdim=True)
    per_token_PY = (lab.spoken.reward_PY - value_P1) / lab.spoken.length_Y
    aimed_PY = objective_gradient(logp_PY, replace(lab.spoken, reward_PY=per_token_PY), 0.0)
    seen = sampled(lab.spoken, logp_PY, size=3)
    return error(expected_gradient(_sequence_mean, seen), aimed_PY)


def _claim(sentence: str, measure: Callable[[Lab], float], **bounds: float) -> Claim:
    return Claim(name=TOPIC, sentence=sentence, measure=measure, **bounds)


def _beside(estimator: Estimator, figure: Figure) -> Callable[[Lab], float]:
    return partial(beside, estimator=estimator, figure=figure)


def _largest_rise(lab: Lab) -> float:
    return max(later - sooner for sooner, later in pairwise(_reweighted(lab)))


_z = reinforce(z_scored)
BIASED = (
    _claim("grpo's z-score, groups of 3: not ∇J; cosine", _beside(_z, cosine), low=0.5, high=0.999),
    _claim("grpo's z-score: its length over ∇J's", _beside(_z, length), low=0.2, high=2.0),
    _claim(
        "grpo, two answers, groups of 64: Σ ∇J of a prompt / its std; error",
        lambda lab: _reweighted(lab)[-1],
        high=0.1,
    ),
    _claim("grpo, from 2 to 64: ever nearer to that; largest rise", _largest_rise, high=0.0),
    _claim("sequence mean: not ∇J; cosine", _beside(_sequence_mean, cosine), low=0.5, high=0.999),
    _claim("sequence mean: its length over ∇J's", _beside(_sequence_mean, length), low=0.2, high=1.0),
    _claim("sequence mean: it climbs E (r − V) / |y|, V held; error", _shortened, high=EXACT),
    _claim(
        "token mean of one group of 3: not ∇J; cosine", _beside(_token_mean, cosine), low=0.5, high=0.9999
    ),
    _claim(
        "a2c, TD(0) with a stale V: not ∇J; error", _beside(with_values(0, stale_values), error), low=0.01
    ),
    _claim(
        "ppo, λ = 0.95 with a stale V: not ∇J; error",
        _beside(with_values(0.95, stale_values), error),
        low=1e-3,
    ),
)
"""Claims of bias on answers of the policy itself, and of what is aimed at instead."""
