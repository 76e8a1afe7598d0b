"""Distributions by their likeliest tokens and the rest as one: exact where nothing is left, else a bound."""

from itertools import pairwise

import torch
from hypothesis import given, settings, strategies as st
from torch.distributions import Categorical, kl_divergence

from plaudit.tensors import divergences
from plaudit.tensors.divergences import Readout, coarse_distribution, coarse_kl
from plaudit.tensors.logprobs import LogitRule

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
