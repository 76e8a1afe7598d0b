"""Prompts as they are asked, and what is said of rows that may be read unlike."""

from plaudit.batches.question import PLAIN, REPEATED, questions_of
from plaudit.batches.template import make_encoder
from plaudit.records.feedback import Prompt
from plaudit.records.messages import user_says
from plaudit.world.shipped import base_folder


def test_plain_prompts_are_asked_by_turns_and_said() -> None:
    encoder = make_encoder(base_folder())
    assert encoder.manner is not None
    rows = [Prompt(prompt="What is 3 plus 4?"), Prompt(prompt=user_says("What is 3 plus 5?"))]
    found = questions_of(rows, encoder, longest=64)
    by_turns = questions_of([Prompt(prompt=user_says("What is 3 plus 4?"))], encoder, longest=64)
    assert found.examples[0].prompt == by_turns.examples[0].prompt
    assert (found.notes, by_turns.notes) == ({PLAIN: 1}, {})


def test_a_prompt_of_both_kinds_is_asked_once() -> None:
    rows = [Prompt(prompt=user_says("Who are you?")), Prompt(prompt="Who are you?")]
    found = questions_of(rows, make_encoder(base_folder()), longest=64)
    assert len(found.examples) == 1
    assert found.notes == {REPEATED: 1}
