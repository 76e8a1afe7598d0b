"""A project's labels as columns of numbers: what was said of what, by whom, and how the answers look.

Two answers are put in an order by a hash of their words. Ordered by their models, with one model better than
the other, nearly all labels would be alike, and any measure of agreement would look bad.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from sqlalchemy import Connection, bindparam, select

from plaudit.collect import views
from plaudit.collect.answers import agrees_with_gold, rows_of
from plaudit.collect.kinds import KINDS
from plaudit.collect.kinds.kind import text_of
from plaudit.collect.log import canonical
from plaudit.collect.project import Project
from plaudit.collect.quality.agreement import Values
from plaudit.collect.quality.skill import FIRST, SECOND, TIE, Votes, fit_skill
from plaudit.collect.refusals import NotFoundError
from plaudit.collect.tables import annotator, label, task
from plaudit.data.edits import has_list, log_length, refuses
from plaudit.data.records import Comparison, Record, plain_text
from plaudit.errors import UserError

LOOKS = ("characters", "length", "list", "refusal")
"""What is known of an answer's surface; length is the logarithm of the characters."""
_SHORT = 40

_PEOPLE = select(annotator).where(annotator.c.project == bindparam("p")).order_by(annotator.c.seq)
_TASKS = select(task.c.id, task.c.body, task.c.prompt).where(
    task.c.project == bindparam("p"),
    task.c.id.in_(select(label.c.task).where(label.c.project == bindparam("p"))),
)
_LABELS = (
    select(
        label.c.seq,
        label.c.task,
        label.c.annotator,
        label.c.purpose,
        label.c.shown,
        label.c.label,
        label.c.guidelines,
        label.c.seconds,
        label.c.number,
    )
    .where(label.c.project == bindparam("p"), label.c.surplus == 0)
    # Models and reviewers are no annotators: theirs are other questions.
    .where(label.c.purpose.in_(("work", "gold", "qualify", "repeat")))
    .order_by(label.c.seq)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    name: str
    standing: str
    excluded: bool
    """Whether the labels are left out of exports, and so of agreement."""
    skipped: int
    """How many tasks were given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    person: int
    number: int
    """Which of the person's answers it is."""
    seconds: float | None
    right: bool | None
    """Whether it says what is known to be right; None where nothing is known."""
    alike: bool | None
    """Of a repeated task, whether the answer is the first one; None for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Labels that say which of two answers is better, with what the answers look like."""

    votes: Votes
    item_B: np.ndarray
    """The label that each comes from: a ranking gives several."""
    prompt_U: np.ndarray
    looks_UF: np.ndarray
    """How much more of each of LOOKS the second answer of a pair has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    project: Project
    people: tuple[Person, ...]
    items: tuple[Item, ...]
    """All their labels, the oldest first."""
    values: Mapping[str, Values]
    """What is compared, by aspect; the empty name is the whole."""
    guidelines: tuple[str, ...]
    """Versions of the guidelines, the oldest first."""
    choices: Choices | None
    """Of pairs and rankings; None for other kinds, and where there is none."""
    keys: tuple[tuple[str, int, int], ...]
    """Of each pair in ``choices``, its task and the places of its two answers there."""
    chosen: int
    """Tasks left out of ``values``, since they were chosen by a score and not at random."""


def gather(connection: Connection, name: str) -> Gathered:
    """The labels of people, without surplus; those of suspended people too."""
    settings = views.settings_of(connection, name)
    if settings is None:
        raise NotFoundError(f"there is no project {name!r}")
    rows = connection.execute(_LABELS, {"p": name}).all()
    known = {row.name: row for row in connection.execute(_PEOPLE, {"p": name})}
    labelled = {row.annotator for row in rows}
    people = tuple(
        Person(name=row.name, standing=row.standing, excluded=bool(row.excluded), skipped=row.skipped)
        for row in known.values()
        if row.name in labelled
    )
    facts = connection.execute(_TASKS, {"p": name}).all()
    tasks = {row.id: _TaskFacts(row.id, row.prompt, row.body) for row in facts}
    return _Gathering(settings, people, tasks).gathered(rows)


def gather_rows(settings: Project, rows: Sequence[Any]) -> Gathered:
    """Labels that were chosen already, each with the body of its task, whoever gave them."""
    names = dict.fromkeys(row.annotator for row in rows)
    people = [Person(name=name, standing="", excluded=False, skipped=0) for name in names]
    bodies = {row.task: row.body for row in rows}
    # Here tasks stand for prompts: nothing is resampled, so it does not matter which tasks have one prompt.
    facts = {name: _TaskFacts(name, name, body) for name, body in bodies.items()}
    return _Gathering(settings, people, facts).gathered(rows)


class _TaskFacts:
    __slots__ = ("body", "forward", "id", "is_random", "prompt")

    def __init__(self, name: str, prompt: str, body: str) -> None:
        self.id, self.prompt, self.body = name, prompt, json.loads(body)
        # A task with a method other than chance was asked since a score wanted it: no sample of all tasks.
        self.is_random = self.body.get("method") in (None, "random")
        hashes = [_hash(self.prompt, candidate["text"]) for candidate in self.body.get("candidates", ())]
        places = sorted(range(len(hashes)), key=lambda place: hashes[place])
        self.forward = sorted(places, key=lambda place: places[place])


def _hash(prompt: str, text: object) -> bytes:
    # With the prompt: a refusal that many prompts share would stand on the same side in all of them.
    words = text if isinstance(text, str) else canonical(text)
    return blake2b(f"{prompt}\0{words}".encode(), digest_size=8).digest()


@dataclass(slots=True)
class _Columns:
    unit: dict[Any, int] = field(default_factory=dict[Any, int])
    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int, int]])

    def add(self, key: Any, person: int, value: int, prompt: int, guidelines: int) -> None:
        unit = self.unit.setdefault(key, len(self.unit))
        self.rows.append((unit, person, value, prompt, guidelines))


class _Gathering:
    def __init__(self, project: Project, people: Sequence[Person], tasks: Mapping[str, _TaskFacts]) -> None:
        self.project, self.people, self._tasks = project, people, tasks
        self._kind = KINDS[project.ask]
        self.number_of = {person.name: number for number, person in enumerate(people)}
        self._items = list[Item]()
        self._columns = dict[str, _Columns]()
        self._prompts, self._guidelines = dict[str, int](), dict[str, int]()
        self._pairs = dict[tuple[str, int, int], int]()
        self._choices = list[tuple[int, int, int, bool, int]]()
        self._first_answers = dict[tuple[int, str], Any]()
        self._chosen = set[str]()
        self._parsed = dict[str, Any]()

    def _add(self, row: Any) -> None:
        facts, person = self._tasks[row.task], self.number_of[row.annotator]
        given, order = self._parse(row.label), self._parse(row.shown)
        states = self._kind.statement
        says = None if given.get("none") or states is None else states(given, order)
        key = (person, row.task)
        alike = None
        if row.purpose == "repeat":
            first = self._first_answers.get(key)
            alike = None if first is None or says is None else first == says
        elif row.purpose == "work" and says is not None:
            self._first_answers[key] = says
        is_known = row.purpose in ("gold", "qualify")
        right = agrees_with_gold(given, facts.body, order) if is_known else None
        self._items.append(
            Item(person=person, number=row.number, seconds=row.seconds, right=right, alike=alike)
        )
        if row.purpose == "work" and not given.get("none"):
            guidelines = self._guidelines.setdefault(row.guidelines, len(self._guidelines))
            self._add_values(facts, person, given, order, guidelines)

    def _parse(self, text: str) -> Any:
        # A handful of orders and of labels without words come again and again.
        if len(text) > _SHORT:
            return json.loads(text)
        found = self._parsed.get(text)
        if found is None:
            found = self._parsed[text] = json.loads(text)
        return found

    def _add_values(
        self, facts: _TaskFacts, person: int, given: Mapping[str, Any], order: Sequence[int], guidelines: int
    ) -> None:
        prompt = self._prompts.setdefault(facts.prompt, len(self._prompts))
        if not facts.is_random:
            self._chosen.add(facts.id)
        valued, compared = self._kind.valued, self._kind.compared
        for aspect, key, value in valued(given, order, facts.forward, self.project) if valued else ():
            if facts.is_random:
                columns = self._columns.setdefault(aspect, _Columns())
                columns.add((facts.id, key), person, value, prompt, guidelines)
        for first, other, better in compared(given, order, facts.forward) if compared else ():
            pair = self._pairs.setdefault((facts.id, first, other), len(self._pairs))
            swapped = order.index(first) > order.index(other)
            self._choices.append((pair, person, _choice(better), swapped, len(self._items) - 1))

    def gathered(self, rows: Iterable[Any]) -> Gathered:
        for row in rows:
            self._add(row)
        scales = self._kind.scales
        scale = {"": (1, "ordinal")} if scales is None else scales(self.project)
        return Gathered(
            project=self.project,
            people=tuple(self.people),
            items=tuple(self._items),
            values={
                aspect: _values(columns, *scale.get(aspect, scale[""]))
                for aspect, columns in sorted(self._columns.items())
            },
            guidelines=tuple(self._guidelines),
            choices=self._gathered_choices(),
            keys=tuple(self._pairs),
            chosen=len(self._chosen),
        )

    def _gathered_choices(self) -> Choices | None:
        if not self._choices:
            return None
        table = np.array(self._choices, dtype=np.int64)
        votes = Votes(
            pair_B=table[:, 0],
            person_B=table[:, 1],
            choice_B=table[:, 2],
            swapped_B=table[:, 3].astype(bool),
            pairs=len(self._pairs),
            people=len(self.people),
        )
        # Each answer is looked at once, however many pairs of a ranking it is in.
        looks = dict[tuple[str, int], tuple[float, ...]]()
        for wanted, first, other in self._pairs:
            for place in (first, other):
                if (wanted, place) not in looks:
                    candidate = self._tasks[wanted].body["candidates"][place]
                    looks[wanted, place] = _looks(candidate["text"])
        first_UF = np.array([looks[wanted, first] for wanted, first, _ in self._pairs])
        second_UF = np.array([looks[wanted, other] for wanted, _, other in self._pairs])
        prompts = [self._prompts[self._tasks[wanted].prompt] for wanted, _, _ in self._pairs]
        return Choices(
            votes=votes, item_B=table[:, 4], prompt_U=np.array(prompts), looks_UF=second_UF - first_UF
        )


def _looks(value: object) -> tuple[float, ...]:
    words = value if isinstance(value, str) else plain_text(text_of(value))
    return float(len(words)), log_length(words), has_list(words), refuses(words)


def _choice(second_better: int) -> int:
    """What a difference says; above 0 the second answer is the better one."""
    return TIE if second_better == 0 else SECOND if second_better > 0 else FIRST


def _values(columns: _Columns, categories: int, level: str) -> Values:
    table = np.array(columns.rows, dtype=np.int64).reshape(-1, 5)
    return Values(
        unit_B=table[:, 0],
        person_B=table[:, 1],
        value_B=table[:, 2],
        prompt_B=table[:, 3],
        guidelines_B=table[:, 4],
        categories=categories,
        level=level,
    )


# Rows on one scale.


DIGITS = 6
"""Digits of a probability: the same on every machine."""


def soft_rows(
    found: Sequence[Any], settings: Project
) -> tuple[list[Record], list[int], list[tuple[int, ...]]]:
    """A row for each pair of answers, its newest label, and all its labels, in the order of their tasks.

    What a reviewer decided stays as it was decided. Labels of items with a known answer say nothing here.
    """
    if KINDS[settings.ask].compared is None:
        raise UserError(
            f"project {settings.name} asks for {settings.ask}: soft rows are of pairs and rankings; export "
            "without soft"
        )
    voting = [row for row in found if row.purpose == "work"]
    gathered = gather_rows(settings, voting)
    rows = dict[str, list[tuple[Record, tuple[int, ...]]]]()
    if gathered.choices is not None:
        votes = gathered.choices.votes
        first_U = fit_skill(votes).first_U
        events = [list[int]() for _ in range(votes.pairs)]
        for pair, item in zip(votes.pair_B.tolist(), gathered.choices.item_B.tolist(), strict=True):
            events[pair].append(voting[item].seq)
        bodies = {row.task: json.loads(row.body) for row in voting}
        for (task, first, other), probability, own in zip(
            gathered.keys, first_U.tolist(), events, strict=True
        ):
            row = _soft_row(bodies[task], first, other, round(probability, DIGITS))
            rows.setdefault(task, []).append((row, tuple(own)))
    for row in (row for row in found if row.purpose == "adjudicated"):
        rows[row.task] = [(record, (row.seq,)) for record in _decided_rows(row, settings)]
    order = dict.fromkeys(row.task for row in found)
    flat = [pair for task in order for pair in rows.get(task, ())]
    return [row for row, _ in flat], [max(own) for _, own in flat], [own for _, own in flat]


def _soft_row(body: dict[str, Any], first: int, other: int, probability: float) -> Comparison:
    """The row of a pair, for which of its answers more speaks; of even ones the earlier in the task."""
    if probability < 0.5 or (probability == 0.5 and other < first):
        first, other, probability = other, first, round(1 - probability, DIGITS)
    texts = [text_of(body["candidates"][place]["text"]) for place in (first, other)]
    origin = body.get("metadata", {}).get("origin")
    return Comparison(
        prompt=text_of(body["prompt"]),
        chosen=texts[0],
        rejected=texts[1],
        probability=probability,
        group="people",
        category=body.get("category"),
        origin=origin if isinstance(origin, str) else "",
    )


def _decided_rows(row: Any, settings: Project) -> list[Record]:
    body, label, order = (json.loads(text) for text in (row.body, row.label, row.shown))
    return rows_of(body, label, order, annotator=row.annotator, group="people", project=settings)
