"""What is masked never enters, whatever it is."""

import math

import pytest
import torch

from plaudit.tensors.masked import masked_sum, masked_sum_rows

MASK_NT = torch.tensor([[True, True, False], [True, False, False]])


def test_sums_by_hand_and_a_nan_under_the_mask_is_never_hidden() -> None:
    value_NT = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    assert masked_sum(value_NT, MASK_NT).item() == 11.0
    assert masked_sum_rows(value_NT, MASK_NT).tolist() == [3.0, 8.0]
    value_NT = torch.ones(2, 3)
    value_NT[0, 1] = math.nan
    assert masked_sum(value_NT, MASK_NT).isnan()
    assert masked_sum_rows(value_NT, MASK_NT).isnan().tolist() == [True, False]


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_what_is_masked_reaches_neither_value_nor_gradient(poison: float) -> None:
    value_NT = torch.ones(2, 3).masked_fill(~MASK_NT, poison).requires_grad_()
    total = masked_sum(value_NT, MASK_NT) + masked_sum_rows(value_NT, MASK_NT).sum()
    assert total.item() == 6.0
    (grad_NT,) = torch.autograd.grad(total, value_NT)
    assert grad_NT.tolist() == [[2.0, 2.0, 0.0], [2.0, 0.0, 0.0]]
