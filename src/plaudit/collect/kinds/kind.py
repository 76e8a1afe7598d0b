"""What a kind of task is: one record with all that sets it apart, and the checks that kinds share.

A kind is a file beside this one, a template of the same name, and a line in the registry. Everything else of
the wing asks the record: the store, pages, commands, exports and reports know no kind by name.

Labels come in the order in which the answers were shown, and are stored so, with that order: who clicks the
left answer whatever stands there can be found only in the order that was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from plaudit.collect.refusals import MOST_CHARACTERS, FieldError, checked_text
from plaudit.config import did_you_mean
from plaudit.data.fields import BadRowError, Node, shorten
from plaudit.data.judging import Task
from plaudit.data.records import (
    Comparison,
    Message,
    Ranking,
    Rating,
    Record,
    Text,
    pictures,
    plain_text,
    preference_probability,
)
from plaudit.data.turns import read_text_or_messages

Body = Mapping[str, Any]
Label = Mapping[str, Any]
"""What somebody said of a task, in the order shown."""
Order = Sequence[int]
"""Which candidate was shown at which place."""
Shown = Mapping[str, Any]
"""What an annotator is shown of a task, as `tasks.shown_task` makes it."""
Form = Mapping[str, Sequence[str]]
"""The fields of a form, each with all the values that were sent for it."""
Values = Mapping[str, Sequence[object]]
"""The values of a form's fields, not yet as texts."""
Words = tuple[str, ...]
"""What two answers share that nobody could tell apart."""
LETTERS = "ABCDEFGHI"
"""What the answers of a task are called."""


class Settings(Protocol):
    """What a kind needs to know of its project."""

    @property
    def scale(self) -> tuple[str, ...]: ...
    @property
    def ties(self) -> bool: ...
    @property
    def flags(self) -> tuple[str, ...]: ...
    @property
    def aspects(self) -> tuple[str, ...]: ...
    @property
    def points(self) -> int: ...
    def words_of(self, aspect: str) -> tuple[str, ...]: ...
    def levels(self, aspect: str) -> int: ...


