"""Conjugate gradients against a direct solution, the longest step under a limit, the way back."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.methods.policy.trpo import (
    StepEvaluation,
    backtracking_line_search,
    conjugate_gradients,
    largest_step_within_kl,
)


def positive(seed, size):
    """A symmetric matrix of eigenvalues above ½, and a vector."""
    generator = torch.Generator().manual_seed(seed)
    root_DD = torch.randn(size, size, generator=generator, dtype=torch.float64)
    eye_DD = torch.eye(size, dtype=torch.float64)
    return root_DD @ root_DD.T / size + 0.5 * eye_DD, torch.randn(
        size, generator=generator, dtype=torch.float64
    )


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 12), seed=st.integers(0, 2**16), damping=st.sampled_from([0, 0.1, 3.0]))
def test_a_direct_solution_agrees(size, seed, damping):
    curve_DD, b_D = positive(seed, size)
    found_D = conjugate_gradients(
        lambda v: curve_DD @ v, b_D, steps=3 * size, damping=damping, tolerance=1e-28
    )
    wanted_D = torch.linalg.solve(curve_DD + damping * torch.eye(size, dtype=torch.float64), b_D)
    torch.testing.assert_close(found_D, wanted_D, rtol=1e-9, atol=1e-11)


def test_it_stops_when_the_residual_is_small_and_after_its_steps():
    curve_DD, b_D = positive(3, 30)
    asked = []

    def product(v_D):
        asked.append(v_D)
        return curve_DD @ v_D

    rough_D = conjugate_gradients(product, b_D, steps=100, tolerance=1e-2)
    assert 0 < len(asked) < 30
    assert (curve_DD @ rough_D - b_D).square().sum() <= 1e-2 * b_D.square().sum() * (1 + 1e-9)
    asked.clear()
    conjugate_gradients(product, b_D, steps=4, tolerance=0)
    assert len(asked) == 4


def test_nothing_asked_is_nothing_answered():
    assert conjugate_gradients(lambda v: v, torch.zeros(3), steps=5).tolist() == [0, 0, 0]
    given_D = torch.tensor([1.0, 2.0])
    assert conjugate_gradients(lambda v: 2 * v, given_D, steps=5).tolist() == [0.5, 1.0]
    assert given_D.tolist() == [1.0, 2.0]


def test_a_natural_step_has_the_kl_it_was_allowed():
    """Of categorical policies the Hessian of the KL is diag(p) − p pᵀ; the KL itself comes out as δ."""
    logit_V = torch.tensor([0.3, -0.2, 0.9, 0.1], dtype=torch.float64)
    chance_V = logit_V.softmax(0)
    slope_V = torch.tensor([1.0, -2.0, 0.5, 0.5], dtype=torch.float64)

    def product(v_V):
        return chance_V * (v_V - (chance_V * v_V).sum())

    towards_V = conjugate_gradients(product, slope_V, steps=10, damping=1e-6)
    limit = 1e-5
    step_V = largest_step_within_kl(towards_V, product(towards_V), limit=limit)
    moved_V = (logit_V + step_V).log_softmax(0)
    assert (chance_V * (chance_V.log() - moved_V)).sum().item() == pytest.approx(limit, rel=0.02)
    assert (step_V * slope_V).sum() > 0


def test_the_way_back_takes_the_first_step_that_improves_within_the_limit():
    tried = []

    def trial(size):
        tried.append(size)
        return StepEvaluation(improvement=1.0 if size < 0.6 else -1.0, kl=size)

    assert backtracking_line_search(trial, limit=0.2) == 0.125
    assert tried == [1.0, 0.5, 0.25, 0.125]
    assert backtracking_line_search(lambda size: StepEvaluation(improvement=1.0, kl=0.0), limit=0.0) == 1.0
    assert backtracking_line_search(
        lambda size: StepEvaluation(improvement=1.0, kl=size), limit=0.7, shrink=0.8
    ) == pytest.approx(0.64)


@pytest.mark.parametrize(
    "worth",
    [
        StepEvaluation(improvement=0.0, kl=0.0),
        StepEvaluation(improvement=-1.0, kl=0.0),
        StepEvaluation(improvement=1.0, kl=9.0),
        StepEvaluation(improvement=math.nan, kl=0.0),
        StepEvaluation(improvement=1.0, kl=math.nan),
    ],
)
def test_no_step_is_better_than_a_bad_one(worth):
    asked = []
    assert backtracking_line_search(lambda size: asked.append(size) or worth, limit=1.0, tries=7) is None
    assert len(asked) == 7
