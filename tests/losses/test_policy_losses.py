"""Surrogates: by hand, against plain Python, their gradients' signs, finite differences, padding, parts."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.losses.policy import cispo, clipped, dual_clipped, kl_triggered, policy_gradient, rolled_back
from tests.losses.plain_policy import ALL, REDUCED, draw, holes, losses_of

all_of_them = pytest.mark.parametrize("name", ALL)


def one(*values):
    return torch.tensor([values], dtype=torch.float64)


def test_by_hand():
    r, a = one(0.5, 0.5, 1.5, 1.5, 9.0), one(2.0, -2.0, 2.0, -2.0, -2.0)
    assert clipped(r, a, low=0.25, high=0.25).tolist() == [[-1.0, 1.5, -2.5, 3.0, 18.0]]
    assert clipped(r, a, low=0.25, high=0.4).tolist()[0][2] == pytest.approx(-2.8)
    assert dual_clipped(r, a, low=0.25, high=0.25, ceiling=3).tolist() == [[-1.0, 1.5, -2.5, 3.0, 6.0]]
    # F(0.5) = 0.75 + ½ · 0.25, F(1.5) = 1.25 − ½ · 0.25, F(9) = 1.25 − ½ · 7.75.
    assert rolled_back(r, a, low=0.25, high=0.25, slope=0.5).tolist() == [[-1.0, 1.75, -2.25, 3.0, 18.0]]
    far = torch.full_like(r, 0.03)
    assert kl_triggered(r, a, far, limit=0.025).tolist() == [[-1.0, 2.0, -2.0, 3.0, 18.0]]
    assert kl_triggered(r, a, far, limit=0.025, slope=0.5).tolist() == [[-1.0, 2.5, -1.5, 3.0, 18.0]]
    assert kl_triggered(r, a, far, limit=0.035, slope=0.5).tolist() == [[-1.0, 1.0, -3.0, 3.0, 18.0]]
    assert policy_gradient(one(-2.0), one(3.0)).item() == 6.0
    weighed = cispo(one(-1.0, -1.0, -1.0), one(0.5, 1.5, 9.0), one(2.0, -2.0, 2.0), high=1, low=0.25)
    assert weighed.tolist() == [[1.5, -3.0, 4.0]]


def slope_of(name, shift, advantage, kl=0.0):
    """The gradient of the loss by log π of a token whose ratio is e^shift."""
    logp_NT = one(-1.0 + shift).requires_grad_()
    seen = torch.tensor([[True]])
    loss_NT = losses_of(name, logp_NT, one(-1.0), one(advantage), seen, one(kl))
    return torch.autograd.grad(loss_NT.sum(), logp_NT)[0].item()


@all_of_them
@pytest.mark.parametrize("advantage", [2.0, -2.0])
def test_on_policy_every_surrogate_has_the_gradient_of_reinforce(name, advantage):
    """GRPO, with its advantage, too: at r = 1 its clipped surrogate is here."""
    assert slope_of(name, 0.0, advantage) == -advantage


@pytest.mark.parametrize(
    ("name", "good_and_likelier", "bad_and_rarer", "good_and_rarer", "bad_and_likelier"),
    [
        ("log-prob", -1, 1, -1, 1),
        ("unclipped", -1, 1, -1, 1),
        ("clipped", 0, 0, -1, 1),
        ("dual", 0, 0, -1, 1),
        ("rb", 1, -1, -1, 1),
        ("tr", 0, 0, -1, 1),
        ("tr-rb", 1, -1, -1, 1),
        ("cispo", -1, 1, -1, 1),
    ],
)
def test_which_way_a_token_goes(name, good_and_likelier, bad_and_rarer, good_and_rarer, bad_and_likelier):
    """At r = e^±½ and a KL above its limit: −1 makes it likelier, 1 rarer, 0 leaves it."""
    found = [slope_of(name, *at, kl=1.0) for at in ((0.5, 1), (-0.5, -1), (-0.5, 1), (0.5, -1))]
    signs = [(slope > 0) - (slope < 0) for slope in found]
    assert signs == [good_and_likelier, bad_and_rarer, good_and_rarer, bad_and_likelier]


@all_of_them
def test_finite_differences_agree(name):
    """At random tokens, none of which stands on an edge; neither advantage nor weight has a gradient."""
    shift_NT, advantage_NT, mask_NT = draw(1, 4, 6), draw(2, 4, 6).requires_grad_(), holes(3, 4, 6)
    old_NT, kl_NT = -draw(4, 4, 6).abs(), draw(5, 4, 6).abs() * 0.05
    logp_NT = (old_NT + shift_NT).requires_grad_()

    def loss(value_NT):
        return losses_of(name, value_NT, old_NT, advantage_NT, mask_NT, kl_NT)[mask_NT]

    if name != "cispo":
        assert torch.autograd.gradcheck(loss, logp_NT)
    assert torch.autograd.grad(loss(logp_NT).sum(), advantage_NT, allow_unused=True) == (None,)


@all_of_them
@pytest.mark.parametrize("how", REDUCED)
@pytest.mark.parametrize("poison", [-1e6, 1e6, -0.3])
def test_padding_enters_neither_the_loss_nor_the_gradient(name, how, poison):
    mask_NT = holes(6, 5, 7)
    clean = [draw(seed, 5, 7) for seed in range(4)]
    found = []
    for fill in (0.0, poison):
        logp_NT, old_NT, advantage_NT, kl_NT = (value.masked_fill(~mask_NT, fill) for value in clean)
        logp_NT.requires_grad_()
        loss_NT = losses_of(name, logp_NT, old_NT, advantage_NT, mask_NT, kl_NT)
        loss = REDUCED[how](loss_NT, mask_NT, mask_NT)
        found.append((loss, *torch.autograd.grad(loss, logp_NT)))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert not found[1][1][~mask_NT].any()


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(ALL),
    how=st.sampled_from(list(REDUCED)),
    rows=st.integers(1, 8),
    cuts=st.sets(st.integers(1, 7)),
    seed=st.integers(0, 2**16),
)
def test_splitting_a_batch_changes_neither_loss_nor_gradient(name, how, rows, cuts, seed):
    old_NT, advantage_NT, kl_NT = (draw(seed + part, rows, 5) for part in range(3))
    mask_NT, weight_T = holes(seed, rows, 5), draw(seed + 3, 5).requires_grad_()

    def loss(a, b):
        logp_NT = old_NT[a:b] + 0.3 * weight_T
        told = (value[a:b] for value in (old_NT, advantage_NT, mask_NT, kl_NT))
        return REDUCED[how](losses_of(name, logp_NT, *told), mask_NT[a:b], mask_NT)

    edges = sorted({0, rows} | {cut for cut in cuts if cut < rows})
    parts = [loss(a, b) for a, b in pairwise(edges)]
    whole = loss(0, rows)
    torch.testing.assert_close(torch.stack(parts).sum(), whole, rtol=0, atol=1e-12)
    (wanted_T,) = torch.autograd.grad(whole, weight_T)
    found_T = torch.stack([torch.autograd.grad(part, weight_T)[0] for part in parts]).sum(0)
    torch.testing.assert_close(found_T, wanted_T, rtol=0, atol=1e-12)


@all_of_them
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_huge_log_ratios_stay_numbers(name, dtype):
    logp_NT = torch.tensor([[-1e4, -90.0, 0.0, 90.0, 1e4]], dtype=dtype).requires_grad_()
    zero_NT = torch.zeros(1, 5, dtype=dtype)
    for advantage in (1.0, -1.0):
        loss_NT = losses_of(name, logp_NT, zero_NT, zero_NT + advantage, zero_NT == 0, zero_NT)
        (grad_NT,) = torch.autograd.grad(loss_NT.sum(), logp_NT)
        assert bool(loss_NT.isfinite().all())
        assert bool(grad_NT.isfinite().all())
