"""Claims about KL from samples: what each estimator is as a number, as a loss and as a reward.

A KL in a loss is differentiated at the tokens that were said; that the policy also chooses which beginnings
it comes to is lost, unless ρ is of the whole completion. Tang and Munos 2025, arXiv:2506.09477.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.advantages.temporal import reward_to_go
from plaudit.losses.divergence import full, k1, k2, k3
from plaudit.losses.policy import log_prob
from plaudit.losses.ratio import of_completion
from plaudit.proof.claim import Claim, Lab
from plaudit.proof.claims_unbiased import EXACT, TOPIC
from plaudit.proof.estimators import (
    Sampled,
    error,
    expected_gradient,
    next_answers,
    sampled,
    token_sum,
    wandered,
)
from plaudit.proof.exact import kl
from plaudit.tensors.masked import masked_sum_rows

Cell = Callable[[Tensor], Tensor]
"""From ρ to an estimate of KL."""


def told(lab: Lab, cell: Cell, *, width: int | float = 1.0) -> tuple[float, float]:
    """Mean and variance of a completion's estimate, the sum over its tokens, over all answers."""
    seen = sampled(lab.spoken, wandered(lab.spoken, width=width), size=1)
    kl_N = masked_sum_rows(cell(seen.shift_NT), seen.mask_NT)
    mean = (seen.share_N * kl_N).sum()
    return mean.item(), (seen.share_N * (kl_N - mean).square()).sum().item()


def value_error(lab: Lab, *, cell: Cell) -> float:
    """How far the mean is from KL(π ‖ π_ref), relative to it."""
    exact = kl(wandered(lab.spoken), lab.spoken.ref_logp_PY).mean().item()
    return abs(told(lab, cell)[0] - exact) / exact


def spread_of(lab: Lab, *, cell: Cell, width: int | float) -> float:
    """The variance over that of k1, for a policy that far from the reference."""
    return told(lab, cell, width=width)[1] / told(lab, k1, width=width)[1]


def kl_gradient(lab: Lab, *, forward: bool = False) -> Float[Tensor, "P Y"]:
    """∇ KL(π ‖ π_ref), or of KL(π_ref ‖ π), mean of the prompts."""
    logit_PY = wandered(lab.spoken).requires_grad_()
    pair = logit_PY.log_softmax(-1), lab.spoken.ref_logp_PY
    return torch.autograd.grad(kl(*(pair[::-1] if forward else pair)).mean(), logit_PY)[0]


def token_kl_gradient(lab: Lab, *, forward: bool = False) -> Float[Tensor, "P Y"]:
    """∇ of the KL at each token over all of V, at the beginnings that π comes to, held as they are."""
    spoken, logit_PY = lab.spoken, wandered(lab.spoken).requires_grad_()
    onward_SVY = next_answers(spoken.responses, spoken.symbols)
    mass_PSV, ref_PSV = (
        torch.einsum("svy,py->psv", onward_SVY, logp_PY.exp())
        for logp_PY in (logit_PY.log_softmax(-1), spoken.ref_logp_PY)
    )
    step_MV, ref_MV = ((one / one.sum(-1, keepdim=True)).log().flatten(0, 1) for one in (mass_PSV, ref_PSV))
    kl_M = full(*((ref_MV, step_MV) if forward else (step_MV, ref_MV)))
    reach_M = mass_PSV.sum(-1).flatten().detach() / len(logit_PY)
    return torch.autograd.grad((reach_M * kl_M).sum(), logit_PY)[0]


def as_loss(lab: Lab, *, cell: Cell, whole: bool = False) -> Float[Tensor, "P Y"]:
    """The expected gradient of the estimate as a loss, per token or of the whole completion's ρ."""
    estimator = partial(_of_completion if whole else _of_tokens, cell=cell)
    return -expected_gradient(estimator, sampled(lab.spoken, wandered(lab.spoken), size=1))


