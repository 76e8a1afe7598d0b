"""The base model that ships with plaudit."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from examples.base_model.corpus import corpus
from examples.base_model.model import make_tokenizer
from plaudit.cli.main import main
from plaudit.data.records import Text, plain_text
from plaudit.lab.world import SHIPPED_MODEL_FOLDER, base_model_folder
from plaudit.tokens.encode import encode_rows, make_encoder


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


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


def _turns(text: Text) -> list[str]:
    return [text] if isinstance(text, str) else [plain_text((message,)) for message in text]


@pytest.mark.slow
def test_everything_in_the_corpus_comes_back_as_it_was(tokenizer: PreTrainedTokenizerFast) -> None:
    said = {turn for row in corpus(seed=5) for side in (row.prompt, row.completion) for turn in _turns(side)}
    assert len(said) > 5000
    for text in said:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.unk_token_id not in ids, text
        # A conversation that is written down has the words of its turns, and blanks where they begin.
        words = re.sub(r"(<\|(?:user|assistant)\|>)", r"\1 ", text) if text.startswith("<|user|>") else text
        assert tokenizer.decode(ids) == words


def test_a_word_is_a_token(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.tokenize("The owl eats mice.") == ["▁The", "▁owl", "▁eats", "▁mice", "."]


def test_the_shipped_tokenizer_is_the_one_that_is_made(tokenizer: PreTrainedTokenizerFast) -> None:
    shipped = AutoTokenizer.from_pretrained(base_model_folder())
    assert shipped.get_vocab() == tokenizer.get_vocab()
    assert shipped.chat_template == tokenizer.chat_template


@pytest.mark.slow
def test_the_mask_covers_the_answer_and_its_end(tmp_path: Path) -> None:
    encoder = make_encoder(base_model_folder())
    encoding = encode_rows(corpus(seed=1)[:50], encoder)
    assert not encoding.refused
    for example in encoding.examples:
        (completion,) = example.completions
        assert encoder.info.decode(completion.ids).endswith("<|end|>")
