"""The label store: what the API, the commands and pipelines use, and nothing beneath it.

Every method is one transaction. What it returns is on the disk; where it raises, nothing was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import insert, inspect, select, update

from plaudit.collect import (
    adding,
    answering,
    desk,
    log,
    own,
    people,
    progress,
    tables,
    views,
)
from plaudit.collect.adding import Added
from plaudit.collect.answering import GivenAnswer, TakenIn
from plaudit.collect.database import Database, refuse_other_encoding
from plaudit.collect.desk import Lease, Nothing
from plaudit.collect.log import Event, meta
from plaudit.collect.people_store import PeopleStore
from plaudit.collect.progress import Status
from plaudit.collect.project import Project
from plaudit.collect.refusals import NotFoundError
from plaudit.collect.transaction import Receipt, utc_now
from plaudit.errors import UserError

_VERSIONS = select(meta.c.name, meta.c.value)
_PROJECTS = select(tables.project.c.name).order_by(tables.project.c.name)


class LabelStore(PeopleStore):
    """Projects, their tasks, people and labels, in one database.

    Example: ``open_store("labels.db", create=True).set_project(Project(name="helpful"), actor="o1")``
    """

    # Projects and tasks.

    def project(self, name: str) -> Project:
        """The settings of a project."""
        with self.looking() as look:
            return look.settings(name)

    def projects(self) -> list[str]:
        """The names of all projects."""
        with self.looking() as look:
            return [row.name for row in look.connection.execute(_PROJECTS)]

    def set_project(self, project: Project, *, actor: str, replacing: int | None = None) -> int:
        """Make a project or change its settings (where they are still those of a number); gives the event."""
        with self.changing() as change:
            return adding.set_project(change, project, actor=actor, replacing=replacing)

    def settings(self, name: str) -> tuple[Project, int]:
        """The settings of a project, and the number of the event that set them."""
        with self.looking() as look:
            seq = adding.settings_seq(look.connection, name)
            return look.settings(name), seq or 0

    def add_tasks(self, project: str, bodies: Iterable[object], *, actor: str) -> Added:
        """Add tasks, all of them or none; one that is there already is counted and left."""
        with self.changing() as change:
            return adding.add_tasks(change, project, bodies, actor=actor)

    def take_in(
        self, project: str, bodies: Sequence[Any], given: Sequence[GivenAnswer], *, actor: str
    ) -> tuple[Added, TakenIn]:
        """Add tasks with answers that people gave outside of the app; all of it or nothing."""
        with self.changing() as change:
            # Before tasks are added: afterwards these very ones would be found as known.
            fresh, given = answering.put_on_known_tasks(change, project, bodies, given)
            added = adding.add_tasks(change, project, fresh, actor=actor)
            known = len(bodies) - len(fresh)
            return replace(added, repeated=added.repeated + known), answering.take_in(change, project, given)

    def close_task(self, project: str, task: str, *, reason: str, actor: str) -> int:
        """Give a task out no more."""
        with self.changing() as change:
            return adding.close_task(change, project, task, reason=reason, actor=actor)

    # The desk.

    def next(self, project: str, annotator: str, key: str | None = None) -> Lease | Nothing:
        """Work for a person; the same for the same key."""
        with self.changing() as change:
            return desk.next_task(change, project, annotator, key)

    def draft(self, project: str, annotator: str, assignment: str, label: object) -> str:
        """Remember half an answer; gives the lease's end."""
        with self.changing() as change:
            return answering.save_draft(change, project, annotator, assignment, label)

    def submit(
        self,
        project: str,
        annotator: str,
        assignment: str,
        key: str,
        label: object,
        *,
        seconds: object = None,
        pasted: object = None,
    ) -> Receipt:
        """Take an answer, once for a key."""
        timing = {"seconds": seconds, "pasted": pasted}
        with self.changing() as change:
            return answering.submit(
                change, project, annotator, assignment, key=key, label=label, timing=timing
            )

    def skip(self, project: str, annotator: str, assignment: str, key: str, reason: str) -> Receipt:
        """Give a task back."""
        with self.changing() as change:
            return answering.skip(change, project, annotator, assignment, key=key, reason=reason)

    def undo(self, project: str, annotator: str, assignment: str, key: str) -> Receipt:
        """Take an answer back; its lease is open again."""
        with self.changing() as change:
            return answering.undo(change, project, annotator, assignment, key=key)

    def revise(
        self,
        project: str,
        annotator: str,
        assignment: str,
        key: str,
        label: object,
        *,
        seconds: object = None,
    ) -> Receipt:
        """Another answer in place of the first."""
        timing = {"seconds": seconds}
        with self.changing() as change:
            return answering.revise(
                change, project, annotator, assignment, key=key, label=label, timing=timing
            )

    def note(self, project: str, annotator: str, assignment: str, key: str, text: object) -> Receipt:
        """A note on a task that the person was given."""
        with self.changing() as change:
            return answering.note(change, project, annotator, assignment, key=key, text=text)

    def flag(
        self, project: str, annotator: str, assignment: str, key: str, reason: str, text: object = ""
    ) -> Receipt:
        """A report of a task to the owner."""
        with self.changing() as change:
            return answering.flag(change, project, annotator, assignment, key=key, reason=reason, text=text)

    def history(
        self, project: str, annotator: str, limit: int = 50, before: int | None = None
    ) -> list[dict[str, Any]]:
        """A person's own answers, the newest first."""
        with self.looking() as look:
            return answering.history(look, project, annotator, most=limit, before=before)

    def lease(self, project: str, annotator: str, assignment: str) -> Lease | None:
        """A task that the person was given, whether or not its time is over; None where it is answered."""
        with self.looking() as look:
            return own.lease(look, project, annotator, assignment)

    def answer(self, project: str, annotator: str, assignment: str) -> own.OwnAnswer | None:
        """The person's answer to a task that the person was given; None where there is none."""
        with self.looking() as look:
            return own.answer(look, project, annotator, assignment)

    def preferences(self, project: str, annotator: str) -> dict[str, list[str]]:
        """Which categories a person declined, which languages they read, which areas they know."""
        with self.looking() as look:
            return own.preferences(look, project, annotator)

    def own_progress(self, project: str, annotator: str) -> own.OwnProgress:
        """A person's own figures: how many were answered, how long each took, what is left."""
        with self.looking() as look:
            return own.progress(look, project, annotator)

    def counts(self, project: str, annotator: str) -> dict[str, int]:
        """How many tasks a person was given, answered and gave back so far, and holds now."""
        with self.looking() as look:
            return answering.counts(look, project, annotator)

    def conversation(self, project: str, annotator: str, assignment: str) -> dict[str, Any] | None:
        """A conversation in progress."""
        with self.looking() as look:
            return answering.conversation(look, project, annotator, assignment)

    def save_conversation(self, project: str, annotator: str, assignment: str, turns: dict[str, Any]) -> None:
        """Remember a conversation in progress."""
        with self.changing() as change:
            answering.save_conversation(change, project, annotator, assignment, turns)

    # Reviewers.

    def queue(self, project: str) -> list[dict[str, Any]]:
        """The tasks on which people stay divided."""
        with self.looking() as look:
            look.settings(project)
            return progress.queue(look.connection, project)

    def adjudicate(
        self,
        project: str,
        task: str,
        label: object,
        *,
        reason: str,
        actor: str,
        key: str,
        first: bool = False,
    ) -> Receipt:
        """A reviewer's decision, in the task's own order; ``first``: refused where another has decided it."""
        with self.changing() as change:
            return adding.adjudicate(
                change, project, task, label, reason=reason, actor=actor, key=key, first=first
            )

    def make_gold(self, project: str, task: str, *, actor: str) -> Added:
        """A gold item from a task that a reviewer decided; a second time it is there already."""
        with self.changing() as change:
            return adding.make_gold(change, project, task, actor=actor)

    def set_standing(self, project: str, annotator: str, standing: str, *, reason: str, actor: str) -> int:
        """Active, watch or suspended, with a reason."""
        with self.changing() as change:
            return people.set_standing(change, project, annotator, standing, reason=reason, actor=actor)

    # Owners.

    def status(self, project: str) -> Status:
        """A project in figures."""
        with self.looking() as look:
            look.settings(project)
            return progress.status(look.connection, project)

    def tasks(
        self, project: str, state: str | None = None, limit: int = 100, after: int = 0
    ) -> list[dict[str, Any]]:
        """Tasks in the order in which they were added, a page at a time."""
        with self.looking() as look:
            look.settings(project)
            return progress.tasks(look.connection, project, state=state, limit=limit, after=after)

    def annotators(self, project: str) -> list[dict[str, Any]]:
        """Everybody of a project, with counts."""
        with self.looking() as look:
            look.settings(project)
            return progress.people(look.connection, project)

    def events(self, after: int = 0) -> Iterator[Event]:
        """The log behind a number."""
        with self.looking() as look:
            # The transaction lasts while somebody reads on: all events are of one moment.
            yield from log.events(look.connection, after)

    def position(self) -> tuple[int, str]:
        """The log's last number and link."""
        with self.looking() as look:
            return log.last(look.connection)[:2]

    def check(self) -> list[str]:
        """What is wrong with the store; empty for a sound one."""
        return list(progress.faults(self.database))

    def rebuild(self) -> None:
        """Make all folds anew from the log."""
        with self.changing() as change:
            views.rebuild(change.connection, log.events(change.connection))

    def remember(self, entry: log.Entry) -> Event:
        """Write an event that only the log remembers: an export, a judgement of a model, a sign-in."""
        with self.changing() as change:
            return change.record(entry)


