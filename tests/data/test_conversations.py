"""Where a prompt ends and its answer begins."""

import json

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from plaudit.data.formats.layout import ReadOptions, named_role
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, ToolCall, assistant_turn, plain_text, record_to_dict, user_turn
from plaudit.errors import UserError
from tests.data.rows import CORK, HH, STONE, USER, turns

Q = user_turn("What sinks?")


def records(row):
    return read_records([row]).records


def test_a_conversation_splits_before_the_first_answer_and_ends_with_the_last():
    begun, ended = turns(("system", "Be brief.")), turns(("user", "And?"), ("tool", "anchor"))
    ended += turns(("assistant", "An anchor."), ("user", "Thanks."))
    (record,) = records({"messages": [*begun, USER, *STONE, *ended]})
    assert [turn.role for turn in record.prompt] == ["system", "user"]
    assert [turn.content for turn in record.completion] == ["A stone.", "And?", "anchor", "An anchor."]


def test_an_implicit_prompt_ends_where_whole_messages_part_and_is_read_once():
    chosen = [USER, {"role": "assistant", "content": "A big stone."}]
    rejected = [USER, {"role": "assistant", "content": "A big cork."}]
    (pair,) = records({"chosen": chosen, "rejected": rejected})
    assert pair.chosen == assistant_turn("A big stone.")
    early = HH["chosen"].replace("Many things.", "Lots.")
    (pair,) = records({"chosen": HH["chosen"], "rejected": early})
    assert pair.prompt == Q
    assert [turn.role for turn in pair.rejected] == ["assistant", "user", "assistant"]
    row = {"prompt": "What sinks?", "chosen": [USER, *STONE], "rejected": [USER, *CORK]}
    assert records(row)[0].prompt == Q


def test_images_and_texts_are_parts():
    content = [{"type": "image", "image": "a.png"}, {"type": "text", "text": "What sinks?"}]
    (record,) = records({"prompt": [{"role": "user", "content": content}]})
    assert [part.kind for part in record.prompt[0].content] == ["image", "text"]


@pytest.mark.parametrize(
    ("no", "yes"),
    [
        ({"weight": 0}, {"weight": 1}),
        ({"train": False}, {"train": True}),
        ({"training": False}, {}),
        ({"loss": False, "weight": 1}, {"loss": True}),
    ],
)
@pytest.mark.parametrize("field", ["messages", "conversations"])
def test_a_weight_of_0_or_a_false_makes_an_answer_context(no, yes, field):
    turns = [{**USER, **no}, {**STONE[0], **no}, USER, {**CORK[0], **yes}]
    turns[0].pop("weight", None)
    (record,) = records({field: turns})
    assert [turn.trained for turn in record.completion] == [False, True, True]
    assert record_to_dict(record)["completion"][0] == {**STONE[0], "weight": 0}
    (back,) = read_records([record_to_dict(record)]).records
    assert back.completion == record.completion


@pytest.mark.parametrize(
    ("role", "more", "says"),
    [
        ("assistant", {"weight": 0.5}, r"weight: expected 0 or 1"),
        ("user", {"weight": 1}, r"weight: expected no weight: a turn of the user is never trained"),
        ("user", {"training": True}, r"training: expected no training: a turn of the user"),
        ("assistant", {"train": "false"}, r"train: expected true or false"),
        ("assistant", {"mask": 1}, r"mask: .*--leave-out messages\.mask"),
        ("assistant", {"loss_weight": 0.3}, r"loss_weight: .*weight 0 \(or train false\)"),
        ("assistant", {"train_detail": [{"train": False}]}, r"train_detail: .*is not read"),
        (
            "assistant",
            {"content": [{"type": "text", "text": "Hm.", "train": False}]},
            r"content\[0\]\.train: .*--leave-out messages\.content\.train",
        ),
    ],
)
def test_what_else_says_what_is_trained_is_refused_and_can_be_left_out(role, more, says):
    row = {"messages": [USER, {"role": role, "content": "Hm.", **more}, *STONE]}
    with pytest.raises(UserError, match=rf"rows:1: field messages\[1\].*{says}"):
        records(row)
    path = ".content.train" if "content" in more else f".{next(iter(more))}"
    (record,) = read_records([row], options=ReadOptions(leave_out=(f"messages{path}",))).records
    assert all(turn.trained for turn in record.completion)


