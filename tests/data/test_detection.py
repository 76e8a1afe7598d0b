"""The layout is found by schema, said aloud, and asked about where it is not clear."""

from __future__ import annotations

import pytest

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.read import open_rows, read_records
from plaudit.errors import UserError
from tests.data.rows import HELPSTEER3, HH, STONE, USER


def test_kto_is_a_name_for_unpaired_rows():
    row = {"prompt": "What sinks?", "completion": "A cork.", "label": 0}
    assert read_records([row], format="kto").records[0].score == 0.0


def test_rows_that_could_be_two_layouts_are_asked_about():
    with pytest.raises(UserError) as error:
        read_records([{"text": "Stones sink.", "messages": [USER, *STONE]}])
    assert "--format trl-text or trl-messages" in str(error.value)


def test_an_unknown_schema_names_its_fields_and_the_nearest_layouts():
    with pytest.raises(UserError) as error:
        read_records([{"prompt": "What sinks?", "choosen": "A stone.", "rejected": "A cork."}])
    message = str(error.value)
    assert "the rows have the fields prompt (a text), choosen (a text), rejected (a text)." in message
    assert message.splitlines()[1].startswith("  trl-preference: wants prompt (a text or messages), chosen")


def test_a_field_of_the_wrong_type_in_every_row_is_seen():
    with pytest.raises(UserError, match=r"the fields messages \(a text\)"):
        read_records([{"messages": "What sinks?"}])


def test_an_answer_field_is_never_taken_for_a_bare_prompt():
    with pytest.raises(UserError, match="no known layout"):
        read_records([{"prompt": "What sinks?", "response": "A stone."}])


def test_an_unknown_format_names_the_nearest():
    with pytest.raises(UserError, match="did you mean helpsteer3"):
        read_records([HELPSTEER3], format="helpster3")


def test_fields_that_nobody_reads_are_said():
    row = {"prompt": "What sinks?", "completion": "A stone.", "label": "good"}
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
    sentence = open_rows(pairs).detection.sentence
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
