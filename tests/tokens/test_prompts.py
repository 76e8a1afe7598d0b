"""Prompts as they are asked, and what is said of rows that may be read unlike."""

from plaudit.data.records import Prompt, user_turn
from plaudit.lab.world import base_model_folder
from plaudit.tokens.encode import make_encoder
from plaudit.tokens.prompts import PLAIN_TEXT_PROMPT, REPEATED_PROMPT, encode_prompt_records


def test_plain_prompts_are_asked_by_turns_and_said() -> None:
    encoder = make_encoder(base_model_folder())
    assert encoder.chat_format is not None
    rows = [Prompt(prompt="What is 3 plus 4?"), Prompt(prompt=user_turn("What is 3 plus 5?"))]
    found = encode_prompt_records(rows, encoder, longest=64)
    by_turns = encode_prompt_records([Prompt(prompt=user_turn("What is 3 plus 4?"))], encoder, longest=64)
    assert found.examples[0].prompt == by_turns.examples[0].prompt
    assert (found.notes, by_turns.notes) == ({PLAIN_TEXT_PROMPT: 1}, {})


def test_a_prompt_of_both_kinds_is_asked_once() -> None:
    rows = [Prompt(prompt=user_turn("Who are you?")), Prompt(prompt="Who are you?")]
    found = encode_prompt_records(rows, make_encoder(base_model_folder()), longest=64)
    assert len(found.examples) == 1
    assert found.notes == {REPEATED_PROMPT: 1}
