"""Claims about estimators whose expected gradient is the exact one, to rounding.

Each is put together from the cells that training uses, and summed over every group of answers that can come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from plaudit.advantages.baseline import running
from plaudit.advantages.group import centred, leave_one_out
from plaudit.advantages.temporal import bandit, gae, monte_carlo, one_step
from plaudit.losses.divergence import k3
from plaudit.losses.policy import (
    cispo,
    clipped,
    dual_clipped,
    kl_penalised,
    kl_triggered,
    log_prob,
    p3o_joint,
    p3o_separate,
    rolled_back,
    unclipped,
)
from plaudit.losses.ratio import log_ratio, of_completion
from plaudit.losses.reduce import fixed_length
from plaudit.losses.trust import unclipped_tokens
from plaudit.proof.claim import Claim, Lab
from plaudit.proof.estimator_cells import (
    Advantage,
    by_sequence,
    leashed,
    leave_out,
    likeliest,
    of_completions,
    ratios,
    reinforce,
    rewards,
    stale_values,
    true_values,
    with_values,
    z_scored,
)
from plaudit.proof.estimators import (
    Estimator,
    Sampled,
    error,
    expected_gradient,
    sampled,
    token_sum,
    wandered,
)
from plaudit.proof.exact import objective_gradient
from plaudit.tensors.masked import spread

TOPIC = "estimators"
"""The name under which all of them are proven."""
EXACT = 1e-10
"""A relative error that rounding alone makes."""


def unbiased(
    sentence: str,
    *estimators: Estimator,
    sizes: Sequence[int] = (3,),
    scale: Callable[[int], float] = lambda size: 1.0,
) -> Claim:
    """The expected gradient of each, times a known factor of G, is ∇ E r."""

    def measure(lab: Lab) -> float:
        logp_PY = wandered(lab.spoken)
        exact_PY = objective_gradient(logp_PY, lab.spoken, 0.0)
        return max(
            error(scale(size) * expected_gradient(one, seen), exact_PY)
            for size in sizes
            for seen in [sampled(lab.spoken, logp_PY, size=size)]
            for one in estimators
        )

    return Claim(name=TOPIC, sentence=sentence, measure=measure, high=EXACT)


def on_leash(sentence: str, made: Callable[[float], Estimator]) -> Claim:
    """The expected gradient of what is made for a β is ∇ (E r − β KL(π ‖ π_ref))."""

    def measure(lab: Lab) -> float:
        logp_PY = wandered(lab.spoken)
        found_PY = expected_gradient(made(lab.beta), sampled(lab.spoken, logp_PY, size=1))
        return error(found_PY, objective_gradient(logp_PY, lab.spoken, lab.beta))

    return Claim(name=TOPIC, sentence=sentence, measure=measure, high=EXACT)


def alike(sentence: str, *estimators: Estimator, drift: int | float = 0.0, size: int = 3) -> Claim:
    """All have the first one's expected gradient; with a drift, on answers of a policy that far away."""

    def measure(lab: Lab) -> float:
        logp_PY = wandered(lab.spoken)
        old_PY = wandered(lab.spoken, logp_PY, seed=1, width=drift)
        seen = sampled(lab.spoken, logp_PY, size=size, old_PY=old_PY)
        first_PY, *others = (expected_gradient(one, seen) for one in estimators)
        return max(error(other_PY, first_PY) for other_PY in others)

    return Claim(name=TOPIC, sentence=sentence, measure=measure, high=EXACT)


def _against(mean: int | float) -> Estimator:
    return reinforce(of_completions(lambda seen: running(seen.reward_N, mean=mean)))


def _dr_grpo(seen: Sampled) -> Tensor:
    advantage_NT = spread(centred(seen.reward_N, seen.group_N), seen.mask_NT)
    loss_NT = seen.weighed(log_prob(seen.logp_NT, advantage_NT))
    longest = loss_NT.shape[1]
    return longest * fixed_length(loss_NT, seen.mask_NT, completions=1, longest=longest)


def _pair(cell: Callable[..., Tensor]) -> Estimator:
    """Groups of two lie side by side, as P3O wants them."""

    def estimator(seen: Sampled) -> Tensor:
        log_ratio_N = of_completion(log_ratio(seen.logp_NT, seen.old_logp_NT, seen.mask_NT), seen.mask_NT)
        return (seen.share_N * cell(log_ratio_N, leave_one_out(seen.reward_N, seen.group_N), clip=0.2)).sum()

    return estimator


