"""The desk gives work out: leases that end by the clock, a strict cap, and an order drawn for each."""

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Boolean, and_, bindparam, case, exists, func, or_, select

from plaudit.collect import assigning, log, views
from plaudit.collect.assigning import Annotator, Candidate, Purpose
from plaudit.collect.log import Entry, bound, same
from plaudit.collect.project import MOST_LEASE_MINUTES, Project, guidelines_version
from plaudit.collect.refusals import KeyConflictError, NotFoundError, NotYoursError, checked_text
from plaudit.collect.store import Transaction, ahead, later, parsed
from plaudit.collect.tables import (
    annotator,
    assignment,
    draft,
    has_place,
    is_item,
    is_open,
    label,
    project,
    task,
)
from plaudit.collect.tasks import shown_task
from plaudit.data.fields import shorten

MOST_OF_A_KEY = 200
MOST_COUNTED = 500
"""How far is looked ahead when what is left for a person is counted: a page must not read every task."""
_WINDOW = 64
_STARTED_WINDOW = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A task that is given to a person for some time."""

    assignment: str
    task: str
    """The task's id; not for annotators, since it is the same for all."""
    shown: dict[str, Any]
    """What the person sees, in the order that was drawn."""
    until: str
    """When somebody else may be given the place; an answer is taken later too."""
    draft: dict[str, Any] | None
    guidelines: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    reason: str
    """Done: nothing will come; wait: others hold the rest; suspended or failed: no work for this person."""
    until: str | None = None
    """When the first of the others' leases ends, where there is something to wait for."""


_OWN = select(assignment).where(bound(assignment, project="p", annotator="n"))
HOLDS = (bound(assignment, project="p", annotator="n"), assignment.c.state == "open")
_OWN_OPEN = select(assignment.c.id).where(*HOLDS).order_by(assignment.c.seq)
_OWN_ENDED = (
    _OWN.where(assignment.c.state == "ended", assignment.c.purpose == "work")
    .join(task, same(task, assignment, id="task"))
    # Only while the place is free: taken up again it must not exceed the cap.
    .where(has_place(task))
    .order_by(assignment.c.seq)
    .limit(1)
)
_OVER = (
    assignment.c.project == bindparam("p"),
    is_open(assignment),
    # Longer than any lease: it was given by a clock that was wrong.
    (assignment.c.until < bindparam("now")) | (assignment.c.until > bindparam("longest")),
)
_ENDED = select(assignment.c.id).where(*_OVER).order_by(assignment.c.until, assignment.c.seq).limit(100)
_mine = assignment.alias()
_OTHERS_UNTIL = select(func.min(assignment.c.until)).where(
    assignment.c.project == bindparam("p"),
    is_open(assignment),
    assignment.c.annotator != bindparam("n"),
    # Items have no places that somebody could wait for.
    assignment.c.purpose == "work",
    # What the person has done cannot come back, whoever else holds it.
    ~exists().where(
        bound(_mine, project="p", annotator="n"), _mine.c.task == assignment.c.task, _mine.c.state != "ended"
    ),
)
_COUNTED = (
    select(func.count())
    .where(same(label, task, task="id"))
    .where(label.c.surplus == 0, label.c.purpose == "work")
    .scalar_subquery()
)
SENT = bound(log.log, project="p", key="k")
JUDGED_BY = (
    task.c.body,
    task.c.state.label("task_state"),
    task.c.wanted,
    _COUNTED.label("counted"),
    annotator.c.standing,
    annotator.c.answered,
    log.log.c.seq.label("sent"),
)
"""What an answer is judged by: its task, its person, and the event of its key."""
_DRAFTED = (draft.c.assignment.label("drafted"), draft.c.label.label("draft"), draft.c.conversation)
# All that an answer, a page or a draft asks of an assignment, in one way to the server and back.
_ASSIGNMENT = (
    select(assignment, project.c.settings, *JUDGED_BY, *_DRAFTED)
    .join(task, same(task, assignment, id="task"))
    .join(project, project.c.name == assignment.c.project)
    .join(annotator, same(annotator, assignment, name="annotator"))
    .outerjoin(draft, draft.c.assignment == assignment.c.id)
    .outerjoin(log.log, SENT)
    .where(assignment.c.id == bindparam("a"))
)
_TASK = select(task).where(bound(task, project="p", id="t"))
_PERSON = select(annotator).where(bound(annotator, project="p", name="n"))
_COMING = (
    select(
        annotator,
        project.c.settings,
        exists().where(*_OVER).label("ended"),
        exists().where(*HOLDS).label("holds"),
        log.log.c.seq.label("sent"),
    )
    .join(project, project.c.name == annotator.c.project)
    .outerjoin(log.log, SENT)
    .where(bound(annotator, project="p", name="n"))
)
_LAST_ORDER = (
    select(assignment.c.shown)
    .where(bound(assignment, project="p", task="t"), assignment.c.annotator != bindparam("n"))
    .order_by(assignment.c.seq.desc())
    .limit(1)
)
_TO_GIVE = _TASK.add_columns(_LAST_ORDER.scalar_subquery().label("before"))


