"""Accounts: the rows of one person in several projects, who signs in to one of them and works in all.

Rows belong together by their name and the very same stored password: that has a salt of its own, so that two
are equal only where one was copied from the other. A name alone joins nothing.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from plaudit.collect.desk import person_row
from plaudit.collect.log import bound, same
from plaudit.collect.own import own_progress
from plaudit.collect.progress import project_status
from plaudit.collect.store import Transaction
from plaudit.collect.tables import annotator, password

_mine = password.alias()
_ROWS = (
    select(annotator)
    .join(password, same(password, annotator, pseudonym="name"))
    .join(_mine, (_mine.c.name_key == password.c.name_key) & (_mine.c.hash == password.c.hash))
    .where(bound(_mine, project="p", pseudonym="n"))
    .order_by(annotator.c.project)
)
_PASSWORD = select(password).where(bound(password, project="p", pseudonym="n"))


def account_rows(change: Transaction, project: str, pseudonym: str) -> Sequence[Any]:
    """Somebody's rows by project; only the one row of whoever has no password."""
    rows = change.connection.execute(_ROWS, {"p": project, "n": pseudonym}).all()
    return rows or [person_row(change, project, pseudonym)]


def password_row(change: Transaction, project: str, pseudonym: str) -> Any:
    """What is stored to sign in by; None of whoever came by an invite or a link alone."""
    return change.connection.execute(_PASSWORD, {"p": project, "n": pseudonym}).first()


def account_places(change: Transaction, project: str, pseudonym: str) -> list[dict[str, Any]]:
    """The rows of somebody's account, with how far person and project are, as far as it is theirs to see."""
    places = list[dict[str, Any]]()
    for row in account_rows(change, project, pseudonym):
        is_in = row.standing != "suspended"
        progress = own_progress(change, row.project, row.name) if is_in and row.role != "owner" else None
        status = project_status(change, row.project) if is_in and row.role != "annotator" else None
        places.append({"row": row, "progress": progress, "status": status})
    return places
