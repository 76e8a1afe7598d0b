"""Preferred-only training takes the liked answer and nothing else."""

from __future__ import annotations

import pytest

from plaudit.records.dicts import KINDS, as_dict, kind_of
from plaudit.records.feedback import Comparison, Demonstration, Prompt, Ranking, Rating, Steps
from plaudit.records.preferred import preferred


def pair(**facts):
    return Comparison(prompt="p", chosen="good", rejected="bad", **facts)


def ranking(*ranks):
    return Ranking(prompt="p", completions=("a", "b", "c"), ranks=ranks)


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
    (Rating(prompt="p", completion="c", score=1.0, thumb=True), "c"),
    (Rating(prompt="p", completion="c", score=0.0, thumb=True), None),
    (Rating(prompt="p", completion="c", score=1.0), None),
    (Steps(prompt="p", steps=("s",), labels=(1.0,)), None),
    (Prompt(prompt="p"), None),
]


@pytest.mark.parametrize(("record", "answer"), LIKED)
def test_the_liked_answer_or_none(record, answer):
    liked = preferred(record)
    assert (None if liked is None else liked.completion) == answer


def test_who_said_it_and_where_stay_with_the_answer():
    said = {"annotator": "ada", "group": "g", "category": "fact", "origin": "a.jsonl:3"}
    assert preferred(pair(**said)) == Demonstration(prompt="p", completion="good", **said)


def test_a_demonstration_is_its_own_preference():
    record = Demonstration(prompt="p", completion="c")
    assert preferred(record) is record


def test_every_kind_has_its_name():
    for name, record in KINDS.items():
        assert record.__name__.lower() == name
    assert kind_of(pair()) == "comparison"


def test_a_plain_row_leaves_out_what_was_not_said():
    assert as_dict(pair(strength=2.0)) == {
        "kind": "comparison",
        "prompt": "p",
        "chosen": "good",
        "rejected": "bad",
        "strength": 2.0,
    }
