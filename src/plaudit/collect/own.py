"""What a person's own pages show: figures of the own work, a task taken up again, an answer to be changed."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from sqlalchemy import bindparam, func, select

from plaudit.collect.answers import agrees_with_gold
from plaudit.collect.assigning import wilson_lower
from plaudit.collect.desk import HOLDS, Lease, is_through, lease_of, left_for, own_assignment, person_row
from plaudit.collect.log import Entry, bound, same
from plaudit.collect.refusals import FieldError, checked_text
from plaudit.collect.store import Transaction
from plaudit.collect.tables import label, panel, participant, task
from plaudit.collect.tasks import shown_task

_RECENT = 100
_OWN = bound(label, project="p", annotator="n")
_LABEL = select(label).where(_OWN, label.c.assignment == bindparam("a"))
# A reviewer's decision has no lease, and could not be undone.
_NEWEST = (
    select(label.c.seconds, label.c.assignment)
    .where(_OWN, label.c.purpose != "adjudicated")
    .order_by(label.c.number.desc(), label.c.seq.desc())
    .limit(_RECENT)
)
HOLDING = select(func.count()).where(*HOLDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnProgress:
    answered: int
    median_seconds: float | None
    """The median of the active seconds of the newest answers; None where none was timed."""
    left: int
    """How many tasks the person holds or could still be given."""
    more: bool
    """Whether there may be more than were counted."""
    last: str | None
    """The assignment of the newest answer, which can be undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAnswer:
    """An answer that holds, with the task as it was shown."""

    assignment: str
    shown: dict[str, Any]
    label: dict[str, Any]
    surplus: bool
    """Whether it came too late to count."""
    guidelines: str


def own_progress(look: Transaction, name: str, person: str) -> OwnProgress:
    row = person_row(look, name, person)
    newest = look.connection.execute(_NEWEST, {"p": name, "n": person}).all()
    seconds = [answer.seconds for answer in newest if answer.seconds is not None]
    left, more = left_for(look, name, person)
    holding = look.connection.execute(HOLDING, {"p": name, "n": person}).scalar_one()
    return OwnProgress(
        answered=row.answered,
        median_seconds=median(seconds) if seconds else None,
        left=left + holding,
        more=more,
        last=newest[0].assignment if newest else None,
    )


def own_lease(look: Transaction, name: str, person: str, assignment: str) -> Lease | None:
    """A task that the person was given and has not answered; its time may be over."""
    row = own_assignment(look, name, person, assignment)
    return None if row.state == "answered" else lease_of(look, row)


def own_answer(look: Transaction, name: str, person: str, assignment: str) -> OwnAnswer | None:
    """The person's answer to a task that the person was given."""
    given = own_assignment(look, name, person, assignment)
    row = look.connection.execute(_LABEL, {"p": name, "n": person, "a": assignment}).first()
    if row is None:
        return None
    return OwnAnswer(
        assignment=assignment,
        shown=shown_task(json.loads(given.body), json.loads(row.shown), look.settings(name)),
        label=json.loads(row.label),
        surplus=bool(row.surplus),
        guidelines=row.guidelines,
    )


