"""Weights of many digits that are computed with in few: the numbers of a model of few, gradients of many.

Float64 weights computed with in float32 stand for float32 and bfloat16: all else is the same, and every
difference shows.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plaudit.models.adapters import with_lora
from plaudit.models.decode import CachedDecoder, SharedDecoder
from plaudit.models.policy import Policy
from plaudit.models.reward_model import new_reward_model
from plaudit.models.settings import LoraSettings
from plaudit.tokens.batch import batch_of
from tests.models.reward_zoo import encoder_of, start
from tests.models.zoo import build, examples

CPU = torch.device("cpu")
NAMES = ["llama", "gemma", "gpt2", "gemma2", "mixtral", "gpt_oss"]
"""With tied and untied heads, with norms of every kind, and with experts."""


def _pair(name: str) -> tuple[Policy, Policy]:
    wide = Policy(build(name, torch.float64))
    wide.compute_in(torch.float32)
    return wide, Policy(build(name, torch.float64).float())


def _learnt(policy: Policy) -> dict[str, Tensor | None]:
    policy.zero_grad()
    policy.score(batch_of(examples()), also=("entropy",)).logp_NT.sum().backward()
    return {name: p.grad for name, p in policy.named_parameters()}


@pytest.mark.parametrize("name", NAMES)
def test_numbers_and_gradients_are_those_of_narrow_weights(name: str) -> None:
    wide, narrow = _pair(name)
    before = {key: p.detach().clone() for key, p in wide.named_parameters()}
    batch = batch_of(examples())
    assert torch.equal(wide.score(batch).logp_NT, narrow.score(batch).logp_NT)
    found, wanted = _learnt(wide), _learnt(narrow)
    assert found.keys() == wanted.keys()
    for key, grad in found.items():
        other = wanted[key]
        assert (grad is None) == (other is None), key
        if grad is not None and other is not None:
            assert grad.dtype == torch.float64
            torch.testing.assert_close(grad, other.double(), rtol=0, atol=1e-5 * float(other.abs().max() + 1))
    for key, p in wide.named_parameters():
        assert torch.equal(p, before[key])


def test_gradients_add_up_in_the_digits_of_the_weights() -> None:
    """Ten equal micro-batches make ten times the gradient of one, to the bit of a wide number."""
    wide, _ = _pair("llama")
    once = {key: None if grad is None else grad.clone() for key, grad in _learnt(wide).items()}
    wide.zero_grad()
    for _ in range(10):
        wide.score(batch_of(examples()), also=("entropy",)).logp_NT.sum().backward()
    for key, p in wide.named_parameters():
        single = once[key]
        assert p.grad is not None
        assert single is not None
        torch.testing.assert_close(p.grad, 10 * single, rtol=1e-14, atol=0)


def test_a_pass_sees_the_weights_of_this_moment() -> None:
    wide, narrow = _pair("llama")
    batch = batch_of(examples())
    first = wide.score(batch).logp_NT
    with torch.no_grad():
        for policy in (wide, narrow):
            for p in policy.parameters():
                p.data.mul_(0.5)
    assert not torch.equal(wide.score(batch).logp_NT, first)
    assert torch.equal(wide.score(batch).logp_NT, narrow.score(batch).logp_NT)


@pytest.mark.parametrize("keep", [False, True])
def test_layers_that_are_computed_again_compute_the_same(keep: bool) -> None:
    wide, _ = _pair("llama")
    wanted = _learnt(wide)
    again, _ = _pair("llama")
    again.backbone.recompute_layers(keep_products=keep)
    again.train()
    for key, grad in _learnt(again).items():
        other = wanted[key]
        assert grad is not None
        assert other is not None
        # The last layer computes all rows here, not the wanted ones alone: a product may sum them otherwise.
        torch.testing.assert_close(grad, other, rtol=0, atol=1e-6 * float(other.abs().max()))


@pytest.mark.parametrize("decoder", [SharedDecoder, CachedDecoder])
def test_answers_are_drawn_from_the_same_numbers(decoder: Any) -> None:
    wide, narrow = _pair("llama")
    logits: list[Tensor] = []
    for policy in (wide, narrow):
        with torch.inference_mode(), decoder.attention_context(policy):
            drawing = decoder(policy, [(3, 4, 5), (6, 7)], (2, 1))
            drawing.step(torch.tensor([8, 9, 10]))
            logits.append(drawing.logits_NV)
    assert logits[0].dtype == torch.float32
    assert torch.equal(*logits)
    # Nothing is left behind: the next pass learns.
    assert wide.score(batch_of(examples())).logp_NT.requires_grad


def test_what_does_not_learn_is_kept_in_few_digits_and_adapters_in_many() -> None:
    policy = Policy(with_lora(build("llama", torch.float64), LoraSettings(rank=2)))
    policy.compute_in(torch.float32)
    kinds = {(p.requires_grad, p.dtype) for p in policy.parameters()}
    assert kinds == {(True, torch.float64), (False, torch.float32)}
    narrow = Policy(with_lora(build("llama", torch.float64), LoraSettings(rank=2)).float())
    with torch.no_grad():
        for p, other in zip(policy.parameters(), narrow.parameters(), strict=True):
            other.copy_(p)
    batch = batch_of(examples())
    assert torch.equal(policy.score(batch).logp_NT, narrow.score(batch).logp_NT)
    grads = _learnt(policy)
    assert any(grad is not None and grad.dtype == torch.float64 and grad.any() for grad in grads.values())


def test_all_digits_are_there_when_they_are_asked_for() -> None:
    wide, _ = _pair("llama")
    whole = Policy(build("llama", torch.float64))
    batch = batch_of(examples())
    with wide.backbone.in_full():
        assert torch.equal(wide.score(batch).logp_NT, whole.score(batch).logp_NT)
    assert wide.score(batch).logp_NT.dtype == torch.float32


def test_a_rewards_head_computes_in_all_its_digits(tmp_path: Path) -> None:
    folder = start(tmp_path)
    model = new_reward_model(folder, None, encoder=encoder_of(folder), dtype=torch.float64, device=CPU)
    narrow = new_reward_model(folder, None, encoder=encoder_of(folder), dtype=torch.float32, device=CPU)
    model.compute_in(torch.float32)
    rewards = model.rewards(batch_of(examples()))
    assert rewards.dtype == torch.float64
    rewards.sum().backward()
    assert all(p.grad is None or p.grad.dtype == torch.float64 for p in model.parameters())
    torch.testing.assert_close(rewards.float(), narrow.rewards(batch_of(examples())), rtol=1e-5, atol=1e-6)


def test_a_pass_that_fails_leaves_nothing_behind() -> None:
    wide, _ = _pair("llama")
    layer: Any = wide.backbone.repeated_layers[1]

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    handle = layer.mlp.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        wide.score(batch_of(examples()))
    handle.remove()
    assert not any("weight" in module.__dict__ for module in wide.modules() if isinstance(module, nn.Linear))
    assert wide.score(batch_of(examples())).logp_NT.dtype == torch.float32


def test_learning_through_copies_without_gradient_is_refused() -> None:
    wide, _ = _pair("llama")
    with torch.no_grad():
        stack = wide.backbone.computing(whole=True)
        stack.__enter__()
    with pytest.raises(AssertionError, match="without a gradient"):
        wide.score(batch_of(examples()))
    stack.__exit__(None, None, None)
