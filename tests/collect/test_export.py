"""Labels out: every kind as rows that read back, filters, positions, and the way from a row to its clicks."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from plaudit.collect.adding import add_tasks, adjudicate, set_project
from plaudit.collect.answering import add_note, revise_answer, skip_task, submit_answer
from plaudit.collect.desk import Lease
from plaudit.collect.export import (
    Filters,
    Snapshot,
    export,
    file_hash,
    read_snapshot,
    rows_of_event,
    trace_row,
)
from plaudit.collect.log import Entry
from plaudit.collect.people import issue_token, set_preferences, set_standing
from plaudit.collect.privacy import erase_person
from plaudit.collect.progress import project_people, project_status, project_tasks
from plaudit.collect.refusals import NotFoundError
from plaudit.collect.store import Transaction
from plaudit.data import records
from plaudit.data.judging import Mark, Task, Verdict, to_comparison
from plaudit.data.read import read_records
from plaudit.errors import UserError
from plaudit.files.data_sets import snapshot_path
from tests.collect.desks import Desk, MakeDesk, named, pair_body

Say = Callable[[dict[str, Any]], dict[str, Any]]
"""From what is shown to what is said of it."""
MINE: dict[str, Any] = {"annotator": "a1", "group": "people"}


BRIEF = records.Message(role="system", content="Be brief.")
TALKS: dict[str, Any] = {"talks_to": "http://127.0.0.1:1/v1#m"}


def fruits(*texts: str) -> dict[str, Any]:
    candidates = [{"text": text, "source": {"model": "secret"}} for text in texts]
    return {"prompt": "Name a fruit.", "candidates": candidates, "category": "open"}


def ranked(shown: dict[str, Any]) -> dict[str, Any]:
    places = {text: place for place, text in enumerate(shown["answers"])}
    return {"groups": [[places["Pear."], places["Fig."]], [places["Car."]]], "why": "a car is none"}


# What a task holds, what is said in the order shown, the settings it takes, and the rows that come back.
KINDS: list[tuple[str, dict[str, Any], Say, dict[str, Any], Sequence[records.Record]]] = [
    (
        "pair",
        pair_body(1, category="sums", method="random", metadata={"chance": 0.25}),
        lambda shown: {
            "strength": (strength := 2 if "think" in shown["answers"][0] else -2),
            # The worse answer is reported, wherever it is shown.
            "flags": [["false"], []] if strength > 0 else [[], ["false"]],
            "points": {"kind": [1, 5] if strength > 0 else [5, 1]},
            "both_bad": True,
            "why": "three is none",
        },
        {"aspects": ("kind",), "guidelines": "Be kind."},
        [
            records.Comparison(
                prompt="What is 1 + 1?",
                chosen="It is 2.",
                rejected="It is 3, I think.",
                strength=2.0,
                margin=round(2 / 3, 6),
                category="sums",
                reason="three is none",
                guidelines="5499befb38db",
                method="random",
                propensity=0.25,
                places=(1, 0),
                flags=((), ("false",)),
                aspects={"kind": (5, 1)},
                both_bad=True,
                **MINE,
            )
        ],
    ),
    (
        "rank",
        fruits("Pear.", "Car.", "Fig.", "Oak."),
        ranked,
        {},
        [
            records.Ranking(
                prompt="Name a fruit.",
                completions=("Pear.", "Fig.", "Car."),
                ranks=(1.0, 1.0, 3.0),
                category="open",
                reason="a car is none",
                places=(0, 0, 0),
                flags=((), (), ()),
                **MINE,
            )
        ],
    ),
    (
        "rate",
        fruits("Pear.", "Car."),
        lambda shown: {
            "points": {"clear": [5 if text == "Pear." else None for text in shown["answers"]]},
            "thumbs": [text == "Pear." for text in shown["answers"]],
        },
        {"aspects": ("clear", "kind")},
        [
            records.Rating(
                prompt="Name a fruit.",
                completion=text,
                score=score,
                aspect=aspect,
                category="open",
                places=(0,),
                flags=((),),
                **more,
            )
            for text, score, aspect, more in (
                ("Pear.", 5.0, "clear", MINE),
                ("Pear.", 1.0, None, {**MINE, "thumb": True}),
                ("Car.", 0.0, None, {**MINE, "thumb": True}),
            )
        ],
    ),
    (
        "write",
        {"prompt": "Greet me.", "draft": "Yo"},
        lambda shown: {"answer": f"{shown['draft']}, good morning", "why": "kinder"},
        {},
        [
            records.Demonstration(prompt="Greet me.", completion="Yo, good morning", reason="kinder", **MINE),
            records.Comparison(
                prompt="Greet me.", chosen="Yo, good morning", rejected="Yo", reason="kinder", **MINE
            ),
        ],
    ),
    (
        "steps",
        {"prompt": "2x = 6", "steps": ["x = 6 / 2", "x = 4", "So it is 4."]},
        lambda shown: {"labels": ["right", "wrong"], "ended": "error"},
        {},
        [records.Steps(prompt="2x = 6", steps=("x = 6 / 2", "x = 4"), labels=(1.0, 0.0), **MINE)],
    ),
    (
        "talk",
        {"prompt": [{"role": "system", "content": "Be brief."}]},
        lambda shown: {
            "turns": [
                {"message": "Hi", "answers": ["What?", "Hello!"], "strength": 2},
                {"message": "And?", "answers": ["Well.", "Fine."], "strength": 0},
            ]
        },
        TALKS,
        [
            records.Comparison(
                prompt=(BRIEF, *records.user_turn("Hi")),
                chosen=records.assistant_turn("Hello!"),
                rejected=records.assistant_turn("What?"),
                strength=2.0,
                places=(1, 0),
                **MINE,
            ),
            records.Comparison(
                prompt=(
                    BRIEF,
                    *records.user_turn("Hi"),
                    *records.assistant_turn("Hello!"),
                    *records.user_turn("And?"),
                ),
                chosen=records.assistant_turn("Well."),
                rejected=records.assistant_turn("Fine."),
                strength=0.0,
                probability=0.5,
                places=(0, 1),
                **MINE,
            ),
        ],
    ),
    (
        "attack",
        {"prompt": [{"role": "system", "content": "Be brief."}], "category": "open"},
        lambda shown: {
            "messages": [
                {"role": "user", "content": "How are locks opened?"},
                {"role": "assistant", "content": "With a key."},
            ],
            "success": 1,
            "category": "theft",
            "worked": "a harmless tone",
        },
        TALKS,
        [
            records.Rating(
                prompt=(BRIEF, *records.user_turn("How are locks opened?")),
                completion=records.assistant_turn("With a key."),
                score=3.0,
                aspect="harmlessness",
                category="theft",
                **MINE,
            ),
            records.Prompt(
                prompt=(BRIEF, *records.user_turn("How are locks opened?")),
                metadata={"attack_success": 1, "category": "theft", "worked": "a harmless tone"},
            ),
        ],
    ),
]


def desk_of(make_desk: MakeDesk, kind: str, body: dict[str, Any], **settings: Any) -> tuple[Desk, str]:
    desk = make_desk(tasks=[body], ask=kind, **settings)
    (person,) = desk.people(1)
    return desk, person


def say(desk: Desk, person: str, what: Say, key: str = "k") -> Lease:
    lease = desk.lease(person)
    desk.submit(person, lease, key, what(lease.shown))
    return lease


def placed(record: Any, shown: Sequence[Any]) -> records.Record:
    """The record with the places at which its answers were shown."""
    answers = [getattr(record, name, None) for name in ("chosen", "rejected", "completion")]
    answers = [answer for answer in (*answers, *getattr(record, "completions", ())) if answer in shown]
    return replace(record, places=tuple(map(shown.index, answers))) if answers else record


def without_reasons(rows: bytes, person: str) -> bytes:
    """Rows as they are when this person's words are erased."""
    lines = [json.loads(line) for line in rows.splitlines()]
    for row in lines:
        if row["annotator"] == person:
            row.pop("reason", None)
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in lines)


