"""Where every token counts the same, the gradient is made in the forward pass: less work, same numbers."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

from plaudit.tensors import logprobs
from plaudit.tensors.logprobs import (
    PLAIN,
    LogitRule,
    TokenScores,
    score_tokens,
    score_tokens_equally_weighted,
)
from tests.tensors.naive import CASES, Case, case, naive_scores

RULES = {
    "plain": PLAIN,
    "scale and temperature": LogitRule(scale=1.7, temperature=0.6),
    "cap": LogitRule(cap=1.5),
}


@pytest.fixture(autouse=True)
def _tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tokens and sixteen words a block: several blocks each way in every test."""
    monkeypatch.setattr(logprobs, "RETAINED_ROWS_AT_ONCE", 3)
    monkeypatch.setattr(logprobs, "LOGITS_AT_ONCE", {"cpu": 48, "cuda": 48})


def _alike(given: Case, rule: LogitRule = PLAIN) -> TokenScores:
    return score_tokens_equally_weighted(
        given.hidden_MH, given.weight_VH, given.target_M, bias_V=given.bias_V, rule=rule
    )


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_it_equals_all_logits_at_once(device, rule, bias):
    given = case(tokens=8, vocabulary=45, bias=bias, device=device)
    scores, (naive_logp_M, _) = _alike(given, rule), naive_scores(given, rule)
    assert scores.entropy_M is None
    torch.testing.assert_close(scores.logp_M, naive_logp_M, rtol=0, atol=1e-10)
    ours = torch.autograd.grad(-0.3 * scores.logp_M.sum(), given.leaves)
    theirs = torch.autograd.grad(-0.3 * naive_logp_M.sum(), given.leaves)
    assert all(bool((grad != 0).any()) for grad in theirs)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_loss_that_counts_them_differently_after_all_gets_its_own_gradient(device, rule):
    given = case(tokens=8, vocabulary=45, bias=True, device=device)
    ours = torch.autograd.grad(_alike(given, rule).logp_M.square().sum(), given.leaves)
    theirs = torch.autograd.grad(naive_scores(given, rule)[0].square().sum(), given.leaves)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_a_second_pass_over_the_same_graph_gives_the_same():
    given = case(tokens=8, vocabulary=45, bias=True)
    loss = _alike(given).logp_M.mean()
    first = torch.autograd.grad(loss, given.leaves, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, given.leaves), first, rtol=0, atol=1e-12)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given=CASES)
def test_any_shape_agrees(given):
    ours = torch.autograd.grad(_alike(given).logp_M.sum(), given.leaves)
    theirs = torch.autograd.grad(naive_scores(given, PLAIN)[0].sum(), given.leaves)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_no_gradient_is_made_for_what_is_frozen_or_for_nobody():
    free = case(tokens=8, vocabulary=45)
    by_states, by_weight = torch.autograd.grad(naive_scores(free, PLAIN)[0].sum(), free.leaves)
    states, weight = free.hidden_MH.detach().requires_grad_(), free.weight_VH.detach().requires_grad_()
    score_tokens_equally_weighted(states, weight.detach(), free.target_M).logp_M.sum().backward()
    score_tokens_equally_weighted(states.detach(), weight, free.target_M).logp_M.sum().backward()
    torch.testing.assert_close(states.grad, by_states, rtol=0, atol=1e-10)
    torch.testing.assert_close(weight.grad, by_weight, rtol=0, atol=1e-10)
    given = case(tokens=8, vocabulary=45)
    with torch.no_grad(), profile(acc_events=True) as seen:
        _alike(given)
    assert "aten::addmm_" not in {event.key for event in seen.key_averages()}


def test_bfloat16_products_give_nearly_the_gradient_of_float64(device):
    exact, rough = (
        case(tokens=40, vocabulary=600, hidden=16, bias=True, dtype=dtype, device=device)
        for dtype in (torch.float64, torch.float32)
    )
    with torch.autocast(device.type, dtype=torch.bfloat16):
        logp_M = _alike(rough).logp_M
    assert logp_M.dtype == torch.float32
    theirs = torch.autograd.grad(naive_scores(exact, PLAIN)[0].sum(), exact.leaves)
    for mine, wanted in zip(torch.autograd.grad(logp_M.sum(), rough.leaves), theirs, strict=True):
        assert mine.dtype == torch.float32
        assert (mine.double() - wanted).norm() < 1e-2 * wanted.norm()


def test_the_logits_are_made_once_not_twice(monkeypatch):
    given = case(tokens=8, vocabulary=45)

    def products_not_in_place(score: Callable[..., TokenScores]) -> float:
        with FlopCounterMode(display=False) as counter:
            score(given.hidden_MH, given.weight_VH, given.target_M).logp_M.sum().backward()
        return counter.get_total_flops() / (2 * 8 * 45 * 5)

    # So few logits may be kept; of more tokens they are made again.
    assert products_not_in_place(score_tokens) == 1
    monkeypatch.setattr(logprobs, "MAX_CACHED_LOGITS", 8 * 45 - 1)
    assert products_not_in_place(score_tokens) == 2
    assert products_not_in_place(score_tokens_equally_weighted) == 1
