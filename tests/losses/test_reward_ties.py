"""Win, tie or loss: two models of when people see no difference, at their limits and by their pulls."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.losses.reward import bradley_terry, davidson, rao_kupper, win_tie_lose
from tests.losses.preference_batch import drawn, numbers as one

WIN, TIE, LOSS = torch.eye(3, dtype=torch.float64)
gaps = st.floats(-6, 6)


def with_davidson(first_B, second_B, strength):
    return davidson(first_B, second_B, nu=strength)


def with_rao_kupper(first_B, second_B, strength):
    return rao_kupper(first_B, second_B, theta=1 + strength)


# The strength of ties in both: 0 knows none.
both = pytest.mark.parametrize("model", [with_davidson, with_rao_kupper])


@both
@settings(max_examples=40, deadline=None)
@given(first=gaps, second=gaps, strength=st.floats(0, 30))
def test_chances_add_up_to_one(model, first, second, strength):
    assert model(one(first), one(second), strength).exp().sum().item() == pytest.approx(1, abs=1e-12)


@both
def test_without_ties_the_loss_and_its_gradient_are_those_of_bradley_terry(model):
    scores = [score_B.clone().requires_grad_() for score_B in drawn(1, 2, 4)]
    logp_B3 = model(*scores, 0)
    assert not logp_B3[:, 1].exp().any()
    loss_B = win_tie_lose(logp_B3, torch.stack((WIN, LOSS, WIN, LOSS)))
    wanted_B = bradley_terry(*scores, label=torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(loss_B, wanted_B, rtol=0, atol=1e-12)
    found, wanted = (torch.autograd.grad(losses_B.sum(), scores) for losses_B in (loss_B, wanted_B))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


@both
def test_a_tie_that_cannot_be_and_was_seen_costs_without_end(model):
    assert win_tie_lose(model(one(1.0), one(0.0), 0), TIE[None]).item() == math.inf


def test_a_win_of_rao_kupper_is_a_comparison_with_margin():
    first_B, second_B = drawn(2, 2, 9)
    win_B = -rao_kupper(first_B, second_B, theta=3)[:, 0]
    torch.testing.assert_close(win_B, bradley_terry(first_B, second_B, margin=math.log(3)))


@both
def test_a_tie_is_likeliest_between_equals_and_with_more_of_the_strength(model):
    apart_B = torch.tensor([0.0, 0.5, 1.0, 3.0], dtype=torch.float64)
    weak_B, strong_B = (model(apart_B, torch.zeros(4).double(), strength)[:, 1] for strength in (0.5, 2.0))
    assert bool((weak_B.diff() < 0).all())
    assert bool((strong_B > weak_B).all())
    assert model(one(0.0), one(0.0), 1e6)[0, 1].exp().item() > 0.999


@both
def test_a_tie_draws_together_and_a_win_pushes_apart(model):
    scores = [one(1.0).requires_grad_(), one(0.0).requires_grad_()]
    for label_3, signs in ((WIN, [-1, 1]), (TIE, [1, -1]), (LOSS, [1, -1])):
        grads = torch.autograd.grad(win_tie_lose(model(*scores, 1.0), label_3[None]).sum(), scores)
        assert [grad_B.sign().item() for grad_B in grads] == signs


@both
def test_shares_of_annotators_are_met_by_their_own_chances(model):
    scores = [one(1.0).requires_grad_(), one(0.2).requires_grad_()]
    logp_B3 = model(*scores, 0.8)
    loss_B = win_tie_lose(logp_B3, logp_B3.exp().detach())
    assert all(grad_B.abs().item() < 1e-12 for grad_B in torch.autograd.grad(loss_B.sum(), scores))
    mixed_B = win_tie_lose(logp_B3, (0.5 * WIN + 0.5 * TIE)[None])
    parts = [win_tie_lose(logp_B3, label_3[None]).item() for label_3 in (WIN, TIE)]
    assert mixed_B.item() == pytest.approx(sum(parts) / 2)


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strength", [0, 0.5])
def test_huge_gaps_stay_numbers(model, dtype, strength):
    first_B = torch.tensor([1e4, -1e4], dtype=dtype).requires_grad_()
    for label_3 in (WIN, LOSS) if strength == 0 else (WIN, TIE, LOSS):
        logp_B3 = model(first_B, torch.zeros_like(first_B), strength)
        loss_B = win_tie_lose(logp_B3, label_3.to(dtype).expand(2, 3))
        assert bool(loss_B.isfinite().all())
        assert bool(torch.autograd.grad(loss_B.sum(), first_B)[0].isfinite().all())


@both
def test_finite_differences_agree_also_on_the_strength_of_ties(model):
    first_B, second_B = (score_B.clone().requires_grad_() for score_B in drawn(4, 2, 5))
    strength = torch.tensor(0.8, dtype=torch.float64).requires_grad_()
    label_B3 = drawn(5, 5, 3).softmax(-1)

    def loss(*given):
        return win_tie_lose(model(*given), label_B3)

    assert torch.autograd.gradcheck(loss, (first_B, second_B, strength))