def read(rows: Path) -> list[records.Record]:
    return [replace(record, origin="") for record in read_records(rows).records]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("kind", "body", "what", "settings", "expected"), KINDS, ids=[k[0] for k in KINDS])
def test_every_kind_becomes_rows_that_read_back(on_both, tmp_path, kind, body, what, settings, expected):
    desk, person = desk_of(on_both, kind, body, **settings)
    lease = say(desk, person, what)
    snapshot = export(desk.store, "p", tmp_path / "rows.jsonl")
    # Points and thumbs come in the order in which the answers were shown.
    rows = [placed(record, lease.shown.get("answers", ())) for record in expected]
    assert sorted(read(tmp_path / "rows.jsonl"), key=repr) == sorted(rows, key=repr)
    (answered,) = [event.seq for event in desk.store.events() if event.kind == "answered"]
    assert snapshot.events == (answered,) * len(expected)
    words = (tmp_path / "rows.jsonl").read_text() + snapshot_path(tmp_path / "rows.jsonl").read_text()
    assert not any(hint in words for hint in ("person 0", "secret", lease.assignment))


@pytest.mark.slow
def test_what_says_nothing_of_the_answers_is_counted_and_no_row(make_desk, tmp_path):
    desk = make_desk(tasks=2)
    (person,) = desk.people(1)
    say(desk, person, lambda shown: {"none": True, "both_bad": True}, "1")
    with pytest.raises(UserError, match=r"nothing of project p to export .1 that say nothing of the answers"):
        export(desk.store, "p", tmp_path / "rows.jsonl")
    say(desk, person, lambda shown: {"strength": 0}, "2")
    snapshot = export(desk.store, "p", tmp_path / "rows.jsonl")
    assert (snapshot.rows, snapshot.left_out) == (1, {"that say nothing of the answers": 1})


