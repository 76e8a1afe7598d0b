"""Stores for tests: with a clock that is set by hand, in a file or in a PostgreSQL of the test's own."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import event

from plaudit.collect.adding import Added, add_tasks, set_project
from plaudit.collect.answering import submit_answer
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.people import join_project, make_invite
from plaudit.collect.project import Project
from plaudit.collect.store import LabelStore, Receipt, open_store
from tools.postgres import Cluster, postgres_programs

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Clock:
    """A clock that goes on only when it is told to."""

    now: datetime = field(default=NOON)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        self.now += timedelta(**duration)


def pair_body(number: int, **more: Any) -> dict[str, Any]:
    """A task of two answers, the first of them better."""
    return {
        "kind": "pair",
        "prompt": f"What is {number} + {number}?",
        "candidates": [
            {"text": text, "ended": True, "source": {"model": model}}
            for text, model in (
                (f"It is {2 * number}.", "secret-model-a"),
                (f"It is {2 * number + 1}, I think.", "secret-model-b"),
            )
        ],
        **more,
    }


class Desk:
    """A project with some tasks and people, and short words for what they do."""

    def __init__(
        self, where: str | Path, *, tasks: int | Sequence[dict[str, Any]] = 4, **settings: Any
    ) -> None:
        self.clock, self.is_damaged = Clock(), False
        self.store: LabelStore = open_store(where, clock=self.clock, create=True)
        self.store.write(set_project, Project(name="p", **settings), actor="o1")
        if tasks:
            self.add([pair_body(number) for number in range(tasks)] if isinstance(tasks, int) else tasks)

    def add(self, bodies: Sequence[dict[str, Any]]) -> Added:
        return self.store.write(add_tasks, "p", bodies, actor="o1")

    def people(self, count: int) -> list[str]:
        secret = self.store.write(make_invite, "p", uses=count, actor="o1")
        return [join_project(self.store, secret, f"person {number}").pseudonym for number in range(count)]

    def lease(self, person: str, key: str | None = None) -> Lease:
        found = self.store.write(next_task, "p", person, key or secrets.token_hex(4))
        assert isinstance(found, Lease), found
        return found

    def submit(self, person: str, lease: Lease, key: str, label: object, **more: Any) -> Receipt:
        return self.store.write(submit_answer, "p", person, lease.assignment, key, label, **more)

    def answer(self, person: str, strength: int = -1) -> Lease:
        lease = self.lease(person)
        self.submit(person, lease, secrets.token_hex(4), {"strength": strength})
        return lease

    def better(self, lease: Lease) -> int:
        """The strength that prefers the right answer, wherever it is shown."""
        return 2 if "I think" in lease.shown["answers"][0] else -2


def named(table: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """What `parametrize` wants of a table whose rows begin with their names."""
    return {"argvalues": [row[1:] for row in table], "ids": [row[0] for row in table]}


def statements_of(store: LabelStore) -> list[str]:
    """What is said to a store's database from now on."""
    said = list[str]()
    event.listen(store.database.engine, "before_cursor_execute", lambda *given: said.append(given[2]))
    return said


MakeDesk = Callable[..., Desk]
"""Makes desks that are closed when the test ends."""


def cluster() -> Iterator[Cluster]:
    programs = postgres_programs()
    assert programs is not None
    own = Cluster(programs)
    try:
        yield own
    finally:
        own.remove()
