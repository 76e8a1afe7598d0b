"""Claims about steps and where they end: TRPO's natural step under a hard KL, and ascent to π*."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.advantages.group import leave_one_out
from plaudit.advantages.temporal import bandit
from plaudit.losses.divergence import k1
from plaudit.losses.policy import clipped
from plaudit.proof.claim import Claim, Lab
from plaudit.proof.claims_unbiased import TOPIC
from plaudit.proof.estimator_cells import ratios, reinforce
from plaudit.proof.estimators import (
    Estimator,
    Sampled,
    error,
    expected_gradient,
    sampled,
    token_sum,
    wandered,
)
from plaudit.proof.exact import kl, mean_reward, objective, objective_gradient, optimum, total_variation
from plaudit.tensors.conjugate import Tried, backtrack, conjugate_gradients, longest_step
from plaudit.tensors.groups import group_sums
from plaudit.tensors.masked import masked_sum_rows, spread

STARTS = 8
"""From how many random policies TRPO steps."""
LIMITS = (0.001, 0.01, 0.1, 1.0)
"""δ: from a step that the second order describes to one that it does not."""


def fisher(logp_PY: Float[Tensor, "P Y"]) -> Float[Tensor, "D D"]:
    """The Hessian of the mean KL(π_old ‖ π) at π_old, written out: diag(π) − π πᵀ for each prompt, over P."""
    prob_PY = logp_PY.exp()
    blocks = [row_Y.diag() - row_Y.outer(row_Y) for row_Y in prob_PY]
    return torch.block_diag(*blocks) / len(prob_PY)


def natural(lab: Lab, logp_PY: Float[Tensor, "P Y"]) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """TRPO's direction by conjugate gradients, and the product v → F v by differentiating the KL twice."""
    logit_PY = logp_PY.clone().requires_grad_()
    mean_kl = kl(logp_PY, logit_PY.log_softmax(-1)).mean()
    (slope_PY,) = torch.autograd.grad(mean_kl, logit_PY, create_graph=True)

    def product(towards_D: Tensor) -> Tensor:
        along = slope_PY.flatten().dot(towards_D)
        return torch.autograd.grad(along, logit_PY, retain_graph=True)[0].flatten()

    gradient_D = objective_gradient(logp_PY, lab.spoken, 0.0).flatten()
    return conjugate_gradients(product, gradient_D, steps=200, tolerance=1e-20), product


