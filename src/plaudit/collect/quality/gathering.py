"""A project's labels as columns of numbers: what was said of what, by whom, and how the answers look.

Two answers are put in an order by a hash of their words. Ordered by their models, with one model better than
the other, nearly all labels would be alike, and any measure of agreement would look bad.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow

from plaudit.collect.answers import agrees_with_gold, drawn_by, rows_of
from plaudit.collect.columns import Person, table_of
from plaudit.collect.kinds import KINDS
from plaudit.collect.kinds.kind import text_of
from plaudit.collect.project import Project
from plaudit.collect.quality.agreement import Values
from plaudit.collect.quality.skill import FIRST, SECOND, TIE, Votes, fit_skill
from plaudit.data.edits import has_list, log_length, refuses
from plaudit.data.records import Comparison, Record, plain_text
from plaudit.errors import UserError

LOOKS = ("characters", "length", "list", "refusal")
"""What is known of an answer's surface; length is the logarithm of the characters."""
# Models and reviewers are no annotators: theirs are other questions.
_OF_PEOPLE, _OF_MODELS = ("work", "gold", "qualify", "repeat"), "judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """All labels of people, the oldest first; what is not known of one is NaN."""

    person_B: np.ndarray
    number_B: np.ndarray
    seconds_B: np.ndarray
    right_B: np.ndarray
    pasted_B: np.ndarray
    alike_B: np.ndarray
    """Of a repeated task, whether the answer is the first one."""


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
    items: Items
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
    judges: tuple[str, ...] = ()
    """Models that judged pairs of the project."""
    judge_U: np.ndarray | None = None
    """Of each pair in ``choices``, above 0 where most of them prefer the first, 0 where they say nothing."""


def gather(project: Project, people: Sequence[Person], labels: pyarrow.Table) -> Gathered:
    """The labels of people, without surplus; choices and what is right only where there are bodies."""
    (purpose_B, purposes), seq_B = _words(labels, "purpose"), _to_numpy(labels["seq"])
    rows_N = np.flatnonzero(np.isin(purposes, _OF_PEOPLE)[purpose_B] & ~_to_numpy(labels["surplus"]))
    people_labels = labels.take(_to_arrow(rows_N[np.argsort(seq_B[rows_N], kind="stable")]))
    gathered = _Gathering(project, people, people_labels).gathered()
    judged_N = np.flatnonzero(np.isin(purposes, (_OF_MODELS,))[purpose_B])
    if gathered.choices is None or not len(judged_N):
        return gathered
    return _with_judges(gathered, labels.take(_to_arrow(judged_N)))


def _with_judges(gathered: Gathered, labels: pyarrow.Table) -> Gathered:
    names = sorted({*_words(labels, "annotator")[1]})
    models = [Person(name=name, standing="", excluded=False, skipped=0) for name in names]
    choices, keys = _Gathering(gathered.project, models, labels, work=_OF_MODELS).choices()
    if choices is None:
        return gathered
    votes = choices.votes
    side_B = np.where(votes.choice_B == TIE, 0, np.where(votes.choice_B == FIRST, 1, -1))
    sides = dict(zip(keys, np.bincount(votes.pair_B, side_B, minlength=votes.pairs), strict=True))
    judge_U = np.array([sides.get(key, 0) for key in gathered.keys])
    return replace(gathered, judges=tuple(names), judge_U=judge_U)


def gather_rows(settings: Project, rows: Sequence[Any]) -> Gathered:
    """Labels that were chosen already, each with the body of its task, whoever gave them."""
    names = dict.fromkeys(row.annotator for row in rows)
    people = [Person(name=name, standing="", excluded=False, skipped=0) for name in names]
    fields = ("task", "annotator", "purpose", "shown", "label", "guidelines", "number", "seconds")
    columns = {name: [getattr(row, name) for row in rows] for name in fields}
    # Here tasks stand for prompts: nothing is resampled, so it does not matter which tasks have one prompt.
    tasks = {row.task: (row.task, row.body) for row in rows}
    return _Gathering(settings, people, table_of(columns, tasks)).gathered()


# Through buffers and DLPack: `pyarrow.array` and `to_numpy` would load pandas, where that is installed.
def _to_arrow(values_N: np.ndarray) -> pyarrow.Array:
    buffers = [None, pyarrow.py_buffer(np.ascontiguousarray(values_N, dtype=np.int64))]
    return pyarrow.Array.from_buffers(pyarrow.int64(), len(values_N), buffers)


def _to_numpy(column: Any) -> np.ndarray:
    whole = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
    if whole.type == pyarrow.bool_():
        return np.from_dlpack(whole.cast(pyarrow.int8())).astype(bool)
    return np.from_dlpack(whole.fill_null(math.nan) if whole.null_count else whole)


def _numbered(code_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    coded = _to_arrow(code_B).dictionary_encode()
    return _to_numpy(coded.indices).astype(np.int64), _to_numpy(coded.dictionary)


def _words(labels: pyarrow.Table, name: str) -> tuple[np.ndarray, list[str]]:
    column = labels[name].unify_dictionaries().combine_chunks()
    number_B, places = _numbered(_to_numpy(column.indices))
    return number_B, column.dictionary.take(_to_arrow(places)).to_pylist()


class _Gathering:
    def __init__(
        self, project: Project, people: Sequence[Person], labels: pyarrow.Table, work: str = "work"
    ) -> None:
        self.project, self._kind, self._labels = project, KINDS[project.ask], labels
        (self._task_B, self._tasks), (self._prompt_B, _), (self._guidelines_B, self._guidelines) = (
            _words(labels, name) for name in ("task", "prompt", "guidelines")
        )
        (annotator_B, names), (purpose_B, purposes) = (
            _words(labels, name) for name in ("annotator", "purpose")
        )
        self.people = tuple(person for person in people if person.name in {*names})
        number_of = {person.name: number for number, person in enumerate(self.people)}
        self._person_B = np.array([number_of[name] for name in names], dtype=np.int64)[annotator_B]
        self._purpose_B = np.array(purposes, dtype=object)[purpose_B]
        self._chosen_B = _to_numpy(labels["chosen"])
        # A few clicks in a few orders, given by thousands: each of the different ones is read once.
        columns = [_words(labels, name) for name in ("label", "shown", "forward")]
        sizes = [max(1, len(words)) for _, words in columns]
        self._saying_B, codes = _numbered(np.ravel_multi_index([number_B for number_B, _ in columns], sizes))
        parsed = [[json.loads(word) for word in words] for _, words in columns]
        places = zip(*(places_C.tolist() for places_C in np.unravel_index(codes, sizes)), strict=True)
        self._sayings = [
            tuple(part[place] for part, place in zip(parsed, places_of, strict=True)) for places_of in places
        ]
        self._none_C = np.array([bool(label.get("none")) for label, _, _ in self._sayings], dtype=bool)
        self._work_N = np.flatnonzero((self._purpose_B == work) & ~self._none_C[self._saying_B])

    def gathered(self) -> Gathered:
        choices, keys = self.choices()
        nothing_B = np.full(len(self._person_B), np.nan)
        return Gathered(
            project=self.project,
            people=self.people,
            items=Items(
                person_B=self._person_B,
                number_B=_to_numpy(self._labels["number"]),
                seconds_B=_to_numpy(self._labels["seconds"]),
                pasted_B=_to_numpy(self._labels["pasted"]),
                right_B=self._right(nothing_B.copy()),
                alike_B=self._alike(nothing_B),
            ),
            values=self._values(),
            guidelines=tuple(self._guidelines),
            choices=choices,
            keys=keys,
            chosen=len(np.unique(self._task_B[self._work_N[self._chosen_B[self._work_N]]])),
        )

    def _spread(
        self, rows_N: np.ndarray, read: Callable[..., Iterable[tuple[Any, ...]]]
    ) -> tuple[np.ndarray, list[list[Any]], np.ndarray]:
        # Of each label the row, the parts of all that there is to read, and which of it that is.
        entries = [
            () if none else (*read(*saying),)
            for none, saying in zip(self._none_C, self._sayings, strict=True)
        ]
        count_C = np.array([len(entry) for entry in entries], dtype=np.int64)
        saying_N = self._saying_B[rows_N]
        count_N = count_C[saying_N]
        row_E = np.repeat(np.arange(len(rows_N)), count_N)
        entry_E = np.arange(len(row_E)) + (np.cumsum(count_C)[saying_N] - np.cumsum(count_N))[row_E]
        return rows_N[row_E], [*map(list, zip(*chain.from_iterable(entries), strict=True))], entry_E

    def _values(self) -> dict[str, Values]:
        valued, scales = self._kind.valued, self._kind.scales
        if valued is None or scales is None:
            return {}
        rows_N = self._work_N[~self._chosen_B[self._work_N]]
        row_E, parts, entry_E = self._spread(
            rows_N, lambda label, order, forward: valued(label, order, forward, self.project)
        )
        values, scale = dict[str, Values](), scales(self.project)
        if not len(row_E):
            return values
        (aspect_E, aspects), (key_E, keys) = ((part[0][entry_E], part[1]) for part in map(_places, parts[:2]))
        value_E = np.array(parts[2], dtype=np.int64)[entry_E]
        for aspect in sorted(aspects):
            which_A = np.flatnonzero(aspect_E == aspects[aspect])
            row_A = row_E[which_A]
            categories, level = scale.get(aspect, scale[""])
            values[aspect] = Values(
                unit_B=_numbered(self._task_B[row_A] * len(keys) + key_E[which_A])[0],
                person_B=self._person_B[row_A],
                value_B=value_E[which_A],
                prompt_B=self._prompt_B[row_A],
                guidelines_B=self._guidelines_B[row_A],
                categories=categories,
                level=level,
            )
        return {aspect: part for aspect, part in values.items() if len(part.unit_B)}

    def choices(self) -> tuple[Choices | None, tuple[tuple[str, int, int], ...]]:
        compared = self._kind.compared
        if compared is None or "body" not in self._labels.column_names:
            return None, ()

        def read(label: Any, order: Any, forward: Any) -> Iterable[tuple[Any, ...]]:
            for first, other, better in compared(label, order, forward):
                yield (first, other), _choice(better), order.index(first) > order.index(other)

        row_E, parts, entry_E = self._spread(self._work_N, read)
        if not len(row_E):
            return None, ()
        place_C, numbers = _places(parts[0])
        places = [*numbers]
        pair_E, codes = _numbered(self._task_B[row_E] * len(places) + place_C[entry_E])
        pairs = [(code // len(places), *places[code % len(places)]) for code in codes.tolist()]
        votes = Votes(
            pair_B=pair_E,
            person_B=self._person_B[row_E],
            choice_B=np.array(parts[1], dtype=np.int64)[entry_E],
            swapped_B=np.array(parts[2], dtype=bool)[entry_E],
            pairs=len(pairs),
            people=len(self.people),
        )
        prompt_U, looks_UF = self._of_task(self._prompt_B)[codes // len(places)], self._looks_of(pairs)
        choices = Choices(votes=votes, item_B=row_E, prompt_U=prompt_U, looks_UF=looks_UF)
        return choices, tuple((self._tasks[number], *answers) for number, *answers in pairs)

    def _of_task(self, value_B: np.ndarray) -> np.ndarray:
        value_T = np.zeros(len(self._tasks), dtype=value_B.dtype)
        value_T[self._task_B] = value_B
        return value_T

    def _looks_of(self, pairs: Sequence[tuple[int, int, int]]) -> np.ndarray:
        body_B, bodies = _words(self._labels, "body")
        body_T = self._of_task(body_B)
        looks_UF, last, looks = np.zeros((len(pairs), len(LOOKS))), -1, np.zeros((0, len(LOOKS)))
        for row, (number, first, other) in enumerate(pairs):
            # Each answer is looked at once, however many pairs of a ranking it is in: those come together.
            if number != last:
                candidates = json.loads(bodies[body_T[number]])["candidates"]
                last, looks = number, np.array([_looks(candidate["text"]) for candidate in candidates])
            looks_UF[row] = looks[other] - looks[first]
        return looks_UF

    def _right(self, right_B: np.ndarray) -> np.ndarray:
        if "body" not in self._labels.column_names:
            return right_B
        bodies = dict[int, Any]()
        for row in np.flatnonzero(np.isin(self._purpose_B, ("gold", "qualify"))).tolist():
            number, (label, order, _) = self._task_B[row], self._sayings[self._saying_B[row]]
            if number not in bodies:
                bodies[number] = json.loads(self._labels["body"][row].as_py())
            right = agrees_with_gold(label, bodies[number], order)
            right_B[row] = np.nan if right is None else right
        return right_B

    def _alike(self, alike_B: np.ndarray) -> np.ndarray:
        code_B, is_repeat_B = self._task_B * len(self.people) + self._person_B, self._purpose_B == "repeat"
        states, first_answers = self._kind.statement, dict[int, Any]()
        is_voiced_B = (is_repeat_B | (self._purpose_B == "work")) & ~self._none_C[self._saying_B]
        for row in np.flatnonzero(is_voiced_B & np.isin(code_B, code_B[is_repeat_B])).tolist():
            label, order, _ = self._sayings[self._saying_B[row]]
            says, code = None if states is None else states(label, order), int(code_B[row])
            if not is_repeat_B[row] and says is not None:
                first_answers[code] = says
            elif first_answers.get(code) is not None and says is not None:
                alike_B[row] = first_answers[code] == says
        return alike_B


def _places(values: Sequence[Any]) -> tuple[np.ndarray, dict[Any, int]]:
    numbers = dict[Any, int]()
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64), numbers


def _looks(value: object) -> tuple[float, ...]:
    words = value if isinstance(value, str) else plain_text(text_of(value))
    return float(len(words)), log_length(words), has_list(words), refuses(words)


def _choice(second_better: int) -> int:
    # What a difference says; above 0 the second answer is the better one.
    return TIE if second_better == 0 else SECOND if second_better > 0 else FIRST


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
        rows[row.task] = [(record, (row.seq,)) for record in rows_of(row, "people", settings)]
    order = dict.fromkeys(row.task for row in found)
    flat = [pair for task in order for pair in rows.get(task, ())]
    return [row for row, _ in flat], [max(own) for _, own in flat], [own for _, own in flat]


def _soft_row(body: dict[str, Any], first: int, other: int, probability: float) -> Comparison:
    # The row of a pair, for which of its answers more speaks; of even ones the earlier in the task.
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
        **drawn_by(body),
        category=body.get("category"),
        origin=origin if isinstance(origin, str) else "",
    )
