"""Exports of annotation tools: Label Studio (JSON and JSON-MIN) and Argilla (nested, by user, flat).

Each names the fields of a task itself, so answers are found by their names; an answer to a question that no
record can hold is refused by its name, and goes only when it is left out by name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from plaudit.data.fields import (
    BadRowError,
    LeftOutError,
    Node,
    is_true,
    join_names,
    optional_items,
    optional_name,
)
from plaudit.data.formats import layout
from plaudit.data.records import Comparison, Demonstration, Ranking, Rating, Record, Text
from plaudit.data.turns import is_messages, read_prompt

PROMPT_FIELDS = ("prompt", "instruction", "question", "input", "query")
_NUMBERED = re.compile(r"(.*?)(?:[-_ .]?(\d+)|[-_ .]?([A-Z])|[-_ .]([a-z]|left|right))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    question: str
    value: Node
    annotator: str | None
    option: str

    @property
    def who(self) -> layout.AnnotationInfo:
        return layout.AnnotationInfo(annotator=self.annotator, group=None, category=None)

    def unreadable(self, expected: str) -> BadRowError:
        advice = f"{expected} (or leave it out by name: --leave-out {self.option})"
        return self.value.error("wrong value", advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a task showed: its prompt and, by name, whatever texts may be answers to it."""

    prompt: Text
    answers: Mapping[str, Text]

    def family_of(self, name: str) -> tuple[str, ...]:
        """The answers that are named as this one is: a text of another name may be no answer at all."""
        # Of two texts both must be answers, whatever they are called.
        if len(self.answers) == 2:
            return tuple(self.answers)
        return next((names for names in numbered_names(self.answers) if name in names), ())


def numbered_names(names: Sequence[str] | Mapping[str, object]) -> list[tuple[str, ...]]:
    """Names that differ in a number or letter at their end only, each family in the order of these.

    >>> numbered_names(["answer2", "source", "answer1", "text_b", "text_a"])
    [('answer1', 'answer2'), ('text_a', 'text_b')]
    """
    families: dict[str, list[tuple[int, str, str]]] = {}
    for name in names:
        if match := _NUMBERED.fullmatch(name):
            stem, number, *letters = match.groups()
            letter = "".join(letter or "" for letter in letters)
            families.setdefault(stem, []).append((int(number or 0), letter, name))
    return [tuple(name for *_, name in sorted(found)) for found in families.values() if len(found) > 1]


def _shown(fields: Node, skipped: Sequence[str] = ()) -> Shown:
    prompt_field = next((name for name in PROMPT_FIELDS if fields.optional(name) is not None), None)
    if prompt_field is None:
        expected = f"one of the fields {', '.join(PROMPT_FIELDS)}"
        raise BadRowError("missing field", fields.path, expected=expected, found=join_names(fields.fields()))
    prompt = read_prompt(fields.get(prompt_field))
    nodes = {name: fields.optional(name) for name in fields.fields() if name not in (*skipped, prompt_field)}
    answers = {
        name: layout.read_response(node, prompt)
        for name, node in nodes.items()
        if node is not None and isinstance(node.value, str) and node.value.strip()
    }
    return Shown(prompt=prompt, answers=answers)


def _compared(chosen: str, response: Response, shown: Shown) -> Iterator[Comparison]:
    others = [name for name in shown.family_of(chosen) if name != chosen]
    if not others:
        expected = "an answer whose name differs from the others' in its number only, as response1, response2"
        raise response.unreadable(expected)
    for name in others:
        yield _comparison((chosen, name), response, shown)


def _comparison(names: tuple[str, str], response: Response, shown: Shown, *, tie: bool = False) -> Comparison:
    chosen, rejected = (shown.answers[name] for name in names)
    layout.require_different(chosen, rejected, ", ".join(names))
    probability = 0.5 if tie else None
    return Comparison(
        prompt=shown.prompt, chosen=chosen, rejected=rejected, probability=probability, **response.who
    )


def _argilla(row: Node, options: layout.ReadOptions) -> Iterable[Record]:
    shown = _shown(row.get("fields"))
    responses = row.get("responses")
    listed = _by_user(responses) if isinstance(responses.value, list | tuple) else _by_question(responses)
    return _answered(listed, shown, options)


def _argilla_flat(row: Node, options: layout.ReadOptions) -> Iterable[Record]:
    """What Argilla gives to `datasets`: fields, metadata and the answers to each question as columns."""
    columns = [name for name in row.fields() if re.search(r"\.(responses|suggestion)(\.\w+)?$", name)]
    shown = _shown(row, skipped=("id", "_server_id", "status", *columns))
    return _answered(_by_column(row, columns), shown, options)


