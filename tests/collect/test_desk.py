"""The desk by its rules: leases, the cap, late work, order, exactly once, undo, escalation, gold."""

import pytest

from plaudit.collect.adding import add_tasks, adjudicate
from plaudit.collect.answering import (
    add_note,
    own_history,
    revise_answer,
    save_draft,
    skip_task,
    submit_answer,
    undo_answer,
)
from plaudit.collect.desk import Lease, Nothing, next_task
from plaudit.collect.progress import project_people, project_status, review_queue
from plaudit.collect.refusals import FieldError, KeyConflictError, NotFoundError, NotYoursError
from tests.collect.desks import Desk, MakeDesk, pair_body, statements_of


def test_a_task_goes_to_as_many_as_are_wanted_and_no_more(on_both: MakeDesk) -> None:
    desk = on_both(tasks=1, overlap=2)
    first, second, third = desk.people(3)
    # Two people may use the same key, and the second sees what the first saw in reverse.
    shown = desk.lease(first, "key").shown
    assert shown["prompt"] == "What is 0 + 0?"
    assert desk.lease(second, "key").shown["answers"] == shown["answers"][::-1]
    until = "2026-03-01T12:30:00.000000Z"
    assert desk.store.write(next_task, "p", third) == Nothing(reason="wait", until=until)


def test_a_lease_ends_by_the_clock_and_late_work_is_surplus(on_both: MakeDesk) -> None:
    desk = on_both(tasks=1)
    slow, quick = desk.people(2)
    late = desk.lease(slow)
    desk.clock.advance(minutes=31)
    desk.answer(quick)
    desk.submit(slow, late, "k", {"strength": 1})
    status = desk.store.read(project_status, "p")
    assert (status.labels, status.surplus, status.missing) == (1, 1, 0)


def test_late_work_takes_the_place_where_it_is_still_free(make_desk: MakeDesk) -> None:
    desk = make_desk(tasks=1)
    slow, other = desk.people(2)
    late = desk.lease(slow)
    desk.clock.advance(hours=3)
    desk.submit(slow, late, "k", {"strength": 1})
    assert desk.store.read(project_status, "p").labels == 1
    assert desk.store.write(next_task, "p", other) == Nothing(reason="done")


def test_a_draft_prolongs_its_lease(make_desk: MakeDesk) -> None:
    desk = make_desk(tasks=1)
    one, other = desk.people(2)
    lease = desk.lease(one)
    desk.clock.advance(minutes=20)
    until = desk.store.write(save_draft, "p", one, lease.assignment, {"strength": 1, "why": "so far"})
    assert until == "2026-03-01T12:50:00.000000Z"
    desk.clock.advance(minutes=20)
    assert desk.store.write(next_task, "p", other) == Nothing(reason="wait", until=until)
    again = desk.store.write(next_task, "p", one)
    assert isinstance(again, Lease)
    assert again.draft == {"strength": 1, "why": "so far"}


def test_the_same_words_under_the_same_key_give_the_first_receipt(desk: Desk) -> None:
    (one,) = desk.people(1)
    lease = desk.lease(one, "lease-key")
    assert desk.lease(one, "lease-key") == lease
    first = desk.submit(one, lease, "k", {"strength": 2})
    desk.clock.advance(days=3)
    assert desk.submit(one, lease, "k", {"strength": 2}) == first
    with pytest.raises(KeyConflictError):
        desk.submit(one, lease, "k", {"strength": -2})
    assert desk.store.read(project_status, "p").labels == 1


def test_divided_people_are_joined_by_more_up_to_the_limit_and_then_a_reviewer(on_both: MakeDesk) -> None:
    desk = on_both(tasks=1, overlap=2, most=3)
    one, two, three = desk.people(3)
    for person, better in ((one, True), (two, False)):
        lease = desk.lease(person)
        strength = desk.better(lease) * (1 if better else -1)
        desk.submit(person, lease, "k", {"strength": strength})
    assert desk.store.read(project_status, "p").missing == 1
    lease = desk.lease(three)
    desk.submit(three, lease, "k", {"strength": 0})
    assert desk.store.read(project_status, "p").tasks == {"review": 1}
    (waiting,) = desk.store.read(review_queue, "p")
    words = str({key: value for key, value in waiting.items() if key != "body"})
    assert not any(person in words for person in (one, two, three))
    desk.store.write(adjudicate, "p", waiting["id"], {"strength": -1}, reason="taste", actor="r1", key="k")
    assert desk.store.read(project_status, "p").tasks == {"adjudicated": 1}


def test_undo_opens_the_lease_again_and_revise_replaces(make_desk: MakeDesk) -> None:
    desk = make_desk(tasks=1)
    one, other = desk.people(2)
    lease = desk.answer(one)
    desk.store.write(undo_answer, "p", one, lease.assignment, "u")
    status = desk.store.read(project_status, "p")
    assert (status.labels, status.missing, status.leased) == (0, 1, 1)
    assert isinstance(desk.store.write(next_task, "p", other), Nothing)
    again = desk.store.write(next_task, "p", one)
    assert isinstance(again, Lease)
    assert again.assignment == lease.assignment
    desk.submit(one, lease, "second", {"strength": 3})
    desk.store.write(revise_answer, "p", one, lease.assignment, "r", {"strength": -3, "why": "looked again"})
    (label,) = desk.store.read(own_history, "p", one)
    assert label["label"]["strength"] == -3
    kinds = [event.kind for event in desk.store.events() if event.subject == lease.assignment]
    assert kinds == ["leased", "answered", "revised", "answered", "revised"]


