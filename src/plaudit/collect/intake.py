"""Files as tasks of a project: rows of any layout, tasks as they are, and what people filled in elsewhere.

What a row says of its answers goes into no task, unless it is to be the known answer; and answers stand in an
order that is drawn from their words, so that the place of none says which was preferred. One row that cannot
become a task refuses its file, by row and field.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from plaudit.collect.adding import task_id
from plaudit.collect.answering import GivenAnswer
from plaudit.collect.answers import check_label
from plaudit.collect.kinds import KINDS, USUAL
from plaudit.collect.kinds.kind import UNKNOWN, Words, refuse_unknown, words_of
from plaudit.collect.log import digest
from plaudit.collect.pictures import Pictures
from plaudit.collect.project import Project
from plaudit.collect.refusals import FieldError
from plaudit.collect.tasks import check_task
from plaudit.data.fields import BadRowError, Node, RawRow, describe_value
from plaudit.data.files import raw_rows, source_name
from plaudit.data.formats.layout import ReadOptions
from plaudit.data.read import DEFAULT_OPTIONS, DETECTION_ROWS, open_rows
from plaudit.data.records import (
    Comparison,
    Demonstration,
    Prompt,
    Ranking,
    Rating,
    Record,
    Steps,
    Text,
    answer_to,
    record_kind,
    text_to_json,
)
from plaudit.data.turns import read_text_or_messages
from plaudit.errors import UserError

Known = Literal["gold", "qualify"]
"""What tasks with a known answer are for: checks among the work, or what a person answers first."""
Body = dict[str, Any]
PEOPLE = "people"
"""Whose the answers of a file are where it names nobody."""
_MOST_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    sentence: str
    bodies: tuple[Body, ...]
    pictures: Pictures
    """Those that the tasks name, which are to be kept in the store before the tasks are added."""
    given: tuple[GivenAnswer, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many sound rows held no record, by reason."""


class _Tasks:
    def __init__(self, source: Path, project: Project, known: Known | None) -> None:
        self.name, self.project = source_name(source), project
        self.pictures = Pictures(folder=source if source.is_dir() else source.parent)
        self.known: Known | None = known
        self.bodies = list[Body]()
        self.rows = 0
        self._faults = list[str]()
        self._gold_by_task = dict[str, tuple[str, Any]]()

    @contextmanager
    def row(self, origin: str) -> Iterator[None]:
        """Within the block, what is wrong with a row is remembered and raised by nobody."""
        self.rows += 1
        try:
            yield
        except BadRowError as error:
            self.fault(error.problem_at(origin).message)
        except FieldError as error:
            self.fault(f"{origin}: field {error.field}: expected {error.expected}, found {error.found}")

    def fault(self, words: str) -> None:
        self._faults.append(words)

    def add(self, body: Mapping[str, Any], origin: str) -> Body:
        if self.known == "qualify":
            body = {**body, "qualify": True}
        checked = check_task(self.pictures.body(body), self.project)
        if self.known is not None and "gold" not in checked:
            raise FieldError(
                field="gold", found="nothing", expected=f"what is right, as it is added with --{self.known}"
            )
        self._refuse_other_gold(checked, origin)
        self.bodies.append(checked)
        return checked

    def _refuse_other_gold(self, body: Body, origin: str) -> None:
        if "gold" not in body:
            return
        # A task's id is of its known answer too, so the store would take both.
        content = digest({name: value for name, value in body.items() if name != "gold"})
        before, gold = self._gold_by_task.setdefault(content, (origin, body["gold"]))
        if gold != body["gold"]:
            raise FieldError(
                field="gold",
                found="another",
                expected=f"the known answer of {before}, which asks the same (leave one of both out)",
            )

    def refuse_faults(self) -> None:
        if not self._faults:
            return
        more = len(self._faults) - _MOST_LISTED
        lines = [
            f"{self.name}: {len(self._faults)} of {self.rows} rows cannot become tasks of project "
            f"{self.project.name} (it asks for {self.project.ask}), so nothing was added:",
            *(f"  {fault}" for fault in self._faults[:_MOST_LISTED]),
            *([f"  and {more} more"] if more > 0 else []),
        ]
        raise UserError("\n".join(lines))


