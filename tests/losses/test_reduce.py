"""From a loss for each token to one number: what is not trained has no part in it."""

import math

import pytest
import torch

from plaudit.losses.reduce import sequence_mean
from tests.losses.plain_policy import REDUCED

LOSS_NT = torch.tensor([[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]])
MASK_NT = torch.tensor([[True, True, False], [True, True, True]])


def test_a_completion_without_trained_tokens_adds_nothing_and_still_counts():
    mask_NT = torch.tensor([[False, False, False], [True, True, True]])
    assert sequence_mean(LOSS_NT, mask_NT, completions=2).item() == pytest.approx(9 / 2)


@pytest.mark.parametrize("how", REDUCED)
def test_nothing_trained_is_zero_and_differentiable(how):
    loss_NT = LOSS_NT.clone().requires_grad_()
    loss = REDUCED[how](loss_NT, torch.zeros_like(MASK_NT), MASK_NT)
    [grad_NT] = torch.autograd.grad(loss, loss_NT)
    assert (loss.item(), grad_NT.abs().max().item()) == (0.0, 0.0)


@pytest.mark.parametrize("how", REDUCED)
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_nan_in_a_masked_place_never_leaks(how, poison):
    loss_NT = LOSS_NT.masked_fill(~MASK_NT, poison).requires_grad_()
    loss = REDUCED[how](loss_NT, MASK_NT, MASK_NT)
    loss.backward()
    assert loss.item() == REDUCED[how](LOSS_NT, MASK_NT, MASK_NT).item()
    assert loss_NT.grad is not None
    assert bool(torch.isfinite(loss_NT.grad).all())
    assert loss_NT.grad[~MASK_NT].tolist() == [0.0]
