"""A saved folder is a plain Hugging Face model: the same logits, its own dropout, its end of turn."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from transformers import AutoModelForCausalLM, GenerationConfig

from plaudit.models.load import load_model, save_model, stored_dtype
from plaudit.models.policy import Policy
from tests.models.zoo import PLAIN_ATTENTION, ZOO, build

IDS = torch.tensor([[1, 5, 9, 13, 4, 8, 22, 7, 30]])


def _round(tmp_path: Path, name: str, stop_ids: tuple[int, ...] = (2,)) -> tuple[Policy, Path]:
    build(name).save_pretrained(tmp_path / "start")
    model = load_model(tmp_path / "start", dtype=torch.float32, device=torch.device("cpu"))
    policy = Policy(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.01)
    save_model(model, tmp_path / "end", template_of=tmp_path / "start", stop_ids=stop_ids)
    return policy, tmp_path / "end"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ZOO)
def test_plain_transformers_gives_the_same_logits_bit_for_bit(tmp_path, name):
    policy, folder = _round(tmp_path, name)
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=PLAIN_ATTENTION.get(name)).eval()
    with policy.as_plain_model() as model, torch.no_grad():
        assert torch.equal(plain(IDS).logits, model(IDS).logits)
    assert not list(folder.glob("*.bin"))


def test_the_packed_attention_is_in_no_saved_file_and_still_in_the_policy(tmp_path):
    policy, folder = _round(tmp_path, "llama")
    assert "plaudit" not in (folder / "config.json").read_text()
    assert policy.base.config._attn_implementation == "plaudit_packed"


def test_dropout_is_off_while_training_and_back_in_the_saved_config(tmp_path):
    policy, folder = _round(tmp_path, "gpt2")
    rates = ("resid_pdrop", "embd_pdrop", "attn_pdrop")
    config = json.loads((folder / "config.json").read_text())
    assert [config[rate] for rate in rates] == [0.1, 0.1, 0.1]
    assert [getattr(policy.base.config, rate) for rate in rates] == [0.0, 0.0, 0.0]
    assert all(module.p == 0.0 for module in policy.modules() if isinstance(module, torch.nn.Dropout))


@pytest.mark.parametrize(("stop_ids", "written"), [((7,), 7), ((2, 7), [2, 7]), ((), 2)])
def test_generation_stops_at_the_end_of_turn(tmp_path, stop_ids, written):
    _, folder = _round(tmp_path, "llama", stop_ids)
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == written


def test_tied_embeddings_are_written_once(tmp_path):
    _, folder = _round(tmp_path, "gemma")
    plain = AutoModelForCausalLM.from_pretrained(folder)
    assert plain.get_output_embeddings().weight is plain.get_input_embeddings().weight
    size = sum(p.numel() * 4 for p in plain.parameters())
    assert (folder / "model.safetensors").stat().st_size < size + 6000


@pytest.mark.parametrize("strict", [False, True], ids=["", "as transformers 5.17 has it"])
def test_a_base_with_odd_generation_settings_can_still_be_saved(tmp_path, strict, monkeypatch):
    """Released folders hold temperatures beside do_sample=false, which transformers does not write back."""
    build("llama").save_pretrained(tmp_path / "start")
    (tmp_path / "start" / "generation_config.json").write_text(
        json.dumps({"temperature": 0.6, "top_p": 0.9, "do_sample": False, "eos_token_id": 2})
    )
    model = load_model(tmp_path / "start", dtype=torch.float32, device=torch.device("cpu"))
    if strict:
        usual = GenerationConfig.validate
        monkeypatch.setattr(GenerationConfig, "validate", lambda settings, **_: usual(settings, strict=True))
    save_model(model, tmp_path / "end", template_of=tmp_path / "start", stop_ids=[7])
    assert model.generation_config.temperature == 0.6
    saved = json.loads((tmp_path / "end" / "generation_config.json").read_text())
    assert saved["eos_token_id"] == 7
    assert saved["temperature"] == 0.6


def test_a_second_save_is_the_same_as_the_first(tmp_path):
    policy, folder = _round(tmp_path, "gpt2")
    save_model(policy.base, tmp_path / "again", template_of=tmp_path / "start", stop_ids=[2])
    for path in sorted(folder.iterdir()):
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_a_config_class_keeps_what_only_it_knows(tmp_path):
    _, folder = _round(tmp_path, "granite")
    config = hf.AutoConfig.from_pretrained(folder)
    assert (config.logits_scaling, config.attention_multiplier) == (4.0, 0.3)


def test_dropout_of_a_part_is_off_and_back_in_the_saved_config_as_well(tmp_path):
    """A model of pictures and text has a config for each within its own."""
    size = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    text = {"num_key_value_heads": 1, "head_dim": 8, "vocab_size": 61, "max_position_embeddings": 64}
    pictures = {"image_size": 28, "patch_size": 14}
    config = hf.Gemma3Config(
        text_config={**size, **text, "attention_dropout": 0.3},
        vision_config={**size, **pictures, "attention_dropout": 0.2},
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "start")
    model = load_model(tmp_path / "start", dtype=torch.float32, device=torch.device("cpu")).train()
    assert torch.equal(model(IDS).logits, model(IDS).logits)
    save_model(model, tmp_path / "end", template_of=tmp_path / "start", stop_ids=(2,))
    saved = json.loads((tmp_path / "end" / "config.json").read_text())
    assert saved["text_config"]["attention_dropout"] == 0.3
    assert saved["vision_config"]["attention_dropout"] == 0.2
    assert model.config.text_config.attention_dropout == 0.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shards", [None, "10KB"])
def test_a_folder_is_written_in_the_numbers_that_it_began_with(tmp_path, dtype, shards, monkeypatch):
    whole = hf.PreTrainedModel.save_pretrained
    if shards is not None:
        monkeypatch.setattr(
            hf.PreTrainedModel, "save_pretrained", lambda *a, **k: whole(*a, **k, max_shard_size=shards)
        )
    start: Any = build("llama")
    start.to(dtype).save_pretrained(tmp_path / "start")
    model = load_model(tmp_path / "start", dtype=torch.float32, device=torch.device("cpu"))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.01)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    save_model(model, tmp_path / "end", template_of=tmp_path / "start", stop_ids=[2])

    again = AutoModelForCausalLM.from_pretrained(tmp_path / "end", dtype="auto")
    assert {weight.dtype for weight in again.parameters()} == {dtype}
    for name, weight in again.named_parameters():
        assert torch.equal(weight, before[name].to(dtype)), name
    # The model itself goes on in float32.
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    size = sum(path.stat().st_size for path in (tmp_path / "end").glob("*.safetensors"))
    numbers = sum(weight.numel() for weight in again.parameters())
    assert 2 * numbers < size < 3 * numbers
    index = tmp_path / "end" / "model.safetensors.index.json"
    assert index.is_file() == (shards is not None)
    assert shards is None or json.loads(index.read_text())["metadata"]["total_size"] == 2 * numbers


def test_what_is_stored_finer_and_what_does_not_fit_stays_as_it_is(tmp_path):
    start: Any = build("llama")
    start.half().model.norm.float()
    start.save_pretrained(tmp_path / "start")
    model = load_model(tmp_path / "start", dtype=torch.float32, device=torch.device("cpu"))
    with torch.no_grad():
        model.lm_head.weight[0, 0] = 1e6
        model.model.norm.weight[0] = 1.00001
    save_model(model, tmp_path / "end", template_of=tmp_path / "start", stop_ids=[2])

    again = load_model(tmp_path / "end", dtype=torch.float32, device=torch.device("cpu"))
    assert again.lm_head.weight[0, 0] == 1e6
    assert again.model.norm.weight[0] == torch.tensor(1.00001)
    assert stored_dtype(tmp_path / "end") == torch.float16