def test_keys_of_turns_that_nothing_reads_are_said():
    turns = [{**USER, "name": "Ada", "id": 3}, {**STONE[0], "refusal": None, "score": 4}]
    for row in ({"messages": turns}, {"prompt": turns[:1], "completion": turns[1:]}):
        assert read_records([row]).format_sentence.endswith("Keys of turns left unread: id, name, score.")
    assert "Keys" not in read_records([{"messages": LIT, "tools": [LAMP]}]).format_sentence


def test_speakers_and_fields_within_fields_are_named():
    talk = {
        "log": {"turns": [{"role": "Ada", "content": "What sinks?"}, {"role": "it", "content": "A stone."}]}
    }
    named = (named_role("Ada=user"), named_role("it=assistant"), "messages=log.turns")
    (record,) = read_records([talk], options=ReadOptions(columns=named)).records
    assert (record.prompt, record.completion) == (Q, assistant_turn("A stone."))
    with pytest.raises(UserError, match=r"--roles it=user"):
        read_records([talk], options=ReadOptions(columns=(named[0], named[2])))
    for wrong in ("Ada", "Ada=human", "=user"):
        with pytest.raises(UserError, match="expected SPEAKER=ROLE"):
            named_role(wrong)


def test_thinking_in_a_field_of_its_own_is_kept():
    turns = [USER, {**STONE[0], "reasoning_content": "Heavier than water."}]
    (record,) = records({"messages": turns})
    assert record.completion[0].reasoning == "Heavier than water."
    assert record_to_dict(record)["completion"] == [turns[1]]


LAMP = {
    "type": "function",
    "function": {
        "name": "lamp",
        "description": "Switch it.",
        "parameters": {"type": "object", "properties": {"on": {"type": "boolean", "default": None}}},
    },
}
CALL = {"id": "call-1", "type": "function", "function": {"name": "lamp", "arguments": {"on": True}}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "It is on.", "tool_call_id": "call-1", "name": "lamp"}
LIT = [{"role": "user", "content": "Light!"}, CALLING, RESULT, {"role": "assistant", "content": "Done."}]


def calling(name, arguments):
    return {**CALLING, "tool_calls": [{**CALL, "function": {"name": name, "arguments": arguments}}]}


def lit(*answer, tools=(LAMP,)):
    return {"messages": [LIT[0], *answer], "tools": [*tools]}


def test_tools_are_the_first_turn_of_a_prompt_and_calls_a_field_of_theirs():
    (record,) = records({"messages": LIT, "tools": [LAMP]})
    assert [turn.role for turn in record.prompt] == ["tools", "user"]
    assert json.loads(record.prompt[0].content) == [LAMP]
    assert record_to_dict(record)["completion"] == LIT[1:]
    assert record.completion[0].tool_calls == (ToolCall(name="lamp", arguments='{"on": true}', id="call-1"),)
    assert plain_text(record.completion) == 'lamp({"on": true})\nIt is on.\nDone.'
    assert "Switch it." in plain_text(record.prompt)


@pytest.mark.parametrize(
    "row",
    [
        {"messages": LIT, "tools": json.dumps([LAMP])},
        {"messages": LIT, "tools": [json.dumps(LAMP)]},
        {"messages": LIT, "tools": [LAMP["function"]]},
        {"messages": LIT, "tools": json.dumps([{"type": "function", **LAMP["function"]}])},
        {"messages": [{"role": "tools", "content": json.dumps([LAMP])}, *LIT]},
        {"prompt": LIT[:1], "completion": LIT[1:], "tools": [LAMP]},
        {"prompt": LIT[:1], "completion": LIT[1:], "label": True, "tools": [LAMP]},
        {"prompt": LIT[:1], "chosen": LIT[1:], "rejected": LIT[3:], "tools": [LAMP]},
        {"chosen": LIT, "rejected": [LIT[0], LIT[3]], "tools": [LAMP]},
        lit({**CALLING, "content": None}, *LIT[2:]),
        lit({"role": "assistant", "tool_calls": [CALL]}, *LIT[2:]),
        lit({**CALLING, "tool_calls": json.dumps([CALL])}, {**RESULT, "role": "function"}, LIT[3]),
    ],
)
def test_tools_are_read_in_each_of_their_spellings(row):
    (expected,) = records({"messages": LIT, "tools": [LAMP]})
    (record,) = records(row)
    assert record.prompt == expected.prompt
    assert (record.chosen if isinstance(record, Comparison) else record.completion) == expected.completion


