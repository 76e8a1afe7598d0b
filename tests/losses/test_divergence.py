"""Estimators of the KL against the KL itself, over a vocabulary that can be counted out."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.losses.divergence import K3_MAX_EXPONENT, full_vocabulary_kl, k1, k2, k3
from tests.losses.plain_policy import draw

EACH = (k1, k2, k3)


def expected(estimator, logp_V, ref_V):
    return (logp_V.detach().exp() * estimator((logp_V - ref_V)[None])[0]).sum()


def distributions(seed, words=6, apart=1.0):
    logit_V = draw(seed, words).requires_grad_()
    ref_V = (logit_V.detach() + apart * draw(seed + 1, words)).log_softmax(0)
    return logit_V, logit_V.log_softmax(0), ref_V


def kl(logp_V, ref_V):
    return (logp_V.exp() * (logp_V - ref_V)).sum()


def gradient(value, logit_V):
    return torch.autograd.grad(value, logit_V, retain_graph=True)[0]


@pytest.mark.parametrize("seed", range(5))
def test_which_values_are_unbiased(seed):
    _, logp_V, ref_V = distributions(seed)
    wanted = kl(logp_V, ref_V).item()
    assert full_vocabulary_kl(logp_V[None], ref_V[None]).item() == pytest.approx(wanted, abs=1e-14)
    assert expected(k1, logp_V, ref_V).item() == pytest.approx(wanted, abs=1e-14)
    assert expected(k3, logp_V, ref_V).item() == pytest.approx(wanted, abs=1e-14)
    assert abs(expected(k2, logp_V, ref_V).item() - wanted) > 1e-3
    _, near_V, near_ref_V = distributions(seed, apart=1e-3)
    assert expected(k2, near_V, near_ref_V).item() == pytest.approx(kl(near_V, near_ref_V).item(), rel=1e-2)


@pytest.mark.parametrize("seed", range(5))
def test_which_gradients_are_the_right_ones(seed):
    """k1's is nothing, k2's the KL's own, k3's that of the KL the other way round."""
    logit_V, logp_V, ref_V = distributions(seed)
    own_V = gradient(kl(logp_V, ref_V), logit_V)
    other_V = gradient((ref_V.exp() * (ref_V - logp_V)).sum(), logit_V)
    for estimator, wanted_V in ((k1, torch.zeros(6)), (k2, own_V), (k3, other_V)):
        found_V = gradient(expected(estimator, logp_V, ref_V), logit_V)
        torch.testing.assert_close(found_V, wanted_V.double(), rtol=0, atol=1e-14)
    torch.testing.assert_close(
        gradient(full_vocabulary_kl(logp_V[None], ref_V[None]).sum(), logit_V), own_V, rtol=0, atol=1e-14
    )
    assert (own_V - other_V).abs().max() > 1e-2


@settings(max_examples=60, deadline=None)
@given(shift=st.floats(-100, 100))
def test_k2_and_k3_are_never_below_0_and_are_0_where_both_agree(shift):
    shift_NT = torch.tensor([[shift, 0.0]], dtype=torch.float64)
    for estimator in (k2, k3):
        found_NT = estimator(shift_NT)
        assert found_NT[0, 0].item() >= 0
        assert found_NT[0, 1].item() == 0


@pytest.mark.parametrize("estimator", EACH)
def test_finite_differences_agree(estimator):
    shift_NT = torch.linspace(-14, 14, 29, dtype=torch.float64)[None] + 0.25
    assert torch.autograd.gradcheck(estimator, shift_NT.requires_grad_())


def test_finite_differences_agree_on_the_whole():
    logit_MV, ref_MV = draw(0, 3, 4).requires_grad_(), draw(1, 3, 4).log_softmax(-1)
    assert torch.autograd.gradcheck(lambda logit: full_vocabulary_kl(logit.log_softmax(-1), ref_MV), logit_MV)


@pytest.mark.parametrize("estimator", EACH)
def test_huge_log_ratios_stay_numbers_and_are_pulled_back(estimator):
    """No token is let go: below the reference it is pulled up, above it down, however far it is."""
    shift_NT = torch.tensor([[-1e4, -90.0, -11.0, 11.0, 90.0, 1e4]]).requires_grad_()
    found_NT = estimator(shift_NT)
    (grad_NT,) = torch.autograd.grad(found_NT.sum(), shift_NT)
    assert bool(found_NT.isfinite().all())
    assert bool(grad_NT.isfinite().all())
    if estimator is not k1:
        assert grad_NT.sign().tolist() == [[-1.0] * 3 + [1.0] * 3]


def test_k3_goes_on_as_its_tangent():
    shift_NT = torch.tensor(
        [[-K3_MAX_EXPONENT + 0.1, -K3_MAX_EXPONENT, -K3_MAX_EXPONENT - 2]], dtype=torch.float64
    ).requires_grad_()
    found_NT = k3(shift_NT)
    (grad_NT,) = torch.autograd.grad(found_NT.sum(), shift_NT)
    edge = math.expm1(K3_MAX_EXPONENT) - K3_MAX_EXPONENT
    steep = 1 - math.exp(K3_MAX_EXPONENT)
    assert found_NT[0, 1:].tolist() == pytest.approx([edge, edge - 2 * steep])
    assert grad_NT.tolist()[0] == pytest.approx([1 - math.exp(K3_MAX_EXPONENT - 0.1), steep, steep])