def step(lab: Lab, logp_PY: Float[Tensor, "P Y"], limit: float) -> Tried | None:
    """TRPO's step with what it was worth, in exact KL; none where no length improved."""
    towards_D, product = natural(lab, logp_PY)
    full_PY = longest_step(towards_D, product(towards_D), limit=limit).view(logp_PY.shape)

    def trial(size: float) -> Tried:
        new_PY = (logp_PY + size * full_PY).log_softmax(-1)
        gained = mean_reward(new_PY, lab.spoken) - mean_reward(logp_PY, lab.spoken)
        return Tried(improvement=gained, kl=kl(logp_PY, new_PY).mean().item())

    size = backtrack(trial, limit=limit)
    return None if size is None else trial(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ascent:
    """How an expected gradient is followed, from the reference on.

    Example: ``Ascent(rate=0.1, outer=200, inner=4)``
    """

    rate: int | float
    """The step times β: a leash that holds more needs smaller ones."""
    outer: int
    """How often answers are sampled anew."""
    inner: int = 1
    """Steps on the same answers."""
    size: int = 1
    """How many answers are in a group."""
    natural: bool = True
    """Whether gradients are divided by π, which is F⁻¹ ∇ of a table but for a constant."""
    shrink: int | float = 1.0
    """What each round's step is of the one before: whitened advantages never become small."""


def climb(estimator: Estimator, lab: Lab, way: Ascent) -> Float[Tensor, "P Y"]:
    """log π where the ascent ends."""
    logp_PY = lab.spoken.ref_logp_PY
    for round in range(way.outer):
        old_PY, rate = logp_PY, way.rate * way.shrink**round / lab.beta
        for _ in range(way.inner):
            seen = sampled(lab.spoken, logp_PY, size=way.size, old_PY=old_PY, ordered=False)
            step_PY = expected_gradient(estimator, seen)
            scale_PY = logp_PY.exp() / len(logp_PY) if way.natural else torch.ones(())
            logp_PY = (logp_PY + rate * step_PY / scale_PY).log_softmax(-1)
    return logp_PY


def leashed_rloo(lab: Lab) -> Estimator:
    """RLOO of r − β KL of the whole completion."""
    return reinforce(lambda seen: spread(leave_one_out(_worth(seen, lab.beta), seen.group_N), seen.mask_NT))


def leashed_ppo(lab: Lab) -> Estimator:
    """PPO's clip of token ratios, A = r − β KL less its mean, all of the old policy."""

    def estimator(seen: Sampled) -> Tensor:
        worth_N, prompts = _worth(seen, lab.beta), len(seen.logit_PY)
        mean_P = prompts * group_sums(seen.share_N * worth_N, seen.prompt_N, groups=prompts)
        advantage_NT = bandit(worth_N, mean_P[seen.prompt_N], seen.mask_NT)
        return token_sum(clipped(ratios(seen), advantage_NT, low=0.2, high=0.2), seen)

    return estimator


def _worth(seen: Sampled, beta: float) -> Tensor:
    """r − β (log π_old − log π_ref)."""
    shift_NT = seen.old_logp_NT - seen.told(seen.spoken.ref_logp_PYT)
    return seen.reward_N - beta * masked_sum_rows(k1(shift_NT), seen.mask_NT)


def _starts(lab: Lab) -> list[Tensor]:
    return [wandered(lab.spoken, seed=seed) for seed in range(STARTS)]


def _solved(lab: Lab) -> float:
    """The direction against the explicit Fisher matrix; a shift of a prompt's logits means nothing."""
    return max(
        error(_centred(natural(lab, logp_PY)[0], logp_PY), _explicit(lab, logp_PY))
        for logp_PY in _starts(lab)
    )


def _explicit(lab: Lab, logp_PY: Tensor) -> Tensor:
    gradient_D = objective_gradient(logp_PY, lab.spoken, 0.0).flatten()
    return _centred(torch.linalg.pinv(fisher(logp_PY), rtol=1e-13) @ gradient_D, logp_PY)


def _centred(flat_D: Tensor, logp_PY: Tensor) -> Tensor:
    step_PY = flat_D.view(logp_PY.shape)
    return step_PY - step_PY.mean(-1, keepdim=True)


@lru_cache(maxsize=16)
def _steps(lab: Lab) -> list[tuple[float, Tried | None]]:
    return [(limit, step(lab, logp_PY, limit)) for logp_PY in _starts(lab) for limit in LIMITS]


def _farthest(lab: Lab) -> float:
    """KL over δ; no step at all is not a number, and no bound holds it."""
    return max((math.nan if tried is None else tried.kl / limit for limit, tried in _steps(lab)), key=_or_inf)


def _or_inf(figure: float) -> float:
    return math.inf if math.isnan(figure) else figure


def _least_gain(lab: Lab) -> float:
    return min(math.nan if tried is None else tried.improvement for _, tried in _steps(lab))


def _distance(lab: Lab, *, row: Callable[[Lab], Estimator], way: Ascent) -> float:
    return total_variation(climb(row(lab), lab, way), optimum(lab.spoken, lab.beta))


def _missing(lab: Lab, *, row: Callable[[Lab], Estimator], way: Ascent) -> float:
    """How much of J is missing at the end, over what was missing at the reference."""
    start, end, best = (
        objective(logp_PY, lab.spoken, lab.beta)
        for logp_PY in (lab.spoken.ref_logp_PY, climb(row(lab), lab, way), optimum(lab.spoken, lab.beta))
    )
    return (best - end) / (best - start)


def _claim(sentence: str, measure: Callable[[Lab], float], **bounds: float) -> Claim:
    return Claim(name=TOPIC, sentence=sentence, measure=measure, **bounds)


_rloo = partial(_distance, row=leashed_rloo, way=Ascent(rate=0.1, outer=200, size=2))
_ppo = partial(_distance, row=leashed_ppo, way=Ascent(rate=0.1, outer=100, inner=4))
_plain = partial(_missing, row=leashed_rloo, way=Ascent(rate=4, outer=600, size=2, natural=False))
ASCENTS = (
    _claim("trpo: conjugate gradients solve F s = ∇J; error", _solved, high=1e-6),
    _claim("trpo: 8 starts, δ from 0.001 to 1; largest exact KL over δ", _farthest, high=1.0),
    _claim("trpo: and E r rises; the least rise", _least_gain, low=1e-6),
    _claim("rloo, k1 in the reward, natural ascent: reaches π*", _rloo, high=1e-6),
    _claim("ppo, clip 0.2, 4 steps on old answers, the same: reaches π*", _ppo, high=1e-6),
    _claim("rloo, plain ascent, 600 steps: nearer; J missing over π_ref's", _plain, high=0.5),
)
"""Claims about steps."""
