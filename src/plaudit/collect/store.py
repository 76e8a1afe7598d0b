"""The label store: a database, its moments, and transactions, by which everything in it is read and changed.

What can be asked and done stands in modules of their own, as functions of a transaction:
``store.write(answering.submit, …)``, ``store.read(own.own_lease, …)``, or several of them within one
``store.changing()``. What is written is on the disk when that ends; where it raises, nothing was changed.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, insert, inspect, select, update

from plaudit.collect import log, tables, views
from plaudit.collect.database import Database, refuse_other_encoding
from plaudit.collect.log import METADATA, Entry, Event, digest, meta
from plaudit.collect.project import Project
from plaudit.collect.refusals import FieldError, KeyConflictError, NotFoundError
from plaudit.errors import UserError

_VERSIONS = select(meta.c.name, meta.c.value)
_PROJECTS = select(tables.project.c.name).order_by(tables.project.c.name)
_ROWS, _PICTURES = 1_000, 20
_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a sender gets for a word that is on the disk."""

    receipt: int
    assignment: str
    at: str


@dataclass(frozen=True, slots=True)
class Transaction:
    connection: Connection
    now: str
    """The moment of the change, as `moment_of` has it."""

    def record(self, entry: Entry) -> Event:
        (event,) = log.append(self.connection, self.now, [entry])
        views.apply(self.connection, event)
        return event

    def settings(self, project: str) -> Project:
        settings = views.settings_of(self.connection, project)
        if settings is None:
            raise NotFoundError(f"there is no project {project!r} in this store")
        return settings

    def earlier(self, entry: Entry, request: dict[str, Any]) -> Event | None:
        """The event that these words made when they were sent before; a key of other words is refused."""
        assert entry.key is not None
        event = log.by_key(self.connection, entry.project, entry.key)
        if event is None:
            return None
        same = event.kind == entry.kind and event.body is not None
        if not same or (event.body or {}).get("request") != request_digest(request):
            raise KeyConflictError(
                "this key was used before for something else; use a fresh one for every new answer"
            )
        return event

    def record_once(self, entry: Entry, request: dict[str, Any]) -> Receipt:
        """Write an event, or find the one that the same words under the same key made before."""
        event = self.earlier(entry, request)
        if event is None:
            event = self.record(replace(entry, body={**entry.body, "request": request_digest(request)}))
        return receipt_of(event)


def request_digest(request: dict[str, Any]) -> str:
    """What two sends must share to be one."""
    try:
        return digest(request)
    except (ValueError, TypeError):
        raise FieldError(
            field="label", found="a number or text that JSON cannot hold", expected="plain JSON in UTF-8"
        ) from None


def receipt_of(event: Event) -> Receipt:
    """The receipt of an event: the same one, however often it is asked for."""
    return Receipt(receipt=event.seq, assignment=event.subject, at=event.at)


def utc_now() -> datetime:
    """The clock of a store, unless a test has another."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """A moment as the log writes it, so that texts sort like times.

    >>> stamp(datetime(2026, 3, 1, 12, tzinfo=UTC))
    '2026-03-01T12:00:00.000000Z'
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def later(moment: str, **duration: float) -> str:
    """A moment some time after another.

    >>> later("2026-03-01T12:00:00.000000Z", minutes=30)
    '2026-03-01T12:30:00.000000Z'
    """
    return stamp(datetime.fromisoformat(moment) + timedelta(**duration))


AHEAD_HOURS = 1
"""A time that is so far ahead is of a clock that was wrong."""


def ahead(now: str) -> str:
    """The latest that a clock may have said by now: what is said to be later is no measure of anything."""
    return later(now, hours=AHEAD_HOURS)


def moment_of(now: str, latest: str) -> str:
    """The moment of a change: not before the last event where a clock was corrected by a little.

    Where the last event is far ahead its clock was wrong, or this one is; time goes on by the one there is.

    >>> moment_of("2026-03-01T12:00:00.000000Z", "2026-03-01T12:00:09.000000Z")
    '2026-03-01T12:00:09.000000Z'
    >>> moment_of("2026-03-01T12:00:00.000000Z", "2028-03-01T12:00:00.000000Z")
    '2026-03-01T12:00:00.000000Z'
    """
    return latest if now < latest <= ahead(now) else now


def parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def columns(rows: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in rows]


class LabelStore:
    """Projects, their tasks, people and labels, in one database."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self.database = database
        self._clock = clock

    @property
    def where(self) -> str:
        return self.database.where

    @property
    def now(self) -> str:
        return stamp(self._clock())

    def close(self) -> None:
        self.database.close()

    @contextmanager
    def changing(self) -> Iterator[Transaction]:
        with self.database.writing() as connection:
            yield Transaction(connection, moment_of(self.now, log.last(connection)[2]))

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
        with self.looking() as look:
            return look.settings(name)

    def projects(self) -> list[str]:
        with self.looking() as look:
            return [row.name for row in look.connection.execute(_PROJECTS)]

    def events(self, after: int = 0) -> Iterator[Event]:
        with self.looking() as look:
            # The transaction lasts while somebody reads on: all events are of one moment.
            yield from log.events(look.connection, after)

    def position(self) -> tuple[int, str]:
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


def copy_store(store: LabelStore, target: str | Path) -> int:
    """Copy everything to a new file or an empty database, as of one moment; gives the log's position.

    The folds are made anew from the log, so that what is copied is proven to be whole.
    """
    database = Database(target)
    if database.is_file and Path(target).exists():
        raise UserError(f"{target}: there is a file already; a backup never overwrites one")
    try:
        with database.writing() as there, store.database.reading() as here:
            refuse_other_encoding(database, there)
            METADATA.create_all(there)
            if log.last(there)[0]:
                raise UserError(f"{database.where}: there is a store already; name an empty database")
            for table in (meta, log.log, tables.picture, *tables.PERSONAL):
                # In parts: the log of a large project may not fit into memory.
                size = _PICTURES if table is tables.picture else _ROWS
                rows = here.execution_options(yield_per=size).execute(select(table)).mappings()
                for part in rows.partitions(size):
                    there.execute(insert(table), [dict(row) for row in part])
            # The rows came past the log's own way of writing.
            log.cache_of(there).clear()
            faults = list(log.chain_faults(there))
            if faults:
                raise UserError(f"{store.where}: the store is damaged, so it was not copied: {faults[0]}")
            views.rebuild(there, log.events(there))
            return log.last(there)[0]
    # Ctrl-C too: half a copy would pass for a backup.
    except BaseException:
        database.close()
        # Closed before: SQLite then clears away the files that it keeps beside its own.
        if database.is_file:
            Path(target).unlink(missing_ok=True)
        raise
    finally:
        database.close()
