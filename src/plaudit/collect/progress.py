"""How far a project is, who works in it and how long that takes, and whether the store is sound."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from statistics import median
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, bindparam, case, cast, func, select

from plaudit.collect import log, tables, views
from plaudit.collect.database import in_memory
from plaudit.collect.log import bound, same
from plaudit.collect.project import large_enough, project_from_dict
from plaudit.collect.store import LabelStore, Transaction, ahead, columns
from plaudit.collect.tables import annotator, assignment, label, participant, person, task

_PAGE = 500
_SECONDS = select(label.c.seconds).where(
    label.c.project == bindparam("p"), label.c.purpose != "judged", label.c.seconds.is_not(None)
)
_GOLD_TASK = select(task.c.id).where(task.c.project == bindparam("p"), task.c.purpose == "gold").limit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    project: str
    ask: str
    tasks: dict[str, int]
    """Tasks by state: open, done, review, adjudicated, closed, and item for those whose answer is known."""
    wanted: int
    """Labels that are wanted of the tasks so far; more where people are divided."""
    labels: int
    missing: int
    """Labels that open tasks still want."""
    leased: int
    surplus: int
    """Labels that came too late to count."""
    items: int
    """Answers to gold, qualifying and repeated items."""
    skipped: int
    people: dict[str, int]
    seq: int
    link: str
    """Of the last event: with its number, what the store must still have whenever it is looked at again."""

    @property
    def done(self) -> bool:
        """Whether no open task wants a label; what needs a reviewer is done for annotators."""
        return self.tasks.get("open", 0) == 0


_BY_STATE = (
    select(
        task.c.state,
        func.count().label("tasks"),
        func.sum(task.c.wanted).label("wanted"),
        func.sum(task.c.done).label("done"),
        func.sum(task.c.taken).label("taken"),
    )
    .where(task.c.project == bindparam("p"))
    .group_by(task.c.state)
    .order_by(task.c.state)
)
_SURPLUS = select(func.count()).where(label.c.project == bindparam("p"), label.c.surplus == 1)
_ITEMS = select(func.count()).where(
    label.c.project == bindparam("p"), label.c.purpose.in_(("gold", "qualify", "repeat"))
)
_SKIPPED = select(func.count()).where(assignment.c.project == bindparam("p"), assignment.c.state == "skipped")
_BY_STANDING = (
    select(annotator.c.standing, func.count())
    .where(annotator.c.project == bindparam("p"), annotator.c.role == "annotator")
    .group_by(annotator.c.standing)
)
_PEOPLE = (
    select(annotator, person.c.name.label("person"))
    # Outer: an erased person has no name any more, and the counts stay.
    .outerjoin(person, same(person, annotator, pseudonym="name"))
    .where(annotator.c.project == bindparam("p"))
    .order_by(annotator.c.seq)
)
_PERSON = _PEOPLE.where(annotator.c.name == bindparam("n"))
_LABEL_COUNTS = (
    select(
        label.c.annotator,
        func.count().label("labels"),
        func.sum(cast(label.c.surplus, Integer)).label("surplus"),
        func.sum(label.c.seconds).label("seconds"),
    )
    .where(label.c.project == bindparam("p"))
    .group_by(label.c.annotator)
)
_LABEL_COUNTS_OF = _LABEL_COUNTS.where(label.c.annotator == bindparam("n"))
_TASKS = (
    select(task)
    .where(task.c.project == bindparam("p"), task.c.seq > bindparam("after"))
    .order_by(task.c.seq)
    .limit(bindparam("most"))
)
_TASKS_IN_STATE = _TASKS.where(task.c.state == bindparam("s"))
_LABELS_OF_TASK = (
    select(label).where(bound(label, project="p", task="t"), label.c.purpose == "work").order_by(label.c.seq)
)


def project_status(look: Transaction, project: str) -> Status:
    settings = look.settings(project)
    connection, names = look.connection, {"p": project}
    seq, link, _ = log.last(connection)
    rows = connection.execute(_BY_STATE, names).all()
    return Status(
        project=project,
        ask=settings.ask,
        tasks={row.state: row.tasks for row in rows},
        wanted=sum(int(row.wanted) for row in rows),
        labels=sum(int(row.done) for row in rows),
        missing=sum(int(row.wanted - row.done) for row in rows if row.state == "open"),
        leased=sum(int(row.taken) for row in rows),
        surplus=connection.execute(_SURPLUS, names).scalar_one(),
        items=connection.execute(_ITEMS, names).scalar_one(),
        skipped=connection.execute(_SKIPPED, names).scalar_one(),
        people={row[0]: row[1] for row in sorted(connection.execute(_BY_STANDING, names))},
        seq=seq,
        link=link,
    )


def project_people(look: Transaction, project: str) -> list[dict[str, Any]]:
    """Everybody of a project, with counts; names are for owners and reviewers."""
    look.settings(project)
    connection = look.connection
    counts = {row.annotator: row for row in connection.execute(_LABEL_COUNTS, {"p": project})}
    rows = connection.execute(_PEOPLE, {"p": project})
    return [_person_entry(row, counts.get(row.name)) for row in rows]


def person_entry(connection: Connection, project: str, name: str) -> dict[str, Any] | None:
    names = {"p": project, "n": name}
    row = connection.execute(_PERSON, names).first()
    return None if row is None else _person_entry(row, connection.execute(_LABEL_COUNTS_OF, names).first())


def _person_entry(row: Any, own: Any) -> dict[str, Any]:
    names = ("person", "role", "standing", "assigned", "answered", "skipped")
    return {
        "pseudonym": row.name,
        **{name: getattr(row, name) for name in names},
        "labels": 0 if own is None else own.labels,
        "surplus": 0 if own is None else int(own.surplus),
        "seconds": None if own is None else own.seconds,
        # What people said of themselves is told in sums alone.
        "preferences": {k: v for k, v in json.loads(row.preferences).items() if k != "groups"},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSize:
    name: str
    value: str
    """What these people said of themselves; empty for all who said nothing."""
    people: int | None
    """None for fewer than five, and where the others' sums would tell so few."""


