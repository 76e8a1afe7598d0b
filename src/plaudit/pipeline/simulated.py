"""Simulated people at a label store: they are given work and answer, one step after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plaudit.data.judging import Mark, Task, Verdict
from plaudit.labelling.rows import text_of
from plaudit.world.annotators import Annotator, annotator_pool

if TYPE_CHECKING:
    from plaudit.labelling.desk import Lease
    from plaudit.labelling.store import LabelStore


@dataclass(slots=True, kw_only=True)
class _Person:
    """One of a pool, as the store knows the person."""

    annotator: Annotator
    pseudonym: str
    given: int
    """How many tasks the person was given."""
    holds: bool
    """Whether the last of them is not answered."""


def let_pool_answer(store: LabelStore, project: str, pool: str, seed: int) -> None:
    """Let a pool answer until there is nothing left for it.

    Who acts next follows from what the store holds alone, and every step has a key: a drive that was stopped
    anywhere goes on as if it had not been.
    """
    people = [_person(store, project, annotator) for annotator in annotator_pool(pool)]
    for person in people:
        if person.holds:
            _take(store, project, person, seed, str(person.given))
    while any(
        _take(store, project, person, seed, str(person.given + 1))
        for person in sorted(people, key=lambda person: person.given)
    ):
        pass


def _person(store: LabelStore, project: str, annotator: Annotator) -> _Person:
    """The person of this name, who joins where nobody is called so."""
    for row in store.annotators(project):
        if row["person"] == annotator.name:
            done = row["answered"] + row["skipped"]
            return _Person(
                annotator=annotator,
                pseudonym=row["pseudonym"],
                given=row["assigned"],
                holds=done < row["assigned"],
            )
    joined = store.token(project, "annotator", name=annotator.name)
    return _Person(annotator=annotator, pseudonym=joined.pseudonym, given=0, holds=False)


def _take(store: LabelStore, project: str, person: _Person, seed: int, key: str) -> bool:
    """Let a person take a task and answer it; False where there is none."""
    from plaudit.labelling.desk import Lease

    lease = store.next(project, person.pseudonym, f"{person.annotator.name}-{key}")
    if not isinstance(lease, Lease):
        return False
    person.given, person.holds = int(key), False
    verdict = person.annotator.verdict(_task(lease), seed)
    label = label_of(lease.shown, verdict)
    sent = f"{person.annotator.name}-{key}-answer"
    store.submit(project, person.pseudonym, lease.assignment, sent, label, seconds=verdict.seconds)
    return True


def _task(lease: Lease) -> Task:
    answers = tuple(text_of(answer) for answer in lease.shown["answers"])
    ended = lease.shown.get("ended", [True] * len(answers))
    return Task(prompt=text_of(lease.shown["prompt"]), answers=answers, ended=tuple(ended))


def label_of(shown: Mapping[str, Any], verdict: Verdict) -> dict[str, Any]:
    """A verdict as a label of what was shown, on the project's scales."""
    marks, kind = verdict.marks, shown["kind"]
    if kind == "rank":
        return {"groups": _groups([mark.rank for mark in marks])}
    if kind == "rate":
        return {"points": {aspect: _points(marks, shown["points"]) for aspect in shown["aspects"]}}
    first, second = (mark.rank for mark in marks)
    if first == second:
        # Who sees no difference and may not say so takes the first.
        return {"strength": 0 if shown["ties"] else -1}
    strength = min(verdict.strength or 1, len(shown["scale"]))
    return {"strength": -strength if first < second else strength}


def _groups(ranks: Sequence[int]) -> list[list[int]]:
    return [[place for place, own in enumerate(ranks) if own == rank] for rank in sorted({*ranks})]


def _points(marks: Sequence[Mark], most: int) -> list[int]:
    """Ratings from 1 to 5 on a scale of so many points."""
    return [1 + round(((mark.rating or 1) - 1) * (most - 1) / 4) for mark in marks]
