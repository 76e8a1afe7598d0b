"""Whatever people write: the prompt is what is asked, the text comes back, the mask is the answer."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, settings, strategies as st

from plaudit.data.records import Demonstration, assistant_turn, user_turn
from plaudit.tokens.encode import Encoder, encode_record, make_encoder
from plaudit.tokens.tokenizer import CUT
from tests.tokens.families_headed import CHATML, LLAMA3, MARKED
from tests.tokens.families_odd import DROPS, ENDLESS, ZEPHYR
from tests.tokens.family import Family, chat, folder, texts

BLANKS = st.text(st.sampled_from(" \n\t\r\u00a0"), max_size=3)
WORDS = st.one_of(
    # Without the mark of a cut, which no row may hold: its refusal has a test of its own.
    st.text(st.characters(codec="utf-8", exclude_characters=CUT), max_size=12),
    st.sampled_from(["Hi", "é", "日本語", "😀👍🏽", "a\u0301", "</think>", "[INST]"]),
)
CONTENT = st.tuples(BLANKS, WORDS, BLANKS, WORDS, BLANKS).map("".join)
LOSSLESS = (CHATML, MARKED, ENDLESS)
LOSSY = (ZEPHYR, DROPS, LLAMA3)


@cache
def encoder_of(family: Family, kind: str) -> Encoder:
    with TemporaryDirectory() as where:
        return make_encoder(folder(Path(where), replace(family, kind=kind)))


def clean(encoder: Encoder, *contents: str) -> bool:
    return not any(token in content for token in encoder.info.specials for content in contents)


@pytest.mark.parametrize("family", LOSSLESS, ids=lambda family: family.name)
@settings(max_examples=80, deadline=None)
@given(question=CONTENT, answer=CONTENT, again=CONTENT, more=CONTENT)
def test_every_text_comes_back_and_the_mask_is_each_answer_and_its_end(family, question, answer, again, more):
    encoder = encoder_of(family, "bytes")
    assume(clean(encoder, question, answer, again, more))
    completion = (*assistant_turn(answer), *user_turn(again), *assistant_turn(more))
    row = Demonstration(prompt=user_turn(question), completion=completion)
    example = encode_record(row, encoder)
    (said,) = example.completions
    end = family.eos
    middle = "" if family is ENDLESS else end
    assert example.prompt == encoder.encode_prompt(user_turn(question))
    assert texts(encoder, example)[1] == answer + middle + more + end
    text = encoder.info.decode((*example.prompt, *said.ids))
    whole = encoder.info.tokenizer.apply_chat_template(
        [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
            {"role": "user", "content": again},
            {"role": "assistant", "content": more},
        ],
        chat_template=encoder.template,
        tokenize=False,
    )
    assert text == (whole.removesuffix("\n") + end if family is ENDLESS else whole.removesuffix("\n"))


@pytest.mark.parametrize("kind", ["metaspace", "llama"])
@pytest.mark.parametrize("family", LOSSY, ids=lambda family: family.name)
@settings(max_examples=50, deadline=None)
@given(question=CONTENT, answer=CONTENT)
def test_tokenizers_that_put_blanks_still_continue_the_prompt(family, kind, question, answer):
    encoder = encoder_of(family, kind)
    assume(clean(encoder, question, answer))
    example = encode_record(chat(question, answer), encoder)
    (said,) = example.completions
    assert example.prompt == encoder.encode_prompt(user_turn(question))
    assert all(said.mask)
    assert said.ids[-1] == encoder.stop_ids[0]
    text = encoder.info.tokenizer.apply_chat_template(
        [{"role": "user", "content": question}, {"role": "assistant", "content": answer}],
        chat_template=encoder.template,
        tokenize=False,
    )
    whole = encoder.info.encode_start(text.removesuffix("\n"), encoder.info.bos)
    assert encoder.info.decode((*example.prompt, *said.ids)) == encoder.info.decode(whole)


@pytest.mark.parametrize("kind", ["bytes", "metaspace", "llama"])
@settings(max_examples=50, deadline=None)
@given(prompt=CONTENT, completion=CONTENT)
def test_plain_text_is_continued_and_ended(kind, prompt, completion):
    encoder = replace(encoder_of(ZEPHYR, kind), text="raw")
    assume(clean(encoder, prompt, completion))
    example = encode_record(Demonstration(prompt=prompt, completion=completion), encoder)
    (said,) = example.completions
    assert example.prompt == encoder.encode_prompt(prompt)
    assert example.prompt[0] == encoder.info.bos
    assert all(said.mask)
    assert said.ids[-1] == encoder.info.eos
    assert said.ids.count(encoder.info.eos) == 1
    whole = encoder.info.decode(encoder.info.encode_start(prompt + completion, encoder.info.bos))
    assert encoder.info.decode((*example.prompt, *said.ids[:-1])) == whole
