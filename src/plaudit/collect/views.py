"""The folds: what each event does to the tables. The desk applies them as it writes, a replay one by one.

After any history the folds equal a replay of the log, so a new version of plaudit that wants other tables
makes them anew from the log, and no table is ever migrated.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from plaudit.collect import log, tables
from plaudit.collect.answers import side
from plaudit.collect.log import Event, bound, canonical, same
from plaudit.collect.project import Project, guidelines_version, project_from_dict

VIEWS_VERSION = 5
"""Raised whenever a fold changes: stores of an older number are replayed when they are opened."""

_project, _task, _assignment = tables.project, tables.task, tables.assignment
_label, _annotator = tables.label, tables.annotator

_PROJECT_OUT = delete(_project).where(_project.c.name == bindparam("p"))
_PROJECT_IN = insert(_project)
_PROJECT = select(_project.c.settings).where(_project.c.name == bindparam("p"))
_TASK_IN = insert(_task)
_WORK = select(_task.c.id).where(_task.c.project == bindparam("p"), _task.c.purpose == "work")
_COUNTS = ("state", "wanted", "taken", "done", "started", "lacking")
_TASK_SET = (
    update(_task)
    .where(bound(_task, project="p", id="t"))
    .values({name: bindparam(f"new_{name}") for name in _COUNTS})
)
_TASK_CLOSE = update(_task).where(bound(_task, project="p", id="t")).values(state=bindparam("new_state"))
_ASSIGNMENT_IN = insert(_assignment)
_ASSIGNMENT_SET = (
    update(_assignment)
    .where(_assignment.c.id == bindparam("a"))
    .values(state=bindparam("new_state"), until=bindparam("new_until"))
)
_OPEN_LEASES = (
    select(func.count())
    .where(
        bound(_assignment, project="p", task="t"),
        _assignment.c.state == "open",
        # A repeat is a lease on a task of work too, and takes none of its places.
        _assignment.c.purpose == "work",
    )
    .scalar_subquery()
)
_LABEL_IN = insert(_label)
_UNASSIGNED = {"judged": "j", "adjudicated": "r"}
_LABEL_OUT = delete(_label).where(_label.c.assignment == bindparam("a"))
_LABEL_BY_SEQ_OUT = delete(_label).where(_label.c.seq == bindparam("s"))
_DECISIONS_OUT = delete(_label).where(bound(_label, project="p", task="t"), _label.c.purpose == "adjudicated")
_COUNTED = (
    select(_task.c.state, _OPEN_LEASES.label("leases"), _label.c.label, _label.c.shown)
    .outerjoin(
        _label, same(_label, _task, task="id") & (_label.c.surplus == 0) & (_label.c.purpose == "work")
    )
    .where(bound(_task, project="p", id="t"))
    .order_by(_label.c.seq)
)
_PERSON_IN = insert(_annotator)
_COUNT = {
    name: update(_annotator)
    .where(bound(_annotator, project="p", name="n"))
    .values({name: _annotator.c[name] + 1})
    for name in ("assigned", "answered", "skipped")
}
_ANSWERED = (
    select(_annotator.c.answered).where(same(_annotator, _assignment, name="annotator")).scalar_subquery()
)
_HELD = select(_assignment, _ANSWERED.label("answered")).where(_assignment.c.id == bindparam("a"))
_PERSON_SET = {
    name: update(_annotator)
    .where(bound(_annotator, project="p", name="n"))
    .values({name: bindparam("value")})
    for name in ("standing", "preferences", "excluded", "guidelines")
}


def apply(connection: Connection, event: Event) -> None:
    """What an event does to the folds; events that only the log remembers do nothing."""
    change = CHANGES.get(event.kind)
    if change is not None:
        change(connection, event)
    # It may be of before this event.
    log.cache_of(connection).pop("held", None)


def remember_held(connection: Connection, row: Any) -> None:
    """An assignment with its person's count of answers, which the next event need not read again."""
    log.cache_of(connection)["held"] = row


def _held(connection: Connection, name: str) -> Any:
    row = log.cache_of(connection).get("held")
    return row if row is not None and row.id == name else connection.execute(_HELD, {"a": name}).one()


def rebuild(connection: Connection, events: Iterable[Event]) -> None:
    for table in tables.FOLDS:
        connection.execute(delete(table))
    for event in events:
        apply(connection, event)


def _body(event: Event) -> dict[str, Any]:
    # Only answers, decisions, notes and preferences are ever erased; their folds look for None first.
    assert event.body is not None, f"event {event.seq} has no body"
    return event.body


