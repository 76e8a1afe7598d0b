"""Simulated people who label over HTTP, as pages do: they join, qualify, answer, vanish and come back.

What a person answers is a function of the person, the seed, and the task as it was shown: the labels are
those of the same pool asked directly (`direct_verdict`), whatever the order in which tasks were given out.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plaudit.data.fields import Node
from plaudit.data.judging import Verdict
from plaudit.data.records import Task, Text, plain_text
from plaudit.data.turns import read_text_or_messages
from plaudit.errors import UserError
from plaudit.lab.world.annotators import Annotator, annotator_pool
from plaudit.wings import offered

if TYPE_CHECKING:
    from plaudit.collect.client import LabelClient

JUDGED_KINDS = ("pair", "rank", "rate")
"""The kinds of task that people of the world can answer: those that show answers to judge."""
SKIP_REASON = "not-my-field"
_STRENGTHS, _RATINGS = 3, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How people work, beside how they judge; a share is a chance for each task."""

    speed: int | float = 0.0
    """How many times faster than a person reads; 0 for no waiting at all."""
    twice: int | float = 0.0
    vanish: int | float = 0.0
    """How often a person leaves with a task in hand, and comes back later."""
    away: int = 3
    """How many tasks each of the others is given meanwhile."""
    skip: int | float = 0.0
    most: int | None = None
    """How many labels a person gives at most; None for as long as there is work."""

    def __post_init__(self) -> None:
        for name in ("twice", "vanish", "skip"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} {getattr(self, name)}: expected a share from 0 to 1")
        for name in ("speed", "away"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UserError(f"{name} {getattr(self, name)}: expected 0 or more")


@dataclass(slots=True, kw_only=True)
class Person:
    annotator: Annotator
    client: LabelClient
    name: str
    pseudonym: str = ""
    given: int = 0
    labels: int = 0
    task: dict[str, Any] | None = None
    has_left: bool = False
    ready_at: float = 0.0
    stopped: str = ""
    """Why there is nothing more to do for this person; empty while there may be."""


@dataclass(slots=True, kw_only=True)
class Work:
    labels: dict[str, int] = field(default_factory=dict[str, int])
    counts: Counter[str] = field(default_factory=Counter[str])
    """How often something else happened: sent twice, left and came back, skipped."""
    stopped: Counter[str] = field(default_factory=Counter[str])
    """Why people stopped: done, wait (others hold the rest), failed, suspended, most."""


def annotate(
    url: str, invite: str, pool: str, *, seed: int = 0, habits: Habits | None = None, names: str = ""
) -> Work:
    """Let a pool label until there is nothing left for it; each of its people joins with the invite.
    The same call goes on where an earlier one was stopped: its people are known by invite and name. With no
    speed, what is done next follows from what the store holds alone, so that a crowd that was killed ends
    with the labels of one that was not."""
    crowd = _Crowd(url, invite, pool, seed=seed, habits=habits or Habits(), names=names)
    try:
        return crowd.work()
    finally:
        crowd.close()


def direct_verdict(annotator: Annotator, task: Task, seed: int) -> Verdict:
    """What a person of the pool says of a task as it is shown, whoever shows it."""
    # Alike in either order of the answers, and its own for each task: one prompt may be asked about twice.
    words = [plain_text(task.prompt), *sorted(map(plain_text, task.answers))]
    digest = hashlib.sha256("\0".join([str(seed), *words]).encode()).hexdigest()
    return annotator.verdict(task, int(digest[:12], 16))


def shown_as_task(shown: Mapping[str, Any]) -> Task:
    """A task of the API as a judge takes it, in the order shown."""
    answers = tuple(_text(answer) for answer in shown["answers"])
    return Task(prompt=_text(shown["prompt"]), answers=answers, ended=tuple(shown["ended"]))


def _text(value: object) -> Text:
    return read_text_or_messages(Node(value=value, path="text"))


def label_of(shown: Mapping[str, Any], verdict: Verdict) -> dict[str, Any]:
    flags = [sorted({*mark.flags} & {*shown["flags"]}) for mark in verdict.marks]
    return {**_LABELS[shown["kind"]](shown, verdict), **({"flags": flags} if any(flags) else {})}


def _pair_label(shown: Mapping[str, Any], verdict: Verdict) -> dict[str, Any]:
    first, second = (mark.rank for mark in verdict.marks)
    if first == second:
        # Whoever cannot see a difference and may not say so takes the first.
        return {"strength": 0 if shown["ties"] else -1}
    degrees = len(shown["scale"])
    # One degree at least: a small difference that is rounded away would be a tie.
    strength = max(1, round((verdict.strength or 1) * degrees / _STRENGTHS))
    return {"strength": -strength if first < second else strength}


def _rank_label(shown: Mapping[str, Any], verdict: Verdict) -> dict[str, Any]:
    ranks = [mark.rank for mark in verdict.marks]
    groups = [[place for place, rank in enumerate(ranks) if rank == wanted] for wanted in sorted({*ranks})]
    if not shown["ties"]:
        groups = [[place] for group in groups for place in group]
    return {"groups": groups}


def _rate_label(shown: Mapping[str, Any], verdict: Verdict) -> dict[str, Any]:
    levels = {aspect: len(shown["anchors"].get(aspect, ())) or shown["points"] for aspect in shown["aspects"]}
    return {
        "points": {
            aspect: [
                1 + round(((mark.rating or 1) - 1) * (most - 1) / (_RATINGS - 1)) for mark in verdict.marks
            ]
            for aspect, most in levels.items()
        }
    }


_LABELS = {"pair": _pair_label, "rank": _rank_label, "rate": _rate_label}


class _Crowd:
    """The people of a pool, in one thread: who acts next is chosen by what each has done so far."""

    def __init__(self, url: str, invite: str, pool: str, *, seed: int, habits: Habits, names: str) -> None:
        self._seed, self._habits, self._found = seed, habits, Work()
        self._people, client = list[Person](), offered("LabelClient")
        for annotator in annotator_pool(pool):
            name = f"{names}{annotator.name}"
            self._people.append(Person(annotator=annotator, client=client(url), name=name))
        self._invite = invite

    def _join(self, person: Person) -> None:
        # By a key: a crowd that was stopped comes back as the same people.
        person.client.join(self._invite, person.name, key=person.name)
        me = person.client.me()
        person.pseudonym, person.given, person.labels = me["pseudonym"], me["assigned"], me["answered"]
        # Whoever held a task when an earlier crowd was stopped has it in hand again.
        if me["holding"]:
            # It is counted again as it is taken, and all that is drawn for it hangs on this number.
            person.given -= 1
            self._take(person)

    def close(self) -> None:
        for person in self._people:
            person.client.close()

    def work(self) -> Work:
        for person in self._people:
            self._join(person)
        while (person := self._next_to_act()) is not None:
            if person.task is None:
                self._take(person)
            else:
                self._answer(person)
        for person in self._people:
            self._found.labels[person.pseudonym] = person.labels
            self._found.stopped[person.stopped] += 1
        return self._found

    def _next_to_act(self) -> Person | None:
        """Whoever has a task in hand and is there; else whoever was given least; None where all stopped."""
        holding = [person for person in self._people if person.task is not None]
        present = [person for person in holding if not self._is_away(person)]
        idle = [person for person in self._people if person.task is None and not person.stopped]
        if present and not self._habits.speed:
            return present[0]
        if present:
            soonest = min(present, key=lambda person: person.ready_at)
            if not idle or soonest.ready_at <= time.monotonic():
                time.sleep(max(0.0, soonest.ready_at - time.monotonic()))
                return soonest
        # Where nobody else goes on, who has left comes back, the one who left first.
        return min(idle or holding, key=lambda person: person.given, default=None)

    def _is_away(self, person: Person) -> bool:
        """Whether somebody has left, and the others were not given enough tasks meanwhile."""
        others = [other for other in self._people if not other.has_left and not other.stopped]
        return person.has_left and any(other.given < person.given + self._habits.away for other in others)

    def _take(self, person: Person) -> None:
        if self._habits.most is not None and person.labels >= self._habits.most:
            person.stopped = "most"
            return
        found = person.client.next()
        person.task = found["task"]
        if person.task is None:
            person.stopped = found["reason"]
            return
        kind = person.task["shown"]["kind"]
        if kind not in JUDGED_KINDS:
            raise UserError(
                f"people of the world answer {', '.join(JUDGED_KINDS)}; the project asks for {kind}"
            )
        person.given += 1
        person.has_left = self._draw(person, "vanish") < self._habits.vanish
        self._found.counts["left and came back"] += person.has_left
        if self._habits.speed:
            verdict = direct_verdict(person.annotator, shown_as_task(person.task["shown"]), self._seed)
            person.ready_at = time.monotonic() + (verdict.seconds or 0.0) / self._habits.speed

    def _answer(self, person: Person) -> None:
        assert person.task is not None
        assignment, shown = person.task["assignment"], person.task["shown"]
        # The key is of the task: a crowd that was stopped between send and reply sends the same again.
        key = f"crowd-{assignment}"
        if self._draw(person, "skip") < self._habits.skip:
            person.client.skip(assignment, SKIP_REASON, key)
            self._found.counts["skipped"] += 1
        else:
            verdict = direct_verdict(person.annotator, shown_as_task(shown), self._seed)
            self._send(person, label_of(shown, verdict), key, verdict.seconds)
        person.task, person.has_left = None, False
        # A label may divide people and so open a task again: whoever had nothing to do asks once more.
        for other in self._people:
            if other.stopped in ("done", "wait"):
                other.stopped = ""

    def _send(self, person: Person, label: Mapping[str, Any], key: str, seconds: float | None) -> None:
        assert person.task is not None
        assignment = person.task["assignment"]
        try:
            first = person.client.submit(assignment, label, key, seconds=seconds)
        except offered("RefusedError") as refused:
            # Suspended meanwhile: the task goes back by the clock.
            if refused.status != 403:
                raise
            person.stopped = "suspended"
            return
        person.labels += 1
        if self._draw(person, "twice") < self._habits.twice:
            if person.client.submit(assignment, label, key, seconds=seconds) != first:
                raise UserError(f"{assignment}: sent twice under one key, and answered with two receipts")
            self._found.counts["sent twice"] += 1

    def _draw(self, person: Person, what: str) -> float:
        """A number of the person, how many tasks came before, and the occasion: the same at every draw."""
        words = f"{self._seed}\n{person.annotator.name}\n{person.given}\n{what}"
        return int(hashlib.sha256(words.encode()).hexdigest()[:13], 16) / 16**13
