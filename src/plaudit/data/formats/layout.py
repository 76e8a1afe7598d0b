"""A row format: its name, the schema that it is detected by, and a function from row to records.

Here is also what many formats have in common: who judged a row, and where the prompt of a conversation ends.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from plaudit.data.fields import (
    ROW_LIMIT,
    BadRowError,
    Node,
    RawRow,
    describe_value,
    optional_items,
    optional_name,
    optional_number,
    read_json,
    shared_length,
)
from plaudit.data.records import UNSAFE, Record, Safety, Text, plain_text
from plaudit.data.turns import ROLES, Turns, is_messages, read_completion, require_not_empty, roles_of
from plaudit.errors import UserError

_ROLE = "role:"


def named_role(word: str) -> str:
    """What ``--roles SPEAKER=ROLE`` says, as a column: ``ROLE=role:SPEAKER``."""
    speaker, _, role = word.partition("=")
    if not speaker or role not in ROLES:
        raise UserError(f"--roles {word!r}: expected SPEAKER=ROLE, a role of {', '.join(ROLES)}")
    return f"{role}={_ROLE}{speaker}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    ties: str = "soft"
    """What becomes of a tie: soft, learnt as equal answers, or drop: counted and left out."""
    neutral: float = 0.5
    """The label of a neutral step (PRM800K's rating 0)."""
    split: str | None = None
    row_limit: int = ROW_LIMIT
    columns: tuple[str, ...] = ()
    """What fields are called here and in the file: ``prompt=question``, ``prompt=input.messages``, and the
    roles of speakers: ``assistant=role:narrator``."""
    leave_out: tuple[str, ...] = ()
    """Fields that are left unread on purpose."""
    safety: Safety | None = None
    """Only such rows, by what their answers were reported for."""
    unsafe: tuple[str, ...] = UNSAFE
    """The flags that count."""
    pictures: Path | None = None
    """The folder that pictures are named from; None: that of the rows' file."""

    def __post_init__(self) -> None:
        if self.ties not in ("soft", "drop"):
            raise UserError(f"ties={self.ties!r}: expected 'soft' (probability 0.5) or 'drop'")
        if not 0 <= self.neutral <= 1:
            raise UserError(f"neutral={self.neutral}: expected a label from 0 to 1")
        for column in self.columns:
            if not all(column.partition("=")):
                raise UserError(
                    f"--columns {column!r}: expected NAME=FIELD, the name that a layout has for it and the "
                    "field of the file (prompt=question)"
                )

    @property
    def _fields(self) -> dict[str, str]:
        return {field: name for name, _, field in (column.partition("=") for column in self.columns)}

    @property
    def roles(self) -> dict[str, str]:
        """The role of each speaker of the file who has one.

        >>> ReadOptions(columns=(named_role("narrator=assistant"),)).roles
        {'narrator': 'assistant'}
        """
        fields = self._fields.items()
        return {field.removeprefix(_ROLE): name for field, name in fields if field.startswith(_ROLE)}

    @property
    def renamed(self) -> dict[str, str]:
        """The name that each named field of the file gets.

        >>> ReadOptions(columns=("prompt=question",)).renamed
        {'question': 'prompt'}
        """
        return {field: name for field, name in self._fields.items() if not field.startswith(_ROLE)}


SYSTEM_FIELD = "system"
"""The field that holds a row's system turn, in every layout that anybody may have made."""
PICTURE_FIELDS = ("images", "image", "pictures")
"""The fields that hold a row's pictures, in every layout."""
TOOLS_FIELD = "tools"
"""The field that holds the schemas of a row's tools, in every layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """The type that a field of a row must have, for detecting the format."""

    name: str
    matches: Callable[[Node], bool]
    special_case_of: str = ""
    """The name of the wider shape that it is a special case of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormat:
    name: str
    title: str
    schema: Mapping[str, FieldType]
    parse: Callable[[Node, ReadOptions], Iterable[Record]]
    """A row to records, which get its origin where they have none; raises ``BadRowError`` or
    ``LeftOutError``."""
    without_records: str = ""
    """What rows are called that are sound and hold no record, for the count of those left out."""
    produces: str
    """What the records are, for the table of layouts."""
    optional_fields: frozenset[str] | None = field(default_factory=frozenset[str])
    """Further fields that it reads where a row has them; None when it reads all."""
    excluded_fields: frozenset[str] = field(default_factory=frozenset[str])
    """Fields whose presence speaks against it."""
    aliases: tuple[str, ...] = ()
    is_decisive: bool = False
    """True when its schema settles the matter whatever else the row holds."""
    is_generic: bool = False
    """True where anybody may have made the rows: `system` is their system turn, and text in a field that it
    does not look at may be a part of the prompt."""
    takes_label: bool = False
    """True where a field beside the one answer may say whether it is good."""
    names: Mapping[str, str] | None = None
    """What the fields that `parse` asks for are called in these rows: paths such as ``input.messages``."""
    join: Callable[[Iterable[RawRow]], Iterator[RawRow]] | None = None
    """What makes rows of the file's lines where one alone says too little: trees of messages."""

    def matches(self, row: Node) -> bool:
        if any(name in self.excluded_fields and row.optional(name) is not None for name in row.fields()):
            return False
        nodes = {name: row.optional(name) for name in self.schema}
        return all(node is not None and self.schema[name].matches(node) for name, node in nodes.items())

    def is_narrower_than(self, other: "RowFormat") -> bool:
        if self.is_decisive:
            return True
        own_fields, other_fields = set(self.schema), set(other.schema)
        narrowed = any(
            name in own_fields and self.schema[name].special_case_of == field_type.name
            for name, field_type in other.schema.items()
        )
        return other_fields < own_fields or (other_fields == own_fields and narrowed)

    def unread_fields(self, fields: Iterable[str]) -> tuple[str, ...]:
        if self.optional_fields is None:
            return ()
        generic = (SYSTEM_FIELD,) if self.is_generic else ()
        always = (TOOLS_FIELD, "facts", *PICTURE_FIELDS, *generic)
        read = {*self.schema, *self.optional_fields, *(self.names or {}).values(), *always}
        return tuple(name for name in fields if name not in {path.partition(".")[0] for path in read})

    @property
    def schema_text(self) -> str:
        return ", ".join(f"{name} ({field_type.name})" for name, field_type in self.schema.items())


def optional_category(row: Node, field: str) -> str | None:
    """A category that may be absent; of several in a list, all their names.

    >>> optional_category(Node(value={"source": ["sharegpt", "flan"]}), "source")
    'sharegpt, flan'
    """
    node = row.optional(field)
    if node is None or not isinstance(node.value, list | tuple):
        return None if node is None else node.name()
    return ", ".join(item.name() for item in node.items()) or None


def other_fields(row: Node, *read: str) -> dict[str, object]:
    """The fields of an object but these, and but nulls: a table fills each row up with the fields of all."""
    names = (name for name in row.fields() if name not in read)
    return {name: node.value for name in names if (node := row.optional(name)) is not None}


class AnnotationInfo(TypedDict, total=False):
    """What records have of `plaudit.data.records.Provenance`, but where they stand."""

    annotator: str | None
    group: str | None
    category: str | None
    reason: str | None
    seconds: float | None
    guidelines: str | None
    method: str | None
    propensity: float | None
    places: tuple[int, ...]
    flags: tuple[tuple[str, ...], ...]
    aspects: Mapping[str, tuple[float | None, ...]] | None


_DETAILS = frozenset(AnnotationInfo.__annotations__) - {"annotator", "group", "category"}


def annotation_info(row: Node, answers: int = 1) -> AnnotationInfo:
    """What a row says, in fields that all may be absent, of who judged its answers, and how."""
    annotator, group = optional_name(row, "annotator"), optional_name(row, "group")
    info = AnnotationInfo(annotator=annotator, group=group, category=optional_category(row, "category"))
    # Most rows say no more, and of ten million each look counts.
    names = row.value if isinstance(row.value, Mapping) else ()
    return info if _DETAILS.isdisjoint(names) else {**info, **_details(row, answers)}


def _details(row: Node, answers: int) -> AnnotationInfo:
    # What was said beside the verdict.
    reason, aspects = row.optional("reason"), row.optional("aspects")
    places = [item.number() for item in _of_answers(row, "places", answers)]
    if any(place < 0 or place % 1 for place in places):
        raise row.get("places").wrong_type_error("whole numbers from 0 on")
    given = Node(value={}) if aspects is None else read_json(aspects, "points by aspect")
    if not isinstance(given.value, Mapping):
        raise given.wrong_type_error("points by aspect")
    points = {name: _of_answers(given, name, answers) for name in given.fields()}
    flags = _of_answers(row, "flags", answers)
    return AnnotationInfo(
        reason=None if reason is None else reason.text(),
        seconds=optional_number(row, "seconds"),
        guidelines=optional_name(row, "guidelines"),
        method=optional_name(row, "method"),
        propensity=optional_number(row, "propensity"),
        places=tuple(map(int, places)),
        flags=tuple(tuple(flag.text() for flag in each.items()) for each in flags),
        # A table fills each row up with the aspects of all.
        aspects={name: tuple(map(_points, items)) for name, items in points.items() if items} or None,
    )


def _of_answers(row: Node, field: str, answers: int) -> tuple[Node, ...]:
    items = optional_items(row, field)
    if items and len(items) != answers:
        raise row.get(field).wrong_type_error(f"one for each of {answers} answers, in the row's order")
    return items


def _points(node: Node) -> float | None:
    return None if node.value is None else node.number()


def require_different(chosen: Text, rejected: Text, path: str) -> None:
    if chosen == rejected:
        expected, found = "two different answers", "the same answer twice"
        raise BadRowError("chosen = rejected", path, expected=expected, found=found)


def ranks_of(scores: Sequence[float]) -> tuple[float, ...]:
    """The rank of each score, 1 for the highest; equal scores share theirs.

    >>> ranks_of([3, 5, 5])
    (3.0, 1.0, 1.0)
    """
    return tuple(float(1 + sum(other > score for other in scores)) for score in scores)


def read_response(node: Node, prompt: Text) -> Text:
    """An answer that a layout writes as a text, also below a prompt of messages."""
    if isinstance(prompt, str) or not isinstance(node.value, str):
        return read_completion(node, prompt)
    turn = Node(value=[{"role": "assistant", "content": node.text()}], path=node.path)
    return read_completion(turn, prompt)


def split_prompt(turns: Turns, path: str) -> tuple[Turns, Turns]:
    """A conversation as its prompt (before the first assistant turn) and its answer (to the last one).
    User and tool turns between two assistant turns belong to the answer; what follows the last assistant turn
    has no reply to learn from and is not part of either."""
    assistant_indices = [i for i, turn in enumerate(turns) if turn.role == "assistant"]
    if not assistant_indices:
        raise BadRowError("empty side", path, expected="a turn of the assistant", found="none")
    first, last = assistant_indices[0], assistant_indices[-1]
    prompt, completion = turns[:first], turns[first : last + 1]
    if not plain_text(prompt).strip():
        raise BadRowError("empty side", path, expected="a turn before the assistant's first", found="none")
    require_not_empty(completion, path)
    return prompt, completion


def split_shared_turns(chosen: Turns, rejected: Turns) -> tuple[Turns, Turns, Turns]:
    """Two whole conversations as their common prompt and two answers; no message is ever split."""
    n = shared_length(chosen, rejected)
    if n == 0 or not plain_text(chosen[:n]).strip():
        expected = "two conversations that begin with the same prompt"
        actual = "different first turns" if n == 0 else "a prompt without words"
        raise BadRowError("wrong value", "chosen, rejected", expected=expected, found=actual)
    if n in (len(chosen), len(rejected)):
        side, actual = "chosen" if n == len(chosen) else "rejected", "only turns that the other side has too"
        raise BadRowError("empty side", side, expected="an answer of its own", found=actual)
    return chosen[:n], chosen[n:], rejected[n:]


def split_shared_text(chosen: str, rejected: str) -> tuple[str, str, str]:
    """Two whole texts as their common prompt and two answers; no word is ever split.
    A space before the answers goes with them, as tokenisers have it; a line break stays with the prompt.

    >>> split_shared_text("The sky is blue.", "The sky is black.")
    ('The sky is', ' blue.', ' black.')
    >>> split_shared_text("It rains", "It rains today")
    ('It', ' rains', ' rains today')
    """
    n = shared_length(chosen, rejected)
    # Back to a blank: half a word on either side of the cut would be other tokens than the word.
    while n > 0 and not chosen[n - 1].isspace():
        n -= 1
    if not chosen[:n].strip():
        raise BadRowError(
            "empty side",
            "chosen, rejected",
            expected="two texts that begin with the same prompt (or name its field: --columns prompt=FIELD)",
            found=f"{describe_value(chosen)} and {describe_value(rejected)}",
        )
    if chosen[:n].endswith(" "):
        n -= 1
    return chosen[:n], chosen[n:], rejected[n:]


def _can_read(read: Callable[[Node], object]) -> Callable[[Node], bool]:
    def matches(node: Node) -> bool:
        try:
            read(node)
        except BadRowError:
            return False
        return True

    return matches


def _all_items(matches: Callable[[Node], bool]) -> Callable[[Node], bool]:
    def all_match(node: Node) -> bool:
        items = node.items() if _can_read(Node.items)(node) else ()
        return bool(items) and all(map(matches, items))

    return all_match


def _is_text(node: Node) -> bool:
    return isinstance(node.value, str)


def _is_object(node: Node) -> bool:
    return bool(node.fields())


TEXT = FieldType(name="a text", matches=_is_text)
MESSAGES = FieldType(name="messages", matches=is_messages)
"""A conversation: a list of objects with role and content."""
UNANSWERED = FieldType(
    name="messages without the assistant's",
    matches=lambda node: is_messages(node) and not {"assistant"} & {*roles_of(node)},
    special_case_of="messages",
)
ENDS_WITH_USER = FieldType(
    name="messages that end with the user's",
    matches=lambda node: is_messages(node) and roles_of(node)[-1] == "user",
    special_case_of="messages",
)
ANSWER = FieldType(name="an answer", matches=lambda node: isinstance(node.value, str | int | float | list))
"""What an answer is compared with: a text, a number, or a list of one."""
TEXT_OR_MESSAGES = FieldType(
    name="a text or messages", matches=lambda node: _is_text(node) or is_messages(node)
)
"""A string or a conversation: a prompt, a completion, one side of a comparison."""
TRANSCRIPT = FieldType(
    name='a transcript "Human: … Assistant: …"',
    matches=lambda node: isinstance(node.value, str) and node.value.lstrip().startswith("Human:"),
    special_case_of="a text or messages",
)
NUMBER = FieldType(name="a number", matches=_can_read(Node.number))
BOOLEAN = FieldType(name="true or false", matches=_can_read(Node.boolean))
TEXTS = FieldType(name="a list of texts", matches=_all_items(_is_text))
"""Answers or steps, at least one."""
VERDICT = FieldType(name="a verdict", matches=_can_read(Node.verdict))
"""Whether an answer is good: true or false, 1 or -1, yes or no."""
BOOLEANS = FieldType(name="a list of true or false", matches=_all_items(BOOLEAN.matches))
"""One label a step, at least one."""
OBJECT = FieldType(name="an object", matches=_is_object)
OBJECTS = FieldType(name="a list of objects", matches=_all_items(_is_object))
"""Answers with what belongs to them, at least one."""
NUMBERS = FieldType(name="a list of numbers", matches=_all_items(NUMBER.matches))
"""One rank an answer, at least one."""
TEXTS_OR_CONVERSATIONS = FieldType(
    name="a list of texts or conversations", matches=_all_items(TEXT_OR_MESSAGES.matches)
)
"""Answers of either kind, at least one."""