def _bandit(critic: Advantage) -> Advantage:
    return lambda seen: bandit(seen.reward_N, critic(seen)[:, 0], seen.mask_NT)


def _td(seen: Sampled) -> Tensor:
    return one_step(rewards(seen), true_values(seen), seen.mask_NT, gamma=1)


def _carlo(seen: Sampled) -> Tensor:
    return monte_carlo(rewards(seen), stale_values(seen), seen.mask_NT, gamma=1)


def _held(seen: Sampled) -> Tensor:
    """Advantages of a critic that is wrong: what they are does not matter to a surrogate."""
    return gae(rewards(seen), stale_values(seen), seen.mask_NT, gamma=1, lam=0.95)


def _surrogate(cell: Callable[[Tensor, Tensor], Tensor]) -> Estimator:
    return lambda seen: token_sum(cell(ratios(seen), _held(seen)), seen)


def _cispo(seen: Sampled) -> Tensor:
    return token_sum(cispo(seen.logp_NT, ratios(seen), _held(seen), high=0.28), seen)


def _triggered(seen: Sampled) -> Tensor:
    cell = partial(kl_triggered, kl_NT=torch.zeros_like(seen.logp_NT), limit=0.025)
    return _surrogate(cell)(seen)


def _grpo(cell: Callable[[Tensor, Tensor], Tensor]) -> Estimator:
    return lambda seen: by_sequence(cell(ratios(seen), z_scored(seen)), seen)


def _penalised(seen: Sampled) -> Tensor:
    log_ratio_NT = log_ratio(seen.logp_NT, seen.old_logp_NT, seen.mask_NT)
    # The old policy sampled, so KL(π_old ‖ π) is estimated with −ρ.
    cell = partial(kl_penalised, kl_NT=k3(-log_ratio_NT), beta=1.0)
    return _surrogate(cell)(seen)


def _masked(ratio_NT: Tensor, advantage_NT: Tensor) -> Tensor:
    kept_NT = unclipped_tokens(ratio_NT, advantage_NT, low=0.2, high=0.2)
    return unclipped(ratio_NT, advantage_NT).masked_fill(~kept_NT, 0.0)


_ppo = partial(clipped, low=0.2, high=0.2)
UNBIASED = (
    unbiased("reinforce, no baseline: ∇J; error", _against(0)),
    unbiased("reinforce, a constant baseline of −3 or 10; error", _against(-3), _against(10)),
    unbiased(
        "reinforce, a critic's V(x), exact or stale; error",
        reinforce(_bandit(true_values)),
        reinforce(_bandit(stale_values)),
    ),
    unbiased("rloo, groups of 2 and 3; error", reinforce(leave_out), sizes=(2, 3)),
    unbiased("remax, the likeliest answer for a baseline; error", reinforce(likeliest)),
    unbiased(
        "dr-grpo, groups of 2 and 3: (G − 1) / G of ∇J; error",
        _dr_grpo,
        sizes=(2, 3),
        scale=lambda size: size / (size - 1),
    ),
    unbiased("p3o, both clips, its factor 1; error", _pair(p3o_separate), _pair(p3o_joint), sizes=(2,)),
    unbiased("a2c, TD(0) with exact V of prefixes; error", reinforce(_td)),
    unbiased("ppo, GAE with exact V, λ = 0, 0.5, 0.95, 1; error", *map(with_values, (0, 0.5, 0.95, 1))),
    unbiased(
        "a stale V, λ = 1 and reward-to-go: still ∇J; error", with_values(1, stale_values), reinforce(_carlo)
    ),
    on_leash("k1 at each token of the reward: ∇(E r − β KL); error", leashed),
    alike(
        "first step: each surrogate's gradient is −A ∇log π's; error",
        reinforce(_held),
        _surrogate(unclipped),
        _surrogate(_ppo),
        _surrogate(partial(dual_clipped, low=0.2, high=0.2, ceiling=3)),
        _surrogate(partial(rolled_back, low=0.2, high=0.2, slope=0.3)),
        _triggered,
        _penalised,
        _cispo,
    ),
    alike("first step: GRPO with its clip is GRPO without; error", _grpo(unclipped), _grpo(_ppo)),
    alike(
        "later: PPO's clip is a mask on the unclipped ratio; error",
        _surrogate(_ppo),
        _surrogate(_masked),
        drift=0.5,
    ),
)
"""Claims of no bias."""
