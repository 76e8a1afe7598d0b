"""Few digits where they are cheap, many where they count: log-probs are float32 or better."""

from dataclasses import replace

import pytest
import torch

from plaudit.tensors import logprobs
from plaudit.tensors.logprobs import PLAIN, score_tokens, score_tokens_equally_weighted
from tests.tensors.naive import blocked_scores, case, gradients, naive_scores


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "TOKENS_AT_ONCE", 16)
    monkeypatch.setattr(logprobs, "LOGITS_AT_ONCE", {"cpu": 256, "cuda": 256})


def _far(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours.double() - theirs).norm() / theirs.norm()).item()


def test_float32_is_close_to_float64(device: torch.device) -> None:
    exact, rough = (
        case(tokens=40, vocabulary=300, hidden=16, dtype=d, device=device)
        for d in (torch.float64, torch.float32)
    )
    ours, theirs = blocked_scores(rough, PLAIN), naive_scores(exact, PLAIN)
    assert ours[0].dtype == torch.float32
    assert _far(ours[0], theirs[0]) < 1e-6
    grads = zip(gradients(rough, *ours, 0.5), gradients(exact, *theirs, 0.5), strict=True)
    assert max(_far(mine, wanted) for mine, wanted in grads) < 3e-6


def test_bfloat16_autocast_keeps_sums_in_float32(device: torch.device) -> None:
    exact, rough = (
        case(tokens=40, vocabulary=600, hidden=16, bias=True, dtype=dtype, device=device)
        for dtype in (torch.float64, torch.float32)
    )
    with torch.autocast(device.type, dtype=torch.bfloat16):
        ours = blocked_scores(rough, PLAIN)
    theirs = naive_scores(exact, PLAIN)
    assert ours[0].dtype == torch.float32
    assert 1e-5 < _far(ours[0], theirs[0]) < 4e-3
    for mine, wanted in zip(gradients(rough, *ours, 0.5), gradients(exact, *theirs, 0.5), strict=True):
        assert mine.dtype == torch.float32
        assert _far(mine, wanted) < 1e-2


@pytest.mark.parametrize("narrow", [True, False], ids=["bfloat16", "float32"])
def test_a_backward_inside_autocast_is_the_same_as_outside(narrow: bool) -> None:
    """Whatever surrounds it, it computes in the digits of its forward pass."""
    given = case(tokens=40, vocabulary=300, hidden=16, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
        logp_M = score_tokens(given.hidden_MH, given.weight_VH, given.target_M).logp_M
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = torch.autograd.grad(logp_M.sum(), given.leaves, retain_graph=True)
    outside = torch.autograd.grad(logp_M.sum(), given.leaves)
    assert all(torch.equal(one, other) for one, other in zip(inside, outside, strict=True))


def test_many_blocks_of_bfloat16_weights_do_not_wear_the_gradient_down(device: torch.device) -> None:
    rough = case(tokens=40, vocabulary=3000, hidden=16, dtype=torch.bfloat16, device=device)
    hidden_MH = rough.hidden_MH.detach().double().requires_grad_()
    exact = replace(rough, hidden_MH=hidden_MH, weight_VH=rough.weight_VH.detach().double().requires_grad_())
    ours, theirs = blocked_scores(rough, PLAIN), naive_scores(exact, PLAIN)
    assert ours[0].dtype == torch.float32
    grads = zip(gradients(rough, *ours, 0.5), gradients(exact, *theirs, 0.5), strict=True)
    assert max(_far(mine, wanted) for mine, wanted in grads) < 6e-3


@pytest.mark.slow
def test_a_head_of_bfloat16_loses_nothing_over_many_blocks_of_tokens(device: torch.device) -> None:
    rough = case(tokens=4000, vocabulary=40, hidden=16, dtype=torch.bfloat16, device=device)
    hidden_MH = rough.hidden_MH.detach().double().requires_grad_()
    exact = replace(rough, hidden_MH=hidden_MH, weight_VH=rough.weight_VH.detach().double().requires_grad_())
    for score in (score_tokens, score_tokens_equally_weighted):
        weights = [one.weight_VH for one in (rough, exact)]
        ours, theirs = (
            torch.autograd.grad(
                score(one.hidden_MH, one.weight_VH, one.target_M).logp_M.sum(), one.weight_VH
            )[0]
            for one in (rough, exact)
        )
        assert [ours.dtype, theirs.dtype] == [weight.dtype for weight in weights]
        # One rounding of the sum is 2⁻⁹; blocks added up in bfloat16 came to 0.02.
        assert _far(ours, theirs) < 4e-3