def _unseen(rows: Any) -> Any:
    # Not given to this person before, whatever came of it.
    return ~exists().where(bound(assignment, project="p", annotator="n"), assignment.c.task == rows.c.id)


def _visits(rows: Any) -> Any:
    # How many tasks of a prompt the person was given; not counted where nothing hangs on it.
    counted = select(func.count()).where(
        bound(assignment, project="p", annotator="n"), assignment.c.prompt == rows.c.prompt
    )
    return case((bindparam("any_prompt", type_=Boolean), 0), else_=counted.scalar_subquery())


def _readable(rows: Any) -> tuple[Any, ...]:
    # No category that the person declined, and a language that the person reads.
    return (
        or_(rows.c.category.is_(None), rows.c.category.not_in(bindparam("declined", expanding=True))),
        or_(
            bindparam("any_language", type_=Boolean),
            rows.c.language.is_(None),
            rows.c.language.in_(bindparam("languages", expanding=True)),
        ),
    )


def _suits(rows: Any) -> tuple[Any, ...]:
    # What `fits` asks for, said to the database: thousands that do not fit are not read one by one.
    return (
        _unseen(rows),
        rows.c.authors.not_like(bindparam("own")),
        *_readable(rows),
        _visits(rows) < bindparam("prompt_limit"),
    )


# What is looked for among open tasks, and what is read of those found: each column of 64 rows takes its time.
_CHOICE = tuple(column for column in task.c if column.name != "body")


def _read(rows: Any) -> Any:
    names = ("id", "started", "lacking", "priority", "category", "language", "authors")
    return select(*(rows.c[name] for name in names), _visits(rows).label("visits"))


_OPEN = (task.c.project == bindparam("p"), has_place(task))
_BY_URGENCY = (task.c.lacking.desc(), task.c.priority.desc(), task.c.scramble)


def _first_open(started: int, most: int) -> Any:
    choice = select(*_CHOICE).where(*_OPEN, task.c.started == started)
    return choice.order_by(*_BY_URGENCY).limit(most).subquery()


# A person who labelled ten thousand tasks would otherwise pass all of them by on the way to a new one.
_NEAR = _first_open(1, _STARTED_WINDOW)
_STARTED = (
    _read(_NEAR)
    .where(*_suits(_NEAR))
    .order_by(_NEAR.c.lacking.desc(), _NEAR.c.priority.desc(), _NEAR.c.scramble)
    .limit(_WINDOW)
)
_FRESH, _ALL_STARTED = (
    _read(task).where(*_OPEN, task.c.started == started, *_suits(task)).order_by(*_BY_URGENCY).limit(_WINDOW)
    for started in (0, 1)
)
_UNSEEN_STARTED = select(task.c.id).where(*_OPEN, task.c.started == 1, _unseen(task)).limit(1)
_SPECIAL = (
    _read(task)
    .where(bound(task, project="p", purpose="purpose"), is_item(task))
    # A closed item keeps its purpose, and is given to nobody.
    .where(task.c.state == "item", *_suits(task))
    .order_by(task.c.scramble)
    .limit(1_000)
)
_AHEAD = tuple(
    select(func.count(), func.count(case((and_(*_suits(rows)), 1)))).select_from(rows)
    for rows in (_first_open(started, MOST_COUNTED) for started in (0, 1))
)
_later_assignment = assignment.alias()
_REPEATABLE = (
    select(label.c.task, label.c.shown)
    .join(task, same(task, label, id="task"))
    .where(
        bound(label, project="p", annotator="n"),
        label.c.purpose == "work",
        label.c.number <= bindparam("newest"),
        task.c.state != "closed",
        *_readable(task),
        # Once only: whoever has met a repeat may remember what the answer to it was.
        ~exists().where(
            bound(_later_assignment, project="p", annotator="n"),
            _later_assignment.c.task == label.c.task,
            _later_assignment.c.purpose == "repeat",
        ),
    )
    .order_by(label.c.number, label.c.seq)
    .limit(1)
)


