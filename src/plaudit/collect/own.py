"""What a person's own pages show: figures of the own work, a task taken up again, an answer to be changed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from statistics import median
from typing import Any

from sqlalchemy import bindparam, func, select

from plaudit.collect.desk import Lease, lease_of, left_for, own_assignment, person_row, task_of
from plaudit.collect.tables import assignment as assignment_table, label
from plaudit.collect.tasks import shown_task
from plaudit.collect.transaction import Transaction

_RECENT = 100
_OWN = (label.c.project == bindparam("p"), label.c.annotator == bindparam("n"))
_LABEL = select(label).where(*_OWN, label.c.assignment == bindparam("a"))
# A reviewer's decision has no lease, and could not be undone.
_NEWEST = (
    select(label.c.seconds, label.c.assignment)
    .where(*_OWN, label.c.purpose != "adjudicated")
    .order_by(label.c.number.desc(), label.c.seq.desc())
    .limit(_RECENT)
)

_HOLDING = select(func.count()).where(
    assignment_table.c.project == bindparam("p"),
    assignment_table.c.annotator == bindparam("n"),
    assignment_table.c.state == "open",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnProgress:
    """A person's own figures.

    Example: ``OwnProgress(answered=12, median_seconds=41.5, left=88, more=False, last="w17")``
    """

    answered: int
    """How many tasks were answered."""
    median_seconds: float | None
    """The median of the active seconds of the newest answers; None where none was timed."""
    left: int
    """How many tasks the person holds or could still be given."""
    more: bool
    """Whether there may be more than were counted."""
    last: str | None
    """The assignment of the newest answer, which can be undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAnswer:
    """An answer that holds, with the task as it was shown.

    Example: ``OwnAnswer(assignment="w7", shown={"kind": "pair"}, label={"strength": 1}, surplus=False, …)``
    """

    assignment: str
    """What it was given for."""
    shown: dict[str, Any]
    """What the person saw."""
    label: dict[str, Any]
    """What the person said."""
    surplus: bool
    """Whether it came too late to count."""
    guidelines: str
    """The version of the guidelines that it was given under."""


def own_progress(look: Transaction, name: str, person: str) -> OwnProgress:
    """A person's own figures."""
    row = person_row(look, name, person)
    newest = look.connection.execute(_NEWEST, {"p": name, "n": person}).all()
    seconds = [answer.seconds for answer in newest if answer.seconds is not None]
    left, more = left_for(look, name, person)
    holding = look.connection.execute(_HOLDING, {"p": name, "n": person}).scalar_one()
    return OwnProgress(
        answered=row.answered,
        median_seconds=median(seconds) if seconds else None,
        left=left + holding,
        more=more,
        last=newest[0].assignment if newest else None,
    )


def own_lease(look: Transaction, name: str, person: str, assignment: str) -> Lease | None:
    """A task that the person was given and has not answered; its time may be over."""
    row = own_assignment(look, name, person, assignment)
    return None if row.state == "answered" else lease_of(look, row)


def own_answer(look: Transaction, name: str, person: str, assignment: str) -> OwnAnswer | None:
    """The person's answer to a task that the person was given."""
    given = own_assignment(look, name, person, assignment)
    row = look.connection.execute(_LABEL, {"p": name, "n": person, "a": assignment}).first()
    if row is None:
        return None
    body = json.loads(task_of(look, name, given.task).body)
    return OwnAnswer(
        assignment=assignment,
        shown=shown_task(body, json.loads(row.shown), look.settings(name)),
        label=json.loads(row.label),
        surplus=bool(row.surplus),
        guidelines=row.guidelines,
    )


def own_preferences(look: Transaction, name: str, person: str) -> dict[str, list[str]]:
    """Which categories a person declined, which languages the person reads, and which areas they know."""
    found = json.loads(person_row(look, name, person).preferences)
    return {word: [*found.get(word, ())] for word in ("declined", "languages", "areas")}