def give(desk: Desk, person: str, lease: Lease, key: str, strength: int) -> None:
    desk.submit(person, lease, key, {"strength": strength})


def crowded(make_desk: MakeDesk) -> Desk:
    """A store with a label of every sort: see the table of filters."""
    desk = make_desk(tasks=6, overlap=2, most=2, gold_share=0.0, guidelines="Be kind.")
    one, two, late, bad = desk.people(4)
    held = {}
    for person in (one, two):
        for _ in range(6):
            lease = desk.lease(person)
            number = int(lease.shown["prompt"].split()[2])
            held[person, number] = lease
            if (person, number) in ((two, 3), (two, 4), (two, 5)):
                continue
            divided = person == two and number in (1, 2)
            strength = -desk.better(lease) if divided else desk.better(lease)
            give(desk, person, lease, f"k{number}", strength)
    # Of task 1 people stay divided; of task 2 a reviewer decides.
    tasks = {lease.task: number for (_, number), lease in held.items()}
    decided = next(name for name, number in tasks.items() if number == 2)
    desk.store.write(adjudicate, "p", decided, {"strength": -1}, reason="error", actor="r1", key="k")
    # Of task 3 a place is lost to somebody quicker, of task 4 somebody suspended has one, 5 stays open.
    desk.store.write(skip_task, "p", two, held[two, 4].assignment, "s", "unclear")
    desk.store.write(skip_task, "p", two, held[two, 5].assignment, "t", "unclear")
    desk.clock.advance(minutes=31)
    for person, wanted in ((late, 3), (bad, 4)):
        while tasks[(lease := desk.lease(person)).task] != wanted:
            desk.store.write(skip_task, "p", person, lease.assignment, lease.assignment, "unclear")
        give(desk, person, lease, "k", desk.better(lease))
    give(desk, two, held[two, 3], "k3", desk.better(held[two, 3]))
    desk.add([pair_body(50, gold={"better": 0})])
    settings = desk.store.project("p")
    desk.store.write(set_project, replace(settings, gold_share=1.0, guidelines="Be fair."), actor="o1")
    desk.answer(one)
    body = {"label": {"strength": 1}, "order": [1, 0], "wording": "v1"}
    judged = Entry(project="p", actor="m@1", kind="judged", subject=decided, body=body)
    desk.store.write(Transaction.record, judged)
    desk.store.write(set_standing, "p", bad, "suspended", reason="clicks left", actor="r1")
    return desk


