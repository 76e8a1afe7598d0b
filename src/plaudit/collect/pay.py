"""The pay sheet: what everybody did and how long it took, as a table that a spreadsheet only reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from sqlalchemy import ColumnElement, bindparam, case, func, select

from plaudit.collect.tables import annotator, label, participant, person
from plaudit.collect.transaction import Transaction, columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Pay:
    """What somebody did.

    Example: ``Pay(pseudonym="a3", name="Ada", participant=None, labels=120, surplus=2, gold=6, …)``
    """

    pseudonym: str
    """What the log calls the person."""
    name: str | None
    """The name; None of somebody who was erased."""
    participant: str | None
    """What the panel calls a person whom it sent."""
    labels: int
    """Answers that count."""
    surplus: int
    """Answers that came too late to count: work all the same."""
    gold: int
    """Answers to items whose answer is known."""
    qualifying: int
    """Answers to items by which the person qualified."""
    repeats: int
    """Answers to tasks that were shown a second time."""
    skipped: int
    """Tasks that were given back."""
    seconds: float
    """Active time, as far as it was measured."""


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))


_PURPOSES = {"gold": "gold", "qualifying": "qualify", "repeats": "repeat"}
_OWN = (label.c.project == annotator.c.project) & (label.c.annotator == annotator.c.name)
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
    .outerjoin(person, (person.c.project == annotator.c.project) & (person.c.pseudonym == annotator.c.name))
    .outerjoin(
        participant,
        (participant.c.project == annotator.c.project) & (participant.c.pseudonym == annotator.c.name),
    )
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