class Voice(Protocol):
    """The words of a reader's language. What it gives is safe to print; what goes in need not be."""

    def speak(self, key: str, **places: object) -> str: ...
    def own(self, word: str) -> str: ...
    def written(self, text: str) -> str: ...
    def put(self, pattern: str, *parts: object) -> str: ...
    def join(self, separator: str, parts: Iterable[str]) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A label with all that its rows are made of."""

    body: Body
    label: Label
    order: Order
    who: Mapping[str, Any]
    """What rows say of the annotator and of the circumstances: fields of `Provenance`."""
    settings: Settings

    @property
    def prompt(self) -> Text:
        return text_of(self.body["prompt"])

    @property
    def shared(self) -> dict[str, Any]:
        return {**self.who, "category": self.body.get("category"), "reason": self.label.get("why")}

    def of_answers(self, *answers: int) -> dict[str, Any]:
        """Where these answers of the task were shown, and what was said of each beside the verdict."""
        places = tuple(self.order.index(answer) for answer in answers)
        # Where people are asked for reports none is an answer too: most texts deserve no flag.
        asks = self.settings.flags and self.who["group"] != "ai"
        flags = self.label.get("flags", [()] * len(self.order) if asks else None)
        points = self.label.get("points", {}).items()
        return {
            "places": places,
            "flags": () if flags is None else tuple(tuple(flags[place]) for place in places),
            "aspects": {name: tuple(given[place] for place in places) for name, given in points} or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    answers: int
    """To each message; of several the person says which is better, and the conversation goes on with it."""
    sent: tuple[str, ...]
    """What a person sends of a conversation that is over; the turns are kept by the server."""
    label: Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]
    """The fields of the label that the turns become."""
    messages: Callable[[Text, Sequence[Mapping[str, Any]], str], Sequence[Message]]
    """What an opening, the turns so far and a new message are to the server."""


def nothing(*given: object) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str

    # Tasks.
    answers: tuple[int, int] = (0, 0)
    """How many candidates a task has, at least and at most."""
    own: tuple[str, ...] = ()
    """Fields that only tasks of this kind have."""
    empty_prompt: bool = False
    """Whether a task may begin with nothing: a conversation that the person opens."""
    check_own: Callable[[Node, Text], dict[str, Any]] = nothing
    """The own fields of a task that was sent, and its prompt, as the store holds them."""
    check_gold: Callable[[Node, Body, Settings], dict[str, Any]] | None = None
    """What is known to be right of a task; None where nothing is right or wrong."""
    example: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The own fields of a task that shows an owner how tasks are written."""

    # Rows in.
    records: tuple[type[Record], ...]
    usual_of: tuple[type[Record], ...] = ()
    """Of which records this is asked where nobody says what."""
    own_of_record: Callable[[Record], dict[str, Any]] = nothing
    gold_of_records: Callable[[Sequence[Record], Sequence[Words], Settings], dict[str, Any]] | None = None
    """What records of one task say is right, with its answers in their order; set where `check_gold` is."""
    drawn: int = 0
    """How many answers a model writes for a task where nobody says; 0: none could be judged."""

    # The page.
    template: Path | None = None
    """Where its template lies; None: ``app/templates/kinds/<name>.html``."""
    width: str = ""
    """The class of the page: wide, broad, or of one column."""
    scripts: tuple[str, ...] = ()
    numbers: bool = True
    """Whether the digits of a keyboard choose."""
    question: str
    """The key of what stands above every task where the project has no words of its own."""
    solo_question: str | None = None
    """What stands there where somebody labels alone; None: what the settings begin with."""
    prompt: str = "prompt"
    """The key of what the prompt is called."""
    shown: Callable[[Body, Settings], dict[str, Any]] = nothing
    """What an annotator is shown beside prompt and answers."""
    aspects: bool = False
    """Whether answers are rated by the project's aspects."""
    compared_texts: Callable[[Shown, Form], tuple[str, str] | None] | None = None
    """Two texts whose differences can be marked."""
    conversation: Conversation | None = None

    # The form.
    fields: tuple[str, ...]
    """The names of its fields, without the places behind a hyphen."""
    read: Callable[[Shown, Form], dict[str, Any]]
    """The label that a form says; a refusal names the form's field."""
    values: Callable[[Shown, Label], Values]
    """What the form's fields hold for a label."""
    first_field: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where the page says what is wrong with a field of the label."""
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    """The keys of what is said there, by the form's field."""

    # The label.
    check: Callable[[Node, Body, Settings], dict[str, Any]]
    """The label as the store holds it; a refusal names its field."""
    say: Callable[[Shown, Label, Voice], str]
    summary: Callable[[Label, Order, Settings, Voice], str]
    """The label in a line for those who manage, with the answers' letters in the task's own order."""
    texts: tuple[str, ...] = ("why",)
    """Its fields that hold what somebody wrote."""
    essence: str | None = None
    """The field of somebody's words without which nothing of the label is left."""
    majority: Callable[[Label, Order], str | None] | None = None
    """What a majority is counted over, in the task's own order."""
    is_right: Callable[[Label, Mapping[str, Any], Order], bool | None] | None = None
    """Whether a label says what is known to be right; None where it says nothing of it."""
    known: Callable[[Label, Order, Settings], dict[str, Any] | None] | None = None
    """What a label makes known for a gold item; None where it leaves open what would be right."""

    # Rows out, figures, costs.
    rows: Callable[[Labelled], list[Record]]
    statement: Callable[[Label, Order], Any] | None = None
    """What is compared with the same person's second answer, in the task's own order."""
    valued: Callable[[Label, Order, Order, Settings], Iterator[tuple[str, Any, int]]] | None = None
    """Aspect, part of the task and value of all that a label says, by which agreement is computed; None
    where each person answers alone. The second order is that of the answers' hashes."""
    compared: Callable[[Label, Order, Order], Iterator[tuple[int, int, int]]] | None = None
    """Two places of the task, the one with the lower hash first, and above 0 where the second is better."""
    scales: Callable[[Settings], Mapping[str, tuple[int, str]]] | None = None
    """How many values an aspect has, and how they are compared; set where `valued` is."""
    note: str = ""
    """What a reader of the figures must know."""
    marks: Callable[[Label, int, Settings], list[tuple[int, int]]] | None = None
    """Points of the answer shown at a place, each with the most points; of kinds that rate."""
    seconds: int = 300
    """How long a label takes where nobody has measured."""