def _answered(listed: Iterator[Response], shown: Shown, options: layout.ReadOptions) -> Iterator[Record]:
    # Before anything is read: what is left out by name may have any shape.
    given = [response for response in listed if response.option not in options.leave_out]
    for response in given:
        yield from _argilla_records(response, shown)


def _by_question(responses: Node) -> Iterator[Response]:
    for question in responses.fields():
        for vote in optional_items(responses, question):
            if _is_given(vote):
                yield Response(
                    question=question,
                    value=vote.get("value"),
                    annotator=_person(vote.optional("user_id")),
                    option=f"responses.{question}",
                )


def _by_user(responses: Node) -> Iterator[Response]:
    """As the server's own API has them: all answers of a person together."""
    for user in responses.items():
        values = user.optional("values")
        for question in values.fields() if values is not None and _is_given(user) else ():
            answer = None if values is None else values.optional(question)
            if answer is not None and answer.optional("value") is not None:
                yield Response(
                    question=question,
                    value=answer.get("value"),
                    annotator=_person(user.optional("user_id")),
                    option=f"responses.{question}",
                )


def _by_column(row: Node, columns: Sequence[str]) -> Iterator[Response]:
    for column in columns:
        listed = row.optional(column) if column.endswith(".responses") else None
        if listed is None:
            continue
        values = listed.items()
        users, states = (
            _parallel_items(row, f"{column}.{part}", len(values)) for part in ("users", "status")
        )
        for value, user, state in zip(values, users, states, strict=True):
            if value.value is not None and state.value in (None, "submitted"):
                question = column.removesuffix(".responses")
                annotator = None if user.value is None else _person(user)
                yield Response(question=question, value=value, annotator=annotator, option=column)


def _parallel_items(row: Node, column: str, count: int) -> tuple[Node, ...]:
    node = row.optional(column)
    found = (Node(value=None),) * count if node is None else node.items()
    if len(found) != count:
        expected = f"{count} values, one an answer"
        raise BadRowError("wrong value", column, expected=expected, found=str(len(found)))
    return found


def _is_given(response: Node) -> bool:
    """Whether a response was sent: drafts and discarded ones are nobody's answer."""
    state = response.optional("status")
    return state is None or state.text() == "submitted"


def _argilla_records(response: Response, shown: Shown) -> Iterator[Record]:
    value = response.value.value
    if isinstance(value, list | tuple):
        yield _argilla_ranking(response, shown)
    elif isinstance(value, str) and not shown.answers:
        completion = layout.read_response(response.value, shown.prompt)
        yield Demonstration(prompt=shown.prompt, completion=completion, **response.who)
    elif isinstance(value, str) and value in shown.answers:
        yield from _compared(value, response, shown)
    # Behind the names of answers, one of which may be this word.
    elif value == "tie" and len(shown.answers) == 2:
        first, second = shown.answers
        yield _comparison((first, second), response, shown, tie=True)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield _argilla_rating(response, shown)
    else:
        raise response.unreadable(
            f"the name of an answer ({', '.join(shown.answers) or 'there is none'}) or tie"
        )


def _argilla_ranking(response: Response, shown: Shown) -> Ranking:
    """Objects of a name and its rank, or names in order: all of them, since some would be a mere choice."""
    items = response.value.items()
    objects = all(isinstance(item.value, Mapping) for item in items)
    names = [(item.get("value") if objects else item).value for item in items]
    answers = [shown.answers[name] for name in names if isinstance(name, str) and name in shown.answers]
    known = len(answers) == len(names) == len({*map(str, names)}) > 1
    if not known or not (objects or {*(shown.family_of(str(names[0])) or shown.answers)} <= {*names}):
        raise response.unreadable(f"all answers in order ({', '.join(shown.answers) or 'there are none'})")
    is_ranked = objects and any(item.optional("rank") is not None for item in items)
    ranks = tuple(item.get("rank").number() if is_ranked else i + 1.0 for i, item in enumerate(items))
    return Ranking(prompt=shown.prompt, completions=tuple(answers), ranks=ranks, **response.who)


