"""One change of the store: its moment, its connection, and the one way to write an event."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from plaudit.collect import log, views
from plaudit.collect.log import Entry, Event, digest
from plaudit.collect.project import Project
from plaudit.collect.refusals import FieldError, KeyConflictError, NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a sender gets for a word that is on the disk.

    Example: ``Receipt(receipt=812, assignment="w640", at="2026-03-01T12:00:00.000000Z")``
    """

    receipt: int
    """The number of the event."""
    assignment: str
    """What it was about."""
    at: str
    """When, in UTC."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A change that is being made.

    Example: ``Transaction(connection, "2026-03-01T12:00:00.000000Z")``
    """

    connection: Connection
    """Of the database's only writer."""
    now: str
    """The moment of the change, never before that of the last one."""

    def record(self, entry: Entry) -> Event:
        """Write an event and fold it."""
        (event,) = log.append(self.connection, self.now, [entry])
        views.apply(self.connection, event)
        return event

    def settings(self, project: str) -> Project:
        """The settings of a project."""
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


def parsed(text: str | None) -> Any:
    """A column of JSON."""
    return None if text is None else json.loads(text)


def columns(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows of a statement as plain objects."""
    return [dict(row._mapping) for row in rows]
