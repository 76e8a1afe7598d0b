"""What comes back to the desk: answers taken exactly once, skips, undone and revised ones, notes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, update

from plaudit.labelling.answers import agrees_with_gold, check_label
from plaudit.labelling.assigning import wilson_lower
from plaudit.labelling.desk import key_of, own_assignment, person_row, task_of
from plaudit.labelling.kinds import shown_task
from plaudit.labelling.log import Entry
from plaudit.labelling.refusals import FieldError, NotYoursError
from plaudit.labelling.tables import assignment, draft, label, task
from plaudit.labelling.texts import checked_text
from plaudit.labelling.transaction import Receipt, Transaction, later, parsed, receipt_of

SKIP_REASONS = ("unclear", "too-long", "not-my-field", "upsetting", "broken")
"""Why a task may be given back."""
FLAG_REASONS = ("harmful", "private", "broken", "other")
"""Why a task may be reported to the owner."""
PLAUDIT = "plaudit"
"""The actor of what follows from a rule and not from a person."""

_COUNTED = select(func.count()).where(
    label.c.project == bindparam("p"),
    label.c.task == bindparam("t"),
    label.c.surplus == 0,
    label.c.purpose == "work",
)
_OTHERS_OPEN = select(func.count()).where(
    assignment.c.project == bindparam("p"),
    assignment.c.task == bindparam("t"),
    assignment.c.state == "open",
    assignment.c.purpose == "work",
    assignment.c.id != bindparam("a"),
)
_LABEL = select(label).where(label.c.assignment == bindparam("a"))
_QUALIFYING = (
    select(label.c.label, label.c.shown, task.c.body)
    .join(task, (task.c.project == label.c.project) & (task.c.id == label.c.task))
    .where(
        label.c.project == bindparam("p"),
        label.c.annotator == bindparam("n"),
        label.c.purpose == "qualify",
    )
)
_HISTORY = (
    select(label, task.c.body)
    .join(task, (task.c.project == label.c.project) & (task.c.id == label.c.task))
    .where(
        label.c.project == bindparam("p"),
        label.c.annotator == bindparam("n"),
        label.c.seq < bindparam("before"),
        label.c.purpose.in_(("work", "gold", "qualify", "repeat")),
    )
    .order_by(label.c.seq.desc())
    .limit(bindparam("most"))
)
_DRAFT = select(draft).where(draft.c.assignment == bindparam("a"))
_DRAFT_OUT = delete(draft).where(draft.c.assignment == bindparam("a"))
_DRAFT_IN = insert(draft)
_DRAFT_SET = {
    name: update(draft).where(draft.c.assignment == bindparam("a")).values({name: bindparam("value")})
    for name in ("label", "conversation")
}


def submit(
    change: Transaction, name: str, person: str, wanted: str, *, key: str, label: Any, timing: dict[str, Any]
) -> Receipt:
    """Take an answer; the same words under the same key give the first receipt again."""
    row = own_assignment(change, name, person, wanted)
    request = {"assignment": wanted, "label": label}
    entry = Entry(
        project=name, actor=person, kind="answered", subject=wanted, key=key_of(person, key), body={}
    )
    # Before anything else: the first receipt stands, whatever became of the task or its project since.
    earlier = change.earlier(entry, request)
    if earlier is not None:
        return receipt_of(earlier)
    if row.state == "answered":
        raise NotYoursError("this task is answered already; revise the answer, or undo it")
    _refuse_ended_work(change, name, person)
    task_body = json.loads(task_of(change, name, row.task).body)
    body = {
        "label": check_label(label, task_body, change.settings(name)),
        "guidelines": row.guidelines,
        "surplus": _is_surplus(change, row),
        **_checked_timing(timing),
    }
    receipt = change.record_once(replace(entry, body=body), request)
    change.connection.execute(_DRAFT_OUT, {"a": wanted})
    if row.purpose == "qualify":
        _look_at_qualification(change, name, person)
    return receipt


def _refuse_ended_work(change: Transaction, name: str, person: str) -> None:
    if person_row(change, name, person).standing in ("suspended", "failed", "erased"):
        raise NotYoursError("your work in this project is over; what you answered stays as it is")


def _is_surplus(change: Transaction, row: Any) -> bool:
    """Whether an answer comes too late to count: its own place is gone, and so are all others."""
    if row.purpose != "work":
        return False
    names = {"p": row.project, "t": row.task}
    wanted = task_of(change, row.project, row.task)
    counted = change.connection.execute(_COUNTED, names).scalar_one()
    if wanted.state in ("closed", "adjudicated") or counted >= wanted.wanted:
        return True
    if row.state == "open":
        return False
    held = change.connection.execute(_OTHERS_OPEN, {**names, "a": row.id}).scalar_one()
    return counted + held >= wanted.wanted


def _checked_timing(timing: dict[str, Any]) -> dict[str, Any]:
    """Active seconds, and the share of an answer that was pasted."""
    checked = dict[str, Any]()
    for name, most in (("seconds", 86_400.0), ("pasted", 1.0)):
        value = timing.get(name)
        if value is None:
            continue
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value <= most:
            raise FieldError(field=name, found=repr(value), expected=f"a number from 0 to {most:g}")
        checked[name] = float(value)
    return checked


def _look_at_qualification(change: Transaction, name: str, person: str) -> None:
    """After enough items: active where even the low end of the interval is good enough, else failed."""
    settings = change.settings(name)
    rows = change.connection.execute(_QUALIFYING, {"p": name, "n": person}).all()
    if len(rows) < settings.qualify_n:
        return
    verdicts = [
        agrees_with_gold(json.loads(row.label), json.loads(row.body), json.loads(row.shown)) for row in rows
    ]
    counted = [verdict for verdict in verdicts if verdict is not None]
    low = wilson_lower(sum(counted), len(counted))
    standing = "active" if low >= settings.qualify_floor else "failed"
    reason = f"{sum(counted)} of {len(counted)} right: at least {low:.2f}, wanted {settings.qualify_floor:g}"
    body = {"standing": standing, "reason": reason}
    if person_row(change, name, person).standing == "qualifying":
        change.record(Entry(project=name, actor=PLAUDIT, kind="standing-set", subject=person, body=body))


def skip(change: Transaction, name: str, person: str, wanted: str, *, key: str, reason: str) -> Receipt:
    """Give a task back, and say why; somebody else is given the place."""
    if reason not in SKIP_REASONS:
        raise FieldError(field="reason", found=repr(reason), expected=f"one of {', '.join(SKIP_REASONS)}")
    row = own_assignment(change, name, person, wanted)
    request = {"assignment": wanted, "reason": reason}
    entry = Entry(
        project=name,
        actor=person,
        kind="released",
        subject=wanted,
        key=key_of(person, key),
        body={"reason": reason},
    )
    if change.earlier(entry, request) is None and row.state in ("answered", "skipped"):
        raise NotYoursError(f"this task is {row.state} already")
    receipt = change.record_once(entry, request)
    change.connection.execute(_DRAFT_OUT, {"a": wanted})
    return receipt


def undo(change: Transaction, name: str, person: str, wanted: str, *, key: str) -> Receipt:
    """Take an answer back: its place is the person's again for the time of a lease."""
    minutes = change.settings(name).lease_minutes
    body = {"label": None, "until": later(change.now, minutes=minutes)}
    return _revise(change, name, person, wanted, key=key, body=body, request={"undo": wanted})


