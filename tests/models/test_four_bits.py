"""Weights in 4 bits: the levels of the paper, and gradients of adapters above what the levels stand for."""

import math
import pickle
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plaudit.errors import UserError
from plaudit.models.adapters import (
    BLOCK,
    LEVELS,
    FourBitLinear,
    dequantise,
    four_bit_layers,
    four_bit_note,
    merge_adapters,
    numbers_in_four_bits,
    quantise,
    quantise_linears,
    save_adapter,
    with_adapter,
    with_lora,
)
from plaudit.models.policy import Policy
from plaudit.models.settings import LoraSettings
from plaudit.models.verify import choose_layout
from plaudit.tokens.batch import batch_of
from tests.models.zoo import build, examples

pytest.importorskip("peft", reason="needs plaudit[lora]")
SETTINGS = LoraSettings(rank=4, alpha=8, base="4bit")
NAMES = ["llama", "gpt2", "phi", "gemma2"]


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_levels_are_quantiles_of_the_normal_distribution() -> None:
    """Equation 4 of the paper, with the offset that its own code takes: zero is exact, both ends are 1."""
    offset, normal = 0.9677083, NormalDist()

    def quantiles(count: int) -> list[float]:
        steps = (offset + (0.5 - offset) * n / count for n in range(count))
        return [normal.inv_cdf(share) for share in steps]

    above, below = quantiles(8), quantiles(7)
    largest = max(above)
    wanted = sorted([*(x / largest for x in above), 0.0, *(-x / largest for x in below)])
    assert len(wanted) == len(LEVELS)
    assert pytest.approx(wanted, abs=1e-6) == LEVELS


@pytest.mark.parametrize("shape", [(64,), (3, 64), (5, 7), (130,), (1,)])
def test_every_weight_becomes_its_nearest_level(shape: tuple[int, ...]) -> None:
    """Against one number after another, in Python."""
    weight = drawn(*shape, seed=len(shape)) * 3
    codes, scales = quantise(weight)
    found = dequantise(codes, scales, weight.shape, torch.float64).flatten().tolist()
    flat = weight.flatten().tolist()
    assert codes.dtype == torch.uint8
    assert codes.numel() * 2 == scales.numel() * BLOCK == math.ceil(len(flat) / BLOCK) * BLOCK
    for start in range(0, len(flat), BLOCK):
        block = flat[start : start + BLOCK]
        scale = float(torch.tensor(max(map(abs, block))).bfloat16())
        for n, number in enumerate(block):
            nearest = min(LEVELS, key=lambda level: abs(number - scale * level))
            assert found[start + n] == pytest.approx(scale * nearest, rel=1e-9)
            # Half of the widest gap between two levels, and what rounding the scale to bfloat16 cuts off.
            assert abs(number - found[start + n]) <= scale * (0.1520 + 2**-8)


def test_two_weights_are_a_byte_the_first_one_in_its_upper_half() -> None:
    weight = torch.zeros(BLOCK)
    weight[:4] = torch.tensor([-1.0, 1.0, 0.0, 0.45])
    codes, scales = quantise(weight)
    assert codes[:3].tolist() == [0x0F, 0x7C, 0x77]
    assert scales.tolist() == [1.0]


def test_a_block_of_zeros_stays_one_and_the_size_of_others_is_no_matter() -> None:
    weight = torch.cat([torch.zeros(BLOCK), drawn(BLOCK) * 1e-30, drawn(BLOCK) * 1e30])
    found = dequantise(*quantise(weight), weight.shape, torch.float32)
    assert not found[:BLOCK].any()
    first, second = (found[BLOCK:].view(2, BLOCK) / torch.tensor([[1e-30], [1e30]])).unbind()
    assert float((first - second).abs().max()) < 0.05
    assert found.isfinite().all()


def test_a_second_time_changes_nothing() -> None:
    weight = drawn(8, 64)
    once = dequantise(*quantise(weight), weight.shape, torch.float32)
    assert torch.equal(dequantise(*quantise(once), weight.shape, torch.float32), once)


@pytest.mark.parametrize("bias", [True, False])
def test_the_layer_is_a_product_with_what_its_levels_stand_for(bias: bool) -> None:
    plain = nn.Linear(24, 10, bias=bias, dtype=torch.float64)
    layer = FourBitLinear(plain.weight, plain.bias)
    plain.weight.data = layer.weight
    x = drawn(3, 5, 24, dtype=torch.float64).requires_grad_()
    found, wanted = layer(x), plain(x)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-14)
    (mine,) = torch.autograd.grad(found.square().sum(), x)
    (other,) = torch.autograd.grad(wanted.square().sum(), x)
    torch.testing.assert_close(mine, other, rtol=0, atol=1e-13)
    assert torch.autograd.gradcheck(layer, (x[:1, :2].detach().requires_grad_(),))
    assert torch.autograd.gradgradcheck(
        lambda value: layer(value).square(), (x[:1, :1].detach().requires_grad_(),)
    )


