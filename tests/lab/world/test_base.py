"""The base model: what ships with plaudit, and how it is built again."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from plaudit.cli.main import main
from plaudit.lab.world import SHIPPED_MODEL_FOLDER
from tests.engine.toy_command import plaudit


def test_the_shipped_model_is_small_and_plain():
    assert (SHIPPED_MODEL_FOLDER / "model.safetensors").stat().st_size < 4 * 2**20
    assert {file.suffix for file in SHIPPED_MODEL_FOLDER.iterdir()} <= {".json", ".jinja", ".safetensors"}
    with safe_open(SHIPPED_MODEL_FOLDER / "model.safetensors", framework="pt") as file:
        names = list(file.keys())
        weights = sum(file.get_tensor(name).numel() for name in names)
    assert 800_000 < weights < 1_100_000


def test_plain_transformers_loads_it_and_it_answers():
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED_MODEL_FOLDER)
    model = AutoModelForCausalLM.from_pretrained(SHIPPED_MODEL_FOLDER)
    chat = [{"role": "user", "content": "What is 3 plus 4?"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=20, do_sample=False)
    said = tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
    assert "7" in said.replace(".", "").split()


@pytest.mark.slow
def test_it_is_built_from_the_corpus_by_one_command_that_goes_on(tmp_path):
    out = tmp_path / "built"
    command = ("world", "build", "--out", out, "--epochs", 0.02)
    done = plaudit(*command)
    assert done.code == 0, done.err
    assert done.out.strip().endswith(f"{out / 'run' / 'model'}: the base model")
    assert len((out / "corpus.jsonl").read_text("utf-8").splitlines()) > 10_000
    before = (out / "run" / "model" / "model.safetensors").read_bytes()
    assert plaudit(*command).code == 0
    assert (out / "run" / "model" / "model.safetensors").read_bytes() == before
    (out / "blank" / "model.safetensors").unlink()
    (out / "corpus.jsonl").unlink()
    assert plaudit(*command).code == 0
    assert (out / "run" / "model" / "model.safetensors").read_bytes() == before
    other = plaudit(*command, "--seed", 1)
    assert other.code == 2
    assert "seed: 0 → 1" in other.err


@pytest.mark.slow
def test_a_base_model_that_reads_nothing_is_refused(tmp_path):
    done = plaudit("world", "build", "--out", tmp_path / "built", "--epochs", 0)
    assert done.code == 2
    assert "epochs must be a number above 0, not 0.0" in done.err


def test_an_installation_without_it_says_how_to_make_it(monkeypatch, capsys):
    # Before the name means something else: what modules take at their import stays for tests behind this one.
    import_module("plaudit.lab.verbs.world")
    monkeypatch.setattr("plaudit.lab.world.SHIPPED_MODEL_FOLDER", Path("nowhere"))
    assert main(["world", "base"]) == 2
    assert "plaudit world build --out DIR makes it" in capsys.readouterr().err
