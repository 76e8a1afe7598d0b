"""What a row may say beside its texts: who judged it, and what kind of question it is."""

import pytest

from plaudit.data.read import read_records
from tests.data.rows import CORK, NECTAR, STONE, USER

PAIR = {"prompt": "What sinks?", "chosen": "A stone.", "rejected": "A cork."}


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [USER, *STONE]},
        {"prompt": "What sinks?", "completion": "A stone."},
        PAIR,
        {"chosen": [USER, *STONE], "rejected": [USER, *CORK]},
        {"prompt": "What sinks?", "completion": "A stone.", "label": True},
        {"prompt": "2x = 6", "completions": ["Halve.", "x = 4."], "labels": [True, False]},
    ],
    ids="-".join,
)
def test_rows_of_trl_may_say_who_judged_and_what_kind_of_question_it_is(row):
    reading = read_records([{**row, "annotator": "ada", "group": "bakers", "category": "things"}])
    (record,) = reading.records
    assert (record.annotator, record.group, record.category) == ("ada", "bakers", "things")
    assert "unread" not in reading.format_sentence
    (bare,) = read_records([row]).records
    assert (bare.annotator, bare.group, bare.category) == (None, None, None)


@pytest.mark.parametrize(
    ("said", "category"), [(["sharegpt", "flan"], "sharegpt, flan"), ([], None), (None, None), (7, "7")]
)
def test_a_category_is_a_name_or_several(said, category):
    (pair,) = read_records([{**PAIR, "category": said}]).records
    (ranking,) = read_records([{**NECTAR, "source": said}]).records
    assert pair.category == ranking.category == category


def test_a_category_that_is_no_name_makes_a_bad_row():
    rows = [{**PAIR, "category": said} for said in ({"b": True}, "b")]
    (problem,) = read_records(rows, threshold=0.5).problems
    assert (problem.field, problem.kind) == ("category", "wrong type")
