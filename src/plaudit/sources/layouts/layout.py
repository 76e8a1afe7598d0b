"""What a layout is: a name, the schema that it is known by, and a pure function from row to records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from plaudit.errors import UserError
from plaudit.records.feedback import Record
from plaudit.sources.conversation import is_messages
from plaudit.sources.node import Node
from plaudit.sources.problems import BadRowError
from plaudit.sources.rows import ROW_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The choices that some layouts leave to the reader.

    Example: ``ReadOptions(ties="drop", neutral=0.0)``
    """

    ties: str = "soft"
    """What becomes of a tie: soft, a comparison with probability 0.5, or drop: counted and left out."""
    neutral: float = 0.5
    """The label of a neutral step (PRM800K's rating 0)."""
    split: str | None = None
    """Which split to read, where the source has several."""
    row_limit: int = ROW_LIMIT
    """Bytes that a row may have."""

    def __post_init__(self) -> None:
        if self.ties not in ("soft", "drop"):
            raise UserError(f"ties={self.ties!r}: expected 'soft' (probability 0.5) or 'drop'")
        if not 0 <= self.neutral <= 1:
            raise UserError(f"neutral={self.neutral}: expected a label from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a field looks like from outside, for detection.

    Example: ``Shape(name="a text", fits=lambda node: isinstance(node.value, str))``
    """

    name: str
    """The shape in words."""
    fits: Callable[[Node], bool]
    """Whether a value has it."""
    narrows: str = ""
    """The name of the wider shape that it is a special case of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A way to write feedback down in rows.

    Example: ``Layout(name="trl-text", title="TRL language modelling", schema={"text": TEXT}, parse=…, …)``
    """

    name: str
    """What ``--format`` calls it."""
    title: str
    """What it is called in a sentence."""
    schema: Mapping[str, Shape]
    """The fields that a row of this layout must have."""
    parse: Callable[[Node, str, ReadOptions], tuple[Record, ...]]
    """A row and its origin to records; raises ``BadRowError`` or ``LeftOutError``."""
    gives: str
    """What the records are, for the table of layouts."""
    also: frozenset[str] | None = field(default_factory=frozenset[str])
    """Further fields that it reads where a row has them; None when it reads all."""
    without: frozenset[str] = field(default_factory=frozenset[str])
    """Fields whose presence speaks against it."""
    aliases: tuple[str, ...] = ()
    """Other names that ``--format`` takes."""
    unmistakable: bool = False
    """True when its schema settles the matter whatever else the row holds."""

    def fits(self, row: Node) -> bool:
        """Whether a row has this schema."""
        if any(name in self.without and row.maybe(name) is not None for name in row.fields()):
            return False
        nodes = {name: row.maybe(name) for name in self.schema}
        return all(node is not None and self.schema[name].fits(node) for name, node in nodes.items())

    def narrower_than(self, other: Layout) -> bool:
        """Whether it asks for all that the other asks for, and for more."""
        if self.unmistakable:
            return True
        mine, theirs = set(self.schema), set(other.schema)
        narrowed = any(
            name in mine and self.schema[name].narrows == shape.name for name, shape in other.schema.items()
        )
        return theirs < mine or (theirs == mine and narrowed)

    def unread(self, fields: Iterable[str]) -> tuple[str, ...]:
        """Those of the fields that it does not look at."""
        if self.also is None:
            return ()
        return tuple(name for name in fields if name not in self.schema and name not in self.also)

    @property
    def wants(self) -> str:
        """The schema in words: ``prompt (a text or messages), chosen (…)``."""
        return ", ".join(f"{name} ({shape.name})" for name, shape in self.schema.items())


def _items_fit(node: Node, fits: Callable[[Node], bool]) -> bool:
    try:
        items = node.items()
    except BadRowError:
        return False
    return bool(items) and all(fits(item) for item in items)


def _reads(read: Callable[[Node], object]) -> Callable[[Node], bool]:
    def fits(node: Node) -> bool:
        try:
            read(node)
        except BadRowError:
            return False
        return True

    return fits


def _is_text(node: Node) -> bool:
    return isinstance(node.value, str)


def _is_object(node: Node) -> bool:
    return bool(node.fields())


def _is_transcript(node: Node) -> bool:
    return isinstance(node.value, str) and node.value.lstrip().startswith("Human:")


TEXT = Shape(name="a text", fits=_is_text)
"""A string."""
MESSAGES = Shape(name="messages", fits=is_messages)
"""A conversation: a list of objects with role and content."""
SAID = Shape(name="a text or messages", fits=lambda node: _is_text(node) or is_messages(node))
"""Anything that is said."""
TRANSCRIPT = Shape(
    name='a transcript "Human: … Assistant: …"', fits=_is_transcript, narrows="a text or messages"
)
"""A conversation in one string."""
NUMBER = Shape(name="a number", fits=_reads(Node.number))
"""A finite number."""
TRUTH = Shape(name="true or false", fits=_reads(Node.truth))
"""A thumb or a label."""
TEXTS = Shape(name="a list of texts", fits=lambda node: _items_fit(node, _is_text))
"""Answers or steps, at least one."""
TRUTHS = Shape(name="a list of true or false", fits=lambda node: _items_fit(node, _reads(Node.truth)))
"""One label a step, at least one."""
OBJECT = Shape(name="an object", fits=_is_object)
"""An object with a field or more."""
OBJECTS = Shape(name="a list of objects", fits=lambda node: _items_fit(node, _is_object))
"""Answers with what belongs to them, at least one."""
