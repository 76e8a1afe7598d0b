"""Ratios, sequence ratios and the weights of who sampled; which tokens are trusted, which are clipped."""

import math
from functools import partial

import pytest
import torch

from plaudit.losses.policy import (
    clip_fraction,
    clipped_high,
    clipped_low,
    kl_below,
    ratio_within,
    recently_sampled,
    trusted_completions,
    unclipped_tokens,
)
from plaudit.losses.ratio import (
    MAX_LOG_RATIO,
    completion_log_ratio,
    effective_share,
    log_ratio,
    ratio,
    sequence_log_ratio,
    sequence_token_log_ratio,
    truncated_importance_weight,
)
from tests.losses.plain_policy import draw, holes

MASK_NT = torch.tensor([[True, False, True], [False, False, False]])


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e30])
def test_the_ratio_of_padding_is_1_whatever_its_log_probs_are(poison):
    logp_NT = torch.tensor([[-1.0, poison, -3.0], [poison] * 3]).requires_grad_()
    found_NT = ratio(log_ratio(logp_NT, torch.tensor([[-2.0, poison, -3.0], [poison] * 3]), MASK_NT))
    (grad_NT,) = torch.autograd.grad(found_NT.sum(), logp_NT)
    assert found_NT.tolist() == [[pytest.approx(math.e), 1.0, 1.0], [1.0] * 3]
    assert grad_NT.tolist() == [[pytest.approx(math.e), 0.0, 1.0], [0.0] * 3]


def test_the_same_policy_has_a_ratio_of_exactly_1_and_no_gradient_goes_to_the_old_one():
    logp_NT = draw(0, 4, 5).requires_grad_()
    shift_NT = log_ratio(logp_NT, logp_NT, torch.ones(4, 5, dtype=torch.bool))
    assert bool((ratio(shift_NT) == 1).all())
    assert torch.autograd.grad(shift_NT.sum(), logp_NT)[0].tolist() == [[1.0] * 5] * 4


def test_far_away_the_ratio_stands_still_without_a_gradient():
    shift_N = torch.tensor(
        [-1e9, -MAX_LOG_RATIO - 1, -MAX_LOG_RATIO + 1, MAX_LOG_RATIO - 1, MAX_LOG_RATIO + 1, 1e9]
    )
    shift_N = shift_N.double().requires_grad_()
    found_N = ratio(shift_N)
    (grad_N,) = torch.autograd.grad(found_N.sum(), shift_N)
    ends = math.exp(-MAX_LOG_RATIO), math.exp(MAX_LOG_RATIO)
    assert found_N.tolist() == pytest.approx([ends[0]] * 2 + [math.exp(-19), math.exp(19)] + [ends[1]] * 2)
    assert (grad_N != 0).tolist() == [False, False, True, True, False, False]


def test_sequences_by_hand_and_whose_gradient_they_have():
    shift_NT = torch.tensor([[1.0, math.nan, 4.0], [math.nan] * 3])
    assert completion_log_ratio(shift_NT, MASK_NT).tolist() == [5.0, 0.0]
    for level in (sequence_log_ratio, sequence_token_log_ratio):
        assert level(shift_NT, MASK_NT).tolist() == [[2.5, 0.0, 2.5], [0.0] * 3]
    shift_NT = draw(1, 1, 3).requires_grad_()
    mask_NT = torch.tensor([[True, False, True]])
    for level, wanted in ((sequence_log_ratio, [0.5, 0.0, 0.5]), (sequence_token_log_ratio, [1.0, 0.0, 0.0])):
        (grad_NT,) = torch.autograd.grad(level(shift_NT, mask_NT)[0, 0], shift_NT)
        assert grad_NT.tolist() == [wanted]


def test_a_weight_makes_a_sampler_that_rounds_unbiased_until_it_is_capped():
    """Σ_v μ(v) w(v) f(v) = Σ_v π(v) f(v) for w = π / μ."""
    logp_NT, sampler_NT = (draw(seed, 1, 6).log_softmax(-1) for seed in (2, 3))
    seen_NT, value_NT = torch.ones(1, 6, dtype=torch.bool), draw(4, 1, 6)
    weight_NT = truncated_importance_weight(logp_NT.requires_grad_(), sampler_NT, seen_NT, cap=math.inf)
    assert not weight_NT.requires_grad
    wanted = (logp_NT.exp() * value_NT).sum().item()
    assert (sampler_NT.exp() * weight_NT * value_NT).sum().item() == pytest.approx(wanted, abs=1e-14)
    capped_NT = truncated_importance_weight(logp_NT, sampler_NT, seen_NT, cap=1.5)
    assert torch.equal(capped_NT, weight_NT.clamp(max=1.5))
    assert bool((weight_NT > 1.5).any())
    poisoned = sampler_NT.masked_fill(torch.arange(6) > 2, math.nan)
    padded_NT = truncated_importance_weight(logp_NT, poisoned, torch.arange(6)[None] <= 2, cap=1.5)
    assert padded_NT[0, 3:].tolist() == [1.0] * 3