def _project_set(connection: Connection, event: Event) -> None:
    # Before the row goes: whether tasks are counted anew hangs on what held until now.
    settings, before = _body(event)["settings"], settings_of(connection, event.project)
    now = project_from_dict(settings)
    version = guidelines_version(now)
    connection.execute(_PROJECT_OUT, {"p": event.project})
    # At once: the tasks below are settled by the new settings.
    log.cache_of(connection)["settings", event.project] = now
    connection.execute(
        _PROJECT_IN,
        {"name": event.project, "settings": canonical(settings), "guidelines": version, "seq": event.seq},
    )
    # Nothing else of the settings changes what a task wants, and counting every task anew takes its time.
    if before is not None and (before.overlap, before.limit) != (now.overlap, now.limit):
        # Read to its end first, as settling writes to the table that is read here.
        for row in connection.execute(_WORK, {"p": event.project}).all():
            settle(connection, event.project, row.id)


def settings_of(connection: Connection, name: str) -> Project | None:
    """The settings of a project that hold now; None where there is none of that name."""
    cache = log.cache_of(connection)
    if ("settings", name) not in cache:
        row = connection.execute(_PROJECT, {"p": name}).first()
        cache["settings", name] = None if row is None else _parsed_settings(row.settings)
    return cache["settings", name]


def remember_settings(connection: Connection, name: str, text: str) -> None:
    log.cache_of(connection)["settings", name] = _parsed_settings(text)


# By the text and not by the project's name: settings that were changed are never found here again.
@lru_cache(maxsize=256)
def _parsed_settings(text: str) -> Project:
    return project_from_dict(json.loads(text))


def task_row(event: Event, overlap: int) -> dict[str, Any]:
    body = _body(event)
    # What qualifies people has a known answer too, so that is looked at first.
    purpose = "qualify" if body.get("qualify") else "gold" if body.get("gold") is not None else "work"
    wanted = overlap if purpose == "work" else 0
    sources = [candidate.get("source") or {} for candidate in body.get("candidates", ())]
    # Of another project the same pseudonym is somebody else.
    own = [source for source in sources if source.get("project", event.project) == event.project]
    return {
        "project": event.project,
        "id": event.subject,
        "seq": event.seq,
        "purpose": purpose,
        "prompt": prompt_key(body),
        "authors": canonical(sorted({str(source["annotator"]) for source in own if "annotator" in source})),
        "category": body.get("category"),
        "language": body.get("language"),
        "priority": float(body.get("priority", 0)),
        # An order that nobody chose, the same in every replay: the order of a file plays no part.
        "scramble": log.digest([event.project, event.subject])[:16],
        "state": "open" if purpose == "work" else "item",
        "wanted": wanted,
        **dict.fromkeys(("taken", "done", "started"), 0),
        "lacking": wanted,
        "body": canonical(body),
    }


def prompt_key(body: Mapping[str, Any]) -> str:
    """By what tasks of one prompt are found."""
    return log.digest(body["prompt"])[:16]


def _task_added(connection: Connection, event: Event) -> None:
    settings = settings_of(connection, event.project)
    assert settings is not None, f"event {event.seq}: a task of no project"
    connection.execute(_TASK_IN, task_row(event, settings.overlap))


def add_task_rows(connection: Connection, events: Sequence[Event], overlap: int) -> None:
    """The rows of many tasks at once: as `apply` of each, in one statement."""
    connection.execute(_TASK_IN, [task_row(event, overlap) for event in events])


def _task_closed(connection: Connection, event: Event) -> None:
    # Closed first: settling reads the state, and a closed task wants no more than it has.
    connection.execute(_TASK_CLOSE, {"p": event.project, "t": event.subject, "new_state": "closed"})
    settle(connection, event.project, event.subject)


def _task_opened(connection: Connection, event: Event) -> None:
    connection.execute(_TASK_CLOSE, {"p": event.project, "t": event.subject, "new_state": "open"})
    settle(connection, event.project, event.subject)


def _leased(connection: Connection, event: Event) -> None:
    row = _lease_row(event, "open")
    connection.execute(_ASSIGNMENT_IN, row)
    connection.execute(_COUNT["assigned"], {"p": event.project, "n": event.actor})
    settle(connection, event.project, row["task"])


def add_answered(connection: Connection, leased: Event, answered: Event, number: int) -> None:
    """A lease that was answered at once: as `apply` of both, with its task settled once."""
    row = _lease_row(leased, "answered")
    connection.execute(_ASSIGNMENT_IN, row)
    for count in ("assigned", "answered"):
        connection.execute(_COUNT[count], {"p": leased.project, "n": leased.actor})
    _put_label(connection, answered, SimpleNamespace(**row), number)
    settle(connection, leased.project, row["task"])


