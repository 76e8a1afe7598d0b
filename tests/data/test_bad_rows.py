"""Every kind of bad row is named by file, row and field, put aside and counted."""

import json

import pytest

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.read import read_records
from plaudit.errors import UserError
from tests.data.rows import CORK, HELPSTEER3, HH, NECTAR, SHP, STONE, ULTRAFEEDBACK, USER, turns, write

PAIR = {"prompt": "What sinks?", "chosen": "A stone.", "rejected": "A cork."}
TALK = {"prompt": [USER], "chosen": STONE, "rejected": CORK}
OWN = {"kind": "comparison", **PAIR}
RANKED = {"kind": "ranking", "prompt": "p", "completions": ["a", "b"], "ranks": [1, 2]}


PLACED = {"prompt": "p", "completions": ["a", "b"], "ranks": [1, 1]}
IFEVAL = {"prompt": "p", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
RLVR = {"messages": [USER], "ground_truth": '{"func_name": "validate_title"}'}
TWICE = {**HELPSTEER3, "response2": HELPSTEER3["response1"]}
IN_WORDS = json.loads(json.dumps(ULTRAFEEDBACK).replace('"5"', '"five"'))
THUMB = {"instruction": "p", "output": "a", "kto_tag": False}


def calling(**function):
    """A turn that calls the lamp, or something that is no call."""
    function = {"name": "lamp", **function}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": function}]}


def shared(call):
    said = (("human", "Light!"), ("function_call", call), ("observation", "On."), ("gpt", "It is on."))
    return {"conversations": [{"from": speaker, "value": text} for speaker, text in said]}


LAMP = {"type": "function", "function": {"name": "lamp", "parameters": {"type": "object"}}}
OFFERED = {**TALK, "prompt": [{"role": "tools", "content": json.dumps([LAMP])}, USER]}
CALLED = [USER, calling(arguments={}), {"role": "tool", "content": "On.", "tool_call_id": "a"}, *STONE]
OTHER = {**CALLED[2], "tool_call_id": "b"}
DEEP = "tool_calls[0].function.arguments" + ".a" * 65
SHARED = shared('{"name": "lamp", "arguments": {}}')

BAD = [
    ("broken row", PAIR, '{"prompt": "What', ""),
    ("broken row", PAIR, "[" * 100_000, ""),
    ("broken row", PAIR, '{"margin": ' + "9" * 5000 + "}", ""),
    ("wrong type", PAIR, "[1, 2]", ""),
    ("repeated key", PAIR, '{"prompt": "p", "chosen": "a", "chosen": "b", "rejected": "c"}', ""),
    ("repeated key", TALK, json.dumps(TALK).replace('"role"', '"role": "system", "role"', 1), ""),
    ("wrong type", OWN, {**OWN, "kind": ["comparison"]}, "kind"),
    ("bad UTF-8", PAIR, b'{"prompt": "caf\xe9"}', ""),
    ("bad UTF-8", PAIR, r'{"prompt": "\ud800", "chosen": "a", "rejected": "b"}', "prompt"),
    ("NUL", PAIR, b'{"prompt": "a\0b"}', ""),
    ("NUL", PAIR, r'{"prompt": "a\u0000b", "chosen": "a", "rejected": "b"}', "prompt"),
    ("missing field", PAIR, {"prompt": "p", "chosen": "a"}, "rejected"),
    ("missing field", PAIR, {**PAIR, "rejected": None}, "rejected"),
    ("wrong type", PAIR, {**PAIR, "chosen": 3}, "chosen"),
    ("wrong type", PAIR, {**PAIR, "margin": "much"}, "margin"),
    ("wrong type", PAIR, {**PAIR, "margin": "1.5"}, "margin"),
    ("wrong type", TALK, {**TALK, "chosen": "A stone."}, "chosen"),
    ("non-finite number", PAIR, '{"prompt": "p", "chosen": "a", "rejected": "b", "margin": NaN}', ""),
    ("non-finite number", PAIR, '{"prompt": "p", "chosen": "a", "rejected": "b", "margin": 1e999}', "margin"),
    ("non-finite number", PAIR, json.dumps({**PAIR, "margin": 10**400}), "margin"),
    ("empty side", PAIR, {**PAIR, "chosen": " \n"}, "chosen"),
    ("empty side", TALK, {**TALK, "rejected": []}, "rejected"),
    ("empty side", TALK, {**TALK, "rejected": turns(("assistant", ""))}, "rejected"),
    ("empty side", TALK, {**TALK, "prompt": turns(("user", " "))}, "prompt"),
    ("wrong value", TALK, {**TALK, "chosen": [USER, *STONE]}, "chosen"),
    ("chosen = rejected", PAIR, {**PAIR, "rejected": "A stone."}, "chosen, rejected"),
    ("tie as preference", PAIR, {**PAIR, "score_chosen": 7.5, "score_rejected": 7.5}, "score_chosen"),
    ("wrong value", PAIR, {**PAIR, "score_chosen": 2, "score_rejected": 3}, "score_chosen"),
    ("missing field", PAIR, {**PAIR, "tools": [{"type": "function"}]}, "tools[0].name"),
    ("wrong type", PAIR, {**PAIR, "tools": {"name": "f"}}, "tools"),
    ("wrong value", PAIR, {**PAIR, "tools": "a lamp"}, "tools"),
    ("wrong value", PAIR, {**PAIR, "tools": [{**LAMP, "type": "retrieval"}]}, "tools[0].type"),
    ("empty side", PAIR, {**PAIR, "tools": [{"function": {"name": " "}}]}, "tools[0].function.name"),
    ("wrong value", {"text": "t"}, {"text": "t", "tools": [LAMP]}, "tools"),
    ("wrong value", TALK, {**OFFERED, "tools": [LAMP]}, "tools"),
    ("empty side", TALK, {**TALK, "prompt": OFFERED["prompt"][:1]}, "prompt"),
    ("wrong value", TALK, {**TALK, "prompt": OFFERED["prompt"][::-1]}, "prompt[1].role"),
    *(
        (kind, {"messages": CALLED}, {"messages": [USER, turn, *CALLED[2:]]}, f"messages[1].{field}")
        for kind, turn, field in (
            ("wrong value", calling(arguments="on"), "tool_calls[0].function.arguments"),
            ("wrong type", calling(arguments="[1]"), "tool_calls[0].function.arguments"),
            ("missing field", calling(), "tool_calls[0].function.arguments"),
            ("NUL", calling(arguments='{"a": "\\u0000"}'), "tool_calls[0].function.arguments.a"),
            ("non-finite number", calling(arguments='{"a": [NaN]}'), "tool_calls[0].function.arguments.a[0]"),
            ("wrong value", calling(arguments='{"a":' * 99 + "1" + "}" * 99), DEEP),
            ("missing field", calling(name=None, arguments={}), "tool_calls[0].function.name"),
            ("wrong type", {"role": "assistant", "tool_calls": 3}, "tool_calls"),
            ("wrong value", {**calling(arguments={}), "role": "user"}, "tool_calls"),
            ("missing field", {"role": "assistant", "content": None, "tool_calls": []}, "content"),
        )
    ),
    ("wrong value", {"messages": CALLED}, {"messages": [USER, CALLED[2], *STONE]}, "messages[1]"),
    ("wrong value", {"messages": CALLED}, {"messages": [*CALLED, CALLED[2], *STONE]}, "messages[4]"),
    ("wrong value", {"messages": CALLED}, {"messages": [*CALLED[:2], OTHER]}, "messages[2].tool_call_id"),
    ("wrong value", SHARED, shared("lamp on"), "conversations[1].value"),
    ("missing field", SHARED, shared('{"arguments": {}}'), "conversations[1].value[0].name"),
    ("unknown role", TALK, {**TALK, "prompt": turns(("narrator", "Hi"))}, "prompt[0].role"),
    ("missing field", TALK, {**TALK, "prompt": [{"role": "user"}]}, "prompt[0].content"),
    ("tie as preference", OWN, {**OWN, "strength": 0}, "strength"),
    ("wrong value", OWN, {**OWN, "probability": 1.5}, "probability"),
    ("wrong value", OWN, {**OWN, "kind": "comparision"}, "kind"),
    ("too few answers", RANKED, {**RANKED, "completions": ["a"], "ranks": [1]}, "completions"),
    ("wrong value", RANKED, {**RANKED, "ranks": [1]}, "ranks"),
    ("wrong value", PLACED, {**PLACED, "ranks": [5, 1]}, "ranks"),
    ("wrong value", PLACED, {**PLACED, "ranks": [0, 1]}, "ranks"),
    ("wrong value", PLACED, {**PLACED, "ranks": [1, 3]}, "ranks"),
    ("wrong value", {"prompt": "p"}, {"prompt": f"{HH['chosen']}"}, "prompt"),
    ("wrong type", THUMB, {**THUMB, "kto_tag": "so-so"}, "kto_tag"),
    ("missing field", THUMB, {**THUMB, "kto_tag": None}, "kto_tag"),
    ("empty side", {"prompt": "p"}, {"prompt": ""}, "prompt"),
    ("empty side", {"text": "t"}, {"text": ""}, "text"),
    ("empty side", {"messages": [USER, *STONE]}, {"messages": [USER]}, "messages"),
    ("empty side", {"messages": [USER, *STONE]}, {"messages": STONE}, "messages"),
    ("chosen = rejected", HH, {"chosen": HH["chosen"], "rejected": HH["chosen"]}, "chosen, rejected"),
    ("empty side", HH, {**HH, "rejected": HH["rejected"].replace(" A cork.", "")}, "rejected"),
    ("empty side", HH, {**HH, "rejected": HH["chosen"].partition("\n\nHuman: One")[0]}, "rejected"),
    ("wrong value", HH, {**HH, "rejected": "A cork."}, "rejected"),
    ("wrong value", HH, {**HH, "rejected": "\n\nHuman: Else?\n\nAssistant: No."}, "chosen, rejected"),
    ("tie as preference", SHP, {**SHP, "score_A": 9}, "labels"),
    ("wrong value", SHP, {**SHP, "labels": 1}, "labels"),
    ("empty side", HELPSTEER3, {**HELPSTEER3, "response2": ""}, "response2"),
    ("wrong value", HELPSTEER3, {**HELPSTEER3, "overall_preference": 4}, "overall_preference"),
    ("chosen = rejected", HELPSTEER3, TWICE, "response1, response2"),
    ("wrong value", IFEVAL, {**IFEVAL, "kwargs": []}, "kwargs"),
    ("wrong value", RLVR, {**RLVR, "ground_truth": '{"func_name": "verify_owls"}'}, "ground_truth.func_name"),
    (
        "missing field",
        RLVR,
        {**RLVR, "ground_truth": '{"func_name": "validate_end"}'},
        "ground_truth.end_phrase",
    ),
    ("too few answers", NECTAR, {**NECTAR, "answers": NECTAR["answers"][:1]}, "answers"),
    ("missing field", NECTAR, {**NECTAR, "answers": [{"answer": "a"}] * 2}, "answers[0].rank"),
    ("wrong type", ULTRAFEEDBACK, IN_WORDS, "completions[1].annotations.instruction_following.Rating"),
]


@pytest.mark.parametrize(("kind", "good", "bad", "field"), BAD)
def test_a_bad_row_is_named_and_put_aside(tmp_path, kind, good, bad, field):
    source = write(tmp_path / "rows.jsonl", good, good, bad, good)
    aside = tmp_path / "bad.jsonl"
    reading = read_records(source, threshold=0.25, quarantine=aside)
    (problem,) = reading.problems
    assert (problem.kind, problem.origin, problem.field) == (kind, "rows.jsonl:3", field)
    assert (reading.rows, reading.quarantine) == (4, aside)
    (line,) = aside.read_text().splitlines()
    put = json.loads(line)
    assert put["reason"] == problem.message
    if isinstance(bad, dict):
        assert json.loads(put["row"]) == bad
    else:
        # Bytes that are no text are kept escaped.
        text = bad.decode(errors="backslashreplace") if isinstance(bad, bytes) else bad
        assert put["row"].strip() == text


def test_a_row_beyond_ten_megabytes_is_named_and_the_next_one_read(tmp_path):
    source = write(tmp_path / "rows.jsonl", PAIR, {**PAIR, "chosen": "x" * 25_000_000}, PAIR)
    reading = read_records(source, threshold=0.5, quarantine=tmp_path / "bad.jsonl")
    assert [(p.kind, p.origin) for p in reading.problems] == [("row too large", "rows.jsonl:2")]
    assert [record.origin for record in reading.records] == ["rows.jsonl:1", "rows.jsonl:3"]
    assert (tmp_path / "bad.jsonl").stat().st_size < 1000


def test_a_row_of_just_the_limit_is_read(tmp_path):
    source = write(tmp_path / "rows.jsonl", PAIR)
    size = source.stat().st_size - 1
    assert len(read_records(source, options=ReadOptions(row_limit=size)).records) == 1
    with pytest.raises(UserError, match="expected at most"):
        read_records(source, options=ReadOptions(row_limit=size - 2))


@pytest.mark.parametrize(("rows", "bad", "passes"), [(99, 1, False), (100, 1, True), (200, 3, False)])
def test_the_threshold_counts_whole_rows(rows, bad, passes):
    source = [PAIR] * (rows - bad) + [{**PAIR, "chosen": ""}] * bad
    if passes:
        assert len(read_records(source).records) == rows - bad
    else:
        with pytest.raises(UserError, match=f"{bad} of {rows} rows are bad"):
            read_records(source)


def test_above_the_threshold_the_message_says_what_to_do(tmp_path):
    source = write(tmp_path / "rows.jsonl", PAIR, PAIR, {**PAIR, "chosen": ""})
    aside = tmp_path / "bad.jsonl"
    with pytest.raises(UserError) as error:
        read_records(source, quarantine=aside)
    message = str(error.value)
    assert "1 of 3 rows are bad (33.3%); the threshold of 1.0% allows 0" in message
    assert 'rows.jsonl:3: field chosen: expected an answer, found the text ""' in message
    assert str(aside) in message
    assert aside.exists()
    assert "a threshold of 0.334 allows that" in message
    assert len(read_records(source, threshold=0.334).records) == 2


def test_there_is_no_quarantine_without_bad_rows_nor_in_place_of_the_data(tmp_path):
    source = write(tmp_path / "rows.jsonl", PAIR)
    with pytest.raises(UserError, match="would replace the data"):
        read_records(source, quarantine=source)
    assert read_records([PAIR], quarantine=tmp_path / "bad.jsonl").quarantine is None
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("row", "asked", "says"),
    [
        ({**PAIR, "chosen": ""}, {"threshold": 1.0}, "no record in them"),
        (PAIR, {"kinds": ["demonstration"]}, r"rows:1: wanted a demonstration, .* a comparison.*--pref"),
        (PAIR, {"kinds": ["pairs"]}, "unknown kind 'pairs'"),
        (PAIR, {"threshold": 5.0}, r"0\.01 is 1 %"),
    ],
)
def test_rows_without_use_and_a_wrong_question_are_refused(row, asked, says):
    with pytest.raises(UserError, match=says):
        read_records([row], **asked)
