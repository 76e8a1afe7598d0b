"""Estimators put together from the cells that training uses, as losses of a batch with all groups in it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.advantages.baseline import greedy
from plaudit.advantages.group import leave_one_out, z_score
from plaudit.advantages.temporal import gae, reward_to_go, token_rewards
from plaudit.losses.divergence import k1
from plaudit.losses.policy import log_prob
from plaudit.losses.ratio import log_ratio, ratio
from plaudit.losses.reduce import sequence_mean
from plaudit.proof.estimators import Estimator, Sampled, token_sum, values
from plaudit.tensors.masked import spread

Advantage = Callable[[Sampled], Float[Tensor, "N T"]]
"""A cell at work: the advantage of each token."""


def reinforce(advantage: Advantage) -> Estimator:
    """−A log π of the advantage, summed over tokens."""
    return lambda seen: token_sum(log_prob(seen.logp_NT, advantage(seen)), seen)


def of_completions(advantage: Callable[[Sampled], Float[Tensor, " N"]]) -> Advantage:
    """A completion's advantage at each of its tokens."""
    return lambda seen: spread(advantage(seen), seen.mask_NT)


def ratios(seen: Sampled) -> Float[Tensor, "N T"]:
    """π / π_old of each token."""
    return ratio(log_ratio(seen.logp_NT, seen.old_logp_NT, seen.mask_NT))


def rewards(seen: Sampled) -> Float[Tensor, "N T"]:
    """The reward at the last token, no KL."""
    return token_rewards(seen.reward_N, torch.zeros_like(seen.logp_NT), seen.mask_NT, beta=0.0)


def true_values(seen: Sampled) -> Float[Tensor, "N T"]:
    """V of who sampled, before each token: what a perfect critic says."""
    return critic(seen, seen.old_logp_NT)


def stale_values(seen: Sampled) -> Float[Tensor, "N T"]:
    """V of the reference: a critic that nobody has trained since."""
    return seen.told(values(seen.spoken.ref_logp_PY, seen.spoken.reward_PY, seen.spoken))


def critic(seen: Sampled, logp_NT: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """V of the policy with these log-probs, before each token."""
    # Every answer is in some group; what is said of it there is said of it anywhere.
    logp_PY = torch.zeros_like(seen.spoken.reward_PY)
    logp_PY[seen.prompt_N, seen.answer_N] = logp_NT.detach().sum(-1)
    return seen.told(values(logp_PY, seen.spoken.reward_PY, seen.spoken))


def leave_out(seen: Sampled) -> Float[Tensor, "N T"]:
    """RLOO's advantage."""
    return spread(leave_one_out(seen.reward_N, seen.group_N), seen.mask_NT)


def likeliest(seen: Sampled) -> Float[Tensor, "N T"]:
    """ReMax's advantage."""
    best_P1 = seen.logit_PY.argmax(-1, keepdim=True)
    greedy_P = seen.spoken.reward_PY.gather(-1, best_P1).squeeze(-1)
    return spread(greedy(seen.reward_N, greedy_P, seen.prompt_N), seen.mask_NT)


def with_values(
    lam: int | float, critic: Callable[[Sampled], Float[Tensor, "N T"]] = true_values
) -> Estimator:
    """GAE with γ = 1."""
    return reinforce(lambda seen: gae(rewards(seen), critic(seen), seen.mask_NT, gamma=1, lam=lam))


def leashed(beta: float, cell: Callable[[Tensor], Tensor] = k1) -> Estimator:
    """Reward-to-go of rewards with −β KL at each token."""

    def to_go(seen: Sampled) -> Tensor:
        kl_NT = cell(seen.shift_NT.detach())
        reward_NT = token_rewards(seen.reward_N, kl_NT, seen.mask_NT, beta=beta)
        return reward_to_go(reward_NT, seen.mask_NT, gamma=1)

    return reinforce(to_go)


def z_scored(seen: Sampled) -> Float[Tensor, "N T"]:
    """GRPO's advantage, without ε."""
    return spread(z_score(seen.reward_N, seen.group_N, epsilon=0.0), seen.mask_NT)


def by_sequence(loss_NT: Float[Tensor, "N T"], seen: Sampled) -> Float[Tensor, ""]:
    """GRPO's reduction: the mean of a completion's tokens, mean over completions."""
    return sequence_mean(seen.weighed(loss_NT), seen.mask_NT, completions=1)