def _lease_row(event: Event, state: str) -> dict[str, Any]:
    body = _body(event)
    return {
        "id": event.subject,
        "seq": event.seq,
        "project": event.project,
        "annotator": event.actor,
        "shown": canonical(body["order"]),
        **{name: body[name] for name in ("task", "prompt", "purpose", "guidelines", "until")},
        "state": state,
    }


def _released(connection: Connection, event: Event) -> None:
    body = _body(event)
    # No reason that a person may give is this word: only the clock ends a lease.
    skipped = body["reason"] != "ended"
    state = "skipped" if skipped else "ended"
    held = _held(connection, event.subject)
    connection.execute(_ASSIGNMENT_SET, {"a": event.subject, "new_state": state, "new_until": held.until})
    if skipped:
        connection.execute(_COUNT["skipped"], {"p": event.project, "n": held.annotator})
    settle(connection, event.project, held.task)


def _prolonged(connection: Connection, event: Event) -> None:
    # A lease goes on, or one that had ended is taken up again.
    held = _held(connection, event.subject)
    connection.execute(
        _ASSIGNMENT_SET, {"a": event.subject, "new_state": "open", "new_until": _body(event)["until"]}
    )
    settle(connection, event.project, held.task)


def _answered(connection: Connection, event: Event) -> None:
    held = _held(connection, event.subject)
    connection.execute(
        _ASSIGNMENT_SET, {"a": event.subject, "new_state": "answered", "new_until": held.until}
    )
    connection.execute(_COUNT["answered"], {"p": event.project, "n": held.annotator})
    # Of an erased answer in words nothing is left; the lease stays answered, and the person's count too.
    if event.body is not None:
        _put_label(connection, event, held, held.answered + 1)
    settle(connection, event.project, held.task)


def _put_label(connection: Connection, event: Event, held: Any, number: int) -> None:
    body = _body(event)
    row = {
        "seq": event.seq,
        "at": event.at,
        "project": event.project,
        "task": held.task,
        "assignment": held.id,
        "annotator": held.annotator,
        "author": event.actor,
        "purpose": held.purpose,
        "shown": held.shown,
        "label": canonical(body["label"]),
        "guidelines": held.guidelines,
        "seconds": body.get("seconds"),
        "pasted": body.get("pasted"),
        "surplus": int(body.get("surplus", False)),
        "number": number,
    }
    connection.execute(_LABEL_IN, row)


def _revised(connection: Connection, event: Event) -> None:
    # Another label in place of the old, or none: then the lease is open again.
    held = _held(connection, event.subject)
    connection.execute(_LABEL_OUT, {"a": event.subject})
    if event.body is not None and event.body["label"] is not None:
        # The number of the answer that it replaces: a correction is not one answer more.
        _put_label(connection, event, held, event.body["number"])
    if event.body is not None and event.body["label"] is None:
        # What came too late had no place, so there is none to come back to: others may hold them all.
        state, until = ("ended", held.until) if event.body["surplus"] else ("open", event.body["until"])
        connection.execute(_ASSIGNMENT_SET, {"a": event.subject, "new_state": state, "new_until": until})
    settle(connection, event.project, held.task)


def _judged(connection: Connection, event: Event) -> None:
    # A label of a model or program: it takes no place and is never mixed with people's.
    _put_unassigned(connection, event, "judged", guidelines=_body(event).get("wording", ""))


def _adjudicated(connection: Connection, event: Event) -> None:
    # A reviewer's decision is a label of its own, and settles the task; a later one takes its place.
    names = {"p": event.project, "t": event.subject}
    connection.execute(_DECISIONS_OUT, names)
    if event.body is not None:
        _put_unassigned(connection, event, "adjudicated", guidelines=event.body["guidelines"])
    connection.execute(_TASK_CLOSE, {**names, "new_state": "adjudicated"})
    settle(connection, event.project, event.subject)


def _put_unassigned(connection: Connection, event: Event, purpose: str, *, guidelines: str) -> None:
    # Nobody was given a lease, and a label needs a name by which it is told from others.
    held = SimpleNamespace(
        id=f"{_UNASSIGNED[purpose]}{event.seq}",
        task=event.subject,
        annotator=event.actor,
        purpose=purpose,
        shown=canonical(_body(event)["order"]),
        guidelines=guidelines,
    )
    _put_label(connection, event, held, 0)


def _joined(connection: Connection, event: Event) -> None:
    body = _body(event)
    connection.execute(
        _PERSON_IN,
        {
            "project": event.project,
            "name": event.subject,
            "role": body["role"],
            "standing": body["standing"],
            **dict.fromkeys(("excluded", "assigned", "answered", "skipped"), 0),
            "preferences": "{}",
            "guidelines": "",
            "seq": event.seq,
        },
    )