def as_reward(lab: Lab, *, cell: Cell) -> Float[Tensor, "P Y"]:
    """The expected gradient of KL when −KL of each token is its reward, with reward-to-go."""

    def estimator(seen: Sampled) -> Tensor:
        to_go_NT = reward_to_go(-cell(seen.shift_NT.detach()), seen.mask_NT, gamma=1)
        return token_sum(log_prob(seen.logp_NT, to_go_NT), seen)

    return -expected_gradient(estimator, sampled(lab.spoken, wandered(lab.spoken), size=1))


def _of_tokens(seen: Sampled, *, cell: Cell) -> Tensor:
    return token_sum(cell(seen.shift_NT), seen)


def _of_completion(seen: Sampled, *, cell: Cell) -> Tensor:
    return seen.weighed(cell(of_completion(seen.shift_NT, seen.mask_NT)[:, None])).sum()


def _nothing(lab: Lab) -> float:
    """k1 as a loss, relative to ∇ KL."""
    return max(
        (as_loss(lab, cell=k1, whole=whole).norm() / kl_gradient(lab).norm()).item()
        for whole in (False, True)
    )


def _claim(sentence: str, measure: Callable[[Lab], float], **bounds: float) -> Claim:
    return Claim(name=TOPIC, sentence=sentence, measure=measure, **bounds)


def _between(
    sentence: str, found: Callable[[Lab], Tensor], exact: Callable[[Lab], Tensor], **bounds: float
) -> Claim:
    return _claim(sentence, lambda lab: error(found(lab), exact(lab)), **(bounds or {"high": EXACT}))


def _reward_without_own(lab: Lab) -> Tensor:
    """∇ E k3 = ∇KL is what it does as a reward and as a loss together."""
    return kl_gradient(lab) - as_loss(lab, cell=k3)


_k2, _k3 = partial(as_loss, cell=k2), partial(as_loss, cell=k3)
_forward, _token_forward = partial(kl_gradient, forward=True), partial(token_kl_gradient, forward=True)
_k3_reward = partial(as_reward, cell=k3)
LEASHES = (
    _claim("k1, value: KL(π ‖ π_ref); error", partial(value_error, cell=k1), high=EXACT),
    _claim("k3, value: KL(π ‖ π_ref); error", partial(value_error, cell=k3), high=EXACT),
    _claim("k2, value: not; error", partial(value_error, cell=k2), low=0.001),
    _claim("k3 near π_ref: variance over k1's", partial(spread_of, cell=k3, width=0.1), high=0.1),
    _claim("k2 near π_ref: variance over k1's", partial(spread_of, cell=k2, width=0.1), high=0.1),
    _claim("k3 far from π_ref: variance over k1's", partial(spread_of, cell=k3, width=3.0), low=1.0),
    _claim("k1 as a loss holds nothing; length over ∇KL's", _nothing, high=EXACT),
    _between("k2 of a completion as a loss: ∇KL(π ‖ π_ref); error", partial(_k2, whole=True), kl_gradient),
    _between("k3 of a completion as a loss: ∇KL(π_ref ‖ π); error", partial(_k3, whole=True), _forward),
    _between("k2 of tokens as a loss: ∇ of their KL, prefixes held; error", _k2, token_kl_gradient),
    _between("k2 of tokens as a loss: not ∇KL(π ‖ π_ref); error", _k2, kl_gradient, low=0.01),
    _between("k3 of tokens as a loss: ∇ of their KL from π_ref, held; error", _k3, _token_forward),
    _between("k3 of tokens as a loss: not ∇KL(π_ref ‖ π); error", _k3, _forward, low=0.01),
    _between("k1 in the reward: ∇KL(π ‖ π_ref); error", partial(as_reward, cell=k1), kl_gradient),
    _between("k3 in the reward: right value, not ∇KL; error", _k3_reward, kl_gradient, low=0.01),
    _between("k3 in the reward: ∇KL less its gradient as a loss; error", _k3_reward, _reward_without_own),
)
"""Claims about KL(π ‖ π_ref), and KL(π_ref ‖ π), from what π says."""
