"""Where a prompt ends and its answer begins."""

from __future__ import annotations

from plaudit.data.read import read_records
from plaudit.data.records import assistant_turn, user_turn
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
