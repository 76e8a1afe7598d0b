"""Every kernel of packed attention gives the same log-probs and gradients, and says that it ran.

FlashAttention and FlexAttention's backward pass need a GPU. Here a plain implementation of the first takes
its place, so that all of plaudit's own arithmetic (where segments lie, whose keys they see) is compared; the
second runs as it is, forward. The tests marked ``gpu`` run both kernels themselves.
"""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from plaudit.engine.checkpoint.state import deterministic_kernels
from plaudit.models import attention
from plaudit.models.attention import AttentionRule, PackedRow
from plaudit.models.policy import Policy
from plaudit.models.verify import choose_kernels, choose_layout, largest_difference
from plaudit.tokens.batch import Completion, Example, TokenBatch, batch_of
from plaudit.tokens.microbatch import Segments
from tests.models.zoo import SDPA, WrongBackward, build, examples

# On a CPU, where a compiler may be missing, it is not compiled.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

CPU = torch.device("cpu")
SIZE = 8
PLAIN = AttentionRule(scaling=None, dropout=0.0, window=None, softcap=None, sink_h=None)
SEGMENTS = Segments(prompts=(3, 5, 2, 4), completions=((2, 6, 1), (4,), (3,) * 11, (1, 2)))
"""Eleven completions are more than one pass of the backward sum takes."""


def _plain_varlen(query: Tensor, key: Tensor, value: Tensor, *where: Any, **settings: Any) -> Tensor:
    """What torch documents of its kernel: causal from the last key backwards, windows beside the token."""
    query_ends, key_ends, longest_query, longest_key = where
    assert settings.get("enable_gqa", False) == (query.shape[1] != key.shape[1])
    left, right = settings["window_size"]
    factor = settings["scale"] or query.shape[-1] ** -0.5
    outputs: list[Tensor] = []
    for n in range(len(query_ends) - 1):
        q, k, v = (
            tensor[int(ends[n]) : int(ends[n + 1])]
            for tensor, ends in ((query, query_ends), (key, key_ends), (value, key_ends))
        )
        assert len(q) <= longest_query
        assert len(k) <= longest_key
        k, v = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (k, v))
        score = torch.einsum("qhd,khd->hqk", q, k) * factor
        places = torch.arange(len(k), device=q.device)
        behind = places[len(k) - len(q) :, None] - places
        hidden = (behind < -right) | ((behind > left) & (left >= 0))
        weight = score.masked_fill(hidden, float("-inf")).softmax(-1)
        outputs.append(torch.einsum("hqk,khd->qhd", weight, v))
    return torch.cat(outputs)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Fast kernels serve the CPU too, FlashAttention by its plain form, in any numbers and sizes."""
    monkeypatch.setattr(attention, "ACCELERATED", ("cpu", "cuda"))
    monkeypatch.setattr(attention, "varlen_attn", _plain_varlen)
    varlen, flex = attention.KERNEL_TABLE["varlen"], attention.KERNEL_TABLE["flex"]

    def objection(rule: AttentionRule, query: Tensor, value: Tensor) -> str | None:
        # The models of these tests have smaller heads, and more digits, than the kernel takes.
        del query, value
        return varlen.objection(rule, *torch.empty(2, 1, 1, 1, 8, dtype=torch.bfloat16))

    def flex_objection(rule: AttentionRule, query: Tensor, value: Tensor) -> str | None:
        # Uncompiled, as here, FlexAttention has heads of any size.
        return flex.objection(rule, *(x.new_empty(1, 1, 1, x.shape[-1] + 16) for x in (query, value)))

    monkeypatch.setitem(attention.KERNEL_TABLE, "varlen", replace(varlen, objection=objection))
    monkeypatch.setitem(attention.KERNEL_TABLE, "flex", replace(flex, objection=flex_objection))
    return monkeypatch


def _qkv(segments: Segments, *, grouped: bool, device: torch.device = CPU, size: int = SIZE) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    length = sum(segments.prompts) + sum(map(sum, segments.completions))
    heads = (4, 2, 2) if grouped else (4, 4, 4)
    return [
        torch.randn(1, head, length, size, generator=generator, dtype=torch.float64)
        .to(device)
        .requires_grad_()
        for head in heads
    ]


def _attended(segments: Segments, rule: AttentionRule, without: tuple[str, ...], qkv: list[Tensor]) -> Any:
    ran: dict[str, str] = {}
    return PackedRow(segments, qkv[0].device, without=without, ran=ran).attend(rule, *qkv), ran[rule.kind]


def _pull(output: Tensor) -> Tensor:
    """What each output counts, the same on every device."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3, 40])
