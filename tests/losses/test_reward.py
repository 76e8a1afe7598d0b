"""Comparisons, ratings and steps: signs, limits, finite differences, an independent coin."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn.functional import logsigmoid

from plaudit.losses.reduce import token_mean
from plaudit.losses.reward import (
    binary,
    bradley_terry,
    centring,
    llama_margin,
    process_supervision,
    regression,
)
from tests.losses.preference_batch import drawn, numbers, sigma

EVERYTHING = {"margin": 0.5, "label": 0.8, "smoothing": 0.1, "noise": 0.2}
ONE_EACH = [{"margin": 2.0}, {"label": 0.3}, {"label": 0.0}, {"smoothing": 0.1}, {"noise": 0.1}]
ONE_EACH += [{}, EVERYTHING]


@settings(max_examples=60, deadline=None)
@given(
    gap=st.floats(-8, 8),
    margin=st.floats(-3, 3),
    label=st.floats(0, 1),
    smoothing=st.floats(0, 0.5),
    noise=st.floats(0, 0.9),
)
def test_a_coin_thrown_case_by_case_agrees(gap, margin, label, smoothing, noise):
    """Every hidden case is added up: who answered (with or without looking), which label was swapped."""
    strengths = np.exp(np.array([gap / 2, margin - gap / 2], dtype=np.longdouble))
    looked, seen = strengths / strengths.sum(), np.zeros(2, dtype=np.longdouble)
    for written, share in enumerate((label, 1 - label)):
        for swapped, chance in enumerate((1 - smoothing, smoothing)):
            seen[written ^ swapped] += share * chance
    answered = sum(share * np.array(way) for share, way in ((1 - noise, looked), (noise, (0.5, 0.5))))
    options = {"margin": margin, "label": label, "smoothing": smoothing, "noise": noise}
    found = bradley_terry(numbers(gap / 2 + 1), numbers(1 - gap / 2), **options)
    assert found.item() == pytest.approx(float(-(seen * np.log(answered)).sum()), abs=1e-10)


def test_without_options_it_is_the_plain_loss_and_at_no_strength_each_option_is_nothing():
    first_B, second_B = drawn(1, 2, 9)
    plain_B = -logsigmoid(first_B - second_B)
    assert torch.equal(bradley_terry(first_B, second_B), plain_B)
    nothing = {"margin": torch.zeros(9).double(), "label": torch.ones(9).double(), "smoothing": 0, "noise": 0}
    assert torch.equal(bradley_terry(first_B, second_B, **nothing), plain_B)


@pytest.mark.parametrize("options", [{}, {"margin": 1.0}, {"smoothing": 0.1}, {"noise": 0.1}])
def test_the_better_is_pushed_up_and_the_worse_down_by_as_much(options):
    first_B, second_B = drawn(3, 2, 9).mul(0.1).unbind()
    scores = [first_B.requires_grad_(), second_B.requires_grad_()]
    up_B, down_B = torch.autograd.grad(bradley_terry(*scores, **options).sum(), scores)
    assert bool((up_B < 0).all())
    torch.testing.assert_close(up_B, -down_B, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("options", "wanted"), [({"label": 0.8}, 0.8), ({"smoothing": 0.2}, 0.8)])
def test_a_soft_label_is_met_by_the_gap_that_has_its_chance(options, wanted):
    gap_B = numbers(math.log(wanted / (1 - wanted)) + 0.5).requires_grad_()
    loss_B = bradley_terry(gap_B, numbers(0.0), margin=0.5, **options)
    (grad_B,) = torch.autograd.grad(loss_B.sum(), gap_B)
    assert grad_B.abs().max() < 1e-12


def test_what_blind_answers_hide_is_found_with_the_noise_term_and_shrunk_without():
    true_gap, blind = 3.0, 0.1
    seen = (1 - blind) * sigma(true_gap) + blind / 2
    for noise, gap in ((blind, true_gap), (0.0, math.log(seen / (1 - seen)))):
        gap_B = numbers(gap).requires_grad_()
        loss_B = bradley_terry(gap_B, numbers(0.0), label=seen, noise=noise)
        assert torch.autograd.grad(loss_B.sum(), gap_B)[0].abs().max() < 1e-12
    assert math.log(seen / (1 - seen)) < true_gap - 0.5


def test_noise_bounds_what_one_mistake_can_cost_and_smoothing_does_not():
    wrong_B = numbers(-50.0).requires_grad_()
    bounded_B = bradley_terry(wrong_B, numbers(0.0), noise=0.1)
    assert bounded_B.item() == pytest.approx(math.log(20))
    assert torch.autograd.grad(bounded_B.sum(), wrong_B)[0].abs().item() < 1e-12
    smoothed_B = bradley_terry(wrong_B, numbers(0.0), smoothing=0.05)
    assert smoothed_B.item() == pytest.approx(47.5)
    assert torch.autograd.grad(smoothed_B.sum(), wrong_B)[0].item() == pytest.approx(-0.95)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [*ONE_EACH, {"noise": 1.0}])
def test_huge_gaps_stay_numbers(options, dtype):
    first_B = numbers(1e4, -1e4, dtype=dtype).requires_grad_()
    loss_B = bradley_terry(first_B, torch.zeros_like(first_B), **options)
    (grad_B,) = torch.autograd.grad(loss_B.sum(), first_B)
    assert bool(loss_B.isfinite().all())
    assert bool(grad_B.isfinite().all())


def test_a_huge_gap_costs_nothing_or_itself():
    assert bradley_terry(numbers(1e4, -1e4), numbers(0.0, 0.0)).tolist() == [0.0, 1e4]


@pytest.mark.parametrize("options", ONE_EACH)
def test_finite_differences_agree_on_a_comparison(options):
    scores = [one.clone().requires_grad_() for one in drawn(4, 2, 5)]
    assert torch.autograd.gradcheck(lambda *both: bradley_terry(*both, **options), scores)


def test_finite_differences_agree_on_label_and_margin():
    first_B, second_B, margin_B = (one.clone().requires_grad_() for one in drawn(5, 3, 5))
    label_B = drawn(6, 5).sigmoid().requires_grad_()

    def loss(*given):
        return bradley_terry(given[0], given[1], margin=given[2], label=given[3], smoothing=0.1, noise=0.1)

    assert torch.autograd.gradcheck(loss, (first_B, second_B, margin_B, label_B))


def test_only_differences_count_but_for_centring_which_fixes_the_level():
    first_B, second_B = drawn(7, 2, 9)
    up_B, up_too_B = first_B + 5, second_B + 5
    torch.testing.assert_close(
        bradley_terry(up_B, up_too_B, **EVERYTHING), bradley_terry(first_B, second_B, **EVERYTHING)
    )
    scores = [numbers(3.0).requires_grad_(), numbers(1.0).requires_grad_()]
    level_B = centring(*scores, weight=0.01)
    assert level_B.item() == pytest.approx(0.16)
    grads = torch.autograd.grad(level_B.sum(), scores)
    assert [grad_B.item() for grad_B in grads] == pytest.approx([0.08, 0.08])
    assert centring(numbers(2.0), numbers(-2.0), weight=0.01).item() == 0.0
    assert torch.autograd.gradcheck(lambda *both: centring(*both, weight=0.3), scores)


def test_the_two_margin_tables_of_llama_2():
    assert [llama_margin(strength) for strength in (3, 2, 1, 0)] == [1.0, 2 / 3, 1 / 3, 0.0]
    assert [llama_margin(strength, large=True) for strength in (3, 2, 1, 0)] == [3.0, 2.0, 1.0, 0.0]


@pytest.mark.parametrize("strength", [-1, 4, math.nan])
def test_a_strength_off_the_table_is_refused(strength):
    with pytest.raises(ValueError, match=r"strength (-1|4|nan) has no margin: map your scale"):
        llama_margin(strength)


def test_a_rating_by_hand():
    reward_N = numbers(1.0, 4.0, 2.0).requires_grad_()
    loss_N = regression(reward_N, numbers(3.0, 4.0, 1.5))
    assert loss_N.tolist() == [4.0, 0.0, 0.25]
    assert torch.autograd.grad(loss_N.sum(), reward_N)[0].tolist() == [-4.0, 0.0, 1.0]
    assert torch.autograd.gradcheck(lambda score_N: regression(score_N, numbers(3.0, 4.0, 1.5)), reward_N)


def test_a_labels_gradient_and_limits():
    reward_N = numbers(-1e4, -1.0, 1.0, 1e4).requires_grad_()
    for label, sign in ((1.0, -1), (0.0, 1)):
        loss_N = binary(reward_N, torch.full_like(reward_N, label))
        (grad_N,) = torch.autograd.grad(loss_N.sum(), reward_N)
        assert bool(loss_N.isfinite().all())
        assert bool((sign * grad_N >= 0).all())
        assert bool((sign * grad_N[1:3] > 0).all())
    met_N = numbers(math.log(3.0)).requires_grad_()
    assert torch.autograd.grad(binary(met_N, numbers(0.75)).sum(), met_N)[0].abs().item() < 1e-12
    label_N = drawn(11, 4).sigmoid()
    score_N = drawn(12, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda given_N: binary(given_N, label_N, positive_weight=2), score_N)


def test_steps_are_labels_at_their_last_tokens_and_nothing_else_enters():
    nan = math.nan
    reward_NT = torch.stack((numbers(nan, 1.0, 0.5, -2.0), numbers(0.3, nan, nan, nan))).requires_grad_()
    label_NT = torch.stack((numbers(nan, 1.0, nan, 0.0), numbers(1.0, nan, nan, nan)))
    step_NT = torch.tensor([[False, True, False, True], [True, False, False, False]])
    loss_NT = process_supervision(reward_NT, label_NT, step_NT, positive_weight=2)
    ends = [-2 * math.log(sigma(1)), -math.log(sigma(2)), -2 * math.log(sigma(0.3))]
    assert loss_NT[step_NT].tolist() == pytest.approx(ends)
    assert not loss_NT[~step_NT].any()
    mean = token_mean(loss_NT, step_NT, tokens=3)
    assert mean.item() == pytest.approx(sum(ends) / 3)
    (grad_NT,) = torch.autograd.grad(mean, reward_NT)
    assert grad_NT[step_NT].sign().tolist() == [-1, 1, -1]
    assert grad_NT[~step_NT].tolist() == [0.0] * 5


def test_finite_differences_agree_on_steps_and_a_split_changes_nothing():
    reward_NT, label_NT = drawn(13, 4, 6).requires_grad_(), drawn(14, 4, 6).sigmoid()
    step_NT = drawn(15, 4, 6) > 0
    assert torch.autograd.gradcheck(
        lambda given_NT: process_supervision(given_NT, label_NT, step_NT), reward_NT
    )
    steps = int(step_NT.sum())
    assert 0 < steps < step_NT.numel()
    whole = token_mean(process_supervision(reward_NT, label_NT, step_NT), step_NT, tokens=steps)
    split = sum(
        token_mean(
            process_supervision(reward_NT[part], label_NT[part], step_NT[part]), step_NT[part], tokens=steps
        )
        for part in (slice(0, 1), slice(1, 4))
    )
    torch.testing.assert_close(split, whole, rtol=0, atol=1e-12)