# The labels: 2 of task 0, 2 of task 1 (divided), 2 and a decision of task 2, 2 and a surplus of task 3, 2 of
# task 4 of which one is of a suspended person, 1 of task 5 (open), 1 of a gold item, and 1 of a model.
OTHERS = {
    "of another group": 1,
    "of an item whose answer is known": 1,
    "surplus": 1,
    "of a suspended annotator": 1,
    "decided by a reviewer": 2,
}
FILTERS: list[tuple[str, dict[str, Any], int, dict[str, int]]] = [
    ("as it comes", {}, 9, OTHERS),
    ("surplus", {"surplus": True}, 10, {**OTHERS, "surplus": 0}),
    ("items", {"items": True}, 10, {**OTHERS, "of an item whose answer is known": 0}),
    ("suspended", {"suspended": True}, 10, {**OTHERS, "of a suspended annotator": 0}),
    (
        "without a reviewer",
        {"adjudicated": False},
        10,
        {**OTHERS, "decided by a reviewer": 0, "a reviewer's, not asked for": 1},
    ),
    # Gone are two labels of task 1 and the only one of task 5.
    ("settled", {"settled": True}, 6, {**OTHERS, "of an unsettled task": 3}),
    ("models", {"group": "ai"}, 1, {"of another group": 14}),
    ("all of people", {"surplus": True, "items": True, "suspended": True, "adjudicated": False}, 13, {}),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("filters", "rows", "left_out"), **named(FILTERS))
def test_filters_leave_out_what_they_say(make_desk, tmp_path, filters, rows, left_out):
    desk = crowded(make_desk)
    out = tmp_path / "rows.jsonl"
    snapshot = export(desk.store, "p", out, filters=Filters(**filters))
    expected = {reason: count for reason, count in left_out.items() if count}
    if left_out:
        assert snapshot.left_out == expected
    assert snapshot.rows == rows == len(read(out))
    assert snapshot.filters == asdict(Filters(**filters))
    who = {record.annotator for record in read(out) if isinstance(record, records.Comparison)}
    assert (who == {"m@1"}) == (filters.get("group") == "ai")
    groups = {record.group for record in read(out) if isinstance(record, records.Comparison)}
    assert groups == {filters.get("group", "people")}


def test_a_snapshot_says_what_it_is_of(make_desk, tmp_path):
    desk = crowded(make_desk)
    position = desk.store.position()
    snapshot = export(desk.store, "p", tmp_path / "out" / "rows.jsonl")
    assert snapshot == read_snapshot(tmp_path / "out" / "rows.jsonl")
    assert (snapshot.store, snapshot.project) == (str(tmp_path / "labels.db"), "p")
    assert (snapshot.seq, snapshot.link) == position
    assert snapshot.tasks == {"adjudicated": 1, "done": 3, "item": 1, "open": 1, "review": 1}
    status = desk.store.read(project_status, "p")
    assert (snapshot.labels, snapshot.tasks) == (status.labels, status.tasks)
    assert snapshot.sha256 == file_hash(tmp_path / "out" / "rows.jsonl")
    assert len(snapshot.events) == snapshot.rows
    # The item was answered under later guidelines than all else.
    assert len(snapshot.guidelines) == 1
    filters = Filters(items=True)
    assert len(export(desk.store, "p", tmp_path / "items.jsonl", filters=filters).guidelines) == 2
    with pytest.raises(UserError, match="expected people, ai or routed"):
        Filters(group="robots")


def test_no_password_stands_in_a_snapshot(make_desk, tmp_path, cluster):
    address = cluster.database().replace("plaudit@", "plaudit:Zan%2Fzibar@")
    desk, person = desk_of(partial(make_desk, address), "pair", pair_body(1))
    say(desk, person, lambda shown: {"strength": 1})
    export(desk.store, "p", tmp_path / "rows.jsonl")
    words = snapshot_path(tmp_path / "rows.jsonl").read_text()
    assert "postgresql+pg8000://plaudit:***@127.0.0.1" in words
    assert "zibar" not in words
    assert "zibar" not in str([event.body for event in desk.store.events()])


def exported(desk: Desk) -> int:
    return sum(event.kind == "exported" for event in desk.store.events())


@pytest.mark.one_in(2)
def test_the_same_position_and_filters_are_the_same_bytes_and_remembered_once(on_both, tmp_path):
    desk = crowded(on_both)
    first = export(desk.store, "p", tmp_path / "1.jsonl", actor="o1")
    again = export(desk.store, "p", tmp_path / "2.jsonl", actor="o1")
    named = export(desk.store, "p", tmp_path / "3.jsonl", position=first.seq)
    assert first == again == named
    assert len({(tmp_path / f"{number}.jsonl").read_bytes() for number in (1, 2, 3)}) == 1
    assert exported(desk) == 1
    export(desk.store, "p", tmp_path / "4.jsonl", filters=Filters(surplus=True))
    assert exported(desk) == 2


