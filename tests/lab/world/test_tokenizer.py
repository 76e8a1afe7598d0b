"""The world's tokenizer: one token a word, and nothing that the world says is unknown to it."""

import re
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from examples.base_model.corpus import corpus
from examples.base_model.model import make_tokenizer
from plaudit.data.records import Text, plain_text
from plaudit.lab.world import base_model_folder
from plaudit.tokens.encode import encode_rows, make_encoder


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
