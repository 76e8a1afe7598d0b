"""A model folder is loaded whole, or refused in words: nothing starts at random, no code is run."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from transformers import AutoModelForCausalLM

from plaudit.errors import UserError
from plaudit.models.load import Precision, load_model, precision
from plaudit.models.policy import Policy
from plaudit.models.verify import choose_layout
from plaudit.tokens.microbatch import Layout
from tests.models.damaged_folders import edit
from tests.models.zoo import SDPA, ZOO, build

CPU = torch.device("cpu")


def _load(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    return load_model(folder, dtype=dtype, device=CPU)


def _saved(tmp_path: Path, name: str = "llama") -> Path:
    build(name).save_pretrained(tmp_path / name)
    return tmp_path / name


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ZOO)
def test_every_architecture_loads_bit_for_bit(tmp_path, name):
    loaded = _load(_saved(tmp_path, name))
    wanted = build(name).state_dict()
    assert set(loaded.state_dict()) == set(wanted)
    assert all(torch.equal(weight, wanted[key]) for key, weight in loaded.state_dict().items())


@pytest.mark.parametrize("name", ["llama", "gemma2", "mixtral", "mamba"])
def test_what_was_loaded_can_be_scored(tmp_path, name):
    layout, _ = choose_layout(Policy(_load(_saved(tmp_path, name))), "packed")
    assert layout == ("right" if name == "mamba" else "packed")


def test_capped_scores_stay_capped_where_the_library_takes_attention_without_caps(tmp_path, monkeypatch):
    folder, tokens = _saved(tmp_path, "gemma2"), torch.arange(5, 15)[None]
    wanted = _load(folder)(tokens).logits
    # As transformers 5.17 has it.
    monkeypatch.setattr(
        "transformers.models.gemma2.modeling_gemma2.Gemma2PreTrainedModel._supports_sdpa", True
    )
    capped, uncapped = _load(folder), AutoModelForCausalLM.from_pretrained(folder)
    assert (capped.config._attn_implementation, uncapped.config._attn_implementation) == ("eager", "sdpa")
    assert torch.equal(capped(tokens).logits, wanted)
    for layout in get_args(Layout):
        with Policy(capped, layout=layout).as_plain_model() as plain:
            assert torch.equal(plain(tokens).logits, wanted)


def test_shards_load_as_one(tmp_path):
    build("llama").save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    loaded, wanted = _load(tmp_path), build("llama")
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), wanted.parameters(), strict=True))


@pytest.mark.parametrize("name", ["gpt2", "gemma", "cohere"])
def test_tied_embeddings_stay_tied(tmp_path, name):
    model = _load(_saved(tmp_path, name))
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_threads_that_load_at_once_leave_models_tied(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        models = [*pool.map(_load, [_saved(tmp_path, "gemma")] * 16)]
    assert all(m.get_output_embeddings().weight is m.get_input_embeddings().weight for m in models)


def test_weights_of_either_width_load_in_the_wanted_one(tmp_path):
    assert {p.dtype for p in _load(_saved(tmp_path), torch.float64).parameters()} == {torch.float64}
    build("llama", torch.bfloat16).save_pretrained(tmp_path / "half")
    assert {p.dtype for p in _load(tmp_path / "half").parameters()} == {torch.float32}


@pytest.mark.parametrize("name", SDPA)
def test_nothing_is_left_to_chance_while_training(tmp_path, name):
    model = build(name)
    rates = [key for key in model.config.to_dict() if "dropout" in key or "pdrop" in key]
    for key in rates:
        setattr(model.config, key, 0.3)
    model.save_pretrained(tmp_path)
    loaded = _load(tmp_path).train()
    ids = torch.arange(1, 20)[None]
    assert torch.equal(loaded(ids).logits, loaded(ids).logits)
    assert all(module.p == 0 for module in loaded.modules() if isinstance(module, torch.nn.Dropout))


def test_numbers_by_name():
    single, half = torch.float32, torch.bfloat16
    assert precision("auto", CPU) == precision("float32", CPU) == Precision(weights=single, products=single)
    assert precision("auto", torch.device("cuda")) == Precision(weights=single, products=half)
    assert precision("bfloat16", CPU).mixed
    assert precision("float64", CPU) == Precision(weights=torch.float64, products=torch.float64)
    assert not precision("float64", CPU).mixed


def test_code_of_its_own_is_not_run(tmp_path):
    folder = _saved(tmp_path)
    (folder / "modeling_own.py").write_text("raise SystemExit('this code was run')\n")
    names = {"AutoConfig": "modeling_own.Config", "AutoModelForCausalLM": "modeling_own.Model"}
    edit(model_type="own", auto_map=names)(folder)
    with pytest.raises(UserError, match="never runs code from a folder") as caught:
        _load(folder)
    assert str(folder) in str(caught.value)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        _load(tmp_path / "nowhere")


def test_code_beside_a_known_architecture_is_not_run(tmp_path):
    folder = _saved(tmp_path)
    (folder / "modeling_own.py").write_text("raise SystemExit('this code was run')\n")
    edit(auto_map={"AutoModelForCausalLM": "modeling_own.Model"})(folder)
    assert type(_load(folder)).__name__ == "LlamaForCausalLM"