def read_intake(
    source: Path,
    project: Project,
    known: Known | None = None,
    *,
    format: str | None = None,
    options: ReadOptions = DEFAULT_OPTIONS,
) -> Intake:
    """The tasks of a file, and the labels where people filled some in; nothing is written yet.

    With ``known`` what a row says of its answers becomes the known answer of its task.
    """
    tasks = _Tasks(source, project, known)
    if known is not None and KINDS[project.ask].check_gold is None:
        raise UserError(
            f"{tasks.name}: project {project.name} asks for {project.ask}, of which nothing is known to be "
            f"right; add the rows without --{known}"
        )
    # Whoever says what the fields are has rows, whatever they look like.
    is_named = format is not None or options != DEFAULT_OPTIONS
    shape = "rows" if is_named else _shape_of(source)
    if shape == "tasks":
        for row, value in _values(source, tasks):
            with tasks.row(row.origin):
                tasks.add(value, row.origin)
        tasks.refuse_faults()
        sentence = f"{tasks.name}: read as tasks"
        return Intake(sentence=sentence, bodies=(*tasks.bodies,), pictures=tasks.pictures)
    if shape == "people":
        return _read_people(source, tasks)
    return _read_rows(source, tasks, format, options)


def known_items(project: Project) -> dict[Known, Intake]:
    """The items that a project's settings name whose answer is known, by what they are for."""
    files: Mapping[Known, str | None] = {"gold": project.gold_rows, "qualify": project.qualify_rows}
    return {
        known: read_intake(Path(rows), project, known) for known, rows in files.items() if rows is not None
    }


def kind_of_rows(source: Path, format: str | None = None, options: ReadOptions = DEFAULT_OPTIONS) -> str:
    """What people can be asked about the rows of a file, by the first of them that can be read."""
    shape = "rows" if format is not None or options != DEFAULT_OPTIONS else _shape_of(source)
    if shape == "people":
        return USUAL
    if shape == "tasks":
        first = next(row for row in raw_rows(source) if row.problem is None)
        value = first.value if isinstance(first.value, Mapping) else {}
        named: Any = value.get("kind")
        if named in KINDS:
            return named
        count = len(value.get("candidates") or ())
        return USUAL if count == 2 else next(kind.name for kind in KINDS.values() if kind.answers[0] > 2)
    for row in open_rows(source, format=format, options=options).rows:
        for record in row.records:
            return next(kind.name for kind in KINDS.values() if isinstance(record, kind.usual_of))
    raise UserError(f"{source_name(source)}: no row of it can be read; `plaudit data inspect` says why")


def _shape_of(source: Path) -> Literal["tasks", "people", "rows"]:
    # What the first readable row is: a task, a pair that people compare, or a row of training.
    first = next((row for row in islice(raw_rows(source), DETECTION_ROWS) if row.problem is None), None)
    if first is None or first.cells or not isinstance(first.value, Mapping):
        return "rows"
    names, kind = {*first.value}, first.value.get("kind")
    # Steps with labels are a row of training, without they are a task.
    is_task = isinstance(kind, str) and kind in KINDS and "labels" not in names
    if "candidates" in names or is_task:
        return "tasks"
    return "people" if {"pair", "first", "second"} <= names else "rows"


def _values(source: Path, tasks: _Tasks) -> Iterator[tuple[RawRow, Mapping[str, Any]]]:
    # The readable rows; what is wrong with the others is remembered.
    for row in raw_rows(source):
        if row.problem is not None:
            tasks.rows += 1
            tasks.fault(row.problem.message)
        elif isinstance(row.value, Mapping):
            yield row, row.value


_PAIR_FIELDS = ("pair", "origin", "prompt", "first", "second")
_FILLED_IN = ("better", "strength", "annotator", "group")
_PLACES = {"first": 0, "second": 1}
_BETTER = (*_PLACES, "tie", "skip")