def test_what_waits_for_backward_is_no_wide_weight() -> None:
    layer = FourBitLinear(drawn(256, 512), None)
    saved: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        layer(torch.ones(1, 512, requires_grad=True))
    assert sum(saved) == 256 * 512 // 2 + 256 * 512 // BLOCK * 2


def test_casting_a_module_leaves_its_levels_and_scales() -> None:
    layer = FourBitLinear(drawn(16, 64), None)
    before = layer.weight
    for cast in (layer.double(), layer.half(), layer.bfloat16(), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(cast.weight, before)
        assert cast.scale_bits.dtype == torch.uint8


def wide(model: Any) -> Any:
    """The same model, with plain layers of the weights that the 4 bits stand for."""
    for owner in [*model.modules()]:
        for name, layer in owner.named_children():
            if isinstance(layer, FourBitLinear):
                plain = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
                plain.weight, plain.bias = nn.Parameter(layer.weight, requires_grad=False), layer.bias
                setattr(owner, name, plain)
    return model


def adapted(name: str, dtype: torch.dtype) -> Policy:
    model: Any = with_lora(build(name, dtype), SETTINGS)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.1)
    return Policy(model)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_adapters_learn_as_above_plain_weights(name: str, checkpointing: bool) -> None:
    def gradients(policy: Policy) -> dict[str, Tensor]:
        if checkpointing:
            policy.backbone.recompute_layers(keep_products=True)
        policy.train().score(batch_of(examples())).logp_NT.sum().backward()
        return {key: p.grad for key, p in policy.named_parameters() if p.grad is not None}

    found = gradients(adapted(name, torch.float64))
    wanted = gradients(Policy(wide(adapted(name, torch.float64).model)))
    assert found.keys() == wanted.keys()
    assert all("lora_" in key for key in found)
    for key, grad in wanted.items():
        torch.testing.assert_close(found[key], grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_layers_below_the_head_are_held_in_four_bits_and_the_layout_is_verified(name: str) -> None:
    policy = adapted(name, torch.float32)
    assert numbers_in_four_bits(policy) > 0
    assert type(policy.base.get_output_embeddings()) is nn.Linear
    assert isinstance(policy.base.get_input_embeddings(), nn.Embedding)
    assert not any(
        p.requires_grad for layer in four_bit_layers(policy) for p in layer.parameters(recurse=False)
    )
    assert choose_layout(policy, "packed") == ("packed", None)
    assert f"{numbers_in_four_bits(policy):,} weights" in four_bit_note(policy)


def test_computing_in_few_digits_leaves_the_levels() -> None:
    policy = adapted("llama", torch.float32)
    before = {key: p.clone() for key, p in policy.named_parameters() if "codes" in key or "scale" in key}
    expected = policy.score(batch_of(examples())).logp_NT.detach()
    policy.compute_in(torch.bfloat16)
    found = policy.score(batch_of(examples())).logp_NT.detach()
    assert before
    for key, p in policy.named_parameters():
        assert key not in before or torch.equal(p, before[key])
    assert float((found - expected).abs().max()) < 0.1


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_its_adapter_is_merged_into_the_base_of_the_folder(tmp_path: Path, name: str) -> None:
    policy = adapted(name, torch.float32)
    save_adapter(policy.model, tmp_path)
    merged = merge_adapters(with_adapter(build(name), tmp_path))
    before, now = build(name).state_dict(), merged.state_dict()
    update = {
        key: module.get_delta_weight("default")
        for key, module in policy.base.named_modules()
        if hasattr(module, "get_delta_weight")
    }
    assert update
    for key, change in update.items():
        # GPT-2's matrices are kept transposed.
        wanted = before[f"{key}.weight"] + (change.T if name == "gpt2" else change)
        torch.testing.assert_close(now[f"{key}.weight"], wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"base": "4bit"}, "add --lora.rank 16"), ({"base": "4bit", "rank": 4, "keep": True}, "lora.keep")],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        LoraSettings(**settings)


def test_a_model_without_linear_layers_is_refused() -> None:
    model = build("llama")
    model.model.layers = nn.ModuleList()
    with pytest.raises(UserError, match="no linear layers beneath its head"):
        quantise_linears(model)


@pytest.mark.gpu
def test_a_gpu_makes_the_same_levels_and_nearly_the_same_products() -> None:
    weight = drawn(96, 160)
    on_gpu = quantise(weight.cuda())
    for mine, other in zip(quantise(weight), on_gpu, strict=True):
        assert torch.equal(mine, other.cpu())
    for dtype in (torch.float32, torch.bfloat16):
        made = dequantise(*on_gpu, weight.shape, dtype)
        assert torch.equal(made.cpu(), dequantise(*quantise(weight), weight.shape, dtype))
    layer, x = FourBitLinear(weight, None), drawn(5, 160)
    torch.testing.assert_close(layer.cuda()(x.cuda()).cpu(), layer.cpu()(x), rtol=0, atol=1e-3)
