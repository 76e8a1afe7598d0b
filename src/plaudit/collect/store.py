"""The label store: a database, its moments, and transactions, by which everything in it is read and changed.

What can be asked and done stands in modules of their own, as functions of a transaction:
``store.write(answering.submit, …)``, ``store.read(own.own_lease, …)``, or several of them within one
``store.changing()``. What is written is on the disk when that ends; where it raises, nothing was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import insert, inspect, select, update

from plaudit.collect import log, tables, views
from plaudit.collect.database import Database, refuse_other_encoding
from plaudit.collect.log import Event, meta
from plaudit.collect.project import Project
from plaudit.collect.refusals import NotFoundError
from plaudit.collect.transaction import Transaction, stamp, utc_now
from plaudit.errors import UserError

_VERSIONS = select(meta.c.name, meta.c.value)
_PROJECTS = select(tables.project.c.name).order_by(tables.project.c.name)
_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


class LabelStore:
    """Projects, their tasks, people and labels, in one database.

    Example: ``open_store("labels.db", create=True).write(set_project, Project(name="p"), actor="o1")``
    """

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self.database = database
        self._clock = clock

    @property
    def where(self) -> str:
        """The file or address, without a password."""
        return self.database.where

    @property
    def now(self) -> str:
        """This moment, as the log writes it."""
        return stamp(self._clock())

    def close(self) -> None:
        """Give back all connections."""
        self.database.close()

    @contextmanager
    def changing(self) -> Iterator[Transaction]:
        """One change: all of it or nothing."""
        with self.database.writing() as connection:
            # Never before the last event: leases are compared with this moment, and clocks are set back.
            yield Transaction(connection, max(self.now, log.last(connection)[2]))

    @contextmanager
    def looking(self) -> Iterator[Transaction]:
        """One moment of the store, in which nothing can be written."""
        with self.database.reading() as connection:
            yield Transaction(connection, self.now)

    def write(
        self,
        function: Callable[Concatenate[Transaction, _Given], _Found],
        *given: _Given.args,
        **named: _Given.kwargs,
    ) -> _Found:
        """What a function gives in a change of its own."""
        with self.changing() as change:
            return function(change, *given, **named)

    def read(
        self,
        function: Callable[Concatenate[Transaction, _Given], _Found],
        *given: _Given.args,
        **named: _Given.kwargs,
    ) -> _Found:
        """What a function gives in a moment of its own."""
        with self.looking() as look:
            return function(look, *given, **named)

    def project(self, name: str) -> Project:
        """The settings of a project."""
        with self.looking() as look:
            return look.settings(name)

    def projects(self) -> list[str]:
        """The names of all projects."""
        with self.looking() as look:
            return [row.name for row in look.connection.execute(_PROJECTS)]

    def events(self, after: int = 0) -> Iterator[Event]:
        """The log behind a number."""
        with self.looking() as look:
            # The transaction lasts while somebody reads on: all events are of one moment.
            yield from log.events(look.connection, after)

    def position(self) -> tuple[int, str]:
        """The log's last number and link."""
        with self.looking() as look:
            return log.last(look.connection)[:2]


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