def _read_people(source: Path, tasks: _Tasks) -> Intake:
    # The pairs of a file that people filled in for ``train rlhf``, and what they said of them.
    given, numbers = list[GivenAnswer](), set[int]()
    for row, value in _values(source, tasks):
        with tasks.row(row.origin):
            node = Node(value=value)
            refuse_unknown(node, (*_PAIR_FIELDS, *_FILLED_IN), "pair")
            _refuse_repeated(node.get("pair"), numbers)
            body = tasks.add(_pair_body(node, tasks.known), row.origin)
            answer = None if tasks.known else _given_answer(node, body, row.origin, tasks.project)
            given += [] if answer is None else [answer]
    tasks.refuse_faults()
    sentence = f"{tasks.name}: read as pairs that people compare, {len(given)} of {tasks.rows} filled in"
    return Intake(sentence=sentence, bodies=(*tasks.bodies,), given=(*given,), pictures=tasks.pictures)


def _refuse_repeated(node: Node, numbers: set[int]) -> None:
    # True is an int to Python and would pass for pair 1.
    if isinstance(node.value, bool) or not isinstance(node.value, int) or node.value < 1:
        raise node.wrong_type_error("the number of the pair, from 1")
    if node.value in numbers:
        raise FieldError(field="pair", found=f"{node.value} for the second time", expected="each pair once")
    numbers.add(node.value)


def _pair_body(node: Node, known: Known | None) -> Body:
    # The pair as a task, in the order of the file, which was drawn when the answers were.
    prompt = read_text_or_messages(node.get("prompt"))
    answers = [answer_to(prompt, node.get(name).text()) for name in _PLACES]
    origin = node.optional("origin")
    body: Body = {
        "kind": USUAL,
        "prompt": text_to_json(prompt),
        "candidates": [{"text": text_to_json(answer)} for answer in answers],
        # The same words may have been drawn twice, and are two pairs.
        "metadata": {"pair": node.get("pair").value, "origin": "" if origin is None else origin.text()},
    }
    if known is None:
        return body
    better = node.get("better")
    if better.value not in _PLACES:
        raise better.wrong_type_error(f'"first" or "second" (leave the row out, or add it {UNKNOWN})')
    return {**body, "gold": {"better": _PLACES[str(better.value)]}}


def _given_answer(node: Node, body: Body, origin: str, project: Project) -> GivenAnswer | None:
    better, strength = node.optional("better"), node.optional("strength")
    names = {name: node.optional(name) for name in ("annotator", "group")}
    words = {name: None if value is None else value.text() for name, value in names.items()}
    if better is not None and better.value not in _BETTER:
        raise better.wrong_type_error(f"one of {', '.join(_BETTER)}, or null")
    if strength is not None and (better is None or better.value not in _PLACES):
        raise strength.wrong_type_error('none, as "better" names neither of the answers')
    if better is None:
        return None
    return GivenAnswer(
        task=task_id(body),
        order=(0, 1),
        label=check_label(_label(str(better.value), strength, project), body, project),
        person=words["annotator"] or PEOPLE,
        origin=origin,
        group=words["group"],
    )


def _label(better: str, strength: Node | None, project: Project) -> Body:
    if better == "skip":
        return {"none": True}
    if better == "tie":
        return {"strength": 0}
    # Where the file says only which is better, no more is claimed than the least degree.
    degree: Any = 1 if strength is None else strength.value
    most = len(project.scale)
    if isinstance(degree, bool) or degree not in range(1, most + 1):
        raise FieldError(
            field="strength", found=describe_value(degree), expected=f"a whole number from 1 to {most}"
        )
    return {"strength": int(degree) if _PLACES[better] else -int(degree)}


def _read_rows(source: Path, tasks: _Tasks, format: str | None, options: ReadOptions) -> Intake:
    stream = open_rows(source, format=format, options=options)
    if stream.unread_text is not None:
        raise UserError(f"{tasks.name}: {stream.unread_text}")
    left_out = dict[str, int]()
    for row in stream.rows:
        origin = row.raw.origin
        with tasks.row(origin):
            if row.problem is not None:
                tasks.fault(row.problem.message)
            elif row.left_out is not None:
                left_out[row.left_out] = left_out.get(row.left_out, 0) + 1
            # Before answers are told from each other: a picture under two names is one.
            for records in _groups([*map(tasks.pictures.record, row.records)], tasks.project):
                tasks.add(_body_of(records, tasks.project, tasks.known), origin)
    tasks.refuse_faults()
    if not tasks.bodies:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in left_out.items())
        raise UserError(f"{tasks.name}: {tasks.rows} rows and no task in them ({reasons})")
    more = {"left_out": left_out, "pictures": tasks.pictures}
    return Intake(sentence=stream.sentence, bodies=(*tasks.bodies,), **more)


