"""What comes back to the desk: answers taken exactly once, skips, undone and revised ones, notes."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import bindparam, delete, exists, func, insert, literal_column, select, update

from plaudit.collect import log, refusals, views
from plaudit.collect.adding import Added, add_tasks, content_key, ids_by_content, task_id
from plaudit.collect.answers import check_label, whole_label
from plaudit.collect.desk import JUDGED_BY, SENT, key_of, own_assignment, person_row, prolong, task_of
from plaudit.collect.kinds import KINDS
from plaudit.collect.log import Entry, bound, same
from plaudit.collect.own import HOLDING, conclude_qualification
from plaudit.collect.people import annotator_named
from plaudit.collect.project import Project
from plaudit.collect.store import Receipt, Transaction, later, parsed, receipt_of, request_digest
from plaudit.collect.tables import annotator, assignment, draft, label, task
from plaudit.collect.tasks import check_task, plain_object, shown_task
from plaudit.data.fields import Node

SKIP_REASONS = ("unclear", "too-long", "not-my-field", "upsetting", "broken")
FLAG_REASONS = ("harmful", "private", "broken", "other")

_OTHERS_OPEN = select(func.count()).where(
    bound(assignment, project="p", task="t"),
    assignment.c.state == "open",
    assignment.c.purpose == "work",
    assignment.c.id != bindparam("a"),
)
# All that an answer of a file asks of its task and its person; as an assignment that is not there yet.
_TO_TAKE_IN = (
    select(
        task.c.project,
        task.c.id.label("task"),
        literal_column("''").label("id"),
        task.c.prompt,
        task.c.purpose,
        *JUDGED_BY,
        exists()
        .where(same(assignment, task, task="id"))
        .where(assignment.c.annotator == annotator.c.name)
        .label("given"),
    )
    .join(annotator, (annotator.c.project == task.c.project) & (annotator.c.name == bindparam("n")))
    .outerjoin(log.log, SENT)
    .where(bound(task, project="p", id="t"))
)
_LABEL = select(label).where(label.c.assignment == bindparam("a"))
_HISTORY = (
    select(label, task.c.body)
    .join(task, same(task, label, id="task"))
    .where(
        bound(label, project="p", annotator="n"),
        label.c.seq < bindparam("before"),
        # A reviewer's decisions are left out: they have no lease, so nothing could be undone.
        label.c.purpose.in_(("work", "gold", "qualify", "repeat")),
    )
    .order_by(label.c.seq.desc())
    .limit(bindparam("most"))
)
_DRAFT_OUT = delete(draft).where(draft.c.assignment == bindparam("a"))
_DRAFT_IN = insert(draft)
_DRAFT_SET = {
    name: update(draft).where(draft.c.assignment == bindparam("a")).values({name: bindparam("value")})
    for name in ("label", "conversation")
}


def submit_answer(
    change: Transaction,
    name: str,
    person: str,
    wanted: str,
    key: str,
    label: Any,
    *,
    seconds: object = None,
    pasted: object = None,
) -> Receipt:
    """Take an answer; the same words under the same key give the first receipt again."""
    row, entry = _sent(change, name, person, wanted, kind="answered", key=key)
    request = {"assignment": wanted, "label": label}
    # Before anything else: the first receipt stands, whatever became of the task or its project since.
    if row.sent is not None:
        return change.record_once(entry, request)
    # Skipped and ended ones are taken: late work is work, and counts while a place is free.
    if row.state == "answered":
        raise refusals.NotYoursError("this task is answered already; revise the answer, or undo it")
    _refuse_ended_work(row)
    settings = change.settings(name)
    body = {
        "label": check_label(_with_conversation(row, settings, label), json.loads(row.body), settings),
        "guidelines": row.guidelines,
        "surplus": _is_surplus(change, row, holds=row.state == "open"),
        **_checked_timing(seconds=seconds, pasted=pasted),
        "request": request_digest(request),
    }
    receipt = receipt_of(change.record(replace(entry, body=body)))
    if row.drafted is not None:
        change.connection.execute(_DRAFT_OUT, {"a": wanted})
    if row.purpose == "qualify":
        # Last, as it counts the answer that was just written too.
        conclude_qualification(change, name, person)
    return receipt


def _sent(
    change: Transaction, name: str, person: str, wanted: str, *, kind: str, key: str
) -> tuple[Any, Entry]:
    own_key = key_of(person, key)
    entry = Entry(project=name, actor=person, kind=kind, subject=wanted, key=own_key, body={})
    return own_assignment(change, name, person, wanted, own_key), entry


def _with_conversation(row: Any, settings: Project, label: Any) -> Any:
    # The label with the turns that were kept, where it is of a conversation that the store has held.
    saved = None if KINDS[settings.ask].conversation is None else parsed(row.conversation)
    return label if saved is None else whole_label(settings.ask, label, saved["turns"])


def _refuse_ended_work(row: Any) -> None:
    if row.standing in ("suspended", "failed", "erased"):
        raise refusals.NotYoursError("your work in this project is over; what you answered stays as it is")


def _is_surplus(change: Transaction, row: Any, *, holds: bool) -> bool:
    # Whether an answer comes too late to count: its own place is gone, and so are all others.
    if row.purpose != "work":
        return False
    if row.task_state in ("closed", "adjudicated") or row.counted >= row.wanted:
        return True
    # An open lease is a place kept for this person, so nobody else can have filled it.
    if holds:
        return False
    # What others hold is as good as filled: who comes late must not push them out.
    names = {"p": row.project, "t": row.task, "a": row.id}
    held = change.connection.execute(_OTHERS_OPEN, names).scalar_one()
    return row.counted + held >= row.wanted


def _checked_timing(**timing: object) -> dict[str, Any]:
    checked = dict[str, Any]()
    for name, most in (("seconds", 86_400.0), ("pasted", 1.0)):
        value = timing.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
            raise refusals.FieldError(field=name, found=repr(value), expected=f"a number from 0 to {most:g}")
        checked[name] = float(value)
    return checked


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """An answer that a person gave outside of the app."""

    task: str
    order: tuple[int, ...]
    """Which candidate was shown at which place."""
    label: dict[str, Any]
    person: str
    """Who said it: a name, of which the log gets the pseudonym only."""
    origin: str
    group: str | None = None
    """The group that the file names, which the log remembers and no export tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """What came of answers that people gave outside of the app."""

    taken: int = 0
    repeated: int = 0
    """How many were taken in before, word for word."""
    surplus: int = 0
    """How many of the new ones do not count, since their tasks want no more labels."""
    people: tuple[str, ...] = ()