def test_a_skipped_task_goes_to_somebody_else(make_desk: MakeDesk) -> None:
    desk = make_desk(tasks=1)
    one, other = desk.people(2)
    lease = desk.lease(one)
    with pytest.raises(FieldError, match="reason"):
        desk.store.write(skip_task, "p", one, lease.assignment, "s", "boring")
    desk.store.write(skip_task, "p", one, lease.assignment, "s", "unclear")
    assert desk.store.write(next_task, "p", one) == Nothing(reason="done")
    assert desk.lease(other).task == lease.task
    assert desk.store.read(project_status, "p").skipped == 1


def test_a_person_holds_eight_leases_at_most(make_desk: MakeDesk) -> None:
    desk = make_desk(tasks=12)
    (one,) = desk.people(1)
    leases = [desk.lease(one) for _ in range(10)]
    assert len({lease.assignment for lease in leases}) == 8


@pytest.mark.slow
def test_gold_comes_in_its_share_and_never_counts(make_desk: MakeDesk) -> None:
    desk = make_desk(tasks=150, gold_rows="gold.jsonl", gold_share=0.3)
    desk.add([pair_body(1000 + n, gold={"better": 0}) for n in range(100)])
    (one,) = desk.people(1)
    for _ in range(120):
        desk.answer(one)
    status = desk.store.read(project_status, "p")
    assert status.labels + status.items == 120
    assert 20 <= status.items <= 52


@pytest.mark.slow
def test_a_repeated_item_comes_after_fifty_answers_in_the_other_order(make_desk: MakeDesk) -> None:
    desk = make_desk(tasks=90, repeat=0.5)
    (one,) = desk.people(1)
    leases = [desk.answer(one) for _ in range(80)]
    first: dict[str, int] = {}
    repeats = []
    for number, lease in enumerate(leases):
        if lease.task in first:
            repeats.append((number - first[lease.task], lease, leases[first[lease.task]]))
        first.setdefault(lease.task, number)
    assert repeats
    assert all(gap >= 50 for gap, _, _ in repeats)
    assert all(lease.shown["answers"] == old.shown["answers"][::-1] for _, lease, old in repeats)
    assert desk.store.read(project_status, "p").items == len(repeats)


def test_whoever_qualifies_works_and_whoever_does_not_is_told(make_desk: MakeDesk) -> None:
    desk = make_desk(tasks=3, qualify_n=25, qualify_rows="first.jsonl")
    items = [pair_body(500 + n, gold={"better": 0}, qualify=True) for n in range(25)]
    desk.add(items)
    good, bad = desk.people(2)
    for person, sign in ((good, 1), (bad, -1)):
        for number in range(25):
            lease = desk.lease(person)
            strength = sign * desk.better(lease)
            desk.submit(person, lease, str(number), {"strength": strength})
    assert isinstance(desk.store.write(next_task, "p", good), Lease)
    assert desk.store.write(next_task, "p", bad) == Nothing(reason="failed")
    standings = {row["pseudonym"]: row["standing"] for row in desk.store.read(project_people, "p")}
    assert (standings[good], standings[bad]) == ("active", "failed")
    reasons = [event.body for event in desk.store.events() if event.kind == "standing-set"]
    assert all(body and "25 right" in body["reason"] for body in reasons)


def test_a_label_on_anothers_lease_is_refused(make_desk):
    desk = make_desk(tasks=1)
    one, other = desk.people(2)
    lease = desk.lease(one)
    before = desk.store.position()
    for use in (
        lambda: desk.store.write(submit_answer, "p", other, lease.assignment, "k", {"strength": 1}),
        lambda: desk.store.write(skip_task, "p", other, lease.assignment, "k", "unclear"),
        lambda: desk.store.write(undo_answer, "p", other, lease.assignment, "k"),
        lambda: desk.store.write(save_draft, "p", other, lease.assignment, {}),
        lambda: desk.store.write(add_note, "p", other, lease.assignment, "k", "?"),
    ):
        with pytest.raises(NotYoursError):
            use()
    assert desk.store.position() == before


def test_words_of_another_project_are_not_found(make_desk: MakeDesk) -> None:
    desk = make_desk()
    (one,) = desk.people(1)
    for use in (
        lambda: desk.store.write(next_task, "q", one),
        lambda: desk.store.read(project_status, "q"),
        lambda: desk.store.write(add_tasks, "q", [], actor="o1"),
        lambda: desk.store.write(next_task, "p", "a99"),
    ):
        with pytest.raises(NotFoundError):
            use()


def test_a_label_takes_few_statements(on_both: MakeDesk) -> None:
    desk = on_both(tasks=9, overlap=3)
    one, two = desk.people(2)
    desk.answer(two)
    said, engine = statements_of(desk.store), desk.store.database.engine
    lease = desk.lease(one)
    asked = len(said)
    desk.submit(one, lease, "k", {"strength": 1})
    # Each is a way to a server and back while nobody else can write; and each is planned there once.
    assert (asked, len(said) - asked) <= (11, 10), "\n".join(said)
    if engine.dialect.name == "postgresql":
        with engine.connect() as connection:
            desk.answer(one)
            kept = connection.exec_driver_sql("SELECT statement FROM pg_prepared_statements").scalars().all()
        assert len(kept) == len({*kept}) > 12