def own_preferences(look: Transaction, name: str, person: str) -> dict[str, Any]:
    """Which categories a person declined, which languages the person reads, which areas they know, and
    what they said of themselves, by group."""
    found = json.loads(person_row(look, name, person).preferences)
    lists = {word: [*found.get(word, ())] for word in ("declined", "languages", "areas")}
    return {**lists, "groups": found.get("groups", {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What is known of a qualifying item that was answered, for the person to learn from."""

    kind: str
    gold: dict[str, Any]
    order: list[int]
    """Which candidate was shown at which place."""
    reason: str
    is_right: bool | None
    """None where the person said that nothing can be said."""


def lesson_of(look: Transaction, name: str, person: str, assignment: str) -> Lesson | None:
    """The known answer to a qualifying item once it is answered; None of all else, and where it is hidden."""
    given = own_assignment(look, name, person, assignment)
    row = look.connection.execute(_LABEL, {"p": name, "n": person, "a": assignment}).first()
    if row is None or row.purpose != "qualify" or not look.settings(name).qualify_teach:
        return None
    body, order = json.loads(given.body), json.loads(row.shown)
    return Lesson(
        kind=body["kind"],
        gold=body["gold"],
        order=order,
        reason=body.get("gold_reason", ""),
        is_right=agrees_with_gold(json.loads(row.label), body, order),
    )


PLAUDIT = "plaudit"
"""The actor of what follows from a rule and not from a person."""
State = Literal["none", "running", "passed", "failed"]
"""Where a person is with qualifying; none, where it was not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualification:
    """How far a person is with qualifying, and how it ended."""

    answered: int
    right: int
    """How many were right; 0 while it is running, or the number would give each item away."""
    needed: int
    floor: float
    """The share that has to be reached for certain."""
    state: State
    lower: float
    """What is reached for certain: the low end of Wilson's interval; 0 while it is running."""


_QUALIFYING = (
    select(label.c.label, label.c.shown, task.c.body)
    .join(task, same(task, label, id="task"))
    .where(bound(label, project="p", annotator="n"), label.c.purpose == "qualify")
)
_VERSION = re.compile(r"[0-9a-f]{12}")


def _verdicts(look: Transaction, name: str, person: str) -> list[bool | None]:
    # Whether each answer to a qualifying item is right; None for one that says nothing can be said.
    rows = look.connection.execute(_QUALIFYING, {"p": name, "n": person})
    return [
        agrees_with_gold(json.loads(row.label), json.loads(row.body), json.loads(row.shown)) for row in rows
    ]


def _reached(verdicts: Sequence[bool | None]) -> tuple[int, int, float]:
    # How many are right of how many, and the share that is reached for certain.
    # Who said that nothing can be said was neither right nor wrong.
    counted = [verdict for verdict in verdicts if verdict is not None]
    return sum(counted), len(counted), wilson_lower(sum(counted), len(counted))


def qualification(look: Transaction, name: str, person: str) -> Qualification:
    settings, row = look.settings(name), person_row(look, name, person)
    # Pages ask on every task: where nobody has to qualify, a person's labels are not read for it.
    verdicts = _verdicts(look, name, person) if settings.qualify_n else []
    right, _, lower = _reached(verdicts)
    state = _state(row, needed=settings.qualify_n, answered=len(verdicts))
    is_over = state in ("passed", "failed")
    return Qualification(
        answered=len(verdicts),
        right=right if is_over else 0,
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
    right, counted, low = _reached(verdicts)
    standing = "active" if low >= settings.qualify_floor else "failed"
    reason = f"{right} of {counted} right: at least {low:.2f}, wanted {settings.qualify_floor:g}"
    body = {"standing": standing, "reason": reason}
    # A reviewer may have decided meanwhile, and no rule overrules a person.
    if person_row(change, name, person).standing == "qualifying":
        change.record(Entry(project=name, actor=PLAUDIT, kind="standing-set", subject=person, body=body))


def read_guidelines(change: Transaction, name: str, person: str, version: object) -> None:
    words = checked_text("version", version, most=200)
    if not _VERSION.fullmatch(words):
        raise FieldError(field="version", found=repr(words), expected="the version that the page shows")
    if person_row(change, name, person).guidelines != words:
        body = {"version": words}
        change.record(Entry(project=name, actor=person, kind="guidelines-read", subject=person, body=body))


def guidelines_read(look: Transaction, name: str, person: str) -> str | None:
    """The version that a person has read last; None for none."""
    return person_row(look, name, person).guidelines or None


_PANEL = (
    select(panel.c.code, panel.c.tasks)
    .join(participant, participant.c.panel == panel.c.hash)
    .where(bound(participant, project="p", pseudonym="n"))
)


def completion_code(look: Transaction, name: str, person: str) -> str | None:
    """The code of a person's panel, once the person is through; None before, and for everybody else.

    Through is who answered as many as the invite says, or else whoever answered something and would be given
    nothing more: others who hold the last tasks are not waited for. The suspended and those who did not
    qualify are shown none.
    """
    found = look.connection.execute(_PANEL, {"p": name, "n": person}).first()
    row = person_row(look, name, person)
    if found is None or row.answered == 0 or row.standing in ("suspended", "failed"):
        return None
    is_enough = is_through(look, name, row) if found.tasks is None else row.answered >= found.tasks
    return found.code if is_enough else None