def _standing_set(connection: Connection, event: Event) -> None:
    value = _body(event)["standing"]
    _set_of_person(connection, event, "standing", value)
    # Being erased is no standing that is set, so whoever was excluded before it stays excluded.
    _set_of_person(connection, event, "excluded", int(value in ("suspended", "failed")))


def _set_of_person(connection: Connection, event: Event, name: str, value: object) -> None:
    connection.execute(_PERSON_SET[name], {"p": event.project, "n": event.subject, "value": value})


def _preferences_set(connection: Connection, event: Event) -> None:
    preferences = {} if event.body is None else event.body["preferences"]
    _set_of_person(connection, event, "preferences", canonical(preferences))


def _guidelines_read(connection: Connection, event: Event) -> None:
    _set_of_person(connection, event, "guidelines", _body(event)["version"])


def _erased(connection: Connection, event: Event) -> None:
    # What a person wrote goes; what was clicked stays, under a pseudonym that resolves to no name.
    _set_of_person(connection, event, "standing", "erased")
    _set_of_person(connection, event, "preferences", canonical({}))
    for item in _body(event)["remains"]:
        connection.execute(_LABEL_BY_SEQ_OUT, {"s": item["seq"]})
        # With the number and time of the answer: by those of the erasure exports would change their order.
        rest = replace(event, **{name: item[name] for name in ("seq", "at", "kind", "subject", "body")})
        if item["holds"]:
            _put_back(connection, replace(rest, actor=event.subject), item["number"])


def _put_back(connection: Connection, rest: Event, number: int) -> None:
    if rest.kind == "adjudicated":
        if rest.body is not None:
            _put_unassigned(connection, rest, "adjudicated", guidelines=rest.body["guidelines"])
        return
    held = _held(connection, rest.subject)
    if rest.body is not None:
        _put_label(connection, rest, held, number)
    settle(connection, rest.project, held.task)


CHANGES: Mapping[str, Callable[[Connection, Event], None]] = {
    "project-set": _project_set,
    "task-added": _task_added,
    "task-closed": _task_closed,
    "task-opened": _task_opened,
    "leased": _leased,
    "released": _released,
    "prolonged": _prolonged,
    "answered": _answered,
    "revised": _revised,
    "judged": _judged,
    "adjudicated": _adjudicated,
    "joined": _joined,
    "standing-set": _standing_set,
    "preferences-set": _preferences_set,
    "guidelines-read": _guidelines_read,
    "erased": _erased,
}
"""What each kind of event does; noted, flagged, exported, signed-in and refused are remembered only."""


def settle(connection: Connection, project: str, name: str) -> None:
    """Count a task's leases and labels anew, and say whether it wants more, is done, or needs a reviewer."""
    names = {"p": project, "t": name}
    rows = connection.execute(_COUNTED, names).all()
    state, taken = rows[0].state, rows[0].leases
    # Items have no cap and are never done: everybody may be given them.
    if state == "item":
        return
    settings = settings_of(connection, project)
    assert settings is not None
    counted = [row for row in rows if row.label is not None]
    done = len(counted)
    if state in ("closed", "adjudicated"):
        # What it has is all that it wants: totals must not speak of labels that will never come.
        wanted = done
    else:
        sides = [side(json.loads(row.label), settings.ask, json.loads(row.shown)) for row in counted]
        wanted, state = standing_of(sides, settings.overlap, settings.limit)
    connection.execute(
        _TASK_SET,
        {
            **names,
            "new_state": state,
            "new_wanted": wanted,
            "new_taken": taken,
            "new_done": done,
            "new_started": int(taken + done > 0),
            # Below none where the overlap was lowered, or others agreed, while leases were still open.
            "new_lacking": max(wanted - taken - done, 0),
        },
    )


def standing_of(sides: Sequence[str | None], overlap: int, limit: int) -> tuple[int, str]:
    """How many labels a task wants, and its state: open, done, or review where people stay divided.

    >>> standing_of(["0"], 2, 4), standing_of(["0", "0"], 2, 4), standing_of(["0", "1"], 2, 4)
    ((2, 'open'), (2, 'done'), (3, 'open'))
    >>> standing_of(["0", "1", "tie", "0"], 2, 4)
    (4, 'review')
    """
    if len(sides) < overlap:
        return overlap, "open"
    # Where a kind knows no majority, or nobody could compare, more people would settle nothing.
    # What nobody could compare is a voice for nothing, but a voice.
    if all(word is None for word in sides) or 2 * max(Counter(sides).values()) > len(sides):
        return len(sides), "done"
    return (len(sides) + 1, "open") if len(sides) < limit else (len(sides), "review")


def body_of(row: Any) -> dict[str, Any]:
    return json.loads(row.body)