@pytest.mark.parametrize("none", [None, [], "", "[]"])
def test_no_tools_are_none(none):
    assert records({"messages": LIT, "tools": none})[0].prompt == user_turn("Light!")
    assert records({"prompt": "Light!", "tools": none})[0].prompt == "Light!"


def test_a_prompt_in_plain_text_with_tools_is_a_conversation():
    (record,) = records({"prompt": "Light!", "completion": " Done.", "tools": [LAMP], "system": "Be brief."})
    assert [turn.role for turn in record.prompt] == ["tools", "system", "user"]
    assert record.completion == assistant_turn("Done.")
    (bare,) = records({"prompt": "Light!", "tools": [LAMP], "room": "hall"})
    assert bare.prompt == (record.prompt[0], *user_turn("Light!"))
    assert bare.metadata == {"room": "hall"}


def test_calls_as_sharegpt_has_them():
    called = json.dumps({"name": "lamp", "arguments": {"on": True}})
    said = [("human", "Light!"), ("function_call", called), ("observation", "It is on."), ("gpt", "Done.")]
    turns = [{"from": speaker, "value": words} for speaker, words in said]
    (record,) = records({"conversations": turns, "tools": json.dumps([LAMP["function"]])})
    assert record.prompt == records({"messages": LIT, "tools": [LAMP]})[0].prompt
    assert [turn.role for turn in record.completion] == ["assistant", "tool", "assistant"]
    assert record.completion[0].tool_calls == (ToolCall(name="lamp", arguments='{"on": true}'),)
    two = [turns[0], {**turns[1], "value": f"[{called}, {called}]"}]
    assert len(records({"conversations": two})[0].completion[0].tool_calls) == 2
    pair = {"conversations": turns[:1], "chosen": turns[1], "rejected": turns[3]}
    assert records(pair)[0].chosen == record.completion[:1]


def test_a_single_call_in_the_older_field():
    call = {"name": "lamp", "arguments": '{"on":true}'}
    turn = {"role": "assistant", "content": None, "function_call": call}
    (record,) = records({"messages": [LIT[0], turn]})
    assert record.completion[0].tool_calls == (ToolCall(name="lamp", arguments='{"on": true}'),)


CLOCK = {"name": "clock", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}
MIXED = [
    lit(*LIT[1:]),
    *(
        lit(calling("clock", arguments), tools=[{"type": "function", "function": CLOCK}])
        for arguments in ({"zone": "CET"}, {})
    ),
]


def test_what_a_table_fills_up_is_no_argument_and_no_schema(tmp_path):
    table = pyarrow.Table.from_pylist(MIXED)
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    padded = table.to_pylist()
    assert padded[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"on": None, "zone": "CET"}
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in padded))
    for source in (tmp_path / "rows.parquet", tmp_path / "rows.jsonl", datasets.Dataset(table)):
        lamp, clock, bare = read_records(source).records
        called = [json.loads(record.completion[0].tool_calls[0].arguments) for record in (lamp, clock)]
        assert called == [{"on": True}, {"zone": "CET"}]
        assert json.loads(clock.prompt[0].content) == [{"type": "function", "function": CLOCK}]
    # JSON may mean its null, where the function has such a parameter; of a table nobody can tell.
    for source, arguments in ((tmp_path / "rows.parquet", "{}"), (tmp_path / "rows.jsonl", '{"zone": null}')):
        bare = read_records(source).records[2]
        assert bare.completion[0].tool_calls[0].arguments == arguments


def test_a_null_that_was_written_down_stays():
    (record,) = records({"messages": [LIT[0], calling("lamp", '{"x": null}')]})
    assert record.completion[0].tool_calls[0].arguments == '{"x": null}'