def _put_on_known_tasks(
    change: Transaction, name: str, bodies: Sequence[Any], given: Iterable[GivenAnswer]
) -> tuple[list[Any], list[GivenAnswer]]:
    # The tasks that nobody asked yet, and the answers put on those that are there already.
    # A file and a loop may ask the same in other words around it, and with the answers in another order: a
    # second task would be shown to people who have answered the first.
    settings, fresh, by_id = change.settings(name), list[Any](), dict[str, tuple[str, list[int]]]()
    all_checked = [check_task(body, settings) for body in bodies]
    there = ids_by_content(change, name, all_checked)
    for body, checked in zip(bodies, all_checked, strict=True):
        # A check stays a task of its own, though the same is asked as work.
        result = None if "gold" in checked else there.get(content_key(checked))
        if result is None:
            fresh.append(body)
            continue
        texts = [c["text"] for c in json.loads(task_of(change, name, result).body)["candidates"]]
        by_id[task_id(checked)] = result, [texts.index(c["text"]) for c in checked["candidates"]]
    moved = [
        replace(
            answer, task=by_id[answer.task][0], order=tuple(by_id[answer.task][1][p] for p in answer.order)
        )
        if answer.task in by_id
        else answer
        for answer in given
    ]
    return fresh, moved


def take_in(
    change: Transaction, name: str, bodies: Sequence[Any], given: Iterable[GivenAnswer], *, actor: str
) -> tuple[Added, TakenIn]:
    """Add tasks with answers that people gave outside of the app."""
    # Before tasks are added: afterwards these very ones would be found as known.
    fresh, given = _put_on_known_tasks(change, name, bodies, given)
    added = add_tasks(change, name, fresh, actor=actor)
    added = replace(added, repeated=added.repeated + len(bodies) - len(fresh))
    # Each answer is a lease that was answered at once, and is taken in a single time.
    pseudonyms, surpluses, repeated = dict[str, str](), list[bool](), 0
    for answer in given:
        try:
            person = pseudonyms.get(answer.person) or annotator_named(change, name, answer.person)
            pseudonyms[answer.person] = person
            surplus = _take_in_one(change, name, person, answer)
        except refusals.FieldError as fault:
            raise fault.under(f"{answer.origin}, {fault.field}") from fault
        if surplus is None:
            repeated += 1
        else:
            surpluses.append(surplus)
    people = (*pseudonyms.values(),)
    taken = TakenIn(taken=len(surpluses), repeated=repeated, surplus=sum(surpluses), people=people)
    return added, taken