def refuse_unknown(node: Node, known: Sequence[str], where: str = "label") -> None:
    for name in node.fields():
        if name not in known:
            raise FieldError(
                field=f"{node.path}.{name}" if node.path else name,
                found=f"an unknown field of a {where}{did_you_mean(name, known)}",
                expected=f"one of {', '.join(known)}",
            )


def text_of(value: object) -> Text:
    return read_text_or_messages(Node(value=value, path="text"))


def task_of(given: Labelled) -> Task:
    """The task as a judge sees it, in its own order."""
    candidates = given.body["candidates"]
    return Task(
        prompt=given.prompt,
        answers=tuple(text_of(candidate["text"]) for candidate in candidates),
        ended=tuple(candidate.get("ended", True) for candidate in candidates),
        category=given.body.get("category"),
        reference_answer=given.body.get("reference_answer"),
        metadata=given.body.get("metadata", {}),
    )


def words_of(text: Text) -> Words:
    """The words of an answer by which it is known; blanks at the ends make no difference."""
    return (plain_text(text).strip(), *pictures(text))


def in_a_line(text: str, most: int = 140) -> str:
    """The first words of a text, by which somebody knows it again."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def read_words(node: Node, name: str = "why") -> dict[str, str]:
    words = node.optional(name)
    return {} if words is None else {name: checked_text(name, words.value)}


def needed_words(node: Node) -> str:
    return checked_text(node.path, node.value, most=MOST_CHARACTERS, empty=False)


def read_whole(node: Node, low: int, high: int) -> int:
    value = node.value
    # True is an int to Python, and would be 1.
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise node.wrong_type_error(f"a whole number from {low} to {high}")
    return value


def says_none(node: Node) -> bool:
    """Whether the label says that nothing can be said."""
    none = node.optional("none")
    if none is not None and none.value is not True:
        raise none.wrong_type_error("true, or leave it out")
    return none is not None


def read_flags(node: Node, count: int, settings: Settings) -> dict[str, list[list[str]]]:
    """The field ``flags`` of a label or of a known answer: what each answer is reported for."""
    listed = node.optional("flags")
    if listed is None:
        return {}
    items = listed.items()
    if len(items) != count:
        raise listed.wrong_type_error(f"a list of flags for each of the {count} answers")
    for item in items:
        for flag in item.items():
            if flag.value not in settings.flags:
                raise flag.wrong_type_error(f"one of {', '.join(settings.flags) or 'no flags at all'}")
    # As a set in order: the same reports are the same label, however they were clicked.
    return {"flags": [sorted({str(flag.value) for flag in item.items()}) for item in items]}


def form_value(form: Form, name: str) -> str:
    """The value of a field that may be sent once; nothing is an empty text."""
    values = form.get(name, ())
    if len(values) > 1:
        raise FieldError(field=name, found=f"{len(values)} values", expected="one")
    return values[0] if values else ""


def form_text(form: Form, name: str) -> str:
    """A text as its writer meant it: browsers send every line's end as two characters."""
    return form_value(form, name).replace("\r\n", "\n").replace("\r", "\n")


def form_texts(form: Form, *names: str) -> dict[str, Any]:
    return {name: text for name in names if (text := form_text(form, name)).strip()}