@pytest.mark.parametrize("shared", [False, True])
def test_one_call_for_all_segments_is_each_segment_alone(device, fast, shared, window, grouped):
    segments = SEGMENTS if shared else Segments(prompts=(3, 1, 6), completions=((4,), (2,), ()))
    rule = replace(PLAIN, window=window, scaling=0.3)
    qkv = _qkv(segments, grouped=grouped, device=device)
    outputs = [_attended(segments, rule, without, qkv) for without in ((), ("varlen", "flex"))]
    assert [ran for _, ran in outputs] == ["varlen", "loop"]
    torch.testing.assert_close(outputs[0][0], outputs[1][0], rtol=0, atol=1e-12)
    by_varlen, by_loop = (torch.autograd.grad(output, qkv, _pull(output)) for output, _ in outputs)
    for one, other in zip(by_varlen, by_loop, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("window", [None, 1, 3, 40])
def test_one_call_over_the_row_is_each_segment_alone(fast, window, cap, sink):
    sink_h = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64) if sink else None
    rule = replace(PLAIN, window=window, softcap=cap, sink_h=sink_h)
    qkv = [x.detach() for x in _qkv(SEGMENTS, grouped=True)]
    outputs = [_attended(SEGMENTS, rule, without, qkv) for without in (("varlen",), ("varlen", "flex"))]
    assert [ran for _, ran in outputs] == ["flex", "eager" if cap or sink else "loop"]
    torch.testing.assert_close(outputs[0][0], outputs[1][0], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("size", "kernel"), [(15, "eager"), (16, "flex")])
def test_heads_that_are_too_small_for_flex_go_by_another_kernel(monkeypatch, size, kernel):
    monkeypatch.setattr(attention, "ACCELERATED", ("cpu", "cuda"))
    rule = replace(PLAIN, softcap=2.0)
    # On a CPU it has no backward pass.
    qkv = [x.detach() for x in _qkv(SEGMENTS, grouped=True, size=size)]
    said = attention.KERNEL_TABLE["flex"].objection(rule, qkv[0], qkv[2])
    assert said == (None if kernel == "flex" else "wants heads of at least 16 numbers")
    found, ran = _attended(SEGMENTS, rule, (), qkv)
    assert ran == kernel
    torch.testing.assert_close(found, _attended(SEGMENTS, rule, attention.FAST_KERNELS, qkv)[0])


def test_gradients_of_shared_keys_are_added_up_in_float32_and_in_one_order(device):
    plan = PackedRow(SEGMENTS, device, ran={}).varlen
    assert plan.key_index is not None
    assert [place.shape[1] for _, place in plan.copies] == [8, 3]
    row = torch.zeros(len(plan.own_S), 2, SIZE, dtype=torch.bfloat16, device=device, requires_grad=True)
    keys = attention._gather_keys(row, plan)
    grad = _pull(keys)
    [found] = torch.autograd.grad(keys, row, grad)
    wanted = torch.zeros_like(row, dtype=torch.float64).index_add(0, plan.key_index, grad.double())
    # One rounding to 16 bits at the end, whatever the number of copies.
    torch.testing.assert_close(found, wanted.bfloat16(), rtol=2**-7, atol=1e-6)
    assert torch.equal(found, torch.autograd.grad(attention._gather_keys(row, plan), row, grad)[0])


@pytest.mark.parametrize("name", sorted(SDPA))
def test_models_say_the_same_by_one_kernel_for_all_segments(fast, name):
    policy = Policy(build(name, torch.float64))
    assert largest_difference(policy) < 1e-10
    assert {*policy.backbone.kernels.values()} == {"varlen"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "kernels"), [("gemma2", {"flex"}), ("gpt_oss", {"flex"})])
def test_capped_scores_and_sinks_are_served_by_one_kernel(fast, name, kernels):
    policy = Policy(build(name))
    assert largest_difference(policy) < 1e-4
    assert {*policy.backbone.kernels.values()} == kernels


def _gradients(policy: Policy, batch: TokenBatch) -> list[Tensor]:
    policy.zero_grad()
    policy.score(batch).logp_NT.sum().backward()
    return [p.grad for p in policy.parameters() if p.grad is not None]


