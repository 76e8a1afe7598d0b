"""Preferred-only training takes the liked answer and nothing else."""

import pytest

from plaudit.data import records
from plaudit.data.transforms import preferred_demonstration


def pair(**facts):
    return records.Comparison(prompt="p", chosen="good", rejected="bad", **facts)


def ranking(*ranks):
    return records.Ranking(prompt="p", completions=("a", "b", "c"), ranks=ranks)


LIKED = [
    (pair(), "good"),
    (pair(probability=0.9), "good"),
    (pair(probability=0.1), "bad"),
    (pair(probability=0.5), None),
    (pair(strength=0.0), None),
    (pair(strength=0.0, probability=0.5), None),
    (ranking(2.0, 1.0, 3.0), "b"),
    (ranking(2.0, 1.0, 1.0), "b"),
    (ranking(1.0, 1.0, 1.0), None),
    (records.Rating(prompt="p", completion="c", score=1.0, thumb=True), "c"),
    (records.Rating(prompt="p", completion="c", score=0.0, thumb=True), None),
    (records.Rating(prompt="p", completion="c", score=1.0), None),
    (records.Steps(prompt="p", steps=("s",), labels=(1.0,)), None),
    (records.Prompt(prompt="p"), None),
]


@pytest.mark.parametrize(("record", "answer"), LIKED)
def test_the_liked_answer_or_none(record, answer):
    liked = preferred_demonstration(record)
    assert (None if liked is None else liked.completion) == answer


def test_who_said_it_and_where_stay_with_the_answer():
    said = {"annotator": "ada", "group": "g", "category": "fact", "origin": "a.jsonl:3"}
    preferred = preferred_demonstration(pair(**said))
    assert preferred == records.Demonstration(prompt="p", completion="good", **said)
    record = records.Demonstration(prompt="p", completion="c")
    assert preferred_demonstration(record) is record


def test_every_kind_has_its_name():
    for name, record in records.RECORD_TYPES.items():
        assert record.__name__.lower() == name
    assert records.record_kind(pair()) == "comparison"


def test_a_plain_row_leaves_out_what_was_not_said():
    plain = {"kind": "comparison", "prompt": "p", "chosen": "good", "rejected": "bad", "strength": 2.0}
    assert records.record_to_dict(pair(strength=2.0)) == plain
