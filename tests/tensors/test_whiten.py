"""Moments and whitening under a mask, of a whole batch and of its parts."""

import math
from itertools import pairwise

import pytest
import torch

from plaudit.tensors.masked import (
    broadcast_to_tokens,
    last_token_mask,
    masked_mean,
    masked_mean_rows,
    moments,
    whiten,
)
from tests.advantages.plain import draw, holes


def test_means_by_hand_and_what_nothing_and_one_value_become():
    value_NT = torch.tensor([[1.0, 2.0, 9.0], [6.0, math.nan, math.inf], [7.0, 7.0, 7.0]])
    mask_NT = torch.tensor([[True, True, False], [True, False, False], [False] * 3])
    assert masked_mean(value_NT, mask_NT).item() == 3.0
    assert masked_mean_rows(value_NT, mask_NT).tolist() == [1.5, 6.0, 0.0]
    assert masked_mean(value_NT, torch.zeros_like(mask_NT)).item() == 0.0
    assert masked_mean(value_NT[0], mask_NT[0]).item() == 1.5
    for count in (0, 1):
        mask_NT = torch.arange(4)[None] < count
        assert whiten(draw(5, 1, 4), mask_NT).tolist() == [[0.0] * 4]
        found = moments(draw(5, 1, 4), mask_NT)
        assert (found.count.item(), found.variance.item()) == (count, 0.0)


def test_spreading_and_last_places():
    mask_NT = torch.tensor([[True, False, True, False], [False] * 4, [False, False, False, True]])
    assert broadcast_to_tokens(torch.tensor([2.0, math.nan, 3.0]), mask_NT).tolist() == [
        [2, 0, 2, 0],
        [0] * 4,
        [0, 0, 0, 3],
    ]
    assert last_token_mask(mask_NT).int().tolist() == [[0, 0, 1, 0], [0] * 4, [0, 0, 0, 1]]


def test_what_is_white_has_mean_0_and_variance_1_rewards_and_parts_of_a_batch_alike():
    value_NT, mask_NT = draw(2, 6, 9) * 5 - 4, holes(2, 6, 9)
    white, kept = (moments(whiten(value_NT, mask_NT, shift=shift), mask_NT) for shift in (True, False))
    assert white.mean.item() == pytest.approx(0, abs=1e-12)
    assert white.variance.item() == pytest.approx(1, abs=1e-6)
    assert kept.mean.item() == pytest.approx(moments(value_NT, mask_NT).mean.item())
    value_N = draw(3, 7)
    everything_N = torch.ones(7, dtype=torch.bool)
    assert torch.equal(whiten(value_N, everything_N), whiten(value_N[None], everything_N[None])[0])
    value_NT, mask_NT = draw(6, 5, 4) + 3, holes(6, 5, 4)
    whole, edges = moments(value_NT, mask_NT), (0, 1, 3, 5)
    parts = [whiten(value_NT[a:b], mask_NT[a:b], batch_moments=whole) for a, b in pairwise(edges)]
    torch.testing.assert_close(torch.cat(parts), whiten(value_NT, mask_NT), rtol=0, atol=1e-11)


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
def test_what_is_masked_never_enters(poison):
    value_NT, mask_NT = draw(4, 5, 6), holes(4, 5, 6)
    dirty_NT = value_NT.masked_fill(~mask_NT, poison)
    assert torch.equal(whiten(dirty_NT, mask_NT), whiten(value_NT, mask_NT))
    assert bool((whiten(dirty_NT, mask_NT)[~mask_NT] == 0).all())
