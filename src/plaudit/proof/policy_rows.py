"""Rows of policy optimisation in expectation: the cells of training over every group that can come."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.losses.ratio import log_ratio, ratio
from plaudit.proof.estimators import Estimator, Sampled, values
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_rows import chosen
from plaudit.recipes.policy_settings import PolicySettings
from plaudit.tensors.masked import Moments, last_places, masked_sum_rows, whiten
from plaudit.training.policy_row import Counts, Facts, Moment, PolicyRow, reduced

_ONE = Counts(tokens=1, completions=1, longest=1)
"""Shares are a mean already; what else a reduction divides by is a constant, and the rate makes up for it."""


def policy_row(name: str, settings: PolicySettings) -> PolicyRow:
    """The row that ``plaudit train`` would run.

    >>> policy_row("grpo", PolicySettings(beta=0.5)).beta
    0.5
    """
    nowhere = Path()
    config = PolicyConfig(model=nowhere, prompts=nowhere, reward="number", out=nowhere, policy=settings)
    return chosen(name, config).row


def in_expectation(row: PolicyRow) -> Estimator:
    """The loss of the row's move, on answers of the old policy, with exact values for a critic."""

    def estimator(seen: Sampled) -> Tensor:
        facts = _facts(row, seen)
        advantage_NT = row.advantage(facts).detach()
        if row.whiten:
            advantage_NT = whiten(advantage_NT, seen.mask_NT, known=_moments(advantage_NT, seen))
        moment = _moment(row, seen, advantage_NT)
        loss_NT = row.surrogate(moment)
        if row.divergence == "loss":
            loss_NT = loss_NT + row.beta * row.estimator(moment.off_NT)
        return reduced(row.reduction, seen.weighed(loss_NT), seen.mask_NT, _ONE)

    return estimator


def _facts(row: PolicyRow, seen: Sampled) -> Facts:
    kl_NT = torch.zeros_like(seen.old_logp_NT)
    if row.divergence == "reward":
        kl_NT = row.estimator(log_ratio(seen.old_logp_NT, seen.told(seen.spoken.ref_logp_PYT), seen.mask_NT))
    best_P1 = _old(seen).argmax(-1, keepdim=True)
    return Facts(
        score_N=seen.reward_N,
        kl_NT=kl_NT,
        beta=row.beta,
        value_NT=_values(seen, kl_NT, row.beta) if row.critic else torch.zeros_like(kl_NT),
        rival_N=seen.spoken.reward_PY.gather(-1, best_P1)[seen.prompt_N, 0],
        mean=float((seen.share_N * seen.reward_N).sum()),
        mask_NT=seen.mask_NT,
        group_N=seen.group_N,
        finished_N=torch.ones_like(seen.mask_NT[:, 0]),
        paid_NT=torch.zeros_like(kl_NT),
        end_NT=last_places(seen.mask_NT),
    )


def _old(seen: Sampled) -> Float[Tensor, "P Y"]:
    """log π_old of whole answers: each of them is in some group."""
    old_PY = torch.zeros_like(seen.spoken.reward_PY)
    old_PY[seen.prompt_N, seen.answer_N] = masked_sum_rows(seen.old_logp_NT, seen.mask_NT)
    return old_PY


def _values(seen: Sampled, kl_NT: Tensor, beta: float) -> Tensor:
    """What is still to come before each token: V of the answer's whole worth, less the KL that is paid."""
    worth_PY = torch.zeros_like(seen.spoken.reward_PY)
    worth_PY[seen.prompt_N, seen.answer_N] = seen.reward_N - beta * masked_sum_rows(kl_NT, seen.mask_NT)
    cost_NT = beta * (kl_NT.cumsum(-1) - kl_NT)
    return (seen.told(values(_old(seen), worth_PY, seen.spoken)) + cost_NT).masked_fill(~seen.mask_NT, 0.0)


def _moments(value_NT: Tensor, seen: Sampled) -> Moments:
    """Mean and variance over the tokens of a round without end: each as often as it is said."""
    share_NT = seen.share_N[:, None] * seen.mask_NT
    mean = (share_NT * value_NT).sum() / share_NT.sum()
    variance = (share_NT * (value_NT - mean).square()).sum() / share_NT.sum()
    return Moments(count=share_NT.sum(), mean=mean, variance=variance)


def _moment(row: PolicyRow, seen: Sampled, advantage_NT: Tensor) -> Moment:
    shift_NT = log_ratio(seen.logp_NT, seen.old_logp_NT, seen.mask_NT)
    return Moment(
        logp_NT=seen.logp_NT,
        shift_NT=shift_NT,
        ratio_NT=ratio(row.ratio(shift_NT, seen.mask_NT)),
        advantage_NT=advantage_NT,
        apart_NT=shift_NT.expm1() - shift_NT,
        off_NT=log_ratio(seen.logp_NT, seen.told(seen.spoken.ref_logp_PYT), seen.mask_NT),
        mask_NT=seen.mask_NT,
        beta=0.0,
    )
