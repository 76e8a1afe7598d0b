"""Losses of pairs: signs, the papers' limits, huge figures; tests/oracles has their formulas."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.losses import preference
from tests.losses.preference_batch import numbers, said, sigma

EACH = [
    (preference.dpo, {"beta": 0.5}),
    (preference.cdpo, {"beta": 0.5, "smoothing": 0.2}),
    (preference.robust, {"beta": 0.5, "smoothing": 0.2}),
    (preference.hinge, {"beta": 0.5}),
    (preference.ipo, {"beta": 0.5}),
    (preference.exo, {"beta": 0.5, "smoothing": 0.2}),
    (preference.nca, {"beta": 0.5}),
    (preference.bco_pair, {"beta": 0.5, "baseline": 0.3}),
    (preference.sppo, {"beta": 0.5}),
    (preference.apo_zero, {"beta": 0.5}),
    (preference.apo_down, {"beta": 0.5}),
    (preference.discopop, {"beta": 0.5, "tau": 0.5}),
    (preference.simpo, {"beta": 0.5, "margin": 0.5}),
    (preference.odds_ratio, {"odds": 0.1}),
]
OF_GAPS = [
    one
    for one in EACH
    if one[0]
    not in (
        preference.nca,
        preference.bco_pair,
        preference.sppo,
        preference.apo_zero,
        preference.apo_down,
        preference.odds_ratio,
    )
]
each_loss = pytest.mark.parametrize(("loss", "own"), EACH, ids=lambda value: getattr(value, "__name__", ""))
each_gap_loss = pytest.mark.parametrize(
    ("loss", "own"), OF_GAPS, ids=lambda value: getattr(value, "__name__", "")
)
finite = st.floats(-20, 20)


def nll(value):
    """−log σ."""
    return math.log1p(math.exp(-value))


def of(loss, win, lose, **own):
    """One pair of Δ_w and Δ_l."""
    return loss(said(numbers(win)), said(numbers(lose)), **own).item()


def slopes(loss, win, lose, **own):
    """The gradients by Δ_w and Δ_l."""
    shifts = [numbers(win).requires_grad_(), numbers(lose).requires_grad_()]
    return [grad.item() for grad in torch.autograd.grad(loss(*map(said, shifts), **own).sum(), shifts)]


@each_loss
def test_the_preferred_is_pushed_up_and_the_other_down(loss, own):
    """Near the start; DiscoPOP does where h is large beside τ, APO-down is for itself."""
    where = {preference.discopop: (1.0, -2.0), preference.odds_ratio: (-1.0, -0.5)}.get(loss, (0.1, 0.05))
    up, down = slopes(loss, *where, **own)
    assert loss is preference.apo_down or up < 0
    assert down > 0


@each_gap_loss
def test_losses_of_the_gap_push_both_by_as_much_and_do_not_see_a_common_shift(loss, own):
    up, down = slopes(loss, 0.7, 0.2, **own)
    assert up == pytest.approx(-down, abs=1e-15)
    assert of(loss, 5.7, 5.2, **own) == pytest.approx(of(loss, 0.7, 0.2, **own), abs=1e-12)


@pytest.mark.parametrize(
    "loss",
    [preference.nca, preference.bco_pair, preference.sppo, preference.apo_zero, preference.apo_down],
    ids=lambda value: value.__name__,
)
def test_the_others_see_a_common_shift(loss):
    own = dict(EACH)[loss]
    assert abs(of(loss, 5.7, 5.2, **own) - of(loss, 0.7, 0.2, **own)) > 1e-3


@settings(max_examples=60, deadline=None)
@given(win=finite, lose=finite, beta=st.floats(0.01, 3))
def test_without_noise_and_margin_they_are_dpo(win, lose, beta):
    plain = pytest.approx(of(preference.dpo, win, lose, beta=beta), abs=1e-12)
    for loss, own in (
        (preference.cdpo, {"smoothing": 0.0}),
        (preference.robust, {"smoothing": 0}),
        (preference.simpo, {"margin": 0}),
    ):
        assert of(loss, win, lose, beta=beta, **own) == plain


@settings(max_examples=60, deadline=None)
@given(win=finite, lose=finite, beta=st.floats(0.01, 3), noise=st.floats(0, 0.45))
def test_over_swapped_labels_robust_dpo_is_on_average_the_clean_loss(win, lose, beta, noise):
    own = {"beta": beta, "smoothing": noise}
    mean = (1 - noise) * of(preference.robust, win, lose, **own) + noise * of(
        preference.robust, lose, win, **own
    )
    assert mean == pytest.approx(of(preference.dpo, win, lose, beta=beta), abs=1e-9)


def test_a_soft_label_is_met_at_its_log_odds():
    for loss in (preference.cdpo, preference.exo):
        met = slopes(loss, math.log(4) / 0.3, 0.0, beta=0.3, smoothing=0.2)
        assert met == pytest.approx([0, 0], abs=1e-15)


def test_where_squares_and_hinges_rest():
    assert of(preference.ipo, 3.0, 1.0, beta=0.25) == 0.0
    assert slopes(preference.ipo, 3.0, 1.0, beta=0.25) == [0.0, 0.0]
    assert slopes(preference.ipo, 3.5, 1.0, beta=0.25) == [1.0, -1.0]
    assert of(preference.sppo, 2.0, -2.0, beta=0.25) == 0.0
    assert slopes(preference.sppo, 1.5, -1.5, beta=0.25) == [-1.0, 1.0]
    assert slopes(preference.hinge, 3.0, 1.0, beta=1.0) == [0.0, 0.0]
    assert slopes(preference.hinge, 1.5, 1.0, beta=1.0) == [-1.0, 1.0]


def test_simpo_at_its_margin_and_bco_at_its_baseline_are_undecided():
    assert of(preference.simpo, 3.0, 1.0, beta=2.0, margin=4.0) == pytest.approx(math.log(2))
    assert of(preference.bco_pair, 2.0, 2.0, beta=0.5, baseline=1.0) == pytest.approx(2 * math.log(2))
    there = of(preference.bco_pair, 3.0, -1.0, beta=0.5, baseline=0.0)
    assert of(preference.bco_pair, 5.0, 1.0, beta=0.5, baseline=1.0) == pytest.approx(there)


def test_nca_stops_raising_the_preferred_at_twice_its_likelihood():
    """−β + 1.5 β σ(βΔ_w) is 0 where σ = 2/3; the other is lowered by ½ β σ(βΔ_l)."""
    up, down = slopes(preference.nca, math.log(2) / 0.5, 1.0, beta=0.5)
    assert up == pytest.approx(0, abs=1e-15)
    assert down == pytest.approx(0.5 * 0.5 * sigma(0.5))
    assert slopes(preference.nca, 5.0, 1.0, beta=0.5)[0] > 0


def test_apo_zero_pulls_apart_and_apo_down_lowers_both_but_the_other_more():
    up, down = slopes(preference.apo_zero, 0.4, 0.4, beta=0.5)
    assert up == pytest.approx(-0.5 * sigma(0.2) * sigma(-0.2))
    assert down == pytest.approx(-up)
    lowered, lowered_more = slopes(preference.apo_down, 0.1, -0.5, beta=1.0)
    assert 0 < lowered < lowered_more
    for loss in (preference.apo_zero, preference.apo_down):
        extremes = {of(loss, win, lose, beta=1.0) for win in (-99.0, 99.0) for lose in (-99.0, 99.0)}
        assert all(0 <= value <= 2 for value in extremes)
    # y_w away at the bottom and y_l further: the least that APO-down can be.
    assert of(preference.apo_down, -99.0, -999.0, beta=1.0) == pytest.approx(0, abs=1e-9)
    assert of(preference.apo_zero, 99.0, -99.0, beta=1.0) == pytest.approx(0, abs=1e-9)


def test_discopop_at_large_and_at_small_tau_and_its_rise_just_above_0():
    for logit in (-1.5, 0.5):
        halves = 0.5 * nll(logit) + 0.5 * math.exp(-logit)
        assert of(preference.discopop, logit, 0.0, beta=1.0, tau=1e9) == pytest.approx(halves)
    assert of(preference.discopop, -1.5, 0.0, beta=1.0, tau=1e-4) == pytest.approx(nll(-1.5))
    assert of(preference.discopop, 1.5, 0.0, beta=1.0, tau=1e-4) == pytest.approx(math.exp(-1.5))
    up, down = slopes(preference.discopop, 0.0, 0.0, beta=1.0, tau=0.05)
    assert up == pytest.approx((1 - math.log(2)) / (4 * 0.05) - 0.75)
    assert down == pytest.approx(-up)


@each_loss
@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_huge_figures_stay_numbers(loss, own, beta):
    ends = torch.tensor([-1e4, -90.0, -1.0, 0.0, 1.0, 90.0, 1e4])
    win_B, lose_B = (side.flatten().requires_grad_() for side in torch.meshgrid(ends, ends, indexing="ij"))
    if loss is not preference.odds_ratio:
        own = own | {"beta": beta}
    loss_B = loss(said(win_B), said(lose_B), **own)
    assert bool(loss_B.isfinite().all())
    for grad_B in torch.autograd.grad(loss_B.sum(), (win_B, lose_B)):
        assert bool(grad_B.isfinite().all())


def test_odds_of_a_certain_answer_stay_numbers():
    """A log-prob of exactly 0 has infinite odds; the loss takes the largest probability below 1."""
    for dtype in (torch.float32, torch.float64):
        win_B = numbers(0.0, -1e-12, -1e4, 0.0, -1e4, dtype=dtype).requires_grad_()
        lose_B = numbers(0.0, 0.0, 0.0, -1e4, -1e4, dtype=dtype).requires_grad_()
        loss_B = preference.odds_ratio(said(win_B), said(lose_B), odds=0.1)
        assert loss_B[[0, 4]].tolist() == pytest.approx([0.1 * math.log(2)] * 2)
        assert loss_B[3].item() == 0.0
        for grad_B in torch.autograd.grad(loss_B.sum(), (win_B, lose_B)):
            assert bool(grad_B.isfinite().all())
