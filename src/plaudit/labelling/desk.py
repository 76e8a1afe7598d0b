"""The desk gives work out: leases that end by the clock, a strict cap, and an order drawn for each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, exists, func, select

from plaudit.labelling import log
from plaudit.labelling.answers import reverse
from plaudit.labelling.assigning import (
    MOST_OPEN,
    REPEAT_AFTER,
    Annotator,
    Candidate,
    Purpose,
    draw_order,
    fits,
    purposes,
    select_task,
    uniform,
)
from plaudit.labelling.kinds import shown_task
from plaudit.labelling.log import Entry
from plaudit.labelling.project import Project
from plaudit.labelling.refusals import NotFoundError, NotYoursError
from plaudit.labelling.tables import annotator, assignment, draft, label, project, task
from plaudit.labelling.transaction import Transaction, later, parsed

_WINDOW = 64
_STARTED_WINDOW = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A task that is given to a person for some time.

    Example: ``Lease(assignment="w7", task="t5c…", shown={"kind": "pair"}, until="2026-03-01T12:30:00Z", …)``
    """

    assignment: str
    """What the answer is sent for."""
    task: str
    """The task's id; not for annotators, since it is the same for all."""
    shown: dict[str, Any]
    """What the person sees, in the order that was drawn."""
    until: str
    """When somebody else may be given the place; an answer is taken later too."""
    draft: dict[str, Any] | None
    """What the person had filled in."""
    guidelines: str
    """The version of the guidelines that the answer is given under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """There is no task for a person now.

    Example: ``Nothing(reason="wait", until="2026-03-01T12:30:00.000000Z")``
    """

    reason: str
    """Done: nothing will come; wait: others hold the rest; suspended or failed: no work for this person."""
    until: str | None = None
    """When the first of the others' leases ends, where there is something to wait for."""


_OWN_OPEN = (
    select(assignment)
    .where(
        assignment.c.project == bindparam("p"),
        assignment.c.annotator == bindparam("n"),
        assignment.c.state == "open",
    )
    .order_by(assignment.c.seq)
)
_ENDED = (
    select(assignment.c.id)
    .where(
        assignment.c.project == bindparam("p"),
        assignment.c.state == "open",
        assignment.c.until < bindparam("now"),
    )
    .order_by(assignment.c.until, assignment.c.seq)
    .limit(100)
)
_OTHERS_UNTIL = select(func.min(assignment.c.until)).where(
    assignment.c.project == bindparam("p"),
    assignment.c.state == "open",
    assignment.c.annotator != bindparam("n"),
    assignment.c.purpose == "work",
)
_ASSIGNMENT = select(assignment).where(assignment.c.id == bindparam("a"))
_TASK = select(task).where(task.c.project == bindparam("p"), task.c.id == bindparam("t"))
_PERSON = select(annotator).where(annotator.c.project == bindparam("p"), annotator.c.name == bindparam("n"))
_GUIDELINES = select(project.c.guidelines).where(project.c.name == bindparam("p"))
_DRAFT = select(draft).where(draft.c.assignment == bindparam("a"))
_LAST_ORDER = (
    select(assignment.c.shown)
    .where(
        assignment.c.project == bindparam("p"),
        assignment.c.task == bindparam("t"),
        assignment.c.annotator != bindparam("n"),
    )
    .order_by(assignment.c.seq.desc())
    .limit(1)
)


def _unseen(rows: Any) -> Any:
    """Not given to this person before, whatever came of it."""
    return ~exists().where(
        assignment.c.project == bindparam("p"),
        assignment.c.annotator == bindparam("n"),
        assignment.c.task == rows.c.id,
    )