def revise(
    change: Transaction, name: str, person: str, wanted: str, *, key: str, label: Any, timing: dict[str, Any]
) -> Receipt:
    """Another answer in place of the first; the first one stays in the log."""
    row = own_assignment(change, name, person, wanted)
    task_body = json.loads(task_of(change, name, row.task).body)
    answer = check_label(label, task_body, change.settings(name))
    body = {"label": answer, **_checked_timing(timing)}
    return _revise(
        change, name, person, wanted, key=key, body=body, request={"assignment": wanted, "label": label}
    )


def _revise(
    change: Transaction,
    name: str,
    person: str,
    wanted: str,
    *,
    key: str,
    body: dict[str, Any],
    request: dict[str, Any],
) -> Receipt:
    own_assignment(change, name, person, wanted)
    entry = Entry(
        project=name, actor=person, kind="revised", subject=wanted, key=key_of(person, key), body=body
    )
    if change.earlier(entry, request) is None:
        current = change.connection.execute(_LABEL, {"a": wanted}).first()
        if current is None:
            raise NotYoursError("there is no answer of yours to this task that could be changed")
        _refuse_ended_work(change, name, person)
        replaced = {
            "replaces": current.seq,
            "surplus": bool(current.surplus),
            "number": current.number,
        }
        entry = replace(entry, body={**body, **replaced})
    return change.record_once(entry, request)


