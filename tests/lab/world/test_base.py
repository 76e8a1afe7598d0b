"""The base model that ships with plaudit."""

from importlib import import_module
from pathlib import Path

from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from plaudit.cli.main import main
from plaudit.lab.world import SHIPPED_MODEL_FOLDER


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


def test_an_installation_without_it_says_how_to_make_it(monkeypatch, capsys):
    # Before the name means something else: what modules take at their import stays for tests behind this one.
    import_module("plaudit.lab.verbs.world")
    monkeypatch.setattr("plaudit.lab.world.SHIPPED_MODEL_FOLDER", Path("nowhere"))
    assert main(["world", "base"]) == 2
    assert "python -m examples.base_model --out DIR makes it" in capsys.readouterr().err
