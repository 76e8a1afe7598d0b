"""KTO and BCO on single answers: signs, weights, limits, huge figures; tests/oracles has their formulas."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.losses.preference import apo_zero, bco_pair
from plaudit.losses.unpaired import bco, kto
from tests.losses.preference_batch import drawn, numbers, said

OWN = {"beta": 0.5, "baseline": 0.3, "desirable": 1.5, "undesirable": 0.7}
both = pytest.mark.parametrize("loss", [kto, bco], ids=lambda value: value.__name__)


def of(loss, shift, label, **own):
    return loss(said(numbers(shift)), numbers(label), **own).item()


@both
def test_good_answers_are_pushed_up_and_bad_ones_down(loss):
    shift_B = drawn(0, 8).requires_grad_()
    for label, sign in ((1.0, -1), (0.0, 1)):
        loss_B = loss(said(shift_B), torch.full_like(shift_B, label), **OWN)
        (grad_B,) = torch.autograd.grad(loss_B.sum(), shift_B)
        assert bool((sign * grad_B > 0).all())


@both
def test_a_share_of_votes_is_the_mean_of_both_verdicts(loss):
    shift_B = drawn(1, 8)
    mixed_B = loss(said(shift_B), torch.full_like(shift_B, 0.25), **OWN)
    good_B, bad_B = (loss(said(shift_B), torch.full_like(shift_B, label), **OWN) for label in (1.0, 0.0))
    torch.testing.assert_close(mixed_B, 0.25 * good_B + 0.75 * bad_B, rtol=0, atol=1e-14)


@settings(max_examples=60, deadline=None)
@given(win=st.floats(-20, 20), lose=st.floats(-20, 20), beta=st.floats(0.01, 3), delta=st.floats(-2, 2))
def test_a_pair_taken_apart_is_the_pairs_loss(win, lose, beta, delta):
    """KTO without a baseline is APO-zero, BCO is BCO of pairs: of a good and a bad answer the sum."""
    sides = said(numbers(win)), said(numbers(lose))
    apart = of(kto, win, 1.0, beta=beta, baseline=0.0) + of(kto, lose, 0.0, beta=beta, baseline=0.0)
    assert apart == pytest.approx(apo_zero(*sides, beta=beta).item(), abs=1e-12)
    own = {"beta": beta, "baseline": delta}
    apart = of(bco, win, 1.0, **own) + of(bco, lose, 0.0, **own)
    assert apart == pytest.approx(bco_pair(*sides, **own).item(), abs=1e-12)


def test_kto_learns_most_at_its_baseline_and_nothing_far_away():
    shift_B = numbers(0.3, 5.0, -5.0, 1e3, -1e3).requires_grad_()
    loss_B = kto(said(shift_B), torch.ones_like(shift_B), beta=1.0, baseline=0.3)
    (grad_B,) = torch.autograd.grad(loss_B.sum(), shift_B)
    assert grad_B[0].item() == -0.25
    assert grad_B[3:].tolist() == [0.0, 0.0]
    assert grad_B[1:3].abs().max() < 0.25


@both
def test_weights_are_of_their_own_kind_only(loss):
    plain = {"beta": 0.5, "baseline": 0.3}
    for label, weight in ((1.0, 1.5), (0.0, 0.7)):
        assert of(loss, 1.3, label, **OWN) == pytest.approx(weight * of(loss, 1.3, label, **plain))


@both
@pytest.mark.parametrize("label", [0.0, 0.5, 1.0])
def test_huge_figures_stay_numbers(loss, label):
    shift_B = torch.tensor([-1e4, -90.0, 0.0, 90.0, 1e4]).requires_grad_()
    loss_B = loss(said(shift_B), torch.full_like(shift_B, label), **OWN)
    (grad_B,) = torch.autograd.grad(loss_B.sum(), shift_B)
    assert bool(loss_B.isfinite().all())
    assert bool(grad_B.isfinite().all())