def open_store(
    where: str | Path, *, clock: Callable[[], datetime] = utc_now, create: bool = False
) -> LabelStore:
    """The store at a file or an address; an older one is brought up to date, a newer one is refused."""
    database = Database(where)
    # A connection makes the file: of a misspelt name an empty store would be left.
    if database.is_file and not create and not Path(where).is_file():
        raise NotFoundError(f"{where}: there is no such store; make one with `plaudit collect project`")
    try:
        _bring_up_to_date(database, create=create)
    except BaseException:
        database.close()
        raise
    return LabelStore(database, clock)


def _bring_up_to_date(database: Database, *, create: bool) -> None:
    # Without the writer's lock: nearly every store is up to date, and opening it then waits for nobody.
    with database.reading() as connection:
        versions = _versions(connection)
    if versions == {"log": log.LOG_VERSION, "views": views.VIEWS_VERSION}:
        return
    if versions and versions["log"] > log.LOG_VERSION:
        raise UserError(
            f"{database.where}: this store is of a newer plaudit (its log has shape {versions['log']}, this "
            f"plaudit knows {log.LOG_VERSION}); use that one, or a later one"
        )
    if versions and versions["views"] > views.VIEWS_VERSION:
        raise UserError(
            f"{database.where}: a newer plaudit works on this store (tables of version {versions['views']}, "
            f"this plaudit makes {views.VIEWS_VERSION}); use that one, or a later one"
        )
    if not versions and not create:
        raise NotFoundError(
            f"{database.where}: this is no store of plaudit; make one with `plaudit collect project`"
        )
    with database.writing() as connection:
        refuse_other_encoding(database, connection)
        for table in tables.FOLDS:
            # Dropped and not emptied: an older version may have had other columns.
            table.drop(connection, checkfirst=True)
        log.METADATA.create_all(connection)
        # An index on a table that is there already is made by nobody else.
        for index in (log.REFUSALS, log.TRAIL):
            index.create(connection, checkfirst=True)
        views.rebuild(connection, log.events(connection))
        _write_versions(connection)


def _versions(connection: Any) -> dict[str, int]:
    if not inspect(connection).has_table(meta.name):
        return {}
    return {row.name: int(row.value) for row in connection.execute(_VERSIONS)}


def _write_versions(connection: Any) -> None:
    there = _versions(connection)
    for name, number in (("log", log.LOG_VERSION), ("views", views.VIEWS_VERSION)):
        value = {"value": str(number)}
        if name in there:
            connection.execute(update(meta).where(meta.c.name == name).values(**value))
        else:
            connection.execute(insert(meta).values(name=name, **value))