def test_the_bounds_of_weights_by_token_by_mask_and_by_answer():
    """By sequence E_μ[w f(answer)] is E_π[f(answer)], counted over all answers of two tokens."""
    ratio_VV, mask_NT = 2.0 * draw(5, 3, 3), torch.ones(9, 2, dtype=torch.bool)
    here_V, there_V = (draw(seed, 3).log_softmax(-1) for seed in (6, 7))
    pair_NT = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    logp_NT, sampler_NT = here_V[pair_NT], there_V[pair_NT]
    weigh = partial(truncated_importance_weight, logp_NT, sampler_NT, mask_NT)
    whole_NT = weigh(cap=math.inf, bounds="sequence")
    assert torch.equal(whole_NT[:, 0], whole_NT[:, 1])
    expected = (sampler_NT.sum(-1).exp() * whole_NT[:, 0] * ratio_VV.flatten()).sum().item()
    assert expected == pytest.approx((logp_NT.sum(-1).exp() * ratio_VV.flatten()).sum().item(), abs=1e-12)
    token_NT = weigh(cap=math.inf)
    beyond_NT = token_NT > 1.2
    assert bool(beyond_NT.any())
    assert torch.equal(weigh(cap=1.2, bounds="masked"), token_NT.masked_fill(beyond_NT, 0.0))
    assert torch.equal(weigh(cap=1.2, bounds="sequence"), whole_NT.clamp(max=1.2))


def test_the_share_of_weighted_draws_that_is_left_and_shares_of_parts_add_up():
    """By its variance: an average of draws with weights w has that of (Σw)² / Σw² equal ones."""
    weight_M = draw(8, 50).exp()
    share = effective_share(weight_M).item()
    assert 1 / (share * 50) == pytest.approx((weight_M / weight_M.sum()).square().sum().item())
    assert effective_share(torch.full((7,), 3.0)).item() == pytest.approx(1.0)
    clipped_NT, mask_NT = holes(1, 6, 5), holes(2, 6, 5)
    tokens = int(mask_NT.sum())
    parts = [clip_fraction(clipped_NT[p], mask_NT[p], tokens=tokens) for p in (slice(0, 2), slice(2, 6))]
    assert sum(parts).item() == pytest.approx(int((clipped_NT & mask_NT).sum()) / tokens)


def test_which_tokens_are_clipped_and_how_many():
    ratio_NT = torch.tensor([[0.5, 0.5, 1.0, 1.5, 1.5]])
    advantage_NT = torch.tensor([[1.0, -1.0, 1.0, 1.0, -1.0]])
    low_NT, high_NT = (
        clipped_low(ratio_NT, advantage_NT, low=0.2),
        clipped_high(ratio_NT, advantage_NT, high=0.2),
    )
    assert low_NT.tolist() == [[False, True, False, False, False]]
    assert high_NT.tolist() == [[False, False, False, True, False]]
    free_NT = unclipped_tokens(ratio_NT, advantage_NT, low=0.2, high=0.2)
    assert free_NT.tolist() == [[True, False, True, False, True]]
    mask_NT = torch.tensor([[True, True, True, False, True]])
    assert clip_fraction(low_NT, mask_NT, tokens=8).item() == 0.125
    assert clip_fraction(high_NT, mask_NT, tokens=8).item() == 0.0


def test_who_is_trusted():
    assert ratio_within(torch.tensor([0.75, 1.25, 1.5]), low=0.25, high=0.25).tolist() == [True, True, False]
    assert kl_below(torch.tensor([[0.02, 0.025]]), limit=0.025).tolist() == [[True, False]]
    assert recently_sampled(torch.tensor([[0, 2, 3]]), limit=2).tolist() == [[True, True, False]]


def test_a_completion_is_dropped_when_it_is_bad_and_has_become_rare():
    shift_NT = torch.tensor([[-1.0, math.nan, -3.0]] * 4)
    mask_NT = torch.tensor([[True, False, True]] * 4)
    advantage_N = torch.tensor([1.0, 0.0, -1.0, -1.0])
    trusted_N = trusted_completions(shift_NT, advantage_N, mask_NT, limit=1.9)
    assert trusted_N.tolist() == [True, True, False, False]
    assert trusted_completions(shift_NT, advantage_N, mask_NT, limit=2.0).tolist() == [True] * 4