def next_task(change: Transaction, name: str, person: str, key: str | None = None) -> Lease | Nothing:
    """A lease for a person: the same one for the same key, an own open one without a key."""
    names = {"p": name, "n": person, "k": None if key is None else key_of(person, key), **_moments(change)}
    row = _somebody(change.connection.execute(_COMING, names).first(), name, person)
    views.remember_settings(change.connection, name, row.settings)
    if row.standing in ("suspended", "failed", "erased"):
        return Nothing(reason="suspended" if row.standing == "erased" else row.standing)
    # The key before the clock: a reply that was lost is given again, also when its lease has ended since.
    again = None if row.sent is None else log.by_seq(change.connection, row.sent)
    if again is not None:
        if again.kind not in ("leased", "prolonged"):
            raise KeyConflictError("this key was used before for something else; ask with a fresh one")
        return lease_of(change, own_assignment(change, name, person, again.subject))
    # Before own leases are read, or one that has ended would be given as if it held.
    if row.ended:
        release_ended(change, name)
    held = change.connection.execute(_OWN_OPEN, names).all() if row.holds else []
    # Each fresh key leases anew: without a limit one person could hold every task.
    full = held and (key is None or len(held) >= assigning.MOST_OPEN)
    result = (
        None if full else _new_lease(change, name, row, key) or _taken_up_again(change, name, person, key)
    )
    if result is not None:
        return result
    # Nothing new: whoever lost a reply, or came back, still holds what was given before.
    if held:
        return lease_of(change, own_assignment(change, name, person, held[0].id))
    until = change.connection.execute(_OTHERS_UNTIL, {"p": name, "n": person}).scalar_one()
    return Nothing(reason="done") if until is None else Nothing(reason="wait", until=until)


def left_for(change: Transaction, name: str, person: str) -> tuple[int, bool]:
    """How many tasks a person could still be given, and whether there may be more than were counted."""
    names = _names(name, _annotator(person_row(change, name, person)), change.settings(name))
    counted = [change.connection.execute(statement, names).one() for statement in _AHEAD]
    return sum(suited for _, suited in counted), any(looked >= MOST_COUNTED for looked, _ in counted)


def _taken_up_again(change: Transaction, name: str, person: str, key: str | None) -> Lease | None:
    # An own lease that ended while its place stayed free: whoever works alone may rest for an hour.
    ended = change.connection.execute(_OWN_ENDED, {"p": name, "n": person}).first()
    if ended is None:
        return None
    prolong(change, ended, key)
    return lease_of(change, own_assignment(change, name, person, ended.id))


def prolong(change: Transaction, row: Any, key: str | None = None) -> str:
    """Give a lease its whole time again; gives its new end."""
    until = later(change.now, minutes=change.settings(row.project).lease_minutes)
    own_key = None if key is None else key_of(row.annotator, key)
    named = {"project": row.project, "actor": row.annotator, "subject": row.id, "key": own_key}
    change.record(Entry(kind="prolonged", body={"until": until}, **named))
    return until


def person_row(change: Transaction, name: str, person: str) -> Any:
    return _somebody(change.connection.execute(_PERSON, {"p": name, "n": person}).first(), name, person)


def _somebody(row: Any, name: str, person: str) -> Any:
    if row is None:
        raise NotFoundError(f"{person} is nobody in project {name}")
    return row


def own_assignment(change: Transaction, name: str, person: str, wanted: str, key: str | None = None) -> Any:
    """An assignment, which must be the person's own, with its task, draft, and the event of a key."""
    names = {"a": wanted, "p": name, "k": key}
    row = change.connection.execute(_ASSIGNMENT, names).first() if _is_id(wanted) else None
    # One refusal for what is not there and for what is another's: neither says which of them it is.
    if row is None or row.project != name or row.annotator != person:
        raise NotYoursError("this task was not given to you", tried_in=name)
    views.remember_settings(change.connection, name, row.settings)
    views.remember_held(change.connection, row)
    return row


def task_of(change: Transaction, name: str, wanted: str) -> Any:
    row = change.connection.execute(_TASK, {"p": name, "t": wanted}).first() if _is_id(wanted) else None
    if row is None:
        raise NotFoundError(f"project {name} has no task {shorten(wanted)}")
    return row


def _is_id(word: str) -> bool:
    # Whether a word can be the id of anything: databases choke on a NUL or half a letter.
    return word.isascii() and word.isalnum()


def lease_of(change: Transaction, row: Any) -> Lease:
    return Lease(
        assignment=row.id,
        task=row.task,
        shown=shown_task(json.loads(row.body), json.loads(row.shown), change.settings(row.project)),
        until=row.until,
        draft=parsed(row.draft),
        guidelines=row.guidelines,
    )


def release_ended(change: Transaction, name: str) -> None:
    """Take back the places whose time is over: no timer runs, whoever asks for work pays for it."""
    # In parts: after a quiet night there may be thousands, and what is released is not found again.
    names = {"p": name, **_moments(change)}
    while ended := change.connection.execute(_ENDED, names).all():
        for row in ended:
            body = {"reason": "ended"}
            change.record(Entry(project=name, actor="plaudit", kind="released", subject=row.id, body=body))


def _moments(change: Transaction) -> dict[str, str]:
    return {"now": change.now, "longest": later(ahead(change.now), minutes=MOST_LEASE_MINUTES)}