def test_a_model_learns_the_same_by_one_kernel_for_all_segments(fast):
    policy, batch = Policy(build("qwen3", torch.float64)), batch_of(examples())
    by_varlen = _gradients(policy, batch)
    policy.backbone.refused_kernels = attention.FAST_KERNELS
    for one, other in zip(by_varlen, _gradients(policy, batch), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    assert policy.backbone.kernels == {"full": "loop"}


def test_on_a_cpu_segments_are_attended_to_in_turn_and_nothing_is_said():
    policy = Policy(build("llama"))
    assert choose_layout(policy, "packed") == ("packed", None)
    assert choose_kernels(policy) is None
    assert policy.backbone.kernels == {"full": "loop"}


def test_the_kernels_in_use_are_named(fast):
    assert choose_kernels(Policy(build("mistral"))) == "attention: varlen (window of 6)"


def _wrong(*args: Any, **kwargs: Any) -> Tensor:
    # As a kernel that aligns causality with the first key.
    return _plain_varlen(*args, **kwargs).roll(1, 0)


def _wrong_backward(*args: Any, **kwargs: Any) -> Tensor:
    return WrongBackward.apply(_plain_varlen(*args, **kwargs))


def _failing(*args: Any, **kwargs: Any) -> Tensor:
    raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nand more")


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (_wrong, "varlen differs by"),
        (_wrong_backward, "varlen has a gradient that differs by"),
        (_failing, "varlen fails: CUDA error: no kernel image is available for execution on the device"),
    ],
)
def test_a_kernel_that_fails_or_is_wrong_is_left_out_and_said(fast, kernel, why):
    fast.setattr(attention, "varlen_attn", kernel)
    policy = Policy(build("llama"))
    words = choose_kernels(policy)
    assert words is not None
    # FlexAttention has no backward pass on a CPU, so it is left out here as well.
    assert words.startswith(f"attention: loop (full); {why}")
    assert "flex fails: FlexAttention does not support backward on CPU" in words
    assert largest_difference(policy) < 1e-5


class _Noting(torch.autograd.Function):
    """Notes in the backward pass whether torch only warns of an operation without an order."""

    seen: ClassVar[list[bool]] = []

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        _Noting.seen.append(torch.is_deterministic_algorithms_warn_only_enabled())
        return grads[0]


def test_in_a_deterministic_run_attention_alone_may_not_add_up_in_any_order(fast):
    fast.setattr(
        attention, "varlen_attn", lambda *args, **kwargs: _Noting.apply(_plain_varlen(*args, **kwargs))
    )
    policy, batch = Policy(build("llama", torch.float64)), batch_of(examples())
    wanted = _gradients(policy, batch)
    _Noting.seen.clear()
    with deterministic_kernels():
        scores = policy.score(batch).logp_NT
        policy.zero_grad()
        _Noting.apply(scores).sum().backward()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert _Noting.seen == [True, False, False]
    assert not torch.are_deterministic_algorithms_enabled()
    for one, other in zip((p.grad for p in policy.parameters()), wanted, strict=True):
        assert torch.equal(one, other)


def test_a_kernel_that_fails_does_not_stop_the_proof_of_the_layout(fast):
    fast.setattr(attention, "varlen_attn", _failing)
    policy = Policy(build("llama"))
    assert choose_layout(policy, "packed") == ("packed", None)
    assert policy.backbone.kernels == {"full": "loop"}


def _example(prompt: int, *answers: int) -> Example:
    completions = tuple(Completion(ids=(3,) * n, mask=(True,) * n, finished=True) for n in answers)
    return Example(prompt=(4,) * prompt, completions=completions)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        *((name, "varlen") for name in ("llama", "qwen3", "mistral", "gemma3")),
        *((name, "flex") for name in ("gemma2", "gpt_oss")),
    ],
)
def test_on_a_gpu_fast_kernels_run_and_agree(name, kernel):
    policy = Policy(build(name, torch.bfloat16, head_size=16).to("cuda"))
    words = choose_kernels(policy)
    assert {*policy.backbone.kernels.values()} == {kernel}, words
    batch = batch_of([_example(200, 30, 7, 90), _example(5, 64)]).to("cuda")
    fast_NT, by_fast = policy.score(batch).logp_NT.detach(), _gradients(policy, batch)
    policy.backbone.refused_kernels = attention.FAST_KERNELS
    slow_NT, by_loop = policy.score(batch).logp_NT.detach(), _gradients(policy, batch)
    assert float((fast_NT - slow_NT).abs().mean()) < 0.03
    one, other = (torch.cat([grad.flatten().float() for grad in grads]) for grads in (by_fast, by_loop))
    assert float((one - other).norm()) < 0.1 * float(other.norm())


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", attention.FAST_KERNELS)
@pytest.mark.parametrize("window", [None, 1, 3, 40])
def test_on_a_gpu_each_kernel_is_the_loop_in_float64_but_for_its_digits(kernel, window):
    rule = replace(PLAIN, window=window)
    exact = _qkv(SEGMENTS, grouped=True, device=torch.device("cuda"), size=16)
    rough = [x.detach().bfloat16().requires_grad_() for x in exact]
    wanted, _ = _attended(SEGMENTS, rule, attention.FAST_KERNELS, exact)
    others = tuple(name for name in attention.FAST_KERNELS if name != kernel)
    found, ran = _attended(SEGMENTS, rule, others, rough)
    assert ran == kernel
    assert float((found - wanted).detach().norm()) < 0.02 * float(wanted.detach().norm())
    by_kernel, by_loop = (
        torch.autograd.grad(out, qkv, _pull(out)) for out, qkv in ((found, rough), (wanted, exact))
    )
    for one, other in zip(by_kernel, by_loop, strict=True):
        assert float((one - other).norm()) < 0.03 * float(other.norm().clamp(min=1.0))
