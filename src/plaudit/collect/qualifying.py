"""Qualifying, and the guidelines: what a person shows and reads before the work counts.

What a person learns of the own qualification is how many were right, once it is over, and never which ones:
the items go on being asked of others.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import bindparam, select

from plaudit.collect.answers import agrees_with_gold
from plaudit.collect.assigning import wilson_lower
from plaudit.collect.desk import person_row
from plaudit.collect.log import Entry
from plaudit.collect.refusals import FieldError, checked_text
from plaudit.collect.tables import label, task
from plaudit.collect.transaction import Transaction

PLAUDIT = "plaudit"
"""The actor of what follows from a rule and not from a person."""
State = Literal["none", "running", "passed", "failed"]
"""Where a person is with qualifying; none, where it was not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualification:
    """How far a person is with qualifying, and how it ended.

    Example: ``Qualification(answered=25, right=22, needed=25, floor=0.65, state="passed", lower=0.7)``
    """

    answered: int
    """Items that the person has answered."""
    right: int
    """How many were right; 0 while it is running, or the number would give each item away."""
    needed: int
    """How many are asked."""
    floor: float
    """The share that has to be reached for certain."""
    state: State
    """None, running, passed or failed."""
    lower: float
    """What is reached for certain: the low end of Wilson's interval; 0 while it is running."""


_QUALIFYING = (
    select(label.c.label, label.c.shown, task.c.body)
    .join(task, (task.c.project == label.c.project) & (task.c.id == label.c.task))
    .where(
        label.c.project == bindparam("p"),
        label.c.annotator == bindparam("n"),
        label.c.purpose == "qualify",
    )
)
_VERSION = re.compile(r"[0-9a-f]{12}")


def _verdicts(look: Transaction, name: str, person: str) -> list[bool | None]:
    """Whether each answer to a qualifying item is right; None for one that says nothing can be said."""
    rows = look.connection.execute(_QUALIFYING, {"p": name, "n": person})
    return [
        agrees_with_gold(json.loads(row.label), json.loads(row.body), json.loads(row.shown)) for row in rows
    ]


def qualification(look: Transaction, name: str, person: str) -> Qualification:
    """A person's own qualification, without what is right."""
    settings, row = look.settings(name), person_row(look, name, person)
    # Pages ask on every task: where nobody has to qualify, a person's labels are not read for it.
    verdicts = _verdicts(look, name, person) if settings.qualify_n else []
    counted = [verdict for verdict in verdicts if verdict is not None]
    lower = wilson_lower(sum(counted), len(counted))
    state = _state(row, needed=settings.qualify_n, answered=len(verdicts))
    is_over = state in ("passed", "failed")
    return Qualification(
        answered=len(verdicts),
        right=sum(counted) if is_over else 0,
        needed=settings.qualify_n,
        floor=settings.qualify_floor,
        state=state,
        lower=lower if is_over else 0.0,
    )


def _state(row: Any, *, needed: int, answered: int) -> State:
    if row.standing == "failed":
        return "failed"
    if row.role != "annotator" or needed == 0:
        return "none"
    if row.standing == "qualifying":
        return "running"
    # A reviewer may have let the person in before the end.
    return "passed" if answered >= needed else "none"


def conclude_qualification(change: Transaction, name: str, person: str) -> None:
    """After enough items: active where even the low end of the interval is good enough, else failed."""
    settings = change.settings(name)
    verdicts = _verdicts(change, name, person)
    if len(verdicts) < settings.qualify_n:
        return
    # Who said that nothing can be said was neither right nor wrong.
    counted = [verdict for verdict in verdicts if verdict is not None]
    low = wilson_lower(sum(counted), len(counted))
    standing = "active" if low >= settings.qualify_floor else "failed"
    reason = f"{sum(counted)} of {len(counted)} right: at least {low:.2f}, wanted {settings.qualify_floor:g}"
    body = {"standing": standing, "reason": reason}
    # A reviewer may have decided meanwhile, and no rule overrules a person.
    if person_row(change, name, person).standing == "qualifying":
        change.record(Entry(project=name, actor=PLAUDIT, kind="standing-set", subject=person, body=body))


def read_guidelines(change: Transaction, name: str, person: str, version: object) -> None:
    """Remember that a person has read a version of the guidelines; once is enough."""
    words = checked_text("version", version, most=200)
    if not _VERSION.fullmatch(words):
        raise FieldError(field="version", found=repr(words), expected="the version that the page shows")
    if person_row(change, name, person).guidelines != words:
        body = {"version": words}
        change.record(Entry(project=name, actor=person, kind="guidelines-read", subject=person, body=body))


def guidelines_read(look: Transaction, name: str, person: str) -> str | None:
    """The version that a person has read last; None for none."""
    return person_row(look, name, person).guidelines or None
