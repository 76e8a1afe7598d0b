"""What a critic loses, how much it explains; the coefficients that follow a KL."""

import math

import pytest
import torch

from plaudit.losses.divergence import double_or_halve_beta, proportional_beta
from plaudit.losses.policy import clipped_squared_error, explained_variance, squared_error
from tests.losses.plain_policy import draw, holes


def one(value):
    return torch.tensor([[value]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("value", "slope"),
    # The old value is 0, the return 4, the clip 0.5: towards the return it may go as far as 0.5.
    [(0.0, -4.0), (0.4, -3.6), (1.0, 0.0), (-1.0, -5.0), (8.0, 4.0)],
)
def test_a_value_that_has_moved_far_enough_is_left_and_one_that_moved_away_is_not(value, slope):
    value_NT = one(value).requires_grad_()
    loss_NT = clipped_squared_error(value_NT, one(0.0), one(4.0), clip=0.5)
    assert torch.autograd.grad(loss_NT.sum(), value_NT)[0].item() == pytest.approx(slope)


def test_limits_and_no_gradient_to_the_target():
    value_NT, old_NT = draw(0, 4, 5), draw(1, 4, 5)
    return_NT = draw(2, 4, 5).requires_grad_()
    far_NT = clipped_squared_error(
        value_NT.requires_grad_(), old_NT.requires_grad_(), return_NT, clip=math.inf
    )
    torch.testing.assert_close(far_NT, squared_error(value_NT, return_NT), rtol=0, atol=1e-14)
    for loss_NT in (far_NT, squared_error(value_NT, return_NT)):
        assert torch.autograd.grad(loss_NT.sum(), (old_NT, return_NT), allow_unused=True) == (None, None)


def test_finite_differences_agree():
    old_NT, return_NT = draw(3, 4, 5), draw(4, 4, 5)
    value_NT = (old_NT + draw(5, 4, 5)).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda value: squared_error(value, return_NT), value_NT)
    assert torch.autograd.gradcheck(lambda v: clipped_squared_error(v, old_NT, return_NT, clip=0.3), value_NT)


def test_how_much_is_explained():
    return_NT, mask_NT = draw(6, 5, 6), holes(6, 5, 6)
    poisoned_NT = return_NT.masked_fill(~mask_NT, math.nan)
    assert explained_variance(poisoned_NT, poisoned_NT, mask_NT).item() == 1.0
    assert explained_variance(poisoned_NT + 3, poisoned_NT, mask_NT).item() == pytest.approx(1.0)
    assert explained_variance(torch.ones(5, 6).double(), poisoned_NT, mask_NT).item() == pytest.approx(0.0)
    assert explained_variance(-return_NT, return_NT, mask_NT).item() == pytest.approx(-3.0)
    assert explained_variance(0.5 * return_NT, return_NT, mask_NT).item() == pytest.approx(0.75)
    assert explained_variance(return_NT, torch.ones(5, 6).double(), mask_NT).item() == 0.0


@pytest.mark.parametrize(
    ("kl", "factor"), [(0.0, 0.5), (0.66, 0.5), (0.67, 1.0), (1.0, 1.0), (1.5, 1.0), (1.51, 2.0), (9.0, 2.0)]
)
def test_a_penalty_doubles_halves_or_stays(kl, factor):
    assert double_or_halve_beta(0.4, kl=kl * 0.01, target=0.01) == pytest.approx(0.4 * factor)
    assert double_or_halve_beta(3, kl=kl, target=1) == 3 * factor


def test_under_either_rule_the_kl_finds_its_target():
    """Of a policy whose KL is 1 / β."""
    for rule in (
        lambda beta: double_or_halve_beta(beta, kl=1 / beta, target=6.0),
        lambda beta: proportional_beta(beta, kl=1 / beta, target=6.0, samples=500, horizon=1000),
    ):
        for beta in (1e-3, 10.0):
            now = beta
            for _ in range(300):
                now = rule(now)
            assert 6 / 1.51 < 1 / now < 6 * 1.51
