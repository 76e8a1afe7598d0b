"""Scales with a word for each level: the words go out with the ratings."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plaudit.collect.adding import set_project
from plaudit.collect.app.pages import Form
from plaudit.collect.app.setting import settings_from_form
from plaudit.collect.export import export
from plaudit.collect.project import Project
from plaudit.collect.quality.report import quality
from plaudit.data.read import read_records
from plaudit.data.records import Rating
from plaudit.errors import UserError
from tests.collect.browsers import given_labels, signed_in
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
    pear = is_pear.index(True)
    shared: dict[str, Any] = {"prompt": "Name a fruit.", "annotator": "a1", "group": "people", "flags": ((),)}
    assert sorted(read, key=repr) == sorted(
        [
            Rating(
                completion="Pear.", score=3.0, aspect="clear", level="Excellent", places=(pear,), **shared
            ),
            Rating(completion="Car.", score=1.0, aspect="clear", level="Poor", places=(1 - pear,), **shared),
            Rating(completion="Pear.", score=4.0, places=(pear,), **shared),
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


ANCHORS: dict[str, Any] = {"aspects": ("helpful", "quality"), "anchors": (("Not", "Somewhat", "Very"), ())}


def test_a_pair_is_rated_by_aspects_beside_the_verdict(make_desk: MakeDesk, tmp_path: Path) -> None:
    # Bard's page (arXiv:2312.11805): each answer on two scales, then side by side.
    desk = make_desk(tasks=6, overlap=2, most=2, **ANCHORS)
    for number in range(2):
        browser = signed_in(desk.store, f"Person {number}")
        page = browser.get("/label")
        assert "Somewhat" in page.words
        for _ in range(6):
            page = browser.send(page.form(), strength="-1", points_0_0="3", points_0_1="1", points_1_0="4")
        assert "Nothing left to do" in page.words
    shown = {"points": {"helpful": [3, 1], "quality": [4, None]}, "strength": -1}
    assert given_labels(desk) == [shown] * 12
    # Two people, orders reversed: on each answer of the six pairs one said 3 and the other 1.
    rows = {row.name: row for row in quality(desk.store, "p").agreement}
    assert (rows["helpful"].percent.value, rows["helpful"].units) == (0.0, 12)
    assert rows[""].percent.value == 0.0
    # Of quality nobody rated the same answer twice, so nothing is said of agreement.
    assert rows["quality"].percent.value is None
    page = signed_in(desk.store, "Person 2").get("/history")
    assert page.status == 200


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ({"helpful": [4, 1]}, "1 to 3"),
        ({"helpful": [3]}, "each of the 2 answers"),
        ({"clear": [1, 1]}, "helpful, quality"),
        ([3, 1], "points by aspect"),
    ],
)
def test_aspects_of_a_pair_that_were_not_asked_are_refused(make_desk, points, says):
    desk = make_desk(tasks=1, **ANCHORS)
    (person,) = desk.people(1)
    with pytest.raises(UserError, match=says):
        desk.submit(person, desk.lease(person), "k", {"strength": 1, "points": points})


@pytest.mark.parametrize("ask", ["rank", "write", "steps"])
def test_aspects_that_a_kind_shows_to_nobody_are_refused_when_they_are_set(make_desk, ask):
    desk = make_desk(tasks=0)
    with pytest.raises(UserError, match=rf"asks for pair or rate, and nobody would see them .* for {ask}"):
        desk.store.write(set_project, Project(name="q", ask=ask, aspects=("clear",)), actor="o1")
