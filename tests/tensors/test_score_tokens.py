"""Log-probs in blocks equal log-probs from all logits at once, value and gradient."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor

from plaudit.tensors import logprobs
from plaudit.tensors.logprobs import PLAIN, LogitRule, score_tokens
from tests.tensors.naive import CASES, blocked_scores, case, gradients, naive_scores

RULES = {
    "plain": PLAIN,
    "scale": LogitRule(scale=0.3),
    "cap": LogitRule(cap=1.5),
    "temperature": LogitRule(temperature=0.6),
    "all": LogitRule(scale=1.7, cap=2.5, temperature=1.3),
}


@pytest.fixture(autouse=True, params=[0, logprobs.MAX_CACHED_LOGITS], ids=["made again", "kept"])
def _tiny_blocks(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Three tokens and sixteen words a block: several blocks each way in every test.

    Backward makes logits again, as it does of many tokens, or finds them kept.
    """
    monkeypatch.setattr(logprobs, "MAX_CACHED_LOGITS", request.param)
    monkeypatch.setattr(logprobs, "TOKENS_AT_ONCE", 3)
    monkeypatch.setattr(logprobs, "LOGITS_AT_ONCE", {"cpu": 48, "cuda": 48})


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("entropy_weight", [0.0, 0.7], ids=["log-probs alone", "with entropy"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_blocks_equal_all_logits_at_once(device, rule, bias, entropy_weight):
    given = case(tokens=8, vocabulary=45, bias=bias, device=device)
    blocked, naive = blocked_scores(given, rule), naive_scores(given, rule)
    for ours, theirs in zip(blocked, naive, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    ours, theirs = (gradients(given, *scores, entropy_weight) for scores in (blocked, naive))
    assert all(bool((grad != 0).any()) for grad in theirs)
    for mine, naive_grad in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, naive_grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("entropy_weight", [0.0, 0.7], ids=["log-probs alone", "with entropy"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_logits_that_were_kept_give_the_same_bits(rule, entropy_weight, monkeypatch):
    given = case(tokens=10, vocabulary=45, bias=True)
    products = count_products(monkeypatch)
    found: list[tuple[Tensor, ...]] = []
    for most, made_again in ((0, True), (450, False), (449, True)):
        monkeypatch.setattr(logprobs, "MAX_CACHED_LOGITS", most)
        logp_M, entropy_M = blocked_scores(given, rule)
        total = logp_M.square().sum() + entropy_weight * entropy_M.sum()
        products.clear()
        found.append(torch.autograd.grad(total, given.leaves, retain_graph=True))
        assert bool(products) == made_again
        # What was kept is used up: a second pass through the same graph makes it again.
        found.append(torch.autograd.grad(total, given.leaves))
        assert products
    assert all(torch.equal(mine, one) for others in found for mine, one in zip(others, found[0], strict=True))


def count_products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets longer with every block of logits."""
    made: list[int] = []
    logits = logprobs.Projection.logits

    def counted(head: logprobs.Projection, hidden_mH: Tensor, words: slice) -> Tensor:
        made.append(1)
        return logits(head, hidden_mH, words)

    monkeypatch.setattr(logprobs.Projection, "logits", counted)
    return made


def test_gradients_without_entropy_are_the_same_as_with_one_that_nobody_uses(device):
    given = case(tokens=8, vocabulary=45, bias=True, device=device)
    without = score_tokens(given.hidden_MH, given.weight_VH, given.target_M, bias_V=given.bias_V)
    assert without.entropy_M is None
    naive_logp_M, _ = naive_scores(given, PLAIN)
    ours = torch.autograd.grad(without.logp_M.square().sum(), given.leaves)
    theirs = torch.autograd.grad(naive_logp_M.square().sum(), given.leaves)
    for mine, naive_grad in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, naive_grad, rtol=0, atol=1e-10)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rule", [RULES["plain"], RULES["all"]], ids=["plain", "all"])
def test_finite_differences_agree(rule):
    given = case(tokens=4, vocabulary=19, hidden=3, bias=True)

    def scores(hidden_MH: Tensor, weight_VH: Tensor, bias_V: Tensor) -> tuple[Tensor, Tensor]:
        one = score_tokens(
            hidden_MH, weight_VH, given.target_M, bias_V=bias_V, rule=rule, extras=("entropy",)
        )
        assert one.entropy_M is not None
        return one.logp_M, one.entropy_M

    assert torch.autograd.gradcheck(scores, given.leaves, eps=1e-6, atol=1e-7)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given=CASES)
def test_any_shape_agrees(given):
    blocked, naive = blocked_scores(given, RULES["all"]), naive_scores(given, RULES["all"])
    torch.testing.assert_close(blocked, naive, rtol=0, atol=1e-10)
    ours, theirs = (gradients(given, *scores, 0.5) for scores in (blocked, naive))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_no_tokens_give_no_scores_and_no_gradient(device):
    given = case(tokens=0, vocabulary=20, bias=True, device=device)
    logp_M, entropy_M = blocked_scores(given, PLAIN)
    assert logp_M.shape == entropy_M.shape == (0,)
    grads = torch.autograd.grad(logp_M.sum() + entropy_M.sum(), given.leaves)
    assert all(bool((grad == 0).all()) for grad in grads)


def test_one_word_is_certain():
    logp_M, entropy_M = blocked_scores(case(tokens=3, vocabulary=1), PLAIN)
    assert logp_M.tolist() == [0.0] * 3
    assert entropy_M.tolist() == [0.0] * 3


def test_a_frozen_weight_gets_no_gradient_and_the_states_get_the_same():
    free = case(tokens=8, vocabulary=45, bias=True)
    wanted = gradients(free, *naive_scores(free, PLAIN), 0.5)[0]
    assert free.bias_V is not None
    given = case(tokens=8, vocabulary=45, bias=True)
    bias_V = free.bias_V.detach()
    frozen = score_tokens(
        given.hidden_MH, free.weight_VH.detach(), given.target_M, bias_V=bias_V, extras=("entropy",)
    )
    assert frozen.entropy_M is not None
    pull_M = torch.linspace(-1.0, 2.0, 8, dtype=torch.float64)
    ((pull_M * frozen.logp_M).sum() + 0.5 * (pull_M.flip(0) * frozen.entropy_M).sum()).backward()
    assert given.hidden_MH.grad is not None
    torch.testing.assert_close(given.hidden_MH.grad, wanted, rtol=0, atol=1e-10)
    assert given.weight_VH.grad is None


def test_a_head_alone_can_learn_from_frozen_states(device):
    given = case(tokens=8, vocabulary=45, device=device)
    wanted = torch.autograd.grad(naive_scores(given, PLAIN)[0].sum(), given.weight_VH)[0]
    scores = score_tokens(given.hidden_MH.detach(), given.weight_VH, given.target_M)
    got = torch.autograd.grad(scores.logp_M.sum(), given.weight_VH)[0]
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)


def test_greedy_is_exact_and_a_tie_counts(device):
    weight_VH = torch.zeros(40, 2, device=device)
    weight_VH[[3, 35], 0] = 1.0
    weight_VH[17, 1] = 1.0
    hidden_MH = torch.tensor([[2.0, 0.0]] * 4 + [[0.0, 5.0]] * 2, device=device)
    target_M = torch.tensor([3, 35, 17, 39, 17, 3], device=device)
    greedy_M = score_tokens(hidden_MH, weight_VH, target_M).greedy_M
    assert greedy_M.tolist() == [True, True, False, False, True, False]
    nothing_MH = torch.zeros(2, 2, device=device)
    assert score_tokens(nothing_MH, weight_VH, target_M[:2]).greedy_M.tolist() == [True, True]


def test_greedy_is_the_argmax_of_all_logits():
    given = case(tokens=30, vocabulary=45, seed=3)
    best_M = (given.hidden_MH @ given.weight_VH.T).argmax(-1)
    target_M = torch.where(torch.arange(30) % 2 == 0, best_M, given.target_M)
    greedy_M = score_tokens(given.hidden_MH, given.weight_VH, target_M).greedy_M
    assert greedy_M.tolist() == (target_M == best_M).tolist()


def test_huge_logits_stay_finite(device):
    given = case(tokens=6, vocabulary=45, dtype=torch.float32, device=device)
    logp_M, entropy_M = blocked_scores(given, LogitRule(scale=1e4))
    assert bool(torch.isfinite(logp_M).all())
    assert bool((entropy_M >= -1e-3).all())
    assert all(bool(torch.isfinite(grad).all()) for grad in gradients(given, logp_M, entropy_M, 0.5))


def test_a_target_outside_the_vocabulary_and_a_second_derivative_are_refused():
    given = case(tokens=4, vocabulary=20)
    for wrong in (20, -1):
        with pytest.raises(ValueError, match=rf"token {wrong} .* vocabulary of 20"):
            score_tokens(given.hidden_MH, given.weight_VH, torch.tensor([0, 1, 2, wrong]))
    given = case(tokens=4, vocabulary=20)
    logp_M = score_tokens(given.hidden_MH, given.weight_VH, given.target_M).logp_M
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(logp_M.sum(), given.hidden_MH, create_graph=True)


@pytest.mark.parametrize("also", [("repeat",), ("entropy", "repeat")], ids=["alone", "with entropy"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_chance_of_the_same_draw_twice_is_that_of_all_logits_and_has_no_gradient(device, rule, also):
    given = case(tokens=8, vocabulary=45, bias=True, device=device)
    scores = score_tokens(
        given.hidden_MH, given.weight_VH, given.target_M, bias_V=given.bias_V, rule=rule, extras=also
    )
    assert scores.repeat_M is not None
    assert not scores.repeat_M.requires_grad
    logits_MV = rule.apply(given.hidden_MH @ given.weight_VH.T + given.bias_V)
    naive_M = (2 * logits_MV.log_softmax(-1)).logsumexp(-1)
    torch.testing.assert_close(scores.repeat_M, naive_M, rtol=0, atol=1e-10)
    assert (scores.entropy_M is None) == ("entropy" not in also)