def form_whole(form: Form, name: str, low: int, high: int) -> int:
    value = form_value(form, name)
    numbers = {str(number): number for number in range(low, high + 1)}
    # Looked up and not parsed: to int() "1_0", " 1" and Arabic digits are numbers too.
    if value not in numbers:
        raise FieldError(field=name, found=_found(value), expected=f"a whole number from {low} to {high}")
    return numbers[value]


def form_choice(form: Form, name: str, known: Sequence[str]) -> str:
    value = form_value(form, name)
    if value and value not in known:
        raise FieldError(field=name, found=_found(value), expected=f"one of {', '.join(known)}")
    return value


def form_checked(form: Form, name: str) -> bool:
    return form_choice(form, name, ("yes",)) == "yes"


def _found(value: str) -> str:
    return repr(shorten(value)) if value else "nothing"


def form_flags(shown: Shown, form: Form) -> dict[str, Any]:
    flags = [[*form.get(f"flags-{place}", ())] for place in range(len(shown["answers"]))]
    for place, given in enumerate(flags):
        for flag in given:
            if flag not in shown.get("flags", ()):
                known = ", ".join(shown.get("flags", ())) or "no flags at all"
                raise FieldError(field=f"flags-{place}", found=_found(flag), expected=f"one of {known}")
    return {"flags": [sorted({*given}) for given in flags]} if any(flags) else {}


def shared_values(label: Label) -> Values:
    """The values of the fields that most kinds have."""
    flags = {f"flags-{place}": given for place, given in enumerate(label.get("flags", ()))}
    none = {"none": ["yes"]} if label.get("none") else {}
    return {**flags, **none, "why": [label.get("why", "")]}


COMPARED = (Comparison, Ranking, Rating)
"""Records that say which of several answers is better."""
UNKNOWN = "without --gold and --qualify"
"""How rows are added that say nothing of what is right."""


def read_strength(node: Node, settings: Settings) -> int:
    """How far the second of two answers is better, on the project's scale."""
    most = len(settings.scale)
    strength = read_whole(node, -most, most)
    if strength == 0 and not settings.ties:
        raise node.wrong_type_error("one of the two, as this project has no ties")
    return strength


def check_strength(field: str, value: object, settings: Settings) -> int:
    """The same of a value that was sent alone; a refusal names its field."""
    try:
        return read_strength(Node(value=value, path=field), settings)
    except BadRowError as error:
        raise FieldError(field=field, found=error.found, expected=error.expected) from error


def known_place(node: Node, name: str, task: Body, settings: Settings) -> dict[str, Any]:
    """Which answer is the best one, and what the answers deserve to be reported for where that is known."""
    refuse_unknown(node, (name, "flags"), "known answer")
    count = len(task["candidates"])
    place = node.get(name)
    # True is an int to Python, and would be the second answer.
    if isinstance(place.value, bool) or not isinstance(place.value, int) or not 0 <= place.value < count:
        raise place.wrong_type_error(f"a place in the task, from 0 to {count - 1}")
    return {name: place.value, **read_flags(node, count, settings)}


def sign(value: int) -> int:
    return (value > 0) - (value < 0)


def best_place(records: Sequence[Record], answers: Sequence[Words]) -> int:
    """The place of the answer that all records of a row prefer."""
    whole = [record for record in records if isinstance(record, Rating) and record.aspect is None]
    compared = [record for record in records if not isinstance(record, Rating)]
    winners = {_winner(record) for record in compared}
    # Points of single aspects say nothing beside a ranking, and are not enough alone.
    winners |= {_best_rated(whole, answers)} if whole or not compared else set()
    if len(winners) > 1:
        raise FieldError(
            field="preference",
            found="judges who disagree",
            expected=f"one answer that is better (leave the row out, or add it {UNKNOWN})",
        )
    return answers.index(winners.pop())