def _new_lease(change: Transaction, name: str, row: Any, key: str | None) -> Lease | None:
    settings, person = change.settings(name), _annotator(row)
    for purpose in assigning.purposes(person, settings):
        result = _FINDERS[purpose](change, name, person, settings)
        if result is not None:
            wanted, order = result
            return _lease(change, person, wanted, purpose=purpose, order=order, key=key)
    return None


def is_through(look: Transaction, name: str, row: Any) -> bool:
    """Whether a person holds nothing and would be given nothing now, without giving anything."""
    if look.connection.execute(_OWN_OPEN, {"p": name, "n": row.name}).first() is not None:
        return False
    settings, person = look.settings(name), _annotator(row)
    return not any(
        _FINDERS[purpose](look, name, person, settings) for purpose in assigning.purposes(person, settings)
    )


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
    # Those of now: what the person reads while answering counts, whatever holds when the answer comes.
    guidelines = guidelines_version(settings)
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
    return Lease(
        assignment=event.subject,
        task=row.id,
        shown=shown_task(json.loads(row.body), order, settings),
        until=body["until"],
        draft=None,
        guidelines=guidelines,
    )


Found = tuple[Any, list[int]] | None
"""The row of a task and the order in which its answers are to be shown."""


def _find_work(change: Transaction, name: str, person: Annotator, settings: Project) -> Found:
    names = _names(name, person, settings)
    # Started tasks beyond the window come last: they are looked at only where nothing is fresh.
    for statement in (_STARTED, _FRESH, _ALL_STARTED):
        # Whoever is through asks again and again, and would have every row read each time.
        if statement is _ALL_STARTED and change.connection.execute(_UNSEEN_STARTED, names).first() is None:
            return None
        rows = {row.id: row for row in change.connection.execute(statement, names)}
        best = assigning.select_task([_candidate(row) for row in rows.values()], person, settings)
        if best is not None:
            return _with_order(change, name, best.task, person, settings)
    return None


def _names(name: str, person: Annotator, settings: Project) -> dict[str, Any]:
    limit = settings.prompt_limit
    return {
        "p": name,
        "n": person.name,
        # In its quotes, since the column is JSON: a1 is not to be found in a12.
        "own": f'%"{person.name}"%',
        "declined": person.declined,
        "languages": person.languages,
        "any_language": not person.languages,
        "any_prompt": limit is None,
        # Any number above 0: without a limit no visit is counted, and 0 is below it.
        "prompt_limit": 1 if limit is None else limit,
    }


def _candidate(row: Any) -> Candidate:
    return Candidate(
        task=row.id,
        started=bool(row.started),
        lacking=row.lacking,
        priority=row.priority,
        prompt_visits=row.visits,
        category=row.category,
        language=row.language,
        authors=tuple(json.loads(row.authors)),
    )


def _find_special(
    change: Transaction, name: str, person: Annotator, settings: Project, *, purpose: Purpose
) -> Found:
    rows = change.connection.execute(_SPECIAL, {**_names(name, person, settings), "purpose": purpose}).all()
    ids = [row.id for row in rows if assigning.fits(_candidate(row), person, settings)]
    if not ids:
        return None
    # Everybody meets the items in another order, so that answers to them are hard to pass on.
    chosen = min(ids, key=lambda wanted: assigning.uniform(settings.seed, person.name, wanted))
    return _with_order(change, name, chosen, person, settings)


def _find_repeat(change: Transaction, name: str, person: Annotator, settings: Project) -> Found:
    # Something that the person answered long ago, in the other order.
    answered = person_row(change, name, person.name).answered
    names = {**_names(name, person, settings), "newest": answered - assigning.REPEAT_AFTER}
    row = change.connection.execute(_REPEATABLE, names).first()
    return None if row is None else (task_of(change, name, row.task), [*reversed(json.loads(row.shown))])


_FINDERS: dict[Purpose, Any] = {
    "work": _find_work,
    "gold": partial(_find_special, purpose="gold"),
    "qualify": partial(_find_special, purpose="qualify"),
    "repeat": _find_repeat,
}


def _with_order(change: Transaction, name: str, wanted: str, person: Annotator, settings: Project) -> Found:
    # A chosen task, with the order in which this person sees its answers.
    row = change.connection.execute(_TO_GIVE, {"p": name, "t": wanted, "n": person.name}).one()
    count = len(json.loads(row.body).get("candidates", ()))
    return row, assigning.draw_order(count, parsed(row.before), settings.seed, person.name, wanted)


def key_of(person: str, key: str) -> str:
    """A key as the log holds it: of the person who sent it, so that two people's keys never meet."""
    return f"{person}/{checked_text('key', key, most=MOST_OF_A_KEY, empty=False)}"