_OPEN = (task.c.project == bindparam("p"), task.c.state == "open", task.c.lacking > 0)
_BY_URGENCY = (task.c.lacking.desc(), task.c.priority.desc(), task.c.scramble)
# A person who labelled ten thousand tasks would otherwise pass all of them by on the way to a new one.
_STARTED_FIRST = select(task).where(*_OPEN, task.c.started == 1).order_by(*_BY_URGENCY).limit(_STARTED_WINDOW)
_NEAR = _STARTED_FIRST.subquery()
_STARTED = (
    select(_NEAR)
    .where(_unseen(_NEAR))
    .order_by(_NEAR.c.lacking.desc(), _NEAR.c.priority.desc(), _NEAR.c.scramble)
    .limit(_WINDOW)
    .offset(bindparam("skip"))
)
_FRESH, _ALL_STARTED = (
    select(task)
    .where(*_OPEN, task.c.started == started, _unseen(task))
    .order_by(*_BY_URGENCY)
    .limit(_WINDOW)
    .offset(bindparam("skip"))
    for started in (0, 1)
)
_PROMPT_VISITS = select(func.count()).where(
    assignment.c.project == bindparam("p"),
    assignment.c.annotator == bindparam("n"),
    assignment.c.prompt == bindparam("prompt"),
)
_SPECIAL = (
    select(task)
    .where(task.c.project == bindparam("p"), task.c.purpose == bindparam("purpose"), _unseen(task))
    .where(task.c.state == "item")
    .order_by(task.c.scramble)
    .limit(1_000)
)
_later_assignment = assignment.alias()
_REPEATABLE = (
    select(label.c.task, label.c.shown)
    .where(
        label.c.project == bindparam("p"),
        label.c.annotator == bindparam("n"),
        label.c.purpose == "work",
        label.c.number <= bindparam("newest"),
        ~exists().where(
            _later_assignment.c.project == bindparam("p"),
            _later_assignment.c.annotator == bindparam("n"),
            _later_assignment.c.task == label.c.task,
            _later_assignment.c.purpose == "repeat",
        ),
    )
    .order_by(label.c.number)
    .limit(_WINDOW)
)


def next_task(change: Transaction, name: str, person: str, key: str | None = None) -> Lease | Nothing:
    """A lease for a person: the same one for the same key, an own open one without a key."""
    row = person_row(change, name, person)
    if row.standing in ("suspended", "failed", "erased"):
        return Nothing(reason="suspended" if row.standing == "erased" else row.standing)
    again = None if key is None else log.by_key(change.connection, name, key_of(person, key))
    if again is not None:
        return lease_of(change, own_assignment(change, name, person, again.subject))
    release_ended(change, name)
    held = change.connection.execute(_OWN_OPEN, {"p": name, "n": person}).all()
    if held and (key is None or len(held) >= MOST_OPEN):
        return lease_of(change, held[0])
    return _new_lease(change, name, row, key)


def person_row(change: Transaction, name: str, person: str) -> Any:
    """The row of an annotator."""
    row = change.connection.execute(_PERSON, {"p": name, "n": person}).first()
    if row is None:
        raise NotFoundError(f"{person} is nobody in project {name}")
    return row


def own_assignment(change: Transaction, name: str, person: str, wanted: str) -> Any:
    """The row of an assignment, which must be the person's own."""
    row = change.connection.execute(_ASSIGNMENT, {"a": wanted}).first()
    # One refusal for what is not there and for what is another's: neither says which of them it is.
    if row is None or row.project != name or row.annotator != person:
        raise NotYoursError("this task was not given to you")
    return row


def task_of(change: Transaction, name: str, wanted: str) -> Any:
    """The row of a task."""
    row = change.connection.execute(_TASK, {"p": name, "t": wanted}).first()
    if row is None:
        raise NotFoundError(f"project {name} has no task {wanted}")
    return row


def lease_of(change: Transaction, row: Any) -> Lease:
    """What a person sees of an assignment."""
    settings = change.settings(row.project)
    body = json.loads(task_of(change, row.project, row.task).body)
    saved = change.connection.execute(_DRAFT, {"a": row.id}).first()
    return Lease(
        assignment=row.id,
        task=row.task,
        shown=shown_task(body, json.loads(row.shown), settings),
        until=row.until,
        draft=None if saved is None else parsed(saved.label),
        guidelines=row.guidelines,
    )


def release_ended(change: Transaction, name: str) -> None:
    """Take back the places whose time is over: no timer runs, whoever asks for work pays for it."""
    while True:
        ended = change.connection.execute(_ENDED, {"p": name, "now": change.now}).all()
        for row in ended:
            body = {"reason": "ended"}
            change.record(Entry(project=name, actor="plaudit", kind="released", subject=row.id, body=body))
        if not ended:
            return


def _new_lease(change: Transaction, name: str, row: Any, key: str | None) -> Lease | Nothing:
    settings, person = change.settings(name), _annotator(row)
    for purpose in purposes(person, settings):
        found = _FINDERS[purpose](change, name, person, settings)
        if found is not None:
            wanted, order = found
            return _lease(change, person, wanted, purpose=purpose, order=order, key=key)
    if person.standing == "qualifying":
        return Nothing(reason="failed")
    until = change.connection.execute(_OTHERS_UNTIL, {"p": name, "n": person.name}).scalar_one()
    return Nothing(reason="done") if until is None else Nothing(reason="wait", until=until)


