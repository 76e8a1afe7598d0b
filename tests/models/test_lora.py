"""LoRA: fresh adapters change nothing, they alone learn, and a merged model says what the two said."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import dropout
from transformers import AutoModelForCausalLM

from plaudit.errors import UserError
from plaudit.models.adapters import merge_adapters, save_adapter, with_adapter, with_lora
from plaudit.models.load import save_model
from plaudit.models.policy import Policy
from plaudit.models.settings import LoraSettings
from plaudit.models.verify import choose_layout
from plaudit.tokens.batch import batch_of
from plaudit.tokens.microbatch import Layout
from tests.models.zoo import RECURRENT, SDPA, build, examples

pytest.importorskip("peft", reason="needs plaudit[lora]")
SETTINGS = LoraSettings(rank=4, alpha=8)
DRAWN = LoraSettings(rank=4, alpha=8, dropout=0.5)
IDS = torch.tensor([[1, 5, 9, 13, 4, 8, 22, 7, 30]])


def _learnt(model: Any) -> Any:
    """As after some steps: no adapter is zero any more."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape, generator=generator) * 0.1)
    return model


def _scores(model: Any, layout: Layout = "packed") -> Tensor:
    with torch.no_grad():
        return Policy(model, layout=layout).score(batch_of(examples())).logp_NT


@pytest.mark.parametrize("name", [*SDPA, "gemma2"])
def test_fresh_adapters_change_nothing_and_alone_learn(name):
    before_NT = _scores(build(name))
    model = with_lora(build(name), SETTINGS)
    assert torch.equal(_scores(model), before_NT)
    Policy(model).score(batch_of(examples())).logp_NT.sum().backward()
    learning = {key for key, p in model.named_parameters() if p.grad is not None}
    assert learning
    assert all("lora_" in key for key in learning)
    assert {key for key, p in model.named_parameters() if p.requires_grad} == learning


@pytest.mark.parametrize("name", RECURRENT)
def test_every_adapter_beside_a_running_state_counts(name):
    """A kernel that is given a weight goes past its adapter, which would learn nothing, or for nothing."""
    model = with_lora(build(name), SETTINGS)
    Policy(model, layout="right").score(batch_of(examples())).logp_NT.sum().backward()
    learning = {key: p.grad for key, p in model.named_parameters() if p.requires_grad}
    assert learning
    assert all(grad is not None for grad in learning.values())
    mixer = "in_proj" if name != "qwen3_next" else "in_proj_qkvz"
    assert any(f".{mixer}." in key for key in learning)
    assert not any(x in key for key in learning for x in ("dt_proj", "mamba.out_proj", "mixer.out_proj"))


@pytest.mark.parametrize("name", ["llama", "gpt2", "phi3", "gemma2"])
def test_every_layout_sees_the_adapters(name):
    plain_NT = _scores(build(name))
    model = _learnt(with_lora(build(name), SETTINGS))
    wanted_NT = _scores(model, "right")
    assert float((wanted_NT - plain_NT).abs().max()) > 0.1
    for layout in ("packed", "left"):
        torch.testing.assert_close(_scores(model, layout), wanted_NT, rtol=0, atol=1e-5)
    assert choose_layout(Policy(model), "packed") == ("packed", None)


@pytest.mark.parametrize("base", ["auto", "4bit"])
def test_dropout_is_of_an_adapters_input_and_of_training_alone(base):
    drawn = replace(DRAWN, base=base)
    model: Any = _learnt(with_lora(build("llama"), drawn, torch.device("cpu")))
    layer = model.base_model.model.model.layers[0].self_attn.q_proj
    hidden_TH = torch.randn(3, 16, generator=torch.Generator().manual_seed(2))

    def by_hand(input_TH: Tensor) -> Tensor:
        update = layer.lora_B["default"](layer.lora_A["default"](input_TH))
        return layer.base_layer(hidden_TH) + 8 / 4 * update

    with torch.no_grad():
        plain = layer(hidden_TH)
        torch.testing.assert_close(plain, by_hand(hidden_TH))
        model.train()
        torch.manual_seed(3)
        masked = layer(hidden_TH)
        torch.manual_seed(3)
        torch.testing.assert_close(masked, by_hand(dropout(hidden_TH, 0.5)))
        passes = torch.stack([layer(hidden_TH) for _ in range(2000)])
    assert bool(((passes.mean(0) - plain).abs() <= 5 * passes.std(0) / 2000**0.5 + 1e-6).all())