def _argilla_rating(response: Response, shown: Shown) -> Rating:
    """Points of the one answer, or of the answer that the question's name begins with."""
    matching = [name for name in shown.answers if response.question.startswith(name)]
    # The longest: answer1 begins the name of answer10 too.
    name = max(matching, key=len) if matching else next(iter(shown.answers), None)
    if name is None or (not matching and len(shown.answers) > 1):
        raise response.unreadable(
            f"points of one answer, or a question that begins with its name: {join_names([*shown.answers])}"
        )
    aspect = response.question.removeprefix(name).strip("-_ .") if matching else response.question
    completion = shown.answers[name]
    score = response.value.number()
    return Rating(
        prompt=shown.prompt, completion=completion, score=score, aspect=aspect or None, **response.who
    )


def _label_studio(row: Node, options: layout.ReadOptions) -> Iterator[Record]:
    data = row.get("data")
    for annotation in row.get("annotations").items():
        for response, target in _regions(annotation):
            if response.option not in options.leave_out:
                yield from _label_studio_records(response, data, target)


def _label_studio_min(row: Node, options: layout.ReadOptions) -> Iterator[Record]:
    """The fields of a task and the values of its controls beside each other, a row for each annotation."""
    controls = [name for name in row.fields() if _is_control(row.optional(name))]
    data = Node(value=layout.other_fields(row, *controls, *("annotator", "created_at", "updated_at")))
    person = _person(row.optional("annotator"))
    for name in controls:
        for value in row.get(name).items():
            response = Response(question=name, value=value, annotator=person, option=name)
            yield from _label_studio_records(response, data, "")


def _is_control(node: Node | None) -> bool:
    return node is not None and not is_messages(node) and _is_list_of(node, with_id=False)


def _is_list_of(node: Node | None, *, with_id: bool) -> bool:
    items = node.value if node is not None and isinstance(node.value, list | tuple) else ()
    return bool(items) and all(isinstance(item, Mapping) and ("id" in item) == with_id for item in items)


def _regions(annotation: Node) -> Iterator[tuple[Response, str]]:
    person = _person(annotation.optional("completed_by"))
    for region in () if is_true(annotation, "was_cancelled") else optional_items(annotation, "result"):
        name = region.get("from_name").text()
        target = region.optional("to_name")
        option = f"annotations.{name}"
        response = Response(question=name, value=region.get("value"), annotator=person, option=option)
        yield response, "" if target is None else target.text()


def _label_studio_records(response: Response, data: Node, target: str) -> Iterator[Record]:
    if "selected" in response.value.fields():
        yield from _pairwise(response, data, target)
    elif "ranker" in response.value.fields():
        yield from _ranker(response, data, target)
    else:
        raise response.unreadable("the value of a Pairwise (selected) or a Ranker (ranker)")


def _pairwise(response: Response, data: Node, target: str) -> Iterator[Comparison]:
    selected = response.value.get("selected")
    if selected.text() not in ("left", "right", "none"):
        raise selected.wrong_type_error("left, right or none")
    if selected.value == "none":
        return
    shown = _shown(data)
    named = tuple(name.strip() for name in target.split(","))
    # The control says which stands on which side; numbers are believed only where it does not.
    sides = named if len(named) == 2 and {*named} <= shown.answers.keys() else _two_sides(response, shown)
    left, right = sides if selected.value == "left" else sides[::-1]
    yield _comparison((left, right), response, shown)


def _two_sides(response: Response, shown: Shown) -> tuple[str, ...]:
    """The one pair of fields that is numbered; with any other the sides would be a guess."""
    pairs = [names for names in numbered_names(shown.answers) if len(names) == 2]
    if len(pairs) != 1:
        found = join_names([*shown.answers]) or "none"
        expected = "two answers whose names differ in their number only (answer1, answer2)"
        raise BadRowError("wrong value", response.value.path, expected=expected, found=f"the texts {found}")
    return pairs[0]


def _ranker(response: Response, data: Node, target: str) -> Iterator[Ranking]:
    order = _ranker_order(response)
    if len(order) < 2:
        return
    prompt, items = _shown(data).prompt, _items(data, target)
    completions = list[Text]()
    for node in order:
        before = [other.name() for other in order[: len(completions)]]
        if node.name() not in items or node.name() in before:
            raise node.error("wrong value", f"each id once, of {join_names([*items])}")
        item = items[node.name()]
        completions.append(layout.read_response(item.optional("body") or item.get("title"), prompt))
    ranks = tuple(float(i + 1) for i in range(len(order)))
    yield Ranking(prompt=prompt, completions=tuple(completions), ranks=ranks, **response.who)


