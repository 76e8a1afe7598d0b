"""Accounts: the rows of one person in several projects, who signs in to one of them and works in all.

Rows belong together by their name and the very same stored password: that has a salt of its own, so that two
are equal only where one was copied from the other. A name alone joins nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select, update

from plaudit.collect.desk import person_row
from plaudit.collect.log import Entry, bound, same
from plaudit.collect.own import own_progress
from plaudit.collect.progress import Status, project_status
from plaudit.collect.refusals import NotYoursError
from plaudit.collect.store import Transaction
from plaudit.collect.tables import annotator, password, session

BY_ACCOUNT = {"by": "account"}
"""The body of the event of going on in another project: no password was shown, as it is at a sign-in."""
_mine = password.alias()
_ROWS = (
    select(annotator)
    .join(password, same(password, annotator, pseudonym="name"))
    .join(_mine, (_mine.c.name_key == password.c.name_key) & (_mine.c.hash == password.c.hash))
    .where(bound(_mine, project="p", pseudonym="n"))
    .order_by(annotator.c.project)
)
_HASH = select(password.c.hash).where(bound(password, project="p", pseudonym="n"))
# The session stays the same one: it ends no later for going on elsewhere.
_SWITCH = (
    update(session)
    .where(bound(session, hash="h", project="p", pseudonym="n"))
    .values(project=bindparam("to"), pseudonym=bindparam("as"))
)


def account_rows(change: Transaction, project: str, pseudonym: str) -> Sequence[Any]:
    """Somebody's rows by project; only the one row of whoever has no password."""
    rows = change.connection.execute(_ROWS, {"p": project, "n": pseudonym}).all()
    return rows or [person_row(change, project, pseudonym)]


def stored_password(change: Transaction, project: str, pseudonym: str) -> str | None:
    return change.connection.execute(_HASH, {"p": project, "n": pseudonym}).scalar_one_or_none()


def switch_project(change: Transaction, session_hash: str, project: str, pseudonym: str, wanted: str) -> str:
    """Go on in another project of the account with the same session; gives the role there."""
    row = next((row for row in account_rows(change, project, pseudonym) if row.project == wanted), None)
    if row is None or row.standing == "suspended":
        raise NotYoursError("your account does not open this project", tried_in=project)
    names = {"h": session_hash, "p": project, "n": pseudonym, "to": wanted, "as": row.name}
    if wanted != project and change.connection.execute(_SWITCH, names).rowcount:
        entry = Entry(project=wanted, actor=row.name, kind="signed-in", subject=row.name, body=BY_ACCOUNT)
        change.record(entry)
    return row.role


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    project: str
    role: str
    standing: str
    left: int | None
    """How many tasks the person could be given; None of whoever does not label."""
    more: bool
    """Whether there may be more than were counted."""
    status: Status | None
    """How far the project is; only of those who may decide in it."""


def account_places(change: Transaction, project: str, pseudonym: str) -> list[Place]:
    """The projects of somebody's account, and what waits in each."""
    return [_place(change, row) for row in account_rows(change, project, pseudonym)]


def _place(change: Transaction, row: Any) -> Place:
    is_in = row.standing != "suspended"
    progress = own_progress(change, row.project, row.name) if is_in and row.role != "owner" else None
    return Place(
        project=row.project,
        role=row.role,
        standing=row.standing,
        left=None if progress is None else progress.left,
        more=progress is not None and progress.more,
        status=project_status(change, row.project) if is_in and row.role != "annotator" else None,
    )
