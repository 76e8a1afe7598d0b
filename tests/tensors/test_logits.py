"""What a head does to the raw product; distributions by their likeliest tokens; sums within groups."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.distributions import Categorical, kl_divergence

from plaudit.tensors import divergences, groups
from plaudit.tensors.divergences import Readout, coarse_distribution, coarse_kl
from plaudit.tensors.logprobs import PLAIN, LogitRule


def test_the_rule_by_hand_the_plain_one_and_a_cap_that_keeps_the_order() -> None:
    rule = LogitRule(scale=3.0, cap=2.0, temperature=0.5)
    assert rule.apply(torch.tensor([1.0])).item() == pytest.approx(2 * math.tanh(1.5) / 0.5)
    raw = torch.tensor([-3.0, 0.0, 700.0])
    assert torch.equal(PLAIN.apply(raw), raw)
    assert PLAIN.slope(raw) == 1.0
    raw = torch.linspace(-50, 50, 101, dtype=torch.float64)
    capped = LogitRule(cap=30.0).apply(raw)
    assert float(capped.abs().max()) < 30
    assert bool((capped.diff() > 0).all())


@pytest.mark.parametrize(
    "rule", [PLAIN, LogitRule(scale=0.2), LogitRule(cap=1.3), LogitRule(scale=2.0, cap=1.3, temperature=0.7)]
)
def test_the_slope_is_the_derivative(rule: LogitRule) -> None:
    raw = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    logits = rule.apply(raw)
    (wanted,) = torch.autograd.grad(logits.sum(), raw)
    slope = torch.as_tensor(rule.slope(logits.detach()), dtype=torch.float64)
    torch.testing.assert_close(slope.expand(9), wanted, rtol=0, atol=1e-12)


M, H, V = 7, 5, 23


def readout(seed: int, scale: float, *, bias: bool = True) -> Readout:
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return Readout(
        hidden_MH=drawn(M, H).requires_grad_(),
        weight_VH=scale * drawn(V, H),
        bias_V=drawn(V) if bias else None,
        rule=LogitRule(scale=1.5, temperature=0.7),
    )


def logits(of: Readout) -> torch.Tensor:
    raw_MV = (of.hidden_MH @ of.weight_VH.T).detach()
    return of.rule.apply(raw_MV if of.bias_V is None else raw_MV + of.bias_V)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 99), top=st.integers(1, V + 3), scale=st.sampled_from([0.1, 1.0, 4.0]))
def test_the_kl_is_exact_with_all_tokens_and_a_lower_bound_with_fewer(seed, top, scale):
    one, other = readout(seed, scale), readout(seed + 1000, scale, bias=seed % 2 == 0)
    exact_M = kl_divergence(Categorical(logits=logits(one)), Categorical(logits=logits(other)))
    kept = coarse_distribution(one, top)
    found_M = coarse_kl(kept, other)
    assert kept.top_MK.shape == (M, min(top, V))
    torch.testing.assert_close(kept.logp_MC.exp().sum(-1), torch.ones(M, dtype=torch.float64))
    assert (found_M <= exact_M + 1e-12).all()
    assert (found_M >= -1e-12).all()
    if top >= V:
        torch.testing.assert_close(found_M, exact_M, rtol=1e-10, atol=1e-12)
    assert not found_M.requires_grad


def test_more_tokens_come_closer():
    one, other = readout(1, 1.0), readout(2, 1.0)
    kls = [coarse_kl(coarse_distribution(one, top), other) for top in (1, 4, 12, V)]
    assert all((fewer <= more + 1e-12).all() for fewer, more in pairwise(kls))


def test_of_itself_it_is_0_in_blocks_of_any_size(monkeypatch):
    one, other = readout(3, 2.0), readout(4, 2.0)
    whole = coarse_kl(coarse_distribution(one, 6), other)
    assert coarse_kl(coarse_distribution(one, 6), one).abs().max() < 1e-14
    monkeypatch.setattr(divergences, "TABLE_AT_ONCE", {"cpu": 2 * V, "cuda": 2 * V})
    torch.testing.assert_close(coarse_kl(coarse_distribution(one, 6), other), whole, rtol=1e-12, atol=1e-14)


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
