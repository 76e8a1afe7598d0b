"""Scales with a word for each level: the words go out with the ratings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from plaudit.collect.adding import set_project
from plaudit.collect.app.pages import Form
from plaudit.collect.app.setting import settings_from_form
from plaudit.collect.export import export
from plaudit.collect.project import Project
from plaudit.data.read import read_records
from plaudit.data.records import Rating
from tests.collect.desks import MakeDesk

TASK: dict[str, Any] = {"prompt": "Name a fruit.", "candidates": [{"text": "Pear."}, {"text": "Car."}]}


def test_ratings_go_out_with_the_words_of_their_levels(on_both: MakeDesk, tmp_path: Path) -> None:
    anchors = (("Poor", "Adequate", "Excellent"), ())
    desk = on_both(tasks=[TASK], ask="rate", aspects=("clear", "overall"), anchors=anchors)
    (person,) = desk.people(1)
    lease = desk.lease(person)
    is_pear = [text == "Pear." for text in lease.shown["answers"]]
    points = {
        "clear": [3 if pear else 1 for pear in is_pear],
        "overall": [4 if pear else None for pear in is_pear],
    }
    desk.submit(person, lease, "k", {"points": points})
    export(desk.store, "p", tmp_path / "rows.jsonl")
    read = [replace(record, origin="") for record in read_records(tmp_path / "rows.jsonl").records]
    shared: dict[str, Any] = {"prompt": "Name a fruit.", "annotator": "a1", "group": "people"}
    assert sorted(read, key=repr) == sorted(
        [
            Rating(completion="Pear.", score=3.0, aspect="clear", level="Excellent", **shared),
            Rating(completion="Car.", score=1.0, aspect="clear", level="Poor", **shared),
            Rating(completion="Pear.", score=4.0, **shared),
        ],
        key=repr,
    )
    # The words are those of the settings that hold when rows are made.
    desk.store.write(
        set_project, replace(desk.store.project("p"), anchors=(("Bad", "Fair", "Good"), ())), actor="o1"
    )
    export(desk.store, "p", tmp_path / "renamed.jsonl")
    assert {
        getattr(record, "level", None) for record in read_records(tmp_path / "renamed.jsonl").records
    } == {"Good", "Bad", None}


def test_aspects_in_another_order_keep_the_words_of_their_levels() -> None:
    anchors = (("Poor", "Good"), (), ("Short", "Right", "Long"))
    before = Project(name="p", ask="rate", aspects=("look", "tone", "length"), anchors=anchors)
    form = Form(fields={"aspects": ("length\nnew\nlook",), "ties": ("yes",)})
    after = settings_from_form(before, form)
    assert after.aspects == ("length", "new", "look")
    assert [after.words_of(aspect) for aspect in after.aspects] == [anchors[2], (), anchors[0]]
