"""Who gets what: the choice as a table of cases, and the database's part of it in few steps at any size."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from sqlalchemy import event

from plaudit.collect.adding import close_task, set_project
from plaudit.collect.answering import skip_task, submit_answer, undo_answer
from plaudit.collect.assigning import (
    Annotator,
    Candidate,
    draw_order,
    fits,
    purposes,
    select_task,
    uniform,
    wilson_lower,
)
from plaudit.collect.desk import Lease, Nothing, next_task
from plaudit.collect.people import set_preferences
from plaudit.collect.progress import project_status
from plaudit.collect.project import Project
from plaudit.collect.refusals import FieldError, KeyConflictError, NotFoundError, NotYoursError
from tests.collect.desks import Desk, named, pair_body

ANN = Annotator(name="a1", standing="active")
PLAIN = Project(name="p")


def candidate(task: str = "t1", **facts: Any) -> Candidate:
    usual = {"started": False, "lacking": 1, "priority": 0.0, "prompt_visits": 0}
    return Candidate(task=task, **{**usual, **facts})


# Why a task is given: standing, settings, then what may come first. A draw that falls into no share is work.
PURPOSES = [
    ("whoever must qualify does nothing else", "qualifying", {"qualify_n": 25}, {("qualify",)}),
    ("nobody qualifies where nothing is asked", "qualifying", {"gold_share": 0.0}, {("work",)}),
    ("without shares all is work", "active", {"gold_share": 0.0}, {("work",)}),
    ("a share of gold", "active", {"gold_share": 0.3}, {("gold", "work"), ("work",)}),
    ("nothing but gold", "active", {"gold_share": 1.0}, {("gold", "work")}),
    ("a share of repeats", "active", {"gold_share": 0.0, "repeat": 0.3}, {("repeat", "work"), ("work",)}),
    ("both", "active", {"gold_share": 0.3, "repeat": 0.3}, {("gold", "work"), ("repeat", "work"), ("work",)}),
    ("whoever is watched works on", "watch", {"gold_share": 0.0}, {("work",)}),
]


@pytest.mark.parametrize(("standing", "settings", "expected"), **named(PURPOSES))
def test_why_a_task_is_given(standing, settings, expected):
    project = replace(PLAIN, **settings)
    people = [Annotator(name="a1", standing=standing, assigned=n) for n in range(200)]
    assert {purposes(person, project) for person in people} == expected


def test_shares_are_those_of_the_settings_and_the_same_draw_is_drawn_again():
    project = replace(PLAIN, gold_share=0.2, repeat=0.1)
    people = [Annotator(name=f"a{n % 20}", standing="active", assigned=n) for n in range(4_000)]
    drawn = Counter(purposes(person, project)[0] for person in people)
    assert 0.17 < drawn["gold"] / 4_000 < 0.23
    assert 0.08 < drawn["repeat"] / 4_000 < 0.12
    assert [purposes(person, project) for person in people] == [purposes(p, project) for p in people]
    other = replace(project, seed=1)
    assert any(purposes(person, other) != purposes(person, project) for person in people)


# Which task: the first of two candidates is given, whichever stands first.
CHOICES = [
    ("begun before new", {"started": True}, {"started": False}),
    ("begun before one that is wanted first", {"started": True}, {"priority": 9.0}),
    ("of two begun what lacks most", {"started": True, "lacking": 2}, {"started": True, "lacking": 1}),
    ("of two new what lacks most", {"lacking": 3}, {"lacking": 2, "priority": 9.0}),
    ("else what is wanted first", {"priority": 1.0}, {"priority": 0.5}),
    ("a negative priority comes last", {}, {"priority": -1.0}),
]


@pytest.mark.parametrize(("given_first", "other"), **named(CHOICES))
def test_which_task_is_given(given_first, other):
    for names in (("t1", "t2"), ("t2", "t1")):
        both = [candidate(names[0], **given_first), candidate(names[1], **other)]
        for order in (both, both[::-1]):
            chosen = select_task(order, ANN, PLAIN)
            assert chosen is not None
            assert chosen.task == names[0]


def test_of_equal_tasks_each_person_gets_others_but_always_the_same():
    tasks = [candidate(f"t{n}") for n in range(20)]
    people = [Annotator(name=f"a{n}", standing="active") for n in range(30)]
    chosen = [select_task(tasks, person, PLAIN) for person in people]
    assert chosen == [select_task(tasks[::-1], person, PLAIN) for person in people]
    assert len({found.task for found in chosen if found is not None}) > 8


# What may be given at all: person, task, settings, and whether it fits.
FITS = [
    ("nothing against it", {}, {}, {}, True),
    ("own text", {}, {"authors": ("a1",)}, {}, False),
    ("own text beside another's", {}, {"authors": ("a7", "a1")}, {}, False),
    ("text of somebody else", {}, {"authors": ("a7", "a11")}, {}, True),
    ("a declined category", {"declined": ("grim",)}, {"category": "grim"}, {}, False),
    ("another category", {"declined": ("grim",)}, {"category": "sums"}, {}, True),
    ("no category", {"declined": ("grim",)}, {}, {}, True),
    ("a language that is read", {"languages": ("en", "de")}, {"language": "de"}, {}, True),
    ("another language", {"languages": ("en",)}, {"language": "de"}, {}, False),
    ("a task of no language", {"languages": ("en",)}, {}, {}, True),
    ("whoever reads all", {}, {"language": "de"}, {}, True),
    ("a prompt often seen", {}, {"prompt_visits": 5}, {}, True),
    ("a prompt seen too often", {}, {"prompt_visits": 2}, {"prompt_limit": 2}, False),
    ("a prompt that may come again", {}, {"prompt_visits": 1}, {"prompt_limit": 2}, True),
]


@pytest.mark.parametrize(("person", "task", "settings", "expected"), **named(FITS))
def test_what_may_be_given(person, task, settings, expected):
    somebody, project = replace(ANN, **person), replace(PLAIN, **settings)
    assert fits(candidate(**task), somebody, project) == expected
    assert (select_task([candidate(**task)], somebody, project) is not None) == expected


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("person", "task", "settings", "expected"), **named(FITS))
def test_the_database_says_the_same(person, task, settings, expected, on_both):
    """What `fits` says of counts is said by a statement too, which must not be another rule."""
    desk = on_both(tasks=0, gold_share=0.0, **settings)
    (one,) = desk.people(1)
    body = pair_body(1, **{name: task[name] for name in ("category", "language") if name in task})
    for candidate_body, author in zip(body["candidates"], task.get("authors", ()), strict=False):
        candidate_body["source"] = {"annotator": author}
    twins = [{**pair_body(10 + n), "prompt": body["prompt"]} for n in range(task.get("prompt_visits", 0))]
    desk.add(twins)
    for _ in twins:
        desk.answer(one)
    desk.add([body])
    desk.store.write(set_preferences, "p", one, **{"declined": (), "languages": (), **person})
    assert isinstance(desk.store.write(next_task, "p", one), Lease) == expected


def test_an_order_is_drawn_for_the_first_and_reversed_for_the_next():
    assert draw_order(2, [0, 1], 0, "a2", "t1") == [1, 0]
    assert draw_order(4, [2, 0, 3, 1], 0, "a2", "t1") == [1, 3, 0, 2]
    assert draw_order(0, None, 0, "a1", "t1") == []
    first = [tuple(draw_order(2, None, 0, "a1", f"t{n}")) for n in range(400)]
    assert 160 < Counter(first)[0, 1] < 240
    assert first == [tuple(draw_order(2, None, 0, "a1", f"t{n}")) for n in range(400)]


@given(st.integers(0, 9), st.text(max_size=5), st.text(max_size=5))
def test_any_order_holds_each_place_once(count, person, task):
    order = draw_order(count, None, 0, person, task)
    assert sorted(order) == list(range(count))
    assert draw_order(count, order, 0, "next", task) == order[::-1]


def test_draws_are_even():
    draws = [uniform(0, "a1", n) for n in range(2_000)]
    assert all(0 <= draw < 1 for draw in draws)
    assert all(160 < sum(part <= 10 * draw < part + 1 for draw in draws) < 240 for part in range(10))


def test_wilsons_interval_is_that_of_the_paper():
    # Newcombe 1998, table I, method 3: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for right, n, low in ((81, 263, 0.2553), (15, 148, 0.0624), (0, 20, 0.0), (1, 29, 0.0061)):
        assert round(wilson_lower(right, n), 4) == low
    assert wilson_lower(0, 0) == 0.0


# What the desk makes of it.


def test_an_own_lease_that_ended_is_taken_up_again_while_its_place_is_free(on_both):
    desk = on_both(tasks=1)
    one, other = desk.people(2)
    lease = desk.lease(one)
    desk.clock.advance(hours=1)
    again = desk.store.write(next_task, "p", one, "again")
    assert isinstance(again, Lease)
    assert (again.assignment, again.until) == (lease.assignment, "2026-03-01T13:30:00.000000Z")
    assert desk.store.write(next_task, "p", one, "again") == again
    assert desk.store.write(next_task, "p", other) == Nothing(reason="wait", until=again.until)
    desk.clock.advance(hours=1)
    desk.lease(other)
    later = "2026-03-01T14:30:00.000000Z"
    assert desk.store.write(next_task, "p", one) == Nothing(reason="wait", until=later)


def test_nobody_waits_for_what_was_done_already(make_desk):
    desk = make_desk(tasks=1, overlap=2)
    one, other = desk.people(2)
    desk.answer(one)
    desk.lease(other)
    assert desk.store.write(next_task, "p", one) == Nothing(reason="done")


def test_whoever_comes_back_is_shown_what_is_still_held(make_desk):
    desk = make_desk(tasks=2)
    (one,) = desk.people(1)
    held = [desk.lease(one, key).assignment for key in ("lost", "and lost again")]
    assert desk.lease(one, "a third key").assignment == held[0]


def test_a_key_of_an_answer_asks_for_no_task(make_desk):
    desk = make_desk()
    (one,) = desk.people(1)
    lease = desk.lease(one, "n")
    desk.submit(one, lease, "s", {"strength": 1})
    with pytest.raises(KeyConflictError):
        desk.store.write(next_task, "p", one, "s")
    for key in ("", " ", "a\0b", "\ud800", "x" * 201):
        with pytest.raises(FieldError, match="key"):
            desk.store.write(next_task, "p", one, key)
        with pytest.raises(FieldError, match="key"):
            desk.submit(one, lease, key, {"strength": 1})


@pytest.mark.one_in(2)
@pytest.mark.parametrize("word", ["", "w\0", "\ud800", "w1'--", "w" * 10_000, "nobody's"])
def test_what_can_be_no_id_is_not_there(on_both, word):
    desk = on_both(tasks=1)
    (one,) = desk.people(1)
    with pytest.raises(NotYoursError, match="not given to you"):
        desk.store.write(submit_answer, "p", one, word, "k", {"strength": 1})
    with pytest.raises(NotFoundError) as refused:
        desk.store.write(close_task, "p", word, reason="broken", actor="o1")
    assert len(str(refused.value)) < 200


def test_whoever_skipped_too_many_items_to_qualify_has_not_failed(make_desk):
    desk = make_desk(tasks=1, qualify_n=2, qualify_floor=0.1)
    desk.add([pair_body(9, gold={"better": 0}, qualify=True)])
    (one,) = desk.people(1)
    desk.store.write(skip_task, "p", one, desk.lease(one).assignment, "s", "unclear")
    assert desk.store.write(next_task, "p", one) == Nothing(reason="done")
    desk.store.write(set_project, replace(desk.store.project("p"), qualify_n=0), actor="o1")
    assert isinstance(desk.store.write(next_task, "p", one), Lease)


def test_what_was_closed_or_declined_is_not_repeated(make_desk):
    desk = make_desk(tasks=60, gold_share=0.0)
    (one,) = desk.people(1)
    leases = [desk.answer(one) for _ in range(55)]
    for lease in leases[:2]:
        desk.store.write(close_task, "p", lease.task, reason="private", actor="o1")
    desk.store.write(set_project, replace(desk.store.project("p"), repeat=1.0), actor="o1")
    assert desk.lease(one).task == leases[2].task


def test_an_undone_answer_that_came_too_late_takes_nobodys_place(on_both):
    desk = on_both(tasks=1)
    slow, quick = desk.people(2)
    late = desk.lease(slow)
    desk.clock.advance(minutes=31)
    held = desk.lease(quick)
    desk.submit(slow, late, "1", {"strength": 1})
    desk.store.write(undo_answer, "p", slow, late.assignment, "2")
    desk.submit(slow, late, "3", {"strength": 1})
    desk.submit(quick, held, "1", {"strength": 1})
    assert [label["surplus"] for label in labels_of(desk)] == [True, False]


def labels_of(desk: Desk) -> list[dict[str, Any]]:
    answers = [event.body for event in desk.store.events() if event.kind == "answered"]
    return [body for body in answers if body is not None][-2:]


def test_a_closed_task_counts_on(make_desk):
    desk = make_desk(tasks=1, overlap=3)
    one, other = desk.people(2)
    answered, held = desk.answer(one), desk.lease(other)
    desk.store.write(close_task, "p", held.task, reason="broken", actor="o1")
    status = desk.store.read(project_status, "p")
    assert (status.wanted, status.labels, status.missing, status.leased) == (1, 1, 0, 1)
    desk.store.write(undo_answer, "p", one, answered.assignment, "u")
    desk.store.write(skip_task, "p", other, held.assignment, "s", "broken")
    status = desk.store.read(project_status, "p")
    assert (status.wanted, status.labels, status.leased) == (0, 0, 1)
    desk.submit(one, answered, "again", {"strength": 1})
    assert desk.store.read(project_status, "p").surplus == 1


def steps_of_next(desk: Desk, person: str, times: int) -> list[int]:
    """How many steps of SQLite's machine each `next` takes, in tens: the same on any machine."""
    steps, taken = [0], list[int]()

    def count() -> int:
        steps[0] += 1
        return 0

    engine = desk.store.database.engine
    event.listen(engine, "checkout", lambda connection, *_: connection.set_progress_handler(count, 10))
    for number in range(times):
        steps[0] = 0
        lease = desk.lease(person, f"n{number}")
        taken.append(steps[0])
        desk.submit(person, lease, f"s{number}", {"strength": 1})
    return taken