@pytest.mark.one_in(2)
def test_an_export_at_a_position_is_the_one_that_was_made_then(on_both, tmp_path):
    desk = on_both(tasks=6, overlap=2)
    desk.store.write(set_project, replace(desk.store.project("p"), name="q"), actor="o1")
    one, two = desk.people(2)
    made: list[tuple[Snapshot, bytes]] = []
    for number in range(6):
        for person in (one, two):
            lease = desk.lease(person)
            label = {"strength": 1, "why": f"my cousin wrote number {number}"}
            desk.submit(person, lease, f"k{number}", label)
            if number % 2:
                desk.store.write(revise_answer, "p", person, lease.assignment, f"r{number}", {"strength": -3})
        desk.store.write(add_tasks, "q", [pair_body(number)], actor="o1")
        rows = tmp_path / f"{number}.jsonl"
        made.append((export(desk.store, "p", rows), rows.read_bytes()))
    desk.store.write(set_project, replace(desk.store.project("p"), most=2, overlap=2), actor="o1")
    desk.store.write(set_standing, "p", two, "suspended", reason="clicks left", actor="r1")
    erase_person(desk.store, "p", one, actor="o1")
    for number, (snapshot, content) in enumerate(made):
        rows = tmp_path / f"again{number}.jsonl"
        same = export(desk.store, "p", rows, position=snapshot.seq)
        assert rows.read_bytes() == without_reasons(content, one)
        assert replace(same, sha256=snapshot.sha256) == snapshot
    # What came between was of another project, so this is the same position.
    same = export(desk.store, "p", tmp_path / "between.jsonl", position=made[0][0].seq + 1)
    assert replace(same, sha256=made[0][0].sha256) == made[0][0]
    # Rows that lack the reasons of somebody erased are others, and remembered as such.
    assert exported(desk) == 12
    for position in (0, -1, 10_000):
        with pytest.raises(UserError, match=f"position {position} is not there; the log has 1 to"):
            export(desk.store, "p", rows, position=position)
    with pytest.raises(NotFoundError, match="no project 'q' at position 1"):
        export(desk.store, "q", rows, position=1)


def test_the_newest_position_is_read_from_the_tables(make_desk, tmp_path):
    """A replay of a long log takes minutes: that there was none is seen from tables that were altered."""
    desk = make_desk(tasks=1)
    (one,) = desk.people(1)
    desk.answer(one)
    with desk.store.database.writing() as connection:
        connection.exec_driver_sql("""UPDATE label SET label = '{"strength":3}'""")
    desk.is_damaged = True
    newest = desk.store.position()[0]
    export(desk.store, "p", tmp_path / "rows.jsonl", position=newest)
    assert '"strength": 3.0' in (tmp_path / "rows.jsonl").read_text()


def test_a_decision_is_exported_once_however_often_it_was_made(make_desk, tmp_path):
    desk = crowded(make_desk)
    (decided,) = [task["id"] for task in desk.store.read(project_tasks, "p", "adjudicated")]
    for number, strength in enumerate((2, -3)):
        desk.store.write(
            adjudicate, "p", decided, {"strength": strength}, reason="taste", actor="r2", key=str(number)
        )
    export(desk.store, "p", tmp_path / "rows.jsonl")
    own = [
        r for r in read(tmp_path / "rows.jsonl") if isinstance(r, records.Comparison) and r.annotator == "r2"
    ]
    assert [record.strength for record in own] == [3.0]


def test_a_reviewer_who_is_erased_leaves_the_decision_without_its_words(on_both, tmp_path):
    desk = on_both(tasks=1)
    reviewer = desk.store.write(issue_token, "p", "reviewer", name="Rita").pseudonym
    (one,) = desk.people(1)
    lease = desk.answer(one)
    label = {"strength": -1, "why": "my cousin wrote it"}
    desk.store.write(adjudicate, "p", lease.task, label, reason="taste", actor=reviewer, key="k")
    export(desk.store, "p", tmp_path / "before.jsonl")
    erase_person(desk.store, "p", reviewer, actor="o1")
    assert "cousin" not in str(list(desk.store.events()))
    export(desk.store, "p", tmp_path / "after.jsonl")
    before = (tmp_path / "before.jsonl").read_bytes()
    assert (tmp_path / "after.jsonl").read_bytes() == without_reasons(before, reviewer) != before


