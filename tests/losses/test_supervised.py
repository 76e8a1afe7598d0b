"""Divergences of a student from its teacher: what they seek, their limits, words that are never said."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from plaudit.losses.supervised import forward_kl, jensen_shannon, negative_log_likelihood, reverse_kl

Divergence = Callable[[Tensor, Tensor], Tensor]
DIVERGENCES = {"forward": forward_kl, "reverse": reverse_kl, "js": jensen_shannon}
NEVER = -math.inf

every = pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)


def _drawn(seed: int, rows: int = 4, words: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, rows, words, generator=generator, dtype=torch.float64) * 3
    teacher_MV, student_MV = logits.log_softmax(-1)
    return teacher_MV, student_MV


def test_likelihood_is_the_negative_log_prob_and_pulls_it_up() -> None:
    logp_NT = torch.tensor([[-2.0, -0.5]], requires_grad=True)
    loss_NT = negative_log_likelihood(logp_NT)
    assert loss_NT.tolist() == [[2.0, 0.5]]
    (grad_NT,) = torch.autograd.grad(loss_NT.sum(), logp_NT)
    assert grad_NT.tolist() == [[-1.0, -1.0]]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**16))
def test_limits(seed: int) -> None:
    teacher_MV, student_MV = _drawn(seed)
    for divergence in DIVERGENCES.values():
        assert bool((divergence(teacher_MV, student_MV) >= -1e-12).all())
        assert float(divergence(teacher_MV, teacher_MV).abs().max()) < 1e-12
    shannon_M = jensen_shannon(teacher_MV, student_MV)
    torch.testing.assert_close(shannon_M, jensen_shannon(student_MV, teacher_MV), rtol=0, atol=1e-12)
    assert bool((shannon_M <= math.log(2) + 1e-12).all())
    torch.testing.assert_close(
        forward_kl(teacher_MV, student_MV), reverse_kl(student_MV, teacher_MV), rtol=0, atol=1e-12
    )


@every
def test_a_word_that_neither_ever_says_changes_nothing(divergence: Divergence) -> None:
    teacher_MV, student_MV = _drawn(4)
    never_M1 = torch.full((4, 1), NEVER, dtype=torch.float64)
    longer = [torch.cat((one, never_M1), -1).requires_grad_() for one in (teacher_MV, student_MV)]
    loss_M = divergence(*longer)
    torch.testing.assert_close(loss_M, divergence(teacher_MV, student_MV), rtol=0, atol=1e-12)
    grads = torch.autograd.grad(loss_M.sum(), longer)
    assert all(bool(torch.isfinite(grad).all()) for grad in grads)
    assert all(not grad[:, -1].any() for grad in grads)


def test_a_word_that_only_the_teacher_never_says() -> None:
    teacher_MV = torch.tensor([[0.0, NEVER]], dtype=torch.float64)
    student_MV = torch.tensor([[0.25, 0.75]], dtype=torch.float64).log().requires_grad_()
    assert forward_kl(teacher_MV, student_MV).item() == pytest.approx(math.log(4))
    assert reverse_kl(teacher_MV, student_MV).item() == math.inf
    shannon = 0.5 * math.log(1 / 0.625) + 0.5 * (0.25 * math.log(0.25 / 0.625) + 0.75 * math.log(2))
    loss_M = jensen_shannon(teacher_MV, student_MV)
    assert loss_M.item() == pytest.approx(shannon)
    (grad_MV,) = torch.autograd.grad(loss_M.sum(), student_MV)
    assert bool(torch.isfinite(grad_MV).all())


def test_opposites_are_ln_2_apart_and_no_farther() -> None:
    here_MV = torch.tensor([[0.0, NEVER]], dtype=torch.float64)
    assert jensen_shannon(here_MV, here_MV.flip(-1)).item() == pytest.approx(math.log(2))
    assert forward_kl(here_MV, here_MV.flip(-1)).item() == math.inf
