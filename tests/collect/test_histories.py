"""Whatever happens at a desk, in any order: the cap, exactly once, both orders, and a log that tells all."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from plaudit.collect.adding import add_tasks, adjudicate, close_task, set_project
from plaudit.collect.answering import (
    add_note,
    revise_answer,
    save_draft,
    skip_task,
    submit_answer,
    undo_answer,
)
from plaudit.collect.desk import Lease, Nothing, next_task
from plaudit.collect.export import export
from plaudit.collect.log import Entry, Event
from plaudit.collect.people import set_standing
from plaudit.collect.privacy import erase_person
from plaudit.collect.progress import (
    project_people,
    project_status,
    project_tasks,
    rebuild_tables,
    store_faults,
)
from plaudit.collect.refusals import KeyConflictError, NotYoursError
from plaudit.collect.store import Receipt, Transaction
from plaudit.errors import UserError
from tests.collect.desks import Cluster, Desk, pair_body

PICKS = st.integers(0, 10_000)
STRENGTHS = st.integers(-3, 3)
LABELS = st.one_of(
    STRENGTHS.map(lambda strength: {"strength": strength}),
    STRENGTHS.map(lambda strength: {"strength": strength, "why": "my cousin wrote it"}),
    st.just({"none": True}),
)
ENDED_WORK = ("suspended", "failed", "erased")
Sent = tuple[Callable[[Any], Any], Any, Any]
"""How something was sent, with which words, and what came back."""


class History(RuleBasedStateMachine):
    """People, a reviewer and an owner at one store, with what each of them was told."""

    place: Callable[[Path], str | Path] = staticmethod(lambda folder: folder / "labels.db")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.people: list[str] = []
        self.leases: dict[str, tuple[str, str]] = {}
        self.answered: set[str] = set()
        self.sent: dict[str, Sent] = {}
        self.exports: list[tuple[int, bytes]] = []
        self.keys = 0

    @initialize(
        overlap=st.integers(1, 3),
        more=st.integers(0, 2),
        qualify=st.sampled_from((False, False, False, True)),
        repeat=st.booleans(),
        veteran=st.sampled_from((False, False, False, True)),
    )
    def begin(self, overlap: int, more: int, qualify: bool, repeat: bool, veteran: bool) -> None:
        self.desk = Desk(
            self.place(self.folder),
            tasks=3,
            overlap=overlap,
            most=overlap + more,
            gold_share=0.2,
            repeat=0.4 if repeat or veteran else 0.0,
            qualify_n=2 if qualify else 0,
            qualify_floor=0.1,
        )
        self.store = self.desk.store
        items = [pair_body(100 + n, gold={"better": 0}) for n in range(2)]
        first = [pair_body(200 + n, gold={"better": 1}, qualify=True) for n in range(3)]
        self.store.write(add_tasks, "p", [*items, *first], actor="o1")
        self.people = self.desk.people(3)
        if veteran:
            self.work_for_long(overlap)

    def work_for_long(self, overlap: int) -> None:
        """Enough answers of the first person that some of them are asked for once more."""
        self.store.write(set_project, replace(self.store.project("p"), repeat=0.0), actor="o1")
        self.store.write(add_tasks, "p", [pair_body(300 + n) for n in range(54)], actor="o1")
        for number in range(54):
            found = self.store.write(next_task, "p", self.people[0], f"long{number}")
            if isinstance(found, Lease):
                self.given(self.people[0], found)
                self.desk.submit(self.people[0], found, f"l{number}", {"strength": 1})
                self.answered.add(found.assignment)
        self.store.write(set_project, replace(self.store.project("p"), repeat=0.4), actor="o1")

    # What is known.

    def person(self, pick: int) -> str:
        return self.people[pick % len(self.people)]

    def lease(self, pick: int) -> tuple[str, str]:
        """An assignment that somebody was given, the newest ones the likeliest, and whose it is."""
        names = sorted(self.leases, key=lambda name: -int(name[1:]))[:12]
        name = names[pick % len(names)]
        return name, self.leases[name][0]

    def task(self, pick: int) -> dict[str, Any]:
        found = self.store.read(project_tasks, "p", limit=500)
        return found[pick % len(found)]

    def standing(self, person: str) -> str:
        people = self.store.read(project_people, "p")
        return next(row["standing"] for row in people if row["pseudonym"] == person)

    def key(self) -> str:
        self.keys += 1
        return f"k{self.keys}"

    def given(self, person: str, lease: Lease) -> None:
        assert self.leases.setdefault(lease.assignment, (person, lease.task)) == (person, lease.task)

    def send(self, person: str, words: Any, how: Callable[[Any, str], Receipt]) -> Receipt:
        """Send something under a fresh key, and remember what came back."""
        key = self.key()
        receipt = how(words, key)
        self.sent[f"{person}/{key}"] = (lambda again: how(again, key)), words, receipt
        return receipt

    # What annotators do.

    @rule(pick=PICKS, keyed=st.booleans())
    def next(self, pick: int, keyed: bool) -> None:
        self.take(self.person(pick), self.key() if keyed else None)

    def take(self, person: str, key: str | None) -> Lease | None:
        before = self.store.position()[0]
        found = self.store.write(next_task, "p", person, key)
        if isinstance(found, Nothing):
            assert (found.reason in ("suspended", "failed")) == (self.standing(person) in ENDED_WORK)
            return None
        self.given(person, found)
        new = [event for event in self.store.events(before) if event.kind in ("leased", "prolonged")]
        if new:
            self.check_place(found)
            assert key is None or self.store.write(next_task, "p", person, key) == found
        assert found.assignment not in self.answered
        return found

    def check_place(self, lease: Lease) -> None:
        """A place that was given was there to be given."""
        row = next(row for row in self.store.read(project_tasks, "p", limit=500) if row["id"] == lease.task)
        if row["purpose"] == "work" and row["state"] == "open":
            assert row["taken"] + row["done"] <= row["wanted"]

    @rule(label=LABELS, pick=PICKS)
    def everybody_works(self, label: dict[str, Any], pick: int) -> None:
        for number in range(len(self.people)):
            person = self.person(pick + number)
            lease = self.take(person, self.key())
            if lease is not None:
                self.answer(lease.assignment, person, label)

    @rule(pick=PICKS, label=LABELS, another=st.booleans(), asks=st.booleans())
    def vanish_and_come_back(self, pick: int, label: dict[str, Any], another: bool, asks: bool) -> None:
        """A lease ends by the clock; another may have the place; then it is asked for, or answered late."""
        person = self.person(pick)
        lease = self.take(person, self.key())
        self.desk.clock.advance(minutes=31)
        if another:
            self.take(self.person(pick + 1), self.key())
        if asks:
            self.take(person, None)
        if lease is not None and lease.assignment not in self.answered:
            self.answer(lease.assignment, person, label)

    @precondition(lambda self: self.leases)
    @rule(pick=PICKS, label=LABELS)
    def submit(self, pick: int, label: dict[str, Any]) -> None:
        name, person = self.lease(pick)
        if name in self.answered or self.standing(person) in ENDED_WORK:
            with pytest.raises(NotYoursError):
                self.store.write(submit_answer, "p", person, name, self.key(), label)
        else:
            self.answer(name, person, label)

    def answer(self, name: str, person: str, label: dict[str, Any]) -> None:
        def how(words: Any, key: str) -> Receipt:
            return self.store.write(submit_answer, "p", person, name, key, words)

        assert self.send(person, label, how).assignment == name
        self.answered.add(name)

    @precondition(lambda self: self.leases)
    @rule(pick=PICKS, other=PICKS)
    def send_on_anothers_lease(self, pick: int, other: int) -> None:
        name, person = self.lease(pick)
        if self.person(other) != person:
            before = self.store.position()
            with pytest.raises(NotYoursError):
                self.store.write(submit_answer, "p", self.person(other), name, self.key(), {"strength": 1})
            assert self.store.position() == before

    @precondition(lambda self: self.sent)
    @rule(pick=PICKS)
    def send_again(self, pick: int) -> None:
        """The same words under the same key, however late: the first receipt, and nothing is changed."""
        again, words, receipt = self.sent[sorted(self.sent)[pick % len(self.sent)]]
        before = self.store.position()
        assert again(words) == receipt
        assert self.store.position() == before

    @precondition(lambda self: self.sent)
    @rule(pick=PICKS)
    def send_other_words_under_a_key(self, pick: int) -> None:
        again, words, _ = self.sent[sorted(self.sent)[pick % len(self.sent)]]
        if isinstance(words, dict):
            before = self.store.position()
            with pytest.raises(KeyConflictError):
                again({"strength": 2, "why": "something else"})
            assert self.store.position() == before

    @precondition(lambda self: self.leases)
    @rule(pick=PICKS, what=st.sampled_from(("skip", "undo", "undo", "revise", "draft", "note")), label=LABELS)
    def think_again(self, pick: int, what: str, label: dict[str, Any]) -> None:
        name, person = self.lease(pick)
        own = ("p", person, name)
        if what == "note":
            self.send(person, "is it right?", lambda words, key: self.store.write(add_note, *own, key, words))
        elif what in ("skip", "draft") and name not in self.answered:
            if what == "draft":
                self.store.write(save_draft, *own, {"strength": 1, "why": "so far"})
            elif not self.was_skipped(name):
                self.send(person, "unclear", lambda words, key: self.store.write(skip_task, *own, key, words))
        elif name in self.answered and self.standing(person) not in ENDED_WORK:
            if what == "undo":
                self.send(person, name, partial(self.store.write, undo_answer, "p", person))
                self.answered.remove(name)
            elif what == "revise":
                self.send(person, label, lambda words, key: self.store.write(revise_answer, *own, key, words))

    def was_skipped(self, name: str) -> bool:
        own = [event for event in self.store.events() if event.subject == name]
        return own[-1].kind == "released" and own[-1].body != {"reason": "ended"}

    @rule(minutes=st.sampled_from((1, 16, 31, 31, 31, 600, -120)))
    def wait(self, minutes: int) -> None:
        """Time passes; at times somebody sets the clock back."""
        self.desk.clock.advance(minutes=minutes)

    # What reviewers, owners and judges do.

    @rule(
        pick=PICKS,
        how=st.sampled_from(("stand", "erase", "erase", "close", "decide", "judge", "add", "join")),
        n=PICKS,
    )
    def govern(self, pick: int, how: str, n: int) -> None:
        getattr(self, f"_{how}")(pick, n)

    def _join(self, pick: int, n: int) -> None:
        if len(self.people) < 4:
            self.people += self.desk.people(1)

    def _stand(self, pick: int, n: int) -> None:
        person = self.person(pick)
        if self.standing(person) != "qualifying":
            standing = ("suspended", "active", "watch")[n % 3]
            self.store.write(set_standing, "p", person, standing, reason="clicks left", actor="r1")

    def _erase(self, pick: int, n: int) -> None:
        if len(self.people) > 2:
            person = self.person(pick)
            erase_person(self.store, "p", person, actor="o1")
            self.people.remove(person)
            # Words that are gone cannot be compared with those of a repeated send.
            self.sent = {key: sent for key, sent in self.sent.items() if not key.startswith(f"{person}/")}

    def _close(self, pick: int, n: int) -> None:
        self.store.write(close_task, "p", self.task(pick)["id"], reason="broken", actor="o1")

    def _decide(self, pick: int, n: int) -> None:
        task, label = self.task(pick), {"strength": n % 7 - 3, "why": "my cousin wrote it"}
        if task["purpose"] == "work":
            by = partial(self.store.write, adjudicate, "p", task["id"], reason="taste", actor="r1")
            self.send("r1", label, lambda words, key: by(words, key=key))

    def _judge(self, pick: int, n: int) -> None:
        body = {"label": {"strength": n % 7 - 3}, "order": [0, 1], "wording": "v1"}
        wanted = self.task(pick)["id"]
        judged = Entry(project="p", actor="m@1", kind="judged", subject=wanted, body=body)
        self.store.write(Transaction.record, judged)

    def _add(self, pick: int, n: int) -> None:
        self.store.write(add_tasks, "p", [pair_body(pick % 9)], actor="o1")

    @rule(overlap=st.integers(1, 4), more=st.integers(0, 2))
    def change_overlap(self, overlap: int, more: int) -> None:
        project = replace(self.store.project("p"), overlap=overlap, most=overlap + more)
        self.store.write(set_project, project, actor="o1")

    @rule()
    def export(self) -> None:
        if self.store.read(project_status, "p").labels:
            rows = self.folder / "rows.jsonl"
            try:
                snapshot = export(self.store, "p", rows)
            except UserError as error:
                if "nothing of project p to export" not in str(error):
                    raise
                return
            self.exports.append((snapshot.seq, rows.read_bytes()))

    # What always holds.

    @invariant()
    def the_figures_add_up(self) -> None:
        if not hasattr(self, "desk"):
            return
        status, people = self.store.read(project_status, "p"), self.store.read(project_people, "p")
        assert sum(status.tasks.values()) == len(self.store.read(project_tasks, "p", limit=500))
        assert status.labels + status.missing == status.wanted
        assert status.labels + status.surplus + status.items == sum(row["labels"] for row in people)
        assert sum(status.people.values()) == len(people)
        assert status.leased == self.open_leases()

    def open_leases(self) -> int:
        """Leases of work that are open, counted one by one from the log."""
        work, still = set[str](), set[str]()
        for event in self.store.events():
            if event.kind == "leased" and event.body and event.body["purpose"] == "work":
                work.add(event.subject)
            is_undone = event.kind == "revised" and event.body and event.body["label"] is None
            if event.kind in ("leased", "prolonged") or (is_undone and not event.body["surplus"]):
                still.add(event.subject)
            elif event.kind in ("answered", "released"):
                still.discard(event.subject)
        return len(work & still)

    def teardown(self) -> None:
        try:
            if hasattr(self, "desk"):
                self.check_all()
                self.store.close()
        finally:
            shutil.rmtree(self.folder)

    def check_all(self) -> None:
        assert self.store.read(store_faults) == []
        events = list(self.store.events())
        check_orders(events)
        check_caps(events)
        check_keys(events, self.sent)
        assert "cousin" not in str([e for e in events if e.actor not in (*self.people, "r1")])
        for place, (seq, content) in enumerate(self.exports):
            rows = self.folder / f"again{place}.jsonl"
            assert export(self.store, "p", rows, position=seq).seq == seq
            assert rows.read_bytes() == content
        self.store.write(rebuild_tables)
        assert self.store.read(store_faults) == []


def check_orders(events: list[Event]) -> None:
    """Nobody is given a task twice but to repeat it, and each sees the reverse of what the one before saw."""
    leases: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for event in events:
        if event.kind == "leased":
            assert event.body is not None
            leases.setdefault(event.body["task"], []).append((event.actor, event.body))
    for given in leases.values():
        first = [person for person, body in given if body["purpose"] != "repeat"]
        again = [person for person, body in given if body["purpose"] == "repeat"]
        assert len({*first}) == len(first)
        assert len({*again}) == len(again)
        for (before, one), (after, other) in pairwise(given):
            if before != after and other["purpose"] != "repeat":
                assert other["order"] == one["order"][::-1]


def check_caps(events: list[Event]) -> None:
    """No label counts beyond what was wanted at most when it came; told by the log alone."""
    remains = {
        item["seq"]: item["body"]
        for event in events
        if event.kind == "erased" and event.body
        for item in event.body["remains"]
    }
    limit, tasks, counted = 0, dict[str, str](), dict[str, set[str]]()
    for event in events:
        body = event.body or remains.get(event.seq) or {}
        if event.kind == "project-set":
            limit = body["settings"]["most"]
        if event.kind == "leased" and body["purpose"] == "work":
            tasks[event.subject] = body["task"]
        if event.kind in ("answered", "revised") and event.subject in tasks:
            own = counted.setdefault(tasks[event.subject], set())
            own.discard(event.subject)
            if body["label"] is not None and not body["surplus"]:
                own.add(event.subject)
            assert event.kind == "revised" or body["surplus"] or len(own) <= limit


def check_keys(events: list[Event], sent: dict[str, Sent]) -> None:
    """Each acknowledged key is in the log once, where its receipt says."""
    seqs: dict[str, list[int]] = {}
    for event in events:
        if event.key is not None:
            seqs.setdefault(event.key, []).append(event.seq)
    for key, (_, _, receipt) in sent.items():
        assert seqs[key] == [receipt.receipt]


def run(machine: type[History], examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.slow
def test_any_long_history_keeps_the_rules() -> None:
    run(History, examples=200, steps=80)


@pytest.mark.slow
def test_any_history_on_a_server_keeps_the_rules(cluster: Cluster) -> None:
    class OnServer(History):
        place = staticmethod(lambda folder: cluster.database())

    run(OnServer, examples=6, steps=25)
