"""Sums within groups: by hand, whatever the groups are called, and beside a group that is not a number."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.tensors import groups

TOLD = (
    groups.sum_of_group,
    groups.size_of_group,
    groups.mean_of_group,
    groups.std_of_group,
    groups.mean_of_others,
)
VALUE_N = torch.tensor([1.0, 2.0, 6.0, 5.0, 7.0], dtype=torch.float64)
GROUP_N = torch.tensor([0, 0, 0, 2, 3])


def test_of_each_prompt_by_hand_one_of_them_empty_of_one_completion_and_of_none():
    assert groups.group_sums(VALUE_N, GROUP_N, groups=5).tolist() == [9, 0, 5, 7, 0]
    assert groups.group_means(VALUE_N, GROUP_N, groups=4).tolist() == [3, 0, 5, 7]
    assert groups.group_lowest(VALUE_N, GROUP_N, groups=4).tolist() == [1, math.inf, 5, 7]
    assert groups.group_highest(VALUE_N, GROUP_N, groups=4).tolist() == [6, -math.inf, 5, 7]
    one_N = torch.tensor([3.0])
    assert [function(one_N, torch.tensor([9])).item() for function in TOLD] == [3, 1, 3, 0, 3]
    assert groups.group_index(torch.zeros(0, dtype=torch.long)).tolist() == []


def test_told_to_each_completion_by_hand():
    assert groups.sum_of_group(VALUE_N, GROUP_N).tolist() == [9, 9, 9, 5, 7]
    assert groups.size_of_group(VALUE_N, GROUP_N).tolist() == [3, 3, 3, 1, 1]
    assert groups.mean_of_group(VALUE_N, GROUP_N).tolist() == [3, 3, 3, 5, 7]
    assert groups.mean_of_others(VALUE_N, GROUP_N).tolist() == [4, 3.5, 1.5, 5, 7]
    assert groups.std_of_group(VALUE_N, GROUP_N).tolist() == pytest.approx([math.sqrt(7)] * 3 + [0, 0])
    whole_N = groups.std_of_group(VALUE_N, GROUP_N, correction=0)
    assert whole_N.tolist() == pytest.approx([math.sqrt(14 / 3)] * 3 + [0, 0])


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6), seed=st.integers(0, 999))
def test_pytorchs_own_functions_agree_whatever_the_groups_are_called(sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    names = torch.randint(1, 50, (len(sizes),), generator=generator).cumsum(0)
    group_N = names.repeat_interleave(torch.tensor(sizes))
    value_N = torch.randn(sum(sizes), generator=generator, dtype=torch.float64)
    parts = value_N.split(sizes)
    place_N = groups.group_index(group_N)
    assert place_N.tolist() == [place for place, size in enumerate(sizes) for _ in range(size)]
    for found, wanted in (
        (groups.sum_of_group, torch.sum),
        (groups.mean_of_group, torch.mean),
        (groups.std_of_group, lambda part: part.std() if len(part) > 1 else part[0] * 0),
    ):
        wanted_N = torch.cat([wanted(part).expand(len(part)) for part in parts])
        torch.testing.assert_close(found(value_N, group_N), wanted_N, rtol=0, atol=1e-13)


def test_a_group_that_is_not_a_number_stays_alone():
    value_N = VALUE_N.clone()
    value_N[3] = math.nan
    for function in TOLD:
        found_N = function(value_N, GROUP_N)
        kept = [0, 1, 2, 4]
        assert torch.equal(found_N[kept], function(VALUE_N, GROUP_N)[kept])
    assert groups.group_sums(value_N, GROUP_N, groups=4).isnan().tolist() == [False, False, True, False]


def test_the_mean_is_differentiable():
    value_N = VALUE_N.clone().requires_grad_()
    for function in (groups.sum_of_group, groups.mean_of_group, groups.mean_of_others):
        assert torch.autograd.gradcheck(lambda v, f=function: f(v, GROUP_N), value_N)