def _groups(records: Sequence[Record], project: Project) -> Iterable[Sequence[Record]]:
    # The records of a row, those of one task together: judgements of the same answers to the same prompt.
    taken = [record for record in records if isinstance(record, KINDS[project.ask].records)]
    if records and not taken:
        wanted = [kind.__name__.lower() for kind in KINDS[project.ask].records]
        raise FieldError(
            field="kind",
            found=record_kind(records[0]),
            expected=f"{' or '.join(wanted)}, as the project asks for {project.ask}",
        )
    groups = dict[object, list[Record]]()
    for number, record in enumerate(taken):
        own = frozenset(words_of(text) for text in _answers_of(record).values())
        # Where no answers are judged, each record is a task by itself.
        if KINDS[project.ask].answers == (0, 0):
            groups[number] = [record]
        elif KINDS[project.ask].answers[1] == 2 and len(own) > 1:
            # A row of many pairs is many tasks, of which each may have several judges.
            groups.setdefault((record.prompt, own), []).append(record)
        else:
            # Ratings come one by one: only their prompt says which belong together.
            groups.setdefault(record.prompt, []).append(record)
    return groups.values()


def _body_of(records: Sequence[Record], project: Project, known: Known | None) -> Body:
    first, kind, answers = records[0], KINDS[project.ask], dict[Words, Text]()
    body: Body = {"kind": kind.name, "prompt": text_to_json(first.prompt), **_carried(first)}
    if kind.answers != (0, 0):
        answers = _drawn_order(records)
        count = len(answers)
        low, high = KINDS[project.ask].answers
        if not low <= count <= high:
            wanted = f"{low}" if low == high else f"{low} to {high}"
            raise FieldError(
                field="answers",
                found=f"{count} of them",
                expected=f"{wanted}, as the project asks for {project.ask}",
            )
        body |= {"candidates": [{"text": text_to_json(text)} for text in answers.values()]}
    body |= kind.own_of_record(first)
    if known is None:
        return body
    assert kind.gold_of_records is not None
    return {**body, "gold": kind.gold_of_records(records, [*answers], project)}


def _carried(record: Record) -> Body:
    # What a task takes along beside its texts: never what was said of them.
    carried = dict[str, Any]()
    if isinstance(record, Prompt | Demonstration) and record.answer is not None:
        carried["reference_answer"] = record.answer
    if isinstance(record, Prompt):
        category = record.metadata.get("category")
        carried |= {"metadata": dict(record.metadata)} if record.metadata else {}
    else:
        category = record.category
    return {**carried, "category": category} if isinstance(category, str) else carried


def _answers_of(record: Record) -> dict[str, Text]:
    match record:
        case Comparison():
            return {"chosen": record.chosen, "rejected": record.rejected}
        case Ranking():
            return {f"completions[{place}]": text for place, text in enumerate(record.completions)}
        case Rating() | Demonstration():
            return {"completion": record.completion}
        case Steps() | Prompt():
            return {}


def _drawn_order(records: Sequence[Record]) -> dict[Words, Text]:
    # The different answers, in an order that hangs on their words alone.
    answers = dict[Words, Text]()
    for record in records:
        fields = dict[Words, str]()
        for name, text in _answers_of(record).items():
            words = words_of(text)
            if words in fields:
                raise FieldError(
                    field=name,
                    found=f"the same words as in {fields[words]}",
                    expected="answers that differ, or there is nothing to compare (leave the row out)",
                )
            fields[words] = name
            answers.setdefault(words, text)
    # With the prompt: a text that answers many prompts must not stand first in all of them.
    prompt = text_to_json(records[0].prompt)
    drawn = sorted(answers.items(), key=lambda answer: digest([prompt, answer[0]]))
    return dict(drawn)