def group_sizes(look: Transaction, project: str) -> list[GroupSize]:
    """How many annotators are in each group, in sums of five or more."""
    requested, answers = look.settings(project).values_of_groups, list[Mapping[str, str]]()
    for row in look.connection.execute(_PEOPLE, {"p": project}):
        if row.role == "annotator" and row.standing != "erased":
            answers.append(json.loads(row.preferences).get("groups", {}))
    sizes = list[GroupSize]()
    for name, values in requested.items():
        counts = {value: sum(own.get(name, "") == value for own in answers) for value in (*values, "")}
        shown = large_enough(counts)
        sizes += [
            GroupSize(name=name, value=value, people=count if value in shown else None)
            for value, count in counts.items()
        ]
    return sizes


def project_tasks(
    look: Transaction, project: str, state: str | None = None, limit: int = 100, after: int = 0
) -> list[dict[str, Any]]:
    look.settings(project)
    names: dict[str, Any] = {"p": project, "after": after, "most": min(limit, _PAGE)}
    statement = _TASKS if state is None else _TASKS_IN_STATE
    found = look.connection.execute(statement, names if state is None else {**names, "s": state})
    shown = ("id", "seq", "purpose", "state", "wanted", "taken", "done", "priority", "category")
    return [{name: getattr(row, name) for name in shown} | {"body": json.loads(row.body)} for row in found]


def review_queue(look: Transaction, project: str) -> list[dict[str, Any]]:
    """What needs a reviewer: blind, so without names and sources, with labels in the task's order."""
    found = list[dict[str, Any]]()
    for item in project_tasks(look, project, "review", _PAGE):
        rows = look.connection.execute(_LABELS_OF_TASK, {"p": project, "t": item["id"]})
        labels = [{"label": json.loads(row.label), "order": json.loads(row.shown)} for row in rows]
        found.append({"id": item["id"], "body": item["body"], "labels": labels})
    return found


