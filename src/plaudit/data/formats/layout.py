"""A row format: its name, the schema that it is detected by, and a function from row to records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from plaudit.data.fields import ROW_LIMIT, BadRowError, Node, is_messages
from plaudit.data.records import Record
from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The choices that some layouts leave to the reader.

    Example: ``ReadOptions(ties="drop", neutral=0.0)``
    """

    ties: str = "soft"
    """What becomes of a tie: soft, learnt as equal answers, or drop: counted and left out."""
    neutral: float = 0.5
    """The label of a neutral step (PRM800K's rating 0)."""
    split: str | None = None
    """Which split to read, where the source has several."""
    row_limit: int = ROW_LIMIT
    """Bytes that a row may have."""
    columns: tuple[str, ...] = ()
    """What fields are called here and in the file: ``prompt=question``."""
    leave_out: tuple[str, ...] = ()
    """Fields that are left unread on purpose."""

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
    def renamed(self) -> dict[str, str]:
        """The name that each named field of the file gets.

        >>> ReadOptions(columns=("prompt=question",)).renamed
        {'question': 'prompt'}
        """
        return {field: name for name, _, field in (column.partition("=") for column in self.columns)}


SYSTEM_FIELD = "system"
"""The field that holds a row's system turn, in every layout that anybody may have made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """The type that a field of a row must have, for detecting the format.

    Example: ``FieldType(name="a text", matches=lambda node: isinstance(node.value, str))``
    """

    name: str
    """The shape in words."""
    matches: Callable[[Node], bool]
    """Whether a value has it."""
    special_case_of: str = ""
    """The name of the wider shape that it is a special case of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormat:
    """A way to write feedback down in rows.

    Example: ``RowFormat(name="trl-text", title="TRL language modelling", schema={"text": TEXT}, parse=…, …)``
    """

    name: str
    """What ``--format`` calls it."""
    title: str
    """What it is called in a sentence."""
    schema: Mapping[str, FieldType]
    """The fields that a row of this layout must have."""
    parse: Callable[[Node, str, ReadOptions], tuple[Record, ...]]
    """A row and its origin to records; raises ``BadRowError`` or ``LeftOutError``."""
    produces: str
    """What the records are, for the table of layouts."""
    optional_fields: frozenset[str] | None = field(default_factory=frozenset[str])
    """Further fields that it reads where a row has them; None when it reads all."""
    excluded_fields: frozenset[str] = field(default_factory=frozenset[str])
    """Fields whose presence speaks against it."""
    aliases: tuple[str, ...] = ()
    """Other names that ``--format`` takes."""
    is_decisive: bool = False
    """True when its schema settles the matter whatever else the row holds."""
    is_generic: bool = False
    """True where anybody may have made the rows: `system` is their system turn, and text in a field that it
    does not look at may be a part of the prompt."""

    def matches(self, row: Node) -> bool:
        """Whether a row has this schema."""
        if any(name in self.excluded_fields and row.optional(name) is not None for name in row.fields()):
            return False
        nodes = {name: row.optional(name) for name in self.schema}
        return all(node is not None and self.schema[name].matches(node) for name, node in nodes.items())

    def is_narrower_than(self, other: RowFormat) -> bool:
        """Whether it asks for all that the other asks for, and for more."""
        if self.is_decisive:
            return True
        own_fields, other_fields = set(self.schema), set(other.schema)
        narrowed = any(
            name in own_fields and self.schema[name].special_case_of == field_type.name
            for name, field_type in other.schema.items()
        )
        return other_fields < own_fields or (other_fields == own_fields and narrowed)

    def unread_fields(self, fields: Iterable[str]) -> tuple[str, ...]:
        """Those of the fields that it does not look at."""
        if self.optional_fields is None:
            return ()
        read = {*self.schema, *self.optional_fields, *((SYSTEM_FIELD,) if self.is_generic else ())}
        return tuple(name for name in fields if name not in read)

    @property
    def schema_text(self) -> str:
        """The schema in words: ``prompt (a text or messages), chosen (…)``."""
        return ", ".join(f"{name} ({field_type.name})" for name, field_type in self.schema.items())


def _all_items_match(node: Node, matches: Callable[[Node], bool]) -> bool:
    try:
        items = node.items()
    except BadRowError:
        return False
    return bool(items) and all(matches(item) for item in items)


def _can_read(read: Callable[[Node], object]) -> Callable[[Node], bool]:
    def matches(node: Node) -> bool:
        try:
            read(node)
        except BadRowError:
            return False
        return True

    return matches


def _is_text(node: Node) -> bool:
    return isinstance(node.value, str)


def _is_object(node: Node) -> bool:
    return bool(node.fields())


def _is_transcript(node: Node) -> bool:
    return isinstance(node.value, str) and node.value.lstrip().startswith("Human:")


TEXT = FieldType(name="a text", matches=_is_text)
"""A string."""
MESSAGES = FieldType(name="messages", matches=is_messages)
"""A conversation: a list of objects with role and content."""
TEXT_OR_MESSAGES = FieldType(
    name="a text or messages", matches=lambda node: _is_text(node) or is_messages(node)
)
"""A string or a conversation: a prompt, a completion, one side of a comparison."""
TRANSCRIPT = FieldType(
    name='a transcript "Human: … Assistant: …"', matches=_is_transcript, special_case_of="a text or messages"
)
"""A conversation in one string."""
NUMBER = FieldType(name="a number", matches=_can_read(Node.number))
"""A finite number."""
BOOLEAN = FieldType(name="true or false", matches=_can_read(Node.boolean))
"""A thumb or a label."""
TEXTS = FieldType(name="a list of texts", matches=lambda node: _all_items_match(node, _is_text))
"""Answers or steps, at least one."""
BOOLEANS = FieldType(
    name="a list of true or false", matches=lambda node: _all_items_match(node, _can_read(Node.boolean))
)
"""One label a step, at least one."""
OBJECT = FieldType(name="an object", matches=_is_object)
"""An object with a field or more."""
OBJECTS = FieldType(name="a list of objects", matches=lambda node: _all_items_match(node, _is_object))
"""Answers with what belongs to them, at least one."""
NUMBERS = FieldType(
    name="a list of numbers", matches=lambda node: _all_items_match(node, _can_read(Node.number))
)
"""One rank an answer, at least one."""
TEXTS_OR_CONVERSATIONS = FieldType(
    name="a list of texts or conversations",
    matches=lambda node: _all_items_match(node, lambda item: _is_text(item) or is_messages(item)),
)
"""Answers of either kind, at least one."""
