"""Every family of templates × single turn, every answer, only the last, a system turn: exact texts."""

import pytest

from plaudit.data.records import Demonstration, Message, assistant_turn, user_turn
from plaudit.errors import UserError
from plaudit.tokens.encode import (
    BOUNDARY_MERGED,
    END_TOKEN_ADDED,
    Encoder,
    encode_record,
    encode_record_with_notes,
    make_encoder,
)
from tests.tokens.families import FAMILIES
from tests.tokens.family import Expected, Family, chat, folder, texts

each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)

LONGER = (*assistant_turn("Hello."), *user_turn("And you?"), *assistant_turn("Well."))


@pytest.fixture
def encoders(tmp_path, family: Family):
    where = folder(tmp_path, family)
    return {turns: make_encoder(where, turns=turns) for turns in ("all", "last")}


def check(encoder: Encoder, record: Demonstration, expected: Expected) -> None:
    if expected.error:
        with pytest.raises(UserError, match=r"rows\.jsonl:3: .*") as caught:
            encode_record(record, encoder)
        assert expected.error in str(caught.value)
        return
    example = encode_record(record, encoder)
    assert texts(encoder, example) == (expected.prompt, expected.trained)
    (answer,) = example.completions
    assert answer.finished
    assert answer.mask[0]
    assert answer.mask[-1]


@each_family
def test_a_single_answer_is_trained_with_its_end(encoders, family: Family) -> None:
    record = chat("How are you?", "Fine, thanks.", origin="rows.jsonl:3")
    check(encoders["all"], record, family.single)
    check(encoders["last"], record, family.single)


@each_family
def test_every_answer_of_a_conversation_is_trained_or_the_last_alone(encoders, family: Family) -> None:
    check(encoders["all"], Demonstration(prompt=user_turn("Hi."), completion=LONGER), family.all)
    check(encoders["last"], Demonstration(prompt=user_turn("Hi."), completion=LONGER), family.last)


@each_family
def test_a_system_turn_is_part_of_the_prompt_or_named(encoders, family: Family) -> None:
    prompt = (Message(role="system", content="Be brief."), *user_turn("Hi."))
    record = Demonstration(prompt=prompt, completion=assistant_turn("Hello."), origin="rows.jsonl:3")
    check(encoders["all"], record, family.system)


@each_family
def test_the_prompt_is_what_the_plain_library_would_ask(encoders, family: Family) -> None:
    encoder = encoders["all"]
    record = chat("Hi.", "Hello.")
    asked = encoder.info.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi."}],
        chat_template=encoder.template,
        add_generation_prompt=True,
        return_dict=False,
    )
    assert encode_record(record, encoder).prompt == tuple(asked) == encoder.encode_prompt(user_turn("Hi."))


@each_family
def test_prompt_and_answer_are_the_tokens_of_the_whole_text(encoders, family: Family) -> None:
    """But where the prompt ends in a blank that would melt into the answer, and this is said."""
    encoder = encoders["all"]
    encoded = encode_record_with_notes(Demonstration(prompt=user_turn("Hi."), completion=LONGER), encoder)
    (answer,) = encoded.example.completions
    assert (BOUNDARY_MERGED in encoded.notes) == (family.name == "no end token at all")
    if BOUNDARY_MERGED in encoded.notes:
        return
    whole = encoder.info.tokenizer.apply_chat_template(
        [
            {"role": "user", "content": "Hi."},
            *({"role": turn.role, "content": turn.content} for turn in LONGER),
        ],
        chat_template=encoder.template,
        return_dict=False,
    )
    written = answer.ids[:-1] if END_TOKEN_ADDED in encoded.notes else answer.ids
    ours = [*encoded.example.prompt, *written]
    assert ours == list(whole)[: len(ours)]