@pytest.mark.slow
def test_next_takes_no_more_steps_of_many_tasks_than_of_few(make_desk, tmp_path):
    """Also where a share of gold is set and there is none, and where most tasks do not suit the person."""
    most = list[int]()
    for tasks in (150, 3_000):
        bodies = [pair_body(n, priority=5.0, category="grim") for n in range(tasks // 100)]
        desk = make_desk(
            tmp_path / f"{tasks}.db",
            tasks=[*bodies, *(pair_body(n + 10_000) for n in range(tasks))],
            overlap=2,
            gold_share=0.2,
            repeat=0.1,
        )
        (one,) = desk.people(1)
        desk.store.write(set_preferences, "p", one, declined=["grim"])
        most.append(max(steps_of_next(desk, one, 80)))
    assert most[1] < 1.3 * most[0], most


@pytest.mark.slow
def test_next_takes_no_more_steps_of_somebody_who_labelled_much(make_desk):
    """What was labelled once stays open for a second label: it must not all be passed by each time."""
    desk = make_desk(tasks=450, overlap=2, gold_share=0.0)
    (one,) = desk.people(1)
    steps = steps_of_next(desk, one, 400)
    assert max(steps[360:]) < 1.3 * max(steps[140:180])


def test_the_statements_that_look_for_work_read_an_index_in_order(make_desk):
    desk = make_desk(gold_share=1.0)
    plans = dict[str, str]()

    def look(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if statement.startswith("SELECT") and not many:
            raw = connection.connection.driver_connection
            rows = raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            plans[statement] = json.dumps([row[3] for row in rows])

    event.listen(desk.store.database.engine, "before_cursor_execute", look)
    one, other = desk.people(2)
    desk.answer(one)
    desk.answer(other)
    text = "\n".join(plans.values())
    for index in ("task_open", "task_special", "assignment_annotator", "assignment_open", "assignment_state"):
        assert f"INDEX {index} " in text
    assert not [plan for plan in plans.values() if "SCAN task" in plan or "SCAN assignment" in plan]
