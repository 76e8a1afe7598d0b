"""The layout is found by schema, said aloud, and asked about where it is not clear."""

import pytest

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.read import open_rows, read_records
from plaudit.errors import UserError
from tests.data.rows import HELPSTEER3, HH, STONE, USER


def test_kto_is_a_name_for_unpaired_rows():
    row = {"prompt": "What sinks?", "completion": "A cork.", "label": 0}
    assert read_records([row], format="kto").records[0].score == 0.0


def test_an_unknown_schema_and_one_of_two_layouts_are_asked_about():
    with pytest.raises(UserError) as error:
        read_records([{"prompt": "What sinks?", "choosen": "A stone.", "rejected": "A cork."}])
    message = str(error.value)
    assert "the rows have the fields prompt (a text), choosen (a text), rejected (a text)." in message
    assert message.splitlines()[1].startswith("  trl-preference: wants prompt (a text or messages), chosen")
    with pytest.raises(UserError) as error:
        read_records([{"text": "Stones sink.", "messages": [USER, *STONE]}])
    assert "--format trl-text or trl-messages" in str(error.value)


@pytest.mark.parametrize(
    ("row", "asked", "says"),
    [
        ({"messages": "What sinks?"}, None, r"the fields messages \(a text\)"),
        # An answer field is never taken for a bare prompt.
        ({"prompt": "?", "response": "A stone."}, None, r"no known layout(.|\n)*\(--columns prompt=FIELD"),
        (HELPSTEER3, "helpster3", "did you mean helpsteer3"),
        *(
            ({"prompt": "What?", "completion": "A stone.", **more}, None, rf"{next(iter(more))}.*--leave-out")
            for more in ({"sample_weight": 0.0}, {"loss_mask": [0, 1]}, {"train": False})
        ),
    ],
)
def test_rows_of_no_layout_or_with_fields_about_training_stop_the_reading(row, asked, says):
    with pytest.raises(UserError, match=says):
        read_records([row], format=asked)


def test_fields_that_nobody_reads_are_said():
    row = {"prompt": "What sinks?", "completion": "A stone.", "label": "physics"}
    assert read_records([row]).format_sentence.endswith("Fields left unread: label.")


def test_a_few_odd_rows_do_not_change_the_layout():
    plain = {"chosen": "It is dry. Yes.", "rejected": "It is dry. No."}
    assert read_records([HH] * 9 + [plain], threshold=0.1).format_name == "hh-rlhf"
    assert read_records([HH] + [plain] * 9).format_name == "trl-preference-implicit"


@pytest.mark.parametrize("options", [{"ties": "half"}, {"neutral": 2.0}])
def test_an_option_that_means_nothing_is_refused(options):
    with pytest.raises(UserError, match="expected"):
        ReadOptions(**options)


def test_the_sentence_says_what_the_rows_have():
    pairs = [{"chosen": [USER, *STONE], "rejected": [USER, *STONE, USER]}]
    with pytest.raises(UserError):
        read_records(pairs)
    sentence = open_rows(pairs).sentence
    assert sentence == (
        "rows: read as TRL preference, implicit prompt (trl-preference-implicit), "
        "because the rows have chosen (messages), rejected (messages) and no prompt."
    )


def test_a_format_that_was_asked_for_is_said_and_kept():
    row = {"prompt": "What sinks?", "chosen": "A stone.", "rejected": "A cork."}
    reading = read_records([row], format="trl-prompt")
    assert reading.format_sentence == "rows: read as TRL prompt-only (trl-prompt), as --format says."
    assert dict(reading.counts) == {"prompt": 1}
    with pytest.raises(UserError, match="field response: expected a value, found only prompt"):
        read_records([row], format="helpsteer2")


LONG = "What sinks in water, and why does it sink?"
UNREAD = [
    ("question", {"question": LONG, "answer_a": 1, "chosen": "It is a stone.", "rejected": "It is a cork."}),
    ("system_prompt", {"prompt": "What?", "completion": "A stone.", "system_prompt": "Briefly."}),
    ("topic", {"prompt": "What?", "chosen": "A stone.", "rejected": "A cork.", "topic": LONG}),
]


@pytest.mark.parametrize(("field", "row"), UNREAD[1:], ids=[field for field, _ in UNREAD[1:]])
def test_words_that_nothing_reads_stop_the_reading_until_they_are_named(field, row):
    with pytest.raises(UserError, match=f"the field '{field}' holds text that is not read") as error:
        read_records([row])
    assert f"--columns prompt={field}; or system={field}" in str(error.value)
    assert f"--leave-out {field}" in str(error.value)
    assert read_records([row], options=ReadOptions(leave_out=(field,))).records[0].prompt == "What?"
    # Looking is not training: the stream only says it.
    assert field in str(open_rows([row]).unread_text)


