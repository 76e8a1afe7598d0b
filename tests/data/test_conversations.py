"""Where a prompt ends and its answer begins."""

from __future__ import annotations

import pytest

from plaudit.data.read import read_records
from plaudit.data.records import assistant_turn, record_to_dict, user_turn
from plaudit.errors import UserError
from tests.data.rows import CORK, HH, STONE, USER

Q = user_turn("What sinks?")


def records(row):
    return read_records([row]).records


def test_a_conversation_splits_before_the_first_answer_and_ends_with_the_last():
    turns = [
        {"role": "system", "content": "Be brief."},
        USER,
        *STONE,
        {"role": "user", "content": "And?"},
        {"role": "tool", "content": "anchor"},
        {"role": "assistant", "content": "An anchor."},
        {"role": "user", "content": "Thanks."},
    ]
    (record,) = records({"messages": turns})
    assert [turn.role for turn in record.prompt] == ["system", "user"]
    assert [turn.content for turn in record.completion] == ["A stone.", "And?", "anchor", "An anchor."]


def test_an_implicit_prompt_of_messages_never_splits_a_message():
    chosen = [USER, {"role": "assistant", "content": "A big stone."}]
    rejected = [USER, {"role": "assistant", "content": "A big cork."}]
    (pair,) = records({"chosen": chosen, "rejected": rejected})
    assert pair.chosen == assistant_turn("A big stone.")


def test_conversations_that_part_early_keep_their_turns():
    early = HH["chosen"].replace("Many things.", "Lots.")
    (pair,) = records({"chosen": HH["chosen"], "rejected": early})
    assert pair.prompt == Q
    assert [turn.role for turn in pair.rejected] == ["assistant", "user", "assistant"]


def test_a_prompt_said_twice_is_read_once():
    row = {"prompt": "What sinks?", "chosen": [USER, *STONE], "rejected": [USER, *CORK]}
    assert records(row)[0].prompt == Q


def test_images_and_texts_are_parts():
    content = [{"type": "image", "image": "a.png"}, {"type": "text", "text": "What sinks?"}]
    (record,) = records({"prompt": [{"role": "user", "content": content}]})
    assert [part.kind for part in record.prompt[0].content] == ["image", "text"]


def test_a_weight_of_0_makes_an_answer_context():
    turns = [USER, {**STONE[0], "weight": 0}, USER, {**CORK[0], "weight": 1}]
    (record,) = records({"messages": turns})
    assert [turn.trained for turn in record.completion] == [False, True, True]
    assert record_to_dict(record)["completion"][0] == {**STONE[0], "weight": 0}
    (back,) = read_records([record_to_dict(record)]).records
    assert back.completion == record.completion
    for weight, role in ((0.5, "assistant"), (1, "user")):
        with pytest.raises(UserError, match=r"weight: expected (0 or 1|no weight)"):
            records({"messages": [USER, {"role": role, "content": "Hm.", "weight": weight}, *STONE]})


def test_thinking_in_a_field_of_its_own_is_kept():
    turns = [USER, {**STONE[0], "reasoning_content": "Heavier than water."}]
    (record,) = records({"messages": turns})
    assert record.completion[0].reasoning == "Heavier than water."
    assert record_to_dict(record)["completion"] == [turns[1]]
