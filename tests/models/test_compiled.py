"""Layers whose parts are compiled say what they said before, for any length, and are compiled once."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from transformers import PreTrainedModel

from plaudit.methods.models import uncompiled_notes
from plaudit.models.adapters import with_lora
from plaudit.models.policy import AdapterOffReference, Policy
from plaudit.models.settings import LoraSettings
from plaudit.models.verify import choose_layout, compile_layers, largest_difference
from plaudit.tokens.batch import batch_of
from tests.models.zoo import WrongBackward, build, examples

rounds_alike = pytest.mark.skipif(
    torch.__version__.startswith("2.11"), reason="torch 2.11 leaves out roundings where it compiles for a CPU"
)
LLAMA = "compiled: LlamaAttention, LlamaMLP, LlamaRMSNorm in 2 layers"


def programs() -> int:
    return counters["stats"]["unique_graphs"]


def learnt(policy: Policy, rows: int, seed: int) -> list[Tensor]:
    policy.zero_grad()
    logp_NT = policy.score(batch_of(examples(seed)[:rows])).logp_NT
    logp_NT.sin().sum().backward()
    return [logp_NT.detach(), *(p.grad for p in policy.parameters() if p.grad is not None)]


def same_in_new_lengths(policy: Policy, near: float) -> None:
    """What it computes now, and uncompiled, are the same, and no length makes a program."""
    compiled, before = policy.backbone.compiled, programs()
    assert compiled is not None
    for rows, seed in ((4, 3), (3, 5), (2, 7)):
        policy.backbone.compiled = compiled
        found = learnt(policy, rows, seed)
        policy.backbone.compiled = None
        wanted = learnt(policy, rows, seed)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=near * max(1.0, float(other.abs().max())))
    policy.backbone.compiled = compiled
    with torch.no_grad():
        policy.score(batch_of(examples(11)))
    assert programs() == before
    assert compiled.uncompiled_calls == 0
    assert uncompiled_notes(policy) == []


@pytest.mark.slow
@pytest.mark.cases(quick=("packed",))
@pytest.mark.parametrize("layout", ["packed", "left"])
def test_layers_say_what_they_said_before(layout):
    policy = Policy(build("llama"), layout=layout).train()
    names = [*policy.state_dict()]
    assert compile_layers(policy) == LLAMA
    assert policy.training
    same_in_new_lengths(policy, 1e-5)
    assert [*policy.state_dict()] == names
    assert largest_difference(policy) < 1e-5


@pytest.mark.slow
@rounds_alike
def test_they_round_where_layers_round_that_are_not_compiled():
    policy = Policy(build("llama")).train()
    policy.compute_in(torch.bfloat16)
    assert compile_layers(policy) == LLAMA
    same_in_new_lengths(policy, 1e-3)
    # Copies are of the weights of this moment here too.
    with torch.no_grad():
        first_NT = policy.score(batch_of(examples())).logp_NT
        for weight in policy.parameters():
            weight.mul_(0.5)
        assert not torch.equal(policy.score(batch_of(examples())).logp_NT, first_NT)
    same_in_new_lengths(policy, 1e-3)


@pytest.mark.slow
@rounds_alike
def test_layers_that_are_computed_again_are_compiled_both_times():
    policy = Policy(build("qwen3")).train()
    policy.compute_in(torch.bfloat16)
    policy.backbone.recompute_layers()
    assert compile_layers(policy) == LLAMA.replace("Llama", "Qwen3")
    same_in_new_lengths(policy, 1e-3)


@pytest.mark.slow
def test_adapters_are_compiled_on_and_off():
    pytest.importorskip("peft", reason="needs plaudit[lora]")
    policy = Policy(with_lora(build("llama"), LoraSettings(rank=4))).train()
    assert compile_layers(policy) == LLAMA
    same_in_new_lengths(policy, 1e-5)
    before = programs()
    batch = batch_of(examples(5))
    bare_NT = AdapterOffReference(policy).logp(examples(5), batch)
    torch.testing.assert_close(bare_NT, Policy(build("llama")).score(batch).logp_NT, rtol=0, atol=1e-5)
    assert programs() == before


@pytest.mark.slow
def test_models_of_one_kind_have_code_of_their_own():
    """A second model, of other sizes, takes nothing from the first, and neither is compiled again."""
    first = Policy(build("llama")).train()
    second = Policy(build("llama", seed=1)).train()
    second.requires_grad_(requires_grad=False)
    for policy in (first, second):
        assert compile_layers(policy) == LLAMA
    same_in_new_lengths(first, 1e-5)


@pytest.mark.slow
def test_a_copy_is_not_compiled():
    policy = Policy(build("llama")).train()
    compile_layers(policy)
    again = copy.deepcopy(policy)
    assert not any("forward" in vars(part) for part in again.modules())
    with torch.no_grad():
        for weight in again.parameters():
            weight.zero_()
        assert float(again.score(batch_of(examples())).logp_NT.min()) == pytest.approx(-4.1109, abs=1e-4)


@pytest.mark.slow
def test_a_kind_of_pass_that_is_new_runs_as_it_is_and_that_is_said_once():
    policy = Policy(build("llama")).train()
    compile_layers(policy)
    before = programs()
    policy.use_layout("right")
    policy.backbone.base.config._attn_implementation = "eager"
    learnt(policy, 4, 0)
    assert programs() == before
    [sentence] = uncompiled_notes(policy)
    assert sentence.startswith("compiled: some micro-batches are of a kind that was not compiled")
    learnt(policy, 4, 0)
    assert uncompiled_notes(policy) == []


def wrongly(kind: str, wrong: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """A compiler that spoils one kind of part."""

    def compile_(forward: Callable[..., Any], **_: object) -> Callable[..., Any]:
        def run(part: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            output = forward(part, *args, **kwargs)
            return wrong(output) if type(part).__name__ == kind else output

        return run

    return compile_


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda output: output * 1.1, "differs by"),
        (WrongBackward.apply, "has a gradient that differs by"),
        (lambda output: output[None, None, None].nope, "fails: 'Tensor' object has no attribute 'nope'"),
    ],
)
def test_a_part_that_is_compiled_wrongly_is_left_out_and_said(monkeypatch, wrong, why):
    policy = Policy(build("llama")).train()
    monkeypatch.setattr(torch, "compile", wrongly("LlamaMLP", wrong))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    words = compile_layers(policy)
    kept = "compiled: LlamaAttention, LlamaRMSNorm in 2 layers; LlamaMLP as without --compile:"
    assert words.startswith(f"{kept} {why}")
    assert policy.backbone.compiled is not None
    assert policy.backbone.compiled.kinds == ["LlamaAttention", "LlamaRMSNorm"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2", "gemma2", "gemma3", "mistral", "mixtral", "gptneox", "mamba"])
def test_every_family_says_what_it_said_before(name):
    policy = Policy(build(name)).train()
    choose_layout(policy, "packed")
    words = compile_layers(policy)
    assert words.startswith("compiled: ")
    assert policy.backbone.compiled is not None, words
    same_in_new_lengths(policy, 1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_on_a_gpu_layers_are_compiled_and_agree(name):
    model: PreTrainedModel = build(name).to("cuda")
    policy = Policy(model).train()
    policy.compute_in(torch.bfloat16)
    assert "as without" not in compile_layers(policy)
    before = programs()
    batch = batch_of(examples(3)).to("cuda")
    with torch.no_grad():
        found_NT = policy.score(batch).logp_NT
        policy.backbone.compiled = None
        wanted_NT = policy.score(batch).logp_NT
    assert float((found_NT - wanted_NT).abs().mean()) < 0.03
    assert programs() == before