def store_faults(look: Transaction) -> list[str]:
    """What is wrong with a store: nothing for a sound one. Looks at the whole of it."""
    connection = look.connection
    # A log that was altered cannot be replayed, and says nothing about the tables.
    return [*log.chain_faults(connection)] or [*_cap_faults(connection), *_replay_faults(connection)]


def clock_notes(transaction: Transaction) -> list[str]:
    """Where a clock was wrong: no fault of a store, in which order goes by number and time by the clock."""
    notes = [
        f"event {after.seq} is of {after.at}, and event {before.seq} before it of {before.at}"
        for before, after in pairwise(log.events(transaction.connection))
        if after.at < before.at
    ]
    seq, _, latest = log.last(transaction.connection)
    if latest > ahead(transaction.now):
        notes.append(
            f"the last event, {seq}, is of {latest}, and by this machine's clock it is {transaction.now}"
        )
    return notes


def rebuild_tables(change: Transaction) -> None:
    views.rebuild(change.connection, log.events(change.connection))


_COUNTED = (
    select(label.c.project, label.c.task, func.count().label("labels"))
    .join(task, same(label, task, task="id"))
    .where(label.c.purpose == "work", label.c.surplus == 0, task.c.purpose == "work")
    .group_by(label.c.project, label.c.task)
    .having(func.count() > bindparam("least"))
)
_TWICE = (
    select(label.c.project, label.c.task, label.c.annotator)
    # Not repeats, by which people label a second time on purpose.
    .where(label.c.purpose.in_(("work", "gold", "qualify")))
    .group_by(label.c.project, label.c.task, label.c.annotator)
    .having(func.count() > 1)
)


def _cap_faults(connection: Connection) -> Iterator[str]:
    # Settings may have asked for fewer since, and what counted goes on counting.
    most = dict[str, int]()
    for event in log.events(connection):
        if event.kind == "project-set" and event.body is not None:
            limit = project_from_dict(event.body["settings"]).limit
            most[event.project] = max(limit, most.get(event.project, 0))
    # The database gives what may be too many; each project's own cap is compared here.
    for row in connection.execute(_COUNTED, {"least": min(most.values(), default=0)}):
        if row.labels > most[row.project]:
            yield (
                f"project {row.project}, task {row.task}: {row.labels} labels count, and never more than "
                f"{most[row.project]} were wanted"
            )
    for row in connection.execute(_TWICE):
        yield f"project {row.project}, task {row.task}: {row.annotator} labelled it twice"


def _replay_faults(connection: Connection) -> Iterator[str]:
    # Beside the store: a check must not change what it checks.
    with in_memory() as fresh:
        for event in log.events(connection):
            views.apply(fresh, event)
        for table in tables.FOLDS:
            there, expected = (_contents(side, table) for side in (connection, fresh))
            if there != expected:
                # A row that is there twice is no difference of sets: then any row is named.
                which = sorted({*there} ^ {*expected} or {*map(str, there)})[:1]
                yield (
                    f"table {table.name}: {len(there)} rows differ from the {len(expected)} of a replay "
                    f"of the log, first {which}; `plaudit collect check --rebuild` makes the tables anew"
                )


def _contents(connection: Connection, table: Any) -> list[str]:
    # Sorted by their text: neither database promises an order of rows.
    return sorted(log.canonical(row) for row in columns(connection.execute(select(table)).all()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pay:
    pseudonym: str
    name: str | None
    """The name; None of somebody who was erased."""
    participant: str | None
    """What the panel calls a person whom it sent."""
    labels: int
    surplus: int
    """Answers that came too late to count: work all the same."""
    gold: int
    """Answers to items whose answer is known."""
    qualifying: int
    """Answers to items by which the person qualified."""
    repeats: int
    """Answers to tasks that were shown a second time."""
    skipped: int
    seconds: float
    """Active time, as far as it was measured."""


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))