def test_an_answer_that_was_revised_is_one_label_when_its_author_is_erased(on_both, tmp_path):
    desk = on_both(tasks=1)
    (one,) = desk.people(1)
    lease = desk.lease(one)
    for number, strength in enumerate((1, -2, 3)):
        label, own = {"strength": strength, "why": "my cousin"}, ("p", one, lease.assignment, str(number))
        if number:
            desk.store.write(revise_answer, *own, label)
        else:
            desk.store.write(submit_answer, *own, label)
    erase_person(desk.store, "p", one, actor="o1")
    rows = export(desk.store, "p", tmp_path / "rows.jsonl").rows
    assert desk.store.read(project_status, "p").labels == rows == 1
    assert '"strength": 3.0' in (tmp_path / "rows.jsonl").read_text()


def test_what_is_left_of_erased_words_is_no_digest_to_guess_against(make_desk):
    desk = make_desk(tasks=1)
    (one,) = desk.people(1)
    desk.store.write(set_preferences, "p", one, declined=["war, since my home was bombed"])
    lease = desk.lease(one)
    desk.submit(one, lease, "k", {"strength": 1, "why": "ada"})
    erase_person(desk.store, "p", one, actor="o1")
    (erased,) = [event.body for event in desk.store.events() if event.kind == "erased"]
    assert erased is not None
    assert all("request" not in item["body"] for item in erased["remains"])
    assert "bombed" not in str(list(desk.store.events())) + str(desk.store.read(project_people, "p"))


def test_a_row_leads_to_its_events_and_an_event_to_its_rows(on_both, tmp_path):
    desk = on_both(tasks=3, overlap=2, guidelines="Be kind.")
    one, two = desk.people(2)
    for person in (one, two):
        for _ in range(3):
            desk.answer(person)
    rows = tmp_path / "rows.jsonl"
    snapshot = export(desk.store, "p", rows)
    chosen = next(n for n, seq in enumerate(snapshot.events, 1) if at(desk, seq).actor == two)
    lease = at(desk, snapshot.events[chosen - 1]).subject
    desk.store.write(add_note, "p", two, lease, "n", "sure")
    desk.store.write(revise_answer, "p", two, lease, "r", {"strength": 3})
    found = trace_row(desk.store, rows, chosen)
    kinds = ["project-set", "task-added", "leased", "answered", "exported", "noted", "revised"]
    assert [event.kind for event in found] == kinds
    assert {event.actor for event in found[2:4]} == {two}
    assert found[4].body is not None
    assert found[4].body["sha256"] == snapshot.sha256
    assert rows_of_event(rows, snapshot.events[chosen - 1]) == [chosen]
    assert rows_of_event(rows, 1) == []


def at(desk: Desk, seq: int) -> Any:
    return next(event for event in desk.store.events() if event.seq == seq)


def test_what_is_no_snapshot_of_rows_is_refused(make_desk, tmp_path):
    desk = crowded(make_desk)
    rows = tmp_path / "rows.jsonl"
    export(desk.store, "p", rows)
    path = snapshot_path(rows)
    whole = json.loads(path.read_text())
    changes: list[dict[str, Any]] = [{"version": 99}, {"more": 1}, {"events": whole["events"][:-1]}]
    for values in ([], {}, *({**whole, **change} for change in changes)):
        path.write_text(json.dumps(values))
        with pytest.raises(UserError, match="not a snapshot that this plaudit wrote"):
            read_snapshot(rows)
    path.unlink()
    with pytest.raises(UserError, match="not exported from a store"):
        read_snapshot(rows)
    with pytest.raises(UserError, match="no such file"):
        read_snapshot(tmp_path / "none.jsonl")


def test_a_verdict_and_a_label_become_the_same_row(make_desk, tmp_path):
    """Whoever judges, rows are made in one place: a person's click is a judge's verdict."""
    desk, person = desk_of(make_desk, "pair", pair_body(1))
    say(desk, person, lambda shown: {"strength": 0})
    export(desk.store, "p", tmp_path / "rows.jsonl")
    texts = tuple(candidate["text"] for candidate in pair_body(1)["candidates"])
    task = Task(prompt="What is 1 + 1?", answers=texts, ended=(True, True))
    verdict = Verdict(marks=(Mark(rank=1), Mark(rank=1)), annotator=person, group="people")
    (row,) = read(tmp_path / "rows.jsonl")
    assert replace(row, places=(), flags=()) == to_comparison(task, verdict)