@pytest.mark.parametrize(("rank", "dropout", "why"), [(2, 1, "below 1, not 1"), (0, 0.1, "add --lora.rank")])
def test_dropout_that_cannot_be_is_refused(rank, dropout, why):
    with pytest.raises(UserError, match=f"lora.dropout .*{why}"):
        LoraSettings(rank=rank, dropout=dropout)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma"])
def test_merged_is_a_plain_model_that_says_the_same(tmp_path, name):
    model = _learnt(with_lora(build(name), SETTINGS))
    with torch.no_grad():
        before = model(IDS).logits.log_softmax(-1)
    build(name).save_pretrained(tmp_path / "start")
    plain = merge_adapters(model)
    assert type(plain) is type(build(name))
    save_model(plain, tmp_path / "end", template_of=tmp_path / "start", stop_ids=[2])
    with torch.no_grad():
        after = AutoModelForCausalLM.from_pretrained(tmp_path / "end")(IDS).logits.log_softmax(-1)
    torch.testing.assert_close(after, before, rtol=0, atol=5e-6)


def test_merged_is_exact_in_float64():
    model = _learnt(with_lora(build("phi", torch.float64), SETTINGS))
    before_NT = _scores(model)
    torch.testing.assert_close(_scores(merge_adapters(model)), before_NT, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_a_saved_adapter_loads_through_peft(tmp_path):
    from peft import PeftModel

    model = _learnt(with_lora(build("llama"), DRAWN))
    save_adapter(model, tmp_path)
    assert (tmp_path / "adapter_model.safetensors").is_file()
    assert "plaudit" not in (tmp_path / "adapter_config.json").read_text()
    assert json.loads((tmp_path / "adapter_config.json").read_text())["lora_dropout"] == 0.5
    kept = Policy(with_adapter(build("llama"), tmp_path, 0.5))
    assert choose_layout(kept, "packed") == ("packed", None)
    loaded = PeftModel.from_pretrained(build("llama"), tmp_path)
    with torch.no_grad():
        assert torch.equal(loaded(IDS).logits, model.eval()(IDS).logits)


def test_named_targets_alone_are_adapted():
    model = with_lora(build("llama"), LoraSettings(rank=2, targets="q_proj, v_proj"))
    adapted = {
        key.split(".lora_")[0].rsplit(".", 1)[-1] for key, _ in model.named_parameters() if "lora_" in key
    }
    assert adapted == {"q_proj", "v_proj"}


@pytest.mark.parametrize("targets", ["qproj", "q_proj,qproj", "", "proj", "mlp"])
def test_an_unknown_target_is_refused(targets):
    with pytest.raises(UserError, match=r"lora\.targets.*some of .*q_proj, up_proj"):
        with_lora(build("llama"), LoraSettings(rank=2, targets=targets))


def test_a_rank_above_the_width_and_an_adapter_on_the_head_are_refused():
    with pytest.raises(UserError, match=r"lora\.rank 17: no change .* above its width, 16"):
        with_lora(build("llama"), LoraSettings(rank=17))
    model = with_lora(build("llama"), LoraSettings(rank=2, targets="lm_head"))
    with pytest.raises(UserError, match="an adapter on lm_head is not supported"):
        Policy(model).score(batch_of(examples()))


@pytest.mark.parametrize("keep_products", [False, True])
@pytest.mark.parametrize("settings", [SETTINGS, DRAWN])
def test_layers_that_are_computed_again_give_the_same_gradient(settings, keep_products):
    """Where adapters draw, by the same masks."""
    gradients: list[Tensor] = []
    for again in (False, True):
        torch.manual_seed(0)
        model = _learnt(with_lora(build("llama", torch.float64), settings))
        policy = Policy(model, layout="right").train()
        if again:
            policy.backbone.recompute_layers(keep_products=keep_products)
        # A policy's score needs fewer masks of a last layer that is not computed again.
        drawn = model(IDS, use_cache=False).logits if settings.dropout else None
        (policy.score(batch_of(examples())).logp_NT if drawn is None else drawn).square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert bool(gradients[0].any())
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-10)
