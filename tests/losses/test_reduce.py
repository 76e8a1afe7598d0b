"""From a loss for each token to one number, however the batch is split."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.losses.reduce import sequence_mean, token_mean

LOSS_NT = torch.tensor([[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]])
MASK_NT = torch.tensor([[True, True, False], [True, True, True]])
HOW = ("token", "sequence")


def _reduced(how: str, loss_NT: torch.Tensor, mask_NT: torch.Tensor, whole_NT: torch.Tensor) -> torch.Tensor:
    if how == "token":
        return token_mean(loss_NT, mask_NT, tokens=int(whole_NT.sum()))
    return sequence_mean(loss_NT, mask_NT, completions=len(whole_NT))


def test_every_token_counts_the_same():
    assert token_mean(LOSS_NT, MASK_NT, tokens=5).item() == pytest.approx((1 + 3 + 7 + 9 + 11) / 5)


def test_every_completion_counts_the_same():
    assert sequence_mean(LOSS_NT, MASK_NT, completions=2).item() == pytest.approx((2 + 9) / 2)


def test_a_completion_without_trained_tokens_adds_nothing_and_still_counts():
    mask_NT = torch.tensor([[False, False, False], [True, True, True]])
    assert sequence_mean(LOSS_NT, mask_NT, completions=2).item() == pytest.approx(9 / 2)


@pytest.mark.parametrize("how", HOW)
def test_nothing_trained_is_zero_and_differentiable(how):
    loss_NT = LOSS_NT.clone().requires_grad_()
    mask_NT = torch.zeros_like(MASK_NT)
    loss = _reduced(how, loss_NT, mask_NT, MASK_NT)
    loss.backward()
    assert loss.item() == 0.0
    assert loss_NT.grad is not None
    assert not loss_NT.grad.any()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_nan_in_a_masked_place_never_leaks(how, poison):
    loss_NT = LOSS_NT.masked_fill(~MASK_NT, poison).requires_grad_()
    loss = _reduced(how, loss_NT, MASK_NT, MASK_NT)
    loss.backward()
    assert loss.item() == _reduced(how, LOSS_NT, MASK_NT, MASK_NT).item()
    assert loss_NT.grad is not None
    assert bool(torch.isfinite(loss_NT.grad).all())
    assert loss_NT.grad[~MASK_NT].tolist() == [0.0]


@settings(max_examples=60, deadline=None)
@given(
    how=st.sampled_from(HOW),
    rows=st.integers(1, 9),
    width=st.integers(1, 6),
    cuts=st.sets(st.integers(1, 8)),
    seed=st.integers(0, 2**16),
)
def test_splitting_a_batch_changes_neither_loss_nor_gradient(how, rows, width, cuts, seed):
    generator = torch.Generator().manual_seed(seed)
    weight_T = torch.randn(width, generator=generator, dtype=torch.float64).requires_grad_()
    input_NT = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    mask_NT = torch.rand(rows, width, generator=generator) < 0.6
    mask_NT[0, 0] = True
    whole = _reduced(how, (input_NT * weight_T).exp(), mask_NT, mask_NT)
    (wanted_T,) = torch.autograd.grad(whole, weight_T)
    edges = sorted({0, rows} | {cut for cut in cuts if cut < rows})
    parts = [
        _reduced(how, (input_NT[a:b] * weight_T).exp(), mask_NT[a:b], mask_NT) for a, b in pairwise(edges)
    ]
    grads = [torch.autograd.grad(part, weight_T)[0] for part in parts]
    torch.testing.assert_close(torch.stack(parts).sum(), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.stack(grads).sum(0), wanted_T, rtol=0, atol=1e-12)