def _take_in_one(change: Transaction, name: str, person: str, answer: GivenAnswer) -> bool | None:
    # Whether the answer is surplus; None where it was taken in before.
    key, request = key_of(person, f"taken-in/{answer.task}"), {"order": answer.order, "label": answer.label}
    # Its lease is made below: a row that was taken in before is known by key and words alone.
    entry = Entry(project=name, actor=person, kind="answered", subject="", key=key, body={})
    names = {"p": name, "t": answer.task, "n": person, "k": key}
    row = change.connection.execute(_TO_TAKE_IN, names).one()
    try:
        if row.sent is not None and change.earlier(entry, request) is not None:
            return None
    except refusals.KeyConflictError as error:
        raise refusals.KeyConflictError(
            f"{answer.origin}: another answer of {person} to the same task was taken in before, and stays; "
            "put the row back as it was, or name another annotator in it"
        ) from error
    _refuse_given_before(row, person, answer)
    shared = {"guidelines": "", "taken_in": {"from": answer.origin, "group": answer.group}}
    lease = {"task": row.task, "prompt": row.prompt, "purpose": row.purpose, "order": [*answer.order]}
    leased = replace(
        entry, kind="leased", subject="w{seq}", key=None, body={**lease, **shared, "until": change.now}
    )
    answered = check_label(answer.label, json.loads(row.body), change.settings(name))
    # Whoever holds the last place in the app goes on holding it.
    surplus = _is_surplus(change, row, holds=False)
    body = {"label": answered, "surplus": surplus, **shared, "request": request_digest(request)}
    lease_name = f"w{log.last(change.connection)[0] + 1}"
    # Past `record`, which would fold the lease as if it were held for a while.
    entries = [leased, replace(entry, subject=lease_name, body=body)]
    held, taken = log.append(change.connection, change.now, entries)
    views.add_answered(change.connection, held, taken, row.answered + 1)
    return surplus


def _refuse_given_before(row: Any, person: str, answer: GivenAnswer) -> None:
    # Nobody erased is among them: who has no name any more cannot be named by a file.
    if row.standing in ("suspended", "failed"):
        raise refusals.NotYoursError(
            f"{answer.origin}: {person} is {row.standing} in project {row.project}, so no answer is taken "
            "in; leave the rows out, or set the standing to active first"
        )
    if row.given:
        raise refusals.NotYoursError(
            f"{answer.origin}: {person} was given this task in the app, where the answer counts; leave the "
            "row out, or name another annotator in it"
        )


def skip_task(change: Transaction, name: str, person: str, wanted: str, key: str, reason: str) -> Receipt:
    """Give a task back, and say why; somebody else is given the place."""
    refusals.check_choice("reason", reason, SKIP_REASONS)
    row, entry = _sent(change, name, person, wanted, kind="released", key=key)
    request = {"assignment": wanted, "reason": reason}
    # Asked of a new send only: a repeated one finds its task skipped already, by itself.
    if row.sent is None and row.state in ("answered", "skipped"):
        raise refusals.NotYoursError(f"this task is {row.state} already")
    receipt = change.record_once(replace(entry, body={"reason": reason}), request)
    change.connection.execute(_DRAFT_OUT, {"a": wanted})
    return receipt


def undo_answer(change: Transaction, name: str, person: str, wanted: str, key: str) -> Receipt:
    """Take an answer back: its place is the person's again for the time of a lease.

    An answer that came too late to count had no place; sent anew it takes a free one, as late work does.
    """

    def body(row: Any) -> dict[str, Any]:
        minutes = change.settings(row.project).lease_minutes
        return {"label": None, "until": later(change.now, minutes=minutes)}

    return _revise(change, name, person, wanted, key=key, body=body, request={"undo": wanted})


def revise_answer(
    change: Transaction, name: str, person: str, wanted: str, key: str, label: Any, *, seconds: object = None
) -> Receipt:
    """Another answer in place of the first; the first one stays in the log."""

    def body(row: Any) -> dict[str, Any]:
        return {
            "label": check_label(label, json.loads(row.body), change.settings(name)),
            **_checked_timing(seconds=seconds),
        }

    request = {"assignment": wanted, "label": label}
    return _revise(change, name, person, wanted, key=key, body=body, request=request)