def _ranker_order(response: Response) -> tuple[Node, ...]:
    """The ids that were put in order; those in the column ``_`` were left where they lay."""
    ranker = response.value.get("ranker")
    if not isinstance(ranker.value, Mapping):
        return ranker.items()
    columns = [name for name in ranker.fields() if name != "_"]
    if len(columns) > 1:
        expected = "one column of ids (of buckets it is not known which is better)"
        raise response.unreadable(expected)
    return ranker.get(columns[0]).items() if columns else ()


def _items(data: Node, target: str) -> dict[str, Node]:
    """The listed items by their ids: of the field that the control names, or of the only such list."""
    lists = [name for name in data.fields() if _is_list_of(data.optional(name), with_id=True)]
    name = target if target in lists else lists[0] if len(lists) == 1 else None
    if name is None:
        raise BadRowError(
            "missing field",
            data.path,
            expected="a list of items, each with its id and body",
            found=join_names(data.fields()) if not lists else f"several: {join_names(lists)}",
        )
    return {item.get("id").name(): item for item in data.get(name).items()}


def _prodigy(row: Node, options: layout.ReadOptions) -> Iterable[Record]:
    listed = row.get("options").items()
    accepted = {item.name() for item in optional_items(row, "accept")}
    good = [option.get("id").name() in accepted for option in listed]
    if row.get("answer").value != "accept" or all(good) or not any(good):
        raise LeftOutError("tasks in which no option was accepted above another")
    prompt = read_prompt(row.get("text"))
    completions = tuple(layout.read_response(option.get("text"), prompt) for option in listed)
    who = optional_name(row, "_annotator_id")
    return (Ranking(prompt=prompt, completions=completions, ranks=layout.ranks_of(good), annotator=who),)


def _person(node: Node | None) -> str | None:
    # Argilla writes the id of nobody as the text of Python's None.
    if node is None or node.value in ({}, "", "None"):
        return None
    return _person(node.optional("id")) if isinstance(node.value, Mapping) else node.name()


def _is_name(node: Node) -> bool:
    return isinstance(node.value, str | int | Mapping) and not isinstance(node.value, bool)


_LIST = layout.FieldType(name="a list", matches=lambda node: isinstance(node.value, list | tuple))
_RESPONSES = layout.FieldType(
    name="an object or a list", matches=lambda node: isinstance(node.value, Mapping | list | tuple)
)
_PERSON = layout.FieldType(name="a person", matches=_is_name)
_NUMBER = layout.FieldType(name="a number", matches=lambda node: isinstance(node.value, int))

ANNOTATION_FORMATS = (
    layout.RowFormat(
        name="label-studio",
        title="Label Studio JSON",
        schema={"data": layout.OBJECT, "annotations": _LIST},
        optional_fields=None,
        parse=_label_studio,
        without_records="tasks that nobody has answered",
        produces="a comparison for each annotator's Pairwise, a ranking for each Ranker",
    ),
    layout.RowFormat(
        name="label-studio-min",
        title="Label Studio JSON-MIN",
        schema={"annotation_id": _NUMBER, "annotator": _PERSON, "created_at": layout.TEXT},
        optional_fields=None,
        parse=_label_studio_min,
        without_records="tasks that nobody has answered",
        produces="a comparison (Pairwise: the lower number is on the left) or a ranking (Ranker)",
        is_decisive=True,
    ),
    layout.RowFormat(
        name="argilla",
        title="Argilla records",
        schema={"fields": layout.OBJECT, "responses": _RESPONSES},
        parse=_argilla,
        without_records="records that nobody has answered",
        optional_fields=None,
        produces="a comparison, ranking, rating or demonstration for each annotator's answer to a question",
    ),
    layout.RowFormat(
        name="argilla-flat",
        title="Argilla records as a data set",
        schema={"_server_id": layout.TEXT, "id": layout.TEXT},
        excluded_fields=frozenset(["fields"]),
        optional_fields=None,
        parse=_argilla_flat,
        without_records="records that nobody has answered",
        produces="the same, from columns such as `better.responses` and `better.responses.users`",
        is_decisive=True,
    ),
    layout.RowFormat(
        name="prodigy",
        title="Prodigy choices",
        schema={"text": layout.TEXT, "options": layout.OBJECTS, "answer": layout.TEXT},
        optional_fields=frozenset(["accept", "_annotator_id"]),
        parse=_prodigy,
        produces="ranking of the options, the accepted ones first; tasks that were not accepted are left out",
    ),
)
