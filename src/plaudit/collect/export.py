"""Labels out as rows for training, with a snapshot that leads from any row back to its events.

The same position of the log and the same filters give the same bytes.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, select

from plaudit.collect import log, views
from plaudit.collect.answers import rows_of
from plaudit.collect.database import in_memory
from plaudit.collect.log import Entry, Event, last_of_labels, same
from plaudit.collect.pictures import write_pictures
from plaudit.collect.progress import project_status
from plaudit.collect.project import LEAST_IN_A_GROUP, Project
from plaudit.collect.refusals import NotFoundError
from plaudit.collect.store import LabelStore, Transaction
from plaudit.collect.tables import annotator, label, task
from plaudit.data.records import Record
from plaudit.data.write import write_records
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.files.data_sets import snapshot_path

SNAPSHOT_VERSION = 1
GROUPS = ("people", "ai", "routed")


class EmptyExportError(UserError):
    """There is no row to export: no labels, or none that the filters let through, or nothing was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What of a project is exported; the defaults are what is safe to train on."""

    surplus: bool = False
    """Also labels that came too late to count."""
    items: bool = False
    """Also answers to gold, qualifying and repeated items."""
    suspended: bool = False
    """Also labels of people who were suspended or did not qualify."""
    adjudicated: bool = True
    """A reviewer's decision stands in place of the labels that it decides about."""
    settled: bool = False
    """Only tasks that want no more labels."""
    group: str = "people"
    """Whose labels: people's, those of models (``ai``), or people's and behind them what judges kept under a
    route (``routed``); each row says whose it is."""
    annotator: str | None = None
    """Only labels of this person or judge; None is everybody of the group."""
    by: str | None = None
    """A group that the project asks people for: rows name its value, and only large enough ones are left."""

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise UserError(f"group {self.group!r}: expected people, ai or routed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    store: str
    """Where the labels lie; never with a password."""
    project: str
    seq: int
    link: str
    """The chain's value there: with it the log proves that it is the one that was exported."""
    filters: dict[str, Any]
    rows: int
    sha256: str
    tasks: dict[str, int]
    """Tasks by state at that position."""
    labels: int
    """Labels that count at that position."""
    guidelines: tuple[str, ...]
    """The versions of the guidelines that the exported labels were given under."""
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    """Labels that the filters leave out, by reason."""
    events: tuple[int, ...] = ()
    """Of each row, in order, the number of the event that it comes from."""
    votes: tuple[tuple[int, ...], ...] = ()
    """Of soft rows, the numbers of all events that each row's chance comes from; empty for other rows."""
    version: int = SNAPSHOT_VERSION

    @property
    def heard(self) -> set[int]:
        """The numbers of all labels that a row comes of."""
        return {*self.events}.union(*self.votes)


_LABELS = (
    select(
        label,
        task.c.body,
        task.c.seq.label("task_seq"),
        task.c.state.label("task_state"),
        annotator.c.excluded,
        annotator.c.preferences,
    )
    .join(task, same(task, label, id="task"))
    # Outer: a model that judges has no row among the annotators.
    .outerjoin(annotator, same(annotator, label, name="annotator"))
    .where(label.c.project == bindparam("p"))
    # By number alone, so that both databases give the same bytes.
    .order_by(task.c.seq, label.c.seq)
)


def export(
    store: LabelStore,
    project: str,
    out: Path,
    *,
    filters: Filters | None = None,
    position: int | None = None,
    tasks: Collection[str] | None = None,
    soft: bool = False,
    actor: str = "plaudit",
) -> Snapshot:
    """Write rows and their snapshot; the log remembers it with the rows' hash, once for the same bytes.

    ``tasks`` are the ids of those that are wanted; None is all of the project. ``soft`` asks for a row a pair
    of answers, with the chance that people prefer the first, in place of a row a label.
    """
    chosen = Filters() if filters is None else filters
    with _moment(store, project, position) as (connection, seq, link):
        settings = _settings(store, connection, project, position)
        status = project_status(Transaction(connection, store.now), project)
        retained = retained_by_judges(store, project, seq)
        result, left_out = selected_labels(connection, project, chosen, tasks, retained=retained)
    if chosen.by is not None:
        result = _of_groups(result, chosen, settings, left_out, soft=soft)
    given = (result, settings, chosen)
    rows, events, votes = _soft_rows(*given) if soft else _rows(*given, _flags_from(store, project, seq))
    if silent := len(result) - len({*events}.union(*votes)):
        left_out["that say nothing of the answers"] = silent
    if not rows:
        raise EmptyExportError(f"{store.where}: nothing of project {project} to export ({_counts(left_out)})")
    _write(store, project, rows, out)
    snapshot = Snapshot(
        **{"store": store.where, "project": project, "seq": seq, "link": link},
        filters=asdict(chosen) | _also(soft, tasks),
        rows=len(rows),
        sha256=file_hash(out),
        tasks=status.tasks,
        labels=status.labels,
        guidelines=tuple(sorted({row.guidelines for row in result})),
        left_out=left_out,
        events=tuple(events),
        votes=tuple(votes),
    )
    _write_and_record(store, snapshot, out, actor)
    return snapshot


def _write(store: LabelStore, project: str, rows: Sequence[Record], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    # First: rows never name a picture that is not there yet.
    store.read(write_pictures, project, rows, out.parent)
    write_records(rows, out)


def _settings(store: LabelStore, connection: Connection, project: str, position: int | None) -> Project:
    settings = views.settings_of(connection, project)
    if settings is None:
        at = "" if position is None else f" at position {position}"
        raise NotFoundError(f"{store.where}: there is no project {project!r}{at}")
    return settings


def _counts(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in left_out.items()) or "there are no labels yet"


def snapshot_to_dict(snapshot: Snapshot) -> dict[str, Any]:
    lists = {name: list(value) for name, value in asdict(snapshot).items() if isinstance(value, tuple)}
    return asdict(snapshot) | lists | {"votes": [list(seqs) for seqs in snapshot.votes]}


def _also(soft: bool, tasks: Collection[str] | None) -> dict[str, Any]:
    # What a snapshot's filters say where rows are soft, or only some tasks are wanted.
    more: dict[str, Any] = {"soft": True} if soft else {}
    return more if tasks is None else more | {"tasks": log.digest(sorted(tasks))}


Rows = tuple[list[Record], list[int], list[tuple[int, ...]]]
"""Rows, the number of the event that each comes from, and of soft rows those of all events."""


def group_of(row: Any, by: str) -> str:
    """What somebody said of this group; a reviewer's decision is nobody's taste."""
    groups = json.loads(row.preferences or "{}").get("groups", {})
    return "" if row.purpose == "adjudicated" else groups.get(by, "")


def _of_groups(
    found: Sequence[Any], filters: Filters, settings: Project, left_out: dict[str, int], *, soft: bool
) -> list[Any]:
    assert filters.by is not None
    if filters.by not in settings.values_of_groups:
        known = ", ".join(settings.values_of_groups) or "none"
        raise UserError(f"project {settings.name} asks for no group {filters.by!r}; it asks for {known}")
    if soft or filters.group != "people":
        raise UserError("rows by group are of people, one a label: export without soft and ai")
    values = {row.seq: group_of(row, filters.by) for row in found}
    people = Counter(value for value, _ in {(values[row.seq], row.annotator) for row in found} if value)
    # A row of a group of one would be a row of somebody.
    large = {value for value, count in people.items() if count >= LEAST_IN_A_GROUP}
    for value in values.values():
        if value not in large:
            why = "of a group of fewer than five people" if value else "of people who did not say their group"
            left_out[why] = left_out.get(why, 0) + 1
    return [row for row in found if values[row.seq] in large]


def _soft_rows(found: Sequence[Any], settings: Project, filters: Filters) -> Rows:
    if filters.group != "people":
        raise UserError(
            "soft rows are of people: how sure a model is, it says itself, so export without soft"
        )
    # Here and not above: a server exports too, and need not load what computes.
    from plaudit.collect.quality.gathering import soft_rows

    return soft_rows(found, settings)


def _flags_from(store: LabelStore, project: str, position: int) -> int:
    # The event since which people can report an answer: an earlier label without a report says nothing.
    with store.looking() as moment:
        settings = [event for event in _events_of(moment.connection, project, project) if event.body]
    sets = (event for event in settings if event.kind == "project-set" and event.seq <= position)
    return max((event.seq for event in sets if not (event.body or {})["settings"]["flags"]), default=0)


def _rows(found: Sequence[Any], settings: Project, filters: Filters, flags_from: int) -> Rows:
    # The rows of labels, and of each the number of the event that it comes from.
    rows, events, unflagged = list[Record](), list[int](), replace(settings, flags=())
    for row in found:
        whose = "ai" if row.purpose == "judged" else "people"
        group = whose if filters.by is None else group_of(row, filters.by)
        own = rows_of(row, group, settings if row.seq > flags_from else unflagged)
        rows += own
        events += [row.seq] * len(own)
    return rows, events, []


def retained_by_judges(store: LabelStore, project: str, position: int | None = None) -> dict[str, str]:
    """Who keeps which task by the routes, all or those up to a position: the task's id and the judge."""
    retained = dict[str, str]()
    with store.looking() as moment:
        for event in _events_of(moment.connection, project, project):
            if event.kind != "routed" or event.body is None:
                continue
            if position is None or event.seq <= position:
                # A later route stands in place of an earlier one, for the tasks that it is about.
                listed = {*event.body["tasks"]}
                retained = {task: judge for task, judge in retained.items() if task not in listed}
                retained |= event.body["kept"]
    return retained


def _export_body(snapshot: Snapshot) -> dict[str, Any]:
    return {name: getattr(snapshot, name) for name in ("sha256", "seq", "rows", "filters")}


def _write_and_record(store: LabelStore, snapshot: Snapshot, out: Path, actor: str) -> None:
    atomic.write_json(snapshot_path(out), snapshot_to_dict(snapshot))
    body, project = _export_body(snapshot), snapshot.project
    key = f"export/{log.digest(body)}"
    with store.changing() as change:
        if log.by_key(change.connection, project, key) is None:
            entry = Entry(project=project, actor=actor, kind="exported", subject=project, body=body, key=key)
            change.record(entry)


@contextmanager
def _moment(store: LabelStore, project: str, position: int | None) -> Iterator[tuple[Connection, int, str]]:
    # The project as it is, or as it was at a position, with the last event that it consisted of.
    with store.looking() as moment:
        newest = log.last(moment.connection)[0]
        wanted = newest if position is None else position
        if not 0 < wanted <= newest:
            raise UserError(f"{store.where}: position {position} is not there; the log has 1 to {newest}")
        seq, link = last_of_labels(moment.connection, project, wanted)
        # Nothing of the project came later, so the tables as they are say how it was.
        if seq == last_of_labels(moment.connection, project, newest)[0]:
            yield moment.connection, seq, link
            return
        # In memory: who only looks at the past writes nothing into the store.
        with in_memory() as past:
            _replay(moment.connection, past, project, seq)
            yield past, seq, link


def _replay(source: Connection, target: Connection, project: str, position: int) -> None:
    remains = dict(_remains(source, project, position))
    for event in log.events(source):
        if event.seq > position:
            return
        if event.project == project:
            is_gone = event.body is None and event.seq in remains
            views.apply(target, replace(event, body=remains[event.seq]) if is_gone else event)


def _remains(connection: Connection, project: str, position: int) -> Iterator[tuple[int, dict[str, Any]]]:
    # What is left of answers whose words were erased after a position: the clicks, so the same rows.
    for event in log.events(connection, position):
        if event.project == project and event.kind == "erased" and event.body is not None:
            yield from ((item["seq"], item["body"]) for item in event.body["remains"])


def selected_labels(
    connection: Connection,
    project: str,
    filters: Filters,
    tasks: Collection[str] | None = None,
    *,
    retained: Mapping[str, str] | None = None,
) -> tuple[Sequence[Any], dict[str, int]]:
    """The rows of labels that filters let through, in the order of their tasks, and what they leave out.

    ``retained``: the judge who keeps each task, of the group ``routed``.
    """
    rows = connection.execute(_LABELS, {"p": project}).all()
    if tasks is not None:
        wanted = {*tasks}
        rows = [row for row in rows if row.task in wanted]
    decided = (
        {row.task for row in rows if row.purpose == "adjudicated"} if filters.adjudicated else set[str]()
    )
    selected, left_out = list[Any](), dict[str, int]()
    for row in rows:
        reason = _reason_left_out(row, filters, decided, (retained or {}).get(row.task))
        if reason is None:
            selected.append(row)
        else:
            left_out[reason] = left_out.get(reason, 0) + 1
    return selected, left_out


def _reason_left_out(row: Any, filters: Filters, decided: set[str], keeper: str | None) -> str | None:
    is_model, routed = row.purpose == "judged", filters.group == "routed"
    reasons = {
        "of another group": is_model != (filters.group == "ai") and not routed,
        "of judges who do not keep the task": routed and is_model and row.annotator != keeper,
        "of another annotator": filters.annotator not in (None, row.annotator),
        "of an item whose answer is known": row.purpose in ("gold", "qualify", "repeat")
        and not filters.items,
        "surplus": bool(row.surplus) and not filters.surplus,
        "of a suspended annotator": bool(row.excluded) and not filters.suspended,
        "decided by a reviewer": row.task in decided and row.purpose == "work",
        "a reviewer's, not asked for": row.purpose == "adjudicated" and not filters.adjudicated,
        "of an unsettled task": filters.settled and row.task_state in ("open", "review"),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_snapshot(rows: Path) -> Snapshot:
    """The snapshot of a file of rows, which must still be the file that was exported."""
    path = snapshot_path(rows)
    if not rows.is_file():
        raise UserError(f"{rows}: there is no such file")
    if not path.is_file():
        raise UserError(f"{rows}: there is no {path.name}, so these rows were not exported from a store")
    try:
        values: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
        lists = {name: tuple(values[name]) for name in ("events", "guidelines")}
        # Snapshots of an earlier plaudit have no votes.
        votes = tuple(map(tuple, values.get("votes", ())))
        snapshot = Snapshot(**{**values, **lists, "votes": votes})
        if snapshot.version != SNAPSHOT_VERSION or len(snapshot.events) != snapshot.rows:
            raise ValueError(f"version {snapshot.version}, {len(snapshot.events)} events")
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: not a snapshot that this plaudit wrote ({error}); export again") from error
    if file_hash(rows) != snapshot.sha256:
        raise UserError(f"{rows}: the rows were changed after they were exported; export them again")
    return snapshot


def trace_row(store: LabelStore, rows: Path, number: int) -> list[Event]:
    """The events that a row comes from, oldest first: its task, lease, label, revisions and export."""
    snapshot = read_snapshot(rows)
    if not 0 < number <= snapshot.rows:
        raise UserError(f"{rows}: there is no row {number}; there are 1 to {snapshot.rows}")
    refuse_other_store(store, rows, snapshot)
    with store.looking() as look:
        labels = snapshot.votes[number - 1] if snapshot.votes else (snapshot.events[number - 1],)
        events = [event for seq in labels for event in _history(look.connection, snapshot, seq)]
        key = f"export/{log.digest(_export_body(snapshot))}"
        exported = log.by_key(look.connection, snapshot.project, key)
    by_seq = {event.seq: event for event in (*events, *([] if exported is None else [exported]))}
    return [by_seq[seq] for seq in sorted(by_seq)]


def refuse_other_store(store: LabelStore, rows: Path, snapshot: Snapshot) -> None:
    """Complain about a store that rows were not exported from."""
    with store.looking() as look:
        at = log.by_seq(look.connection, snapshot.seq)
    # Any log has an event of that number; only the same log has it with that link.
    if at is None or at.link != snapshot.link:
        raise UserError(
            f"{store.where}: event {snapshot.seq} is not the one that {rows} was exported at; name the store "
            f"that it came from ({snapshot.store})"
        )


def rows_of_event(rows: Path, seq: int) -> list[int]:
    """The rows that an event became: from a click to what was learnt from it."""
    snapshot = read_snapshot(rows)
    events = snapshot.votes or tuple((event,) for event in snapshot.events)
    return [number for number, own in enumerate(events, start=1) if seq in own]


_OF_SUBJECTS = (
    select(log.log)
    .where(log.log.c.project == bindparam("p"), log.log.c.subject.in_(bindparam("s", expanding=True)))
    .order_by(log.log.c.seq)
)


def _events_of(connection: Connection, project: str, *subjects: str) -> list[Event]:
    rows = connection.execute(_OF_SUBJECTS, {"p": project, "s": subjects}).mappings()
    return [log.event_of_row(row) for row in rows]


def _history(connection: Connection, snapshot: Snapshot, seq: int) -> list[Event]:
    # All events of a label's task and assignment, and the settings and the route that it was given under.
    project = snapshot.project
    event = log.by_seq(connection, seq)
    assert event is not None
    of_label, of_project = (_events_of(connection, project, subject) for subject in (event.subject, project))
    tasks = {lease.body["task"] for lease in of_label if lease.kind == "leased" and lease.body}
    settings = [earlier for earlier in of_project if earlier.kind == "project-set" and earlier.seq < seq]
    routes = [
        earlier
        for earlier in of_project
        if earlier.kind == "routed"
        and earlier.seq <= snapshot.seq
        and event.subject in (earlier.body or {})["kept"]
    ]
    return [*settings[-1:], *routes[-1:], *_events_of(connection, project, event.subject, *tasks)]