def _annotator(row: Any) -> Annotator:
    preferences = json.loads(row.preferences)
    return Annotator(
        name=row.name,
        standing=row.standing,
        assigned=row.assigned,
        declined=tuple(preferences.get("declined", ())),
        languages=tuple(preferences.get("languages", ())),
    )


def _lease(
    change: Transaction, person: Annotator, row: Any, *, purpose: Purpose, order: list[int], key: str | None
) -> Lease:
    settings = change.settings(row.project)
    guidelines = change.connection.execute(_GUIDELINES, {"p": row.project}).scalar_one()
    body = {
        "task": row.id,
        "prompt": row.prompt,
        "purpose": purpose,
        "order": order,
        "guidelines": guidelines,
        "until": later(change.now, minutes=settings.lease_minutes),
    }
    event = change.record(
        Entry(
            project=row.project,
            actor=person.name,
            kind="leased",
            subject="w{seq}",
            body=body,
            key=None if key is None else key_of(person.name, key),
        )
    )
    return lease_of(change, own_assignment(change, row.project, person.name, event.subject))


Found = tuple[Any, list[int]] | None
"""The row of a task and the order in which its answers are to be shown."""


def _find_work(change: Transaction, name: str, person: Annotator, settings: Project) -> Found:
    for candidates in _windows(change, name, person):
        rows = {row.id: row for row in candidates}
        best = select_task(
            [_candidate(change, row, person, settings) for row in candidates], person, settings
        )
        if best is not None:
            row = rows[best.task]
            return row, _order(change, row, person, settings)
    return None


def _windows(change: Transaction, name: str, person: Annotator) -> Iterator[Sequence[Any]]:
    """Tasks with a free place that the person was not given yet, most urgent first, some at a time."""
    for statement in (_STARTED, _FRESH, _ALL_STARTED):
        skip = 0
        while rows := change.connection.execute(statement, {"p": name, "n": person.name, "skip": skip}).all():
            yield rows
            skip += len(rows)


def _candidate(change: Transaction, row: Any, person: Annotator, settings: Project) -> Candidate:
    visits = 0
    if settings.prompt_limit is not None:
        names = {"p": row.project, "n": person.name, "prompt": row.prompt}
        visits = change.connection.execute(_PROMPT_VISITS, names).scalar_one()
    return Candidate(
        task=row.id,
        started=bool(row.started),
        lacking=row.lacking,
        priority=row.priority,
        prompt_visits=visits,
        category=row.category,
        language=row.language,
        author=row.author,
    )


def _find_special(purpose: Purpose) -> Any:
    def find(change: Transaction, name: str, person: Annotator, settings: Project) -> Found:
        names = {"p": name, "n": person.name, "purpose": purpose}
        rows = [
            row
            for row in change.connection.execute(_SPECIAL, names)
            if fits(_candidate(change, row, person, settings), person, settings)
        ]
        if not rows:
            return None
        row = min(rows, key=lambda row: uniform(settings.seed, person.name, row.id))
        return row, _order(change, row, person, settings)

    return find


def _find_repeat(change: Transaction, name: str, person: Annotator, settings: Project) -> Found:
    """Something that the person answered long ago, in the other order."""
    del settings
    answered = person_row(change, name, person.name).answered
    names = {"p": name, "n": person.name, "newest": answered - REPEAT_AFTER}
    row = change.connection.execute(_REPEATABLE, names).first()
    return None if row is None else (task_of(change, name, row.task), reverse(json.loads(row.shown)))


_FINDERS: dict[Purpose, Any] = {
    "work": _find_work,
    "gold": _find_special("gold"),
    "qualify": _find_special("qualify"),
    "repeat": _find_repeat,
}


def _order(change: Transaction, row: Any, person: Annotator, settings: Project) -> list[int]:
    names = {"p": row.project, "t": row.id, "n": person.name}
    before = change.connection.execute(_LAST_ORDER, names).scalar_one_or_none()
    count = len(json.loads(row.body).get("candidates", ()))
    return draw_order(count, parsed(before), settings.seed, person.name, row.id)


def key_of(person: str, key: str) -> str:
    """A key as the log holds it: of the person who sent it, so that two people's keys never meet."""
    return f"{person}/{key}"