def test_the_prompt_under_another_name_is_named(tmp_path):
    row = {"ask": LONG, "system_prompt": "Briefly.", "chosen": "It is a stone.", "rejected": "It is a cork."}
    with pytest.raises(UserError, match="the field 'ask' holds text"):
        read_records([row])
    named = ReadOptions(columns=("prompt=ask", "system=system_prompt"))
    (pair,) = read_records([row], options=named).records
    assert [(turn.role, turn.content) for turn in pair.prompt] == [("system", "Briefly."), ("user", LONG)]
    assert pair.chosen[0].content == "It is a stone."


def test_the_system_turn_of_plain_rows_is_read():
    row = {"system": "Briefly.", "prompt": "What?", "completion": " A stone."}
    (shown,) = read_records([row]).records
    assert [turn.role for turn in shown.prompt] == ["system", "user"]
    assert shown.completion[0].content == "A stone."
    assert read_records([{**row, "system": ""}]).records[0].prompt == "What?"
    talk = {"system": "Briefly.", "messages": [{"role": "system", "content": "Long."}, USER, *STONE]}
    with pytest.raises(UserError, match="one system turn, found another in the conversation"):
        read_records([talk])


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("is_ok", True, False),
        ("rating", "thumbs_up", "thumbs-down"),
        ("verdict", 1, -1),
        ("is_correct", 1, 0),
        ("answer_quality", "Good", "Bad"),
        ("helpful", "yes", "no"),
        ("mark", "👍", "👎🏽"),
    ],
)
@pytest.mark.parametrize(
    "row", [{"prompt": [USER], "completion": STONE}, {"instruction": "What?", "output": "A stone."}]
)
def test_a_label_that_nothing_reads_stops_the_reading_until_it_is_named(row, field, good, bad):
    rows = [{**row, field: good}, {**row, field: bad}]
    with pytest.raises(UserError, match=f"'{field}' may say which answers are good") as error:
        read_records(rows)
    assert f"--columns label={field}" in str(error.value)
    assert f"--leave-out {field}" in str(error.value)
    ratings = read_records(rows, options=ReadOptions(columns=(f"label={field}",))).records
    assert [(rating.thumb, rating.score) for rating in ratings] == [(True, 1.0), (True, 0.0)]
    left = read_records(rows, options=ReadOptions(leave_out=(field,)))
    assert dict(left.counts) == {"demonstration": 2}
    with pytest.raises(UserError, match="label: expected a verdict"):
        read_records(
            [{**row, field: points} for points in (5, 3)], options=ReadOptions(columns=(f"label={field}",))
        )


def test_a_template_that_was_written_out_is_said():
    for row in (
        {"prompt": "### Instruction:\nWhat?", "completion": "A stone."},
        {"text": "[INST] What? [/INST] A stone."},
        {"messages": [{"role": "user", "content": "<|im_start|>What?"}, *STONE]},
    ):
        assert "of a template that was written out" in read_records([row]).format_sentence


def test_labels_and_copies_of_what_is_read_stop_nothing():
    pair = {"prompt": LONG, "chosen": "A stone.", "rejected": "A cork."}
    pair |= {"source": "physics_stack", "input": LONG, "chosen_model": "gpt 5", "id": "a-1", "is_long": False}
    shown = {"prompt": "What?", "completion": "A stone.", "turns": 1, "skip_formatting": False}
    for row in (pair, {**shown, "label": "physics"}):
        assert len(read_records([row]).records) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": ("prompt=questoin",)}, r"no row has the field 'questoin'; did you mean question\?"),
        ({"columns": ("question",)}, "expected NAME=FIELD"),
        ({"leave_out": ("nothing",)}, "--leave-out nothing: no row has the field"),
        ({"columns": ("chosen=question",)}, "the rows have a field 'chosen' already"),
    ],
)
def test_wrong_columns_are_said(options, words):
    with pytest.raises(UserError, match=words):
        read_records([UNREAD[0][1]], options=ReadOptions(**options))


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "", "completion": "Stones sink."},
        {"prompt": " ", "chosen": "A stone.", "rejected": "A cork."},
        {"chosen": "A stone.", "rejected": "Corks float."},
        {"prompt": "", "completions": ["Halve."], "labels": [True]},
        {"kind": "comparison", "prompt": "", "chosen": "A stone.", "rejected": "A cork."},
    ],
)
def test_an_empty_prompt_is_refused(row):
    with pytest.raises(UserError, match=r"expected (a prompt|two texts that begin with the same prompt)"):
        read_records([row])