def _revise(
    change: Transaction,
    name: str,
    person: str,
    wanted: str,
    *,
    key: str,
    body: Callable[[Any], dict[str, Any]],
    request: dict[str, Any],
) -> Receipt:
    row, entry = _sent(change, name, person, wanted, kind="revised", key=key)
    # As of a first answer: what was taken once is acknowledged again, whatever the project asks since.
    if row.sent is not None:
        return change.record_once(entry, request)
    current = change.connection.execute(_LABEL, {"a": wanted}).first()
    if current is None:
        raise refusals.NotYoursError("there is no answer of yours to this task that could be changed")
    _refuse_ended_work(row)
    if row.purpose == "qualify" and change.settings(name).qualify_teach:
        raise refusals.NotYoursError("you have seen what is right here, so that the answer stays as it is")
    # What came too late to count stays so: a correction gains no place.
    replaced = {"replaces": current.seq, "surplus": bool(current.surplus), "number": current.number}
    return change.record_once(replace(entry, body={**body(row), **replaced}), request)


def save_draft(change: Transaction, name: str, person: str, wanted: str, answer: object) -> str:
    """Remember half an answer, and prolong its lease; gives the lease's new end."""
    row = own_assignment(change, name, person, wanted)
    if row.state == "answered":
        raise refusals.NotYoursError("this task is answered already")
    if not isinstance(answer, dict):
        raise refusals.FieldError(field="label", found=type(answer).__name__, expected="an object")
    words = json.dumps(plain_object(Node(value=answer, path="label")))
    _save(change, row, "label", refusals.checked_text("label", words, most=refusals.MOST_CHARACTERS))
    return _prolong(change, row)


def _save(change: Transaction, row: Any, column: str, value: str) -> None:
    if row.drafted is None:
        blank = {"assignment": row.id, "project": row.project, "annotator": row.annotator}
        change.connection.execute(_DRAFT_IN, {**blank, "label": None, "conversation": None})
    change.connection.execute(_DRAFT_SET[column], {"a": row.id, "value": value})


def _prolong(change: Transaction, row: Any) -> str:
    # A new end for an open lease once half of it is over, so that drafts do not fill the log.
    minutes = change.settings(row.project).lease_minutes
    if row.state != "open" or row.until >= later(change.now, minutes=minutes / 2):
        return row.until
    return prolong(change, row)


def save_conversation(
    change: Transaction, name: str, person: str, wanted: str, turns: dict[str, Any]
) -> None:
    row = own_assignment(change, name, person, wanted)
    if row.state == "answered":
        raise refusals.NotYoursError("this conversation is over: its answer was sent")
    _save(change, row, "conversation", json.dumps(turns))
    _prolong(change, row)


def add_note(change: Transaction, name: str, person: str, wanted: str, key: str, text: object) -> Receipt:
    words = {"text": refusals.checked_text("text", text)}
    return _comment(change, name, person, wanted, key, kind="noted", words=words)


def report_task(
    change: Transaction, name: str, person: str, wanted: str, key: str, reason: str, text: object = ""
) -> Receipt:
    refusals.check_choice("reason", reason, FLAG_REASONS)
    words = {"reason": reason, "text": refusals.checked_text("text", text)}
    return _comment(change, name, person, wanted, key, kind="flagged", words=words)


def _comment(
    change: Transaction, name: str, person: str, wanted: str, key: str, *, kind: str, words: dict[str, str]
) -> Receipt:
    row, entry = _sent(change, name, person, wanted, kind=kind, key=key)
    request = {"assignment": wanted, **words}
    return change.record_once(replace(entry, subject=row.task, body=request), request)


def own_counts(change: Transaction, name: str, person: str) -> dict[str, int]:
    row = person_row(change, name, person)
    holding = change.connection.execute(HOLDING, {"p": name, "n": person}).scalar_one()
    counts = {field: getattr(row, field) for field in ("assigned", "answered", "skipped")}
    return {**counts, "holding": holding}


def own_history(
    change: Transaction, name: str, person: str, limit: int = 50, before: int | None = None
) -> list[dict[str, Any]]:
    """A person's own answers that hold, the newest first; nothing tells why a task was asked."""
    names = {"p": name, "n": person, "most": limit, "before": before or 2**62}
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