def _winner(record: Record) -> Words:
    if isinstance(record, Comparison):
        probability = preference_probability(record)
        if probability == 0.5:
            raise _tie("probability")
        return words_of(record.chosen if probability > 0.5 else record.rejected)
    assert isinstance(record, Ranking)
    best = min(record.ranks)
    if record.ranks.count(best) > 1:
        raise _tie("ranks")
    return words_of(record.completions[record.ranks.index(best)])


def _best_rated(ratings: Sequence[Rating], answers: Sequence[Words]) -> Words:
    means = [sum(scores) / len(scores) for scores in scores_of(ratings, answers)]
    if means.count(max(means)) > 1:
        raise _tie("score")
    return answers[means.index(max(means))]


def scores_of(ratings: Sequence[Rating], answers: Sequence[Words]) -> list[list[float]]:
    scores: dict[Words, list[float]] = {words: [] for words in answers}
    for rating in ratings:
        if rating.aspect is None:
            scores[words_of(rating.completion)].append(rating.score)
    if not all(scores.values()):
        raise FieldError(
            field="score",
            found="none of at least one answer",
            expected=f"a score of each answer as a whole, of no single aspect (or add the row {UNKNOWN})",
        )
    return [*scores.values()]


def _tie(name: str) -> FieldError:
    return FieldError(
        field=name,
        found="a tie",
        expected=f"one answer that is better (leave the row out, or add it {UNKNOWN})",
    )


def read_points(
    node: Node, count: int, settings: Settings, aspects: Sequence[str]
) -> dict[str, list[int | None]]:
    """Points of each answer by aspect, as a label has them; null where one was left out."""
    if {*node.fields()} - {*aspects} or not node.fields():
        raise node.wrong_type_error(f"points by aspect: {', '.join(aspects) or 'none, as none is rated'}")
    points = dict[str, list[int | None]]()
    for name in node.fields():
        items, most = node.get(name).items(), settings.levels(name)
        if len(items) != count:
            raise node.get(name).wrong_type_error(f"1 to {most} or null for each of the {count} answers")
        points[name] = [None if item.value is None else read_whole(item, 1, most) for item in items]
    return points


def shown_aspects(settings: Settings, aspects: Sequence[str]) -> dict[str, Any]:
    anchors = {name: list(words) for name in aspects if (words := settings.words_of(name))}
    return {"aspects": [*aspects], "points": settings.points, "anchors": anchors}


def form_points(shown: Shown, form: Form) -> dict[str, Any]:
    """The label's ``points``, or nothing where none were given."""
    points = dict[str, list[int | None]]()
    for number, aspect in enumerate(shown.get("aspects", ())):
        names = [f"points-{number}-{place}" for place in range(len(shown["answers"]))]
        # As many as the aspect's levels where they have words, else those of the project.
        most = len(shown.get("anchors", {}).get(aspect, ())) or shown["points"]
        given = [form_whole(form, name, 1, most) if form_value(form, name) else None for name in names]
        if any(value is not None for value in given):
            points[aspect] = given
    return {"points": points} if points else {}


def points_values(shown: Shown, label: Label) -> dict[str, list[object]]:
    return {
        f"points-{shown['aspects'].index(aspect)}-{place}": ["" if value is None else value]
        for aspect, given in label.get("points", {}).items()
        if aspect in shown.get("aspects", ())
        for place, value in enumerate(given)
    }


def points_words(label: Label, place: int, voice: Voice) -> list[str]:
    """What the answer shown at a place was given, by aspect."""
    return [
        voice.put("{} {}", voice.own(aspect), points[place])
        for aspect, points in label.get("points", {}).items()
        if points[place] is not None
    ]


def valued_points(label: Label, order: Order) -> Iterator[tuple[str, int, int]]:
    """Aspect, place in the task and value from 0 of all points in a label."""
    for aspect, points in label.get("points", {}).items():
        for place, value in enumerate(points):
            if value is not None:
                yield aspect, order[place], value - 1
