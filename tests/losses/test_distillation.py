"""Divergences in blocks are those of the whole tables, in value and gradient, and do what the papers say."""

import pytest
import torch

from plaudit.losses.supervised import forward_kl, jensen_shannon, reverse_kl
from plaudit.tensors import divergences
from plaudit.tensors.divergences import Readout, divergence_between
from plaudit.tensors.logprobs import LogitRule

DIVERGENCES = [forward_kl, reverse_kl, jensen_shannon]
M, H, V = 23, 6, 40
CAPPED = LogitRule(scale=1.5, cap=4.0, temperature=0.8)


def readout(seed, *, tokens=M, words=V, hidden=H, rule=CAPPED, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((tokens, hidden), (words, hidden), (words,))
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    hidden_MH, weight_VH, bias_V = (one.requires_grad_() for one in drawn)
    return Readout(hidden_MH=hidden_MH, weight_VH=weight_VH, bias_V=bias_V, rule=rule)


def parts(one):
    return one.hidden_MH, one.weight_VH, one.bias_V


def table(one):
    return one.rule.apply(one.hidden_MH @ one.weight_VH.T + one.bias_V).log_softmax(-1)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setitem(divergences.TABLE_AT_ONCE, "cpu", 5 * V)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_blocks_give_the_value_and_gradient_of_the_whole_table(divergence):
    student, teacher = readout(0), readout(1, hidden=9)
    weight_M = torch.linspace(-1, 2, M, dtype=torch.float64)
    naive_M = divergence(table(teacher).detach(), table(student))
    expected = torch.autograd.grad(naive_M @ weight_M, parts(student))
    apart = divergence_between(student, teacher, divergence)
    found = torch.autograd.grad(apart.divergence_M @ weight_M, parts(student))
    torch.testing.assert_close(apart.divergence_M, naive_M, rtol=0, atol=1e-10)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert torch.equal(apart.likeliest_M, table(student).argmax(-1))


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_finite_differences_agree(divergence, monkeypatch):
    monkeypatch.setitem(divergences.TABLE_AT_ONCE, "cpu", 2 * 7)
    teacher, student = (readout(seed, tokens=3, words=7, hidden=2) for seed in (1, 0))

    def value(hidden_MH, weight_VH, bias_V):
        moved = Readout(hidden_MH=hidden_MH, weight_VH=weight_VH, bias_V=bias_V, rule=CAPPED)
        return divergence_between(moved, teacher, divergence).divergence_M

    assert torch.autograd.gradcheck(value, parts(student))


def test_the_teacher_gets_no_gradient():
    student, teacher = readout(0), readout(1)
    divergence_between(student, teacher, forward_kl).divergence_M.sum().backward()
    assert student.weight_VH.grad is not None
    assert [part.grad for part in parts(teacher)] == [None, None, None]


def test_a_frozen_head_needs_no_gradient_of_its_own():
    student = readout(0)
    student.weight_VH.requires_grad_(False)
    student.bias_V.requires_grad_(False)
    divergence_between(student, readout(1), forward_kl).divergence_M.sum().backward()
    assert student.hidden_MH.grad is not None
    assert student.weight_VH.grad is None


def test_no_block_is_larger_than_the_bound(monkeypatch):
    monkeypatch.setitem(divergences.TABLE_AT_ONCE, "cpu", 3 * V + 1)
    seen = []

    def watched(teacher_logp_MV, student_logp_MV):
        seen.append(tuple(student_logp_MV.shape))
        return forward_kl(teacher_logp_MV, student_logp_MV)

    divergence_between(readout(0), readout(1), watched).divergence_M.sum().backward()
    assert seen == 2 * ([(3, V)] * 7 + [(2, V)])


def test_a_vocabulary_above_the_bound_goes_token_by_token(monkeypatch):
    monkeypatch.setitem(divergences.TABLE_AT_ONCE, "cpu", V - 1)
    student, teacher = readout(0), readout(1)
    whole_M = forward_kl(table(teacher), table(student))
    torch.testing.assert_close(divergence_between(student, teacher, forward_kl).divergence_M, whole_M)


def test_no_tokens_are_a_sum_of_zero_with_a_gradient_of_zero():
    student = readout(0, tokens=0)
    apart = divergence_between(student, readout(1, tokens=0), reverse_kl)
    apart.divergence_M.sum().backward()
    assert apart.divergence_M.shape == (0,)
    assert student.weight_VH.grad.abs().max() == 0


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_autocast_multiplies_in_bfloat16_and_keeps_the_weights_gradient_in_float32(divergence):
    student, teacher = (readout(seed, dtype=torch.float32, rule=LogitRule()) for seed in (0, 1))
    exact = divergence_between(student, teacher, divergence).divergence_M
    exact_grad = torch.autograd.grad(exact.sum(), parts(student))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = divergence_between(student, teacher, divergence).divergence_M
    rounded_grad = torch.autograd.grad(rounded.sum(), parts(student))
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0.02, atol=0.02)
    for found, expected in zip(rounded_grad, exact_grad, strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).norm() < 0.02 * expected.norm()


def test_token_counts_and_vocabularies_must_match():
    with pytest.raises(ValueError, match="23, 7"):
        divergence_between(readout(0), readout(1, tokens=7), forward_kl)
    small = Readout(hidden_MH=torch.zeros(M, 2), weight_VH=torch.zeros(V - 1, 2))
    with pytest.raises(ValueError, match="40, 39"):
        divergence_between(readout(0), small, forward_kl)


def fitted(divergence, mode_logp_1V):
    """A bell-shaped student, logits a·v + b·v², brought as near to the teacher as the divergence can."""
    v_V = torch.linspace(-2, 2, mode_logp_1V.shape[1], dtype=torch.float64)
    features_VH = torch.stack((v_V, v_V**2), 1)
    teacher = Readout(hidden_MH=mode_logp_1V, weight_VH=torch.eye(len(v_V), dtype=torch.float64))
    hidden_MH = torch.tensor([[6.0, -8.0]], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [hidden_MH], max_iter=200, tolerance_grad=1e-9, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        student = Readout(hidden_MH=hidden_MH, weight_VH=features_VH)
        loss = divergence_between(student, teacher, divergence).divergence_M.sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return (hidden_MH.detach() @ features_VH.T).softmax(-1), features_VH


def test_forward_kl_covers_both_modes_and_reverse_kl_keeps_to_one():
    v_V = torch.linspace(-2, 2, 41, dtype=torch.float64)
    bump_V = torch.exp(-50 * (v_V - 0.6) ** 2) + torch.exp(-50 * (v_V + 0.6) ** 2)
    p_1V = (bump_V / bump_V.sum())[None]
    covering_1V, features_VH = fitted(forward_kl, p_1V.log())
    seeking_1V, _ = fitted(reverse_kl, p_1V.log())
    for divergence, nearer_1V, farther_1V in (
        (forward_kl, covering_1V, seeking_1V),
        (reverse_kl, seeking_1V, covering_1V),
    ):
        assert divergence(p_1V.log(), nearer_1V.log()) < 0.5 * divergence(p_1V.log(), farther_1V.log())
    between_V, right_V = v_V.abs() < 0.3, v_V > 0
    assert p_1V[0, between_V].sum() < 0.01
    # The nearest of an exponential family in forward KL has the teacher's own moments.
    torch.testing.assert_close(covering_1V @ features_VH, p_1V @ features_VH, rtol=0, atol=1e-8)
    assert covering_1V[0, between_V].sum() > 0.2
    assert seeking_1V[0, right_V].sum() > 0.99
    assert seeking_1V[0, between_V].sum() < 0.02
