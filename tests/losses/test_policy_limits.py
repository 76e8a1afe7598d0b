"""What surrogates become at the ends of their settings; sequences and pairs."""

import math

import pytest
import torch

from plaudit.advantages.group import leave_one_out
from plaudit.losses import policy
from plaudit.losses.ratio import (
    completion_log_ratio,
    log_ratio,
    ratio,
    sequence_log_ratio,
    sequence_token_log_ratio,
)
from plaudit.losses.reduce import sequence_mean
from plaudit.tensors.masked import broadcast_to_tokens
from tests.losses.plain_policy import draw, holes

RATIO_NT, ADVANTAGE_NT = draw(0, 20, 9).exp(), draw(1, 20, 9)
EDGES = {"low": 0.2, "high": 0.3}


def same(one, other, tolerance=0.0):
    torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


def test_what_is_ppo_at_equal_edges_at_the_end_of_a_setting_and_of_one_token():
    told = RATIO_NT, ADVANTAGE_NT
    ppo_NT = -torch.min(RATIO_NT * ADVANTAGE_NT, RATIO_NT.clamp(0.8, 1.2) * ADVANTAGE_NT)
    same(policy.clipped(*told, low=0.2, high=0.2), ppo_NT)
    same(policy.clipped(*told, low=math.inf, high=math.inf), policy.unclipped(*told))
    same(policy.clipped(*told, low=0, high=0), -torch.min(RATIO_NT * ADVANTAGE_NT, ADVANTAGE_NT))
    told, ppo_NT = (RATIO_NT, ADVANTAGE_NT), policy.clipped(RATIO_NT, ADVANTAGE_NT, **EDGES)
    same(policy.dual_clipped(*told, **EDGES, ceiling=math.inf), ppo_NT)
    assert not torch.equal(policy.dual_clipped(*told, **EDGES, ceiling=1.5), ppo_NT)
    same(policy.rolled_back(*told, **EDGES, slope=0), ppo_NT)
    same(policy.rolled_back(*told, **EDGES, slope=-1), policy.unclipped(*told), 1e-14)
    logp_NT, old_NT = -draw(5, 8, 1).abs(), -draw(6, 8, 1).abs()
    seen_NT = torch.ones(8, 1, dtype=torch.bool)
    shift_NT = log_ratio(logp_NT, old_NT, seen_NT)
    for level in (sequence_log_ratio, sequence_token_log_ratio):
        same(level(shift_NT, seen_NT), shift_NT, 1e-15)


def test_a_kl_that_never_triggers_is_the_plain_ratio_and_one_that_always_does_a_clip_at_1():
    kl_NT = draw(2, 20, 9).abs()
    rows = policy.kl_triggered(RATIO_NT, ADVANTAGE_NT, kl_NT, limit=math.inf, slope=0.3)
    same(rows, policy.unclipped(RATIO_NT, ADVANTAGE_NT))
    at_1_NT = policy.clipped(RATIO_NT, ADVANTAGE_NT, low=0, high=0)
    same(policy.kl_triggered(RATIO_NT, ADVANTAGE_NT, kl_NT, limit=0), at_1_NT)
    back_NT = policy.rolled_back(RATIO_NT, ADVANTAGE_NT, low=0, high=0, slope=0.3)
    same(policy.kl_triggered(RATIO_NT, ADVANTAGE_NT, kl_NT, limit=0, slope=0.3), back_NT, 1e-13)


def test_a_kl_at_its_limit_triggers():
    told = RATIO_NT, ADVANTAGE_NT, torch.full_like(RATIO_NT, 0.025)
    same(policy.kl_triggered(*told, limit=0.025), policy.clipped(RATIO_NT, ADVANTAGE_NT, low=0, high=0))


def test_a_trust_mask_over_the_plain_ratio_learns_what_ppo_learns():
    shift_NT = RATIO_NT.log().requires_grad_()
    ratio_NT = ratio(shift_NT)
    free_NT = policy.unclipped_tokens(ratio_NT, ADVANTAGE_NT, **EDGES)
    found = torch.autograd.grad(
        policy.unclipped(ratio_NT, ADVANTAGE_NT)[free_NT].sum(), shift_NT, retain_graph=True
    )
    same(found, torch.autograd.grad(policy.clipped(ratio_NT, ADVANTAGE_NT, **EDGES).sum(), shift_NT))
    assert 0 < int(free_NT.sum()) < free_NT.numel()


@pytest.mark.parametrize("loss", [policy.p3o_separate, policy.p3o_joint])
def test_on_policy_a_pair_has_the_pairwise_policy_gradient(loss):
    """½ (r₁ − r₂) ∇ log π(y₁) / π(y₂), through tokens, spreading and the mean over completions."""
    mask_NT, reward_N = holes(10, 4, 5), draw(10, 4)
    logp_NT = (-draw(11, 4, 5).abs()).requires_grad_()
    advantage_N = leave_one_out(reward_N, torch.tensor([0, 0, 1, 1]))
    shift_N = completion_log_ratio(log_ratio(logp_NT, logp_NT, mask_NT), mask_NT)
    spread_NT = broadcast_to_tokens(loss(shift_N, advantage_N, clip=0.2), mask_NT)
    found = torch.autograd.grad(sequence_mean(spread_NT, mask_NT, completions=4), logp_NT)[0]
    said_N = (logp_NT * mask_NT).sum(-1)
    gap_B = reward_N[0::2] - reward_N[1::2]
    wanted = torch.autograd.grad(-(0.5 * gap_B * (said_N[0::2] - said_N[1::2])).mean(), logp_NT)[0]
    same(found, wanted, 1e-15)


@pytest.mark.parametrize("loss", [policy.p3o_separate, policy.p3o_joint])
def test_a_pair_that_has_moved_far_enough_is_left_alone_and_one_that_moved_the_wrong_way_is_not(loss):
    advantage_N = torch.tensor([1.0, -1.0], dtype=torch.float64)
    for shift, moves in (((0.5, -0.5), False), ((-0.5, 0.5), True)):
        shift_N = torch.tensor(shift, dtype=torch.float64).requires_grad_()
        (grad_N,) = torch.autograd.grad(loss(shift_N, advantage_N, clip=0.2).sum(), shift_N)
        assert grad_N.sign().tolist() == ([-1.0, 1.0] if moves else [0.0, 0.0])


@pytest.mark.parametrize("loss", [policy.p3o_separate, policy.p3o_joint])
def test_pairs_without_a_partner_are_refused_and_whole_pairs_may_be_split(loss):
    shift_N, advantage_N = draw(12, 6), draw(13, 6)
    with pytest.raises(RuntimeError):
        loss(shift_N[:3], advantage_N[:3], clip=0.2)
    parts = [loss(shift_N[part], advantage_N[part], clip=0.2) for part in (slice(0, 2), slice(2, 6))]
    same(torch.cat(parts), loss(shift_N, advantage_N, clip=0.2))