_PURPOSES = {"gold": "gold", "qualifying": "qualify", "repeats": "repeat"}
_OWN = same(label, annotator, annotator="name")
_PAY = (
    select(
        annotator.c.name.label("pseudonym"),
        person.c.name,
        participant.c.participant,
        annotator.c.skipped,
        _count((label.c.purpose == "work") & (label.c.surplus == 0)).label("labels"),
        _count((label.c.purpose == "work") & (label.c.surplus == 1)).label("surplus"),
        *(_count(label.c.purpose == purpose).label(name) for name, purpose in _PURPOSES.items()),
        func.coalesce(func.sum(label.c.seconds), 0.0).label("seconds"),
    )
    .outerjoin(label, _OWN)
    .outerjoin(person, same(person, annotator, pseudonym="name"))
    .outerjoin(participant, same(participant, annotator, pseudonym="name"))
    .where(annotator.c.project == bindparam("p"), annotator.c.role != "owner")
    .group_by(
        annotator.c.seq, annotator.c.name, person.c.name, participant.c.participant, annotator.c.skipped
    )
    .order_by(annotator.c.seq)
)
_BEGINS_FORMULA = tuple("=+-@\t\r\n|%＝＋－＠")


def pay_rows(look: Transaction, project: str) -> list[Pay]:
    """What everybody of a project did, in the order in which they joined."""
    look.settings(project)
    rows = columns(look.connection.execute(_PAY, {"p": project}).all())
    counts = ("labels", "surplus", *_PURPOSES)
    # PostgreSQL sums whole numbers into its own kind of number.
    for row in rows:
        row.update({name: int(row[name]) for name in counts})
    return [Pay(**row) for row in rows]


def pay_csv(rows: Iterable[Pay]) -> str:
    """The sheet as CSV; a name that a spreadsheet would take for a formula stands behind an apostrophe.

    >>> row = Pay(pseudonym="a1", name="=1+1", participant=None, labels=2, surplus=0, gold=0, qualifying=0,
    ...           repeats=0, skipped=0, seconds=61.25)
    >>> pay_csv([row]).splitlines()[1]
    "a1,'=1+1,,2,0,0,0,0,0,61.2"
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Pay)], lineterminator="\r\n")
    writer.writeheader()
    for row in rows:
        cells = {**asdict(row), "seconds": f"{row.seconds:.1f}"}
        writer.writerow({name: plain_cell(value) for name, value in cells.items()})
    return out.getvalue()


def plain_cell(value: object) -> object:
    """A cell that no spreadsheet computes.

    >>> plain_cell(" @SUM(A1)"), plain_cell("Ada"), plain_cell(None)
    ("' @SUM(A1)", 'Ada', None)
    """
    # Behind spaces too: some programs drop them as they read.
    if isinstance(value, str) and value.lstrip(" \u00a0").startswith(_BEGINS_FORMULA):
        return f"'{value}"
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    ask: str
    overlap: int
    most: int
    """Up to how many where they are divided."""
    open_tasks: int
    missing: int
    checks: float
    """The share of gold and of repeated items among what is given out."""
    timed: int
    """Labels whose seconds are known."""
    median_seconds: float | None
    """Their median: a break while a page stands open would carry a mean away."""


def project_timing(store: LabelStore, project: str) -> Timing:
    """How long people took in a project so far, and what is left to do."""
    with store.looking() as look:
        settings = look.settings(project)
        status = project_status(look, project)
        seconds = [float(row.seconds) for row in look.connection.execute(_SECONDS, {"p": project})]
        has_gold = look.connection.execute(_GOLD_TASK, {"p": project}).first() is not None
    return Timing(
        ask=settings.ask,
        overlap=settings.overlap,
        most=settings.limit,
        open_tasks=status.tasks.get("open", 0),
        missing=status.missing,
        checks=(settings.gold_share if has_gold else 0.0) + settings.repeat,
        timed=len(seconds),
        median_seconds=median(seconds) if seconds else None,
    )