def save_draft(change: Transaction, name: str, person: str, wanted: str, answer: object) -> str:
    """Remember half an answer, and prolong its lease; gives the lease's new end."""
    row = own_assignment(change, name, person, wanted)
    if row.state == "answered":
        raise NotYoursError("this task is answered already")
    if not isinstance(answer, dict):
        raise FieldError(field="label", found=type(answer).__name__, expected="an object")
    _save(change, row, "label", json.dumps(answer))
    return _prolong(change, row)


def _save(change: Transaction, row: Any, column: str, value: str) -> None:
    if change.connection.execute(_DRAFT, {"a": row.id}).first() is None:
        blank = {"assignment": row.id, "project": row.project, "annotator": row.annotator}
        change.connection.execute(_DRAFT_IN, {**blank, "label": None, "conversation": None})
    change.connection.execute(_DRAFT_SET[column], {"a": row.id, "value": value})


def _prolong(change: Transaction, row: Any) -> str:
    """A new end for an open lease once half of it is over, so that drafts do not fill the log."""
    minutes = change.settings(row.project).lease_minutes
    if row.state != "open" or row.until >= later(change.now, minutes=minutes / 2):
        return row.until
    until = later(change.now, minutes=minutes)
    change.record(
        Entry(
            project=row.project,
            actor=row.annotator,
            kind="prolonged",
            subject=row.id,
            body={"until": until},
        )
    )
    return until


def conversation(change: Transaction, name: str, person: str, wanted: str) -> dict[str, Any] | None:
    """The turns of a conversation in progress."""
    own_assignment(change, name, person, wanted)
    saved = change.connection.execute(_DRAFT, {"a": wanted}).first()
    return None if saved is None else parsed(saved.conversation)


def save_conversation(
    change: Transaction, name: str, person: str, wanted: str, turns: dict[str, Any]
) -> None:
    """Remember the turns of a conversation."""
    row = own_assignment(change, name, person, wanted)
    if row.state == "answered":
        raise NotYoursError("this conversation is over: its answer was sent")
    _save(change, row, "conversation", json.dumps(turns))
    _prolong(change, row)


def note(change: Transaction, name: str, person: str, wanted: str, *, key: str, text: object) -> Receipt:
    """A note on a task that the person was given."""
    row = own_assignment(change, name, person, wanted)
    request = {"assignment": wanted, "text": checked_text("text", text)}
    entry = Entry(
        project=name, actor=person, kind="noted", subject=row.task, key=key_of(person, key), body=request
    )
    return change.record_once(entry, request)


def flag(
    change: Transaction, name: str, person: str, wanted: str, *, key: str, reason: str, text: object = ""
) -> Receipt:
    """A report of a task to the owner."""
    if reason not in FLAG_REASONS:
        raise FieldError(field="reason", found=repr(reason), expected=f"one of {', '.join(FLAG_REASONS)}")
    row = own_assignment(change, name, person, wanted)
    request = {"assignment": wanted, "reason": reason, "text": checked_text("text", text)}
    entry = Entry(
        project=name, actor=person, kind="flagged", subject=row.task, key=key_of(person, key), body=request
    )
    return change.record_once(entry, request)


def history(
    change: Transaction, name: str, person: str, *, most: int, before: int | None
) -> list[dict[str, Any]]:
    """A person's own answers that hold, the newest first; nothing tells why a task was asked."""
    names = {"p": name, "n": person, "most": most, "before": before or 2**62}
    settings = change.settings(name)
    return [
        {
            "receipt": row.seq,
            "assignment": row.assignment,
            "at": row.at,
            "shown": shown_task(json.loads(row.body), json.loads(row.shown), settings),
            "label": json.loads(row.label),
        }
        for row in change.connection.execute(_HISTORY, names)
    ]
