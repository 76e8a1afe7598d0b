"""Which layout a file has, by the schema of its first rows, as a sentence to say aloud."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from plaudit.data.fields import Node
from plaudit.data.formats.base import MESSAGES, TEXT, TEXT_OR_MESSAGES, FieldType, RowFormat
from plaudit.data.formats.registry import FORMATS, format_named
from plaudit.data.row import RawRow, describe_value, join_names
from plaudit.errors import UserError

DETECTION_ROWS = 64
"""How many of the first rows decide the format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """A layout and why.

    Example: ``Detection(row_format=…, sentence="pairs.jsonl: read as TRL preference, … because …")``
    """

    row_format: RowFormat
    """How the rows are read."""
    sentence: str
    """What to say about it."""


def detect_format(rows: Sequence[RawRow], name: str) -> Detection:
    """The layout that at least half of the first rows have and that no narrower one explains better."""
    nodes = _readable_nodes(rows)
    if not nodes:
        raise UserError(f"{name}: none of the first {len(rows)} rows can be read.{_first_problem(rows)}")
    match_counts = {
        row_format.name: sum(row_format.matches(node) for node in nodes) for row_format in FORMATS
    }
    candidates = [row_format for row_format in FORMATS if 2 * match_counts[row_format.name] >= len(nodes)]
    narrowest = [
        row_format
        for row_format in candidates
        if not any(other is not row_format and other.is_narrower_than(row_format) for other in candidates)
    ]
    if not narrowest:
        raise UserError(_unknown_format_message(nodes, name))
    if len(narrowest) > 1:
        names = " or ".join(row_format.name for row_format in narrowest)
        raise UserError(
            f"{name}: the rows could be {' or '.join(row_format.title for row_format in narrowest)} "
            f"(fields: {join_names(_field_names(nodes))}); say which with --format {names}"
        )
    share = "the rows" if match_counts[narrowest[0].name] == len(nodes) else "most rows"
    because = f"because {share} have {_schema_text(narrowest[0], nodes)}{_absent_text(narrowest[0])}"
    return Detection(row_format=narrowest[0], sentence=_format_sentence(narrowest[0], nodes, name, because))


def detection_by_name(format_name: str, rows: Sequence[RawRow], name: str) -> Detection:
    """The layout that the user asked for."""
    row_format = format_named(format_name)
    return Detection(
        row_format=row_format,
        sentence=_format_sentence(row_format, _readable_nodes(rows), name, "as --format says"),
    )


def _readable_nodes(rows: Sequence[RawRow]) -> list[Node]:
    return [Node(value=row.value, cells=row.cells) for row in rows if isinstance(row.value, Mapping)]


def _format_sentence(row_format: RowFormat, nodes: Sequence[Node], name: str, because: str) -> str:
    unread = row_format.unread_fields(_field_names(nodes))
    unread_note = f" Fields left unread: {join_names(unread)}." if unread else ""
    return f"{name}: read as {row_format.title} ({row_format.name}), {because}.{unread_note}"


def _schema_text(row_format: RowFormat, nodes: Sequence[Node]) -> str:
    """The schema as the rows have it: where a text or messages would do, which of the two it is."""
    return ", ".join(
        f"{name} ({_field_type_text(name, field_type, nodes)})"
        for name, field_type in row_format.schema.items()
    )


def _field_type_text(name: str, field_type: FieldType, nodes: Sequence[Node]) -> str:
    values = [node for row in nodes if (node := row.optional(name)) is not None]
    for narrower in (TEXT, MESSAGES) if field_type is TEXT_OR_MESSAGES else ():
        if all(narrower.matches(value) for value in values):
            return narrower.name
    return field_type.name


def _absent_text(row_format: RowFormat) -> str:
    return (
        " and no prompt"
        if "prompt" in row_format.excluded_fields and "prompt" not in row_format.schema
        else ""
    )


def _field_names(nodes: Sequence[Node]) -> list[str]:
    """The fields of the rows, the most frequent first."""
    return [name for name, _ in Counter(field for node in nodes for field in node.fields()).most_common()]


def _unknown_format_message(nodes: Sequence[Node], name: str) -> str:
    fields = _field_names(nodes)
    examples = [f"{field} ({_example_text(field, nodes)})" for field in fields]
    fields_text = f"the fields {join_names(examples, 16)}" if examples else "no field"
    nearest = sorted(FORMATS, key=lambda row_format: -_similarity(row_format, fields))[:3]
    lines = [
        f"{name}: no known layout; the rows have {fields_text}. The nearest layouts:",
        *(f"  {row_format.name}: wants {row_format.schema_text}" for row_format in nearest),
        "Rename or convert the fields, or say --format NAME.",
    ]
    return "\n".join(lines)


def _example_text(field: str, nodes: Sequence[Node]) -> str:
    """What the first row that has the field holds there."""
    value = next((node.value for row in nodes if (node := row.optional(field)) is not None), None)
    if isinstance(value, list | tuple | Mapping):
        return "a list" if isinstance(value, list | tuple) else "an object"
    return "a text" if isinstance(value, str) else describe_value(value)


def _similarity(row_format: RowFormat, fields: Sequence[str]) -> float:
    """The wanted fields that are there less those that are not, a similar spelling counting in part."""
    closest = (
        max((SequenceMatcher(None, name, field).ratio() for field in fields), default=0.0)
        for name in row_format.schema
    )
    return 2.0 * sum(ratio for ratio in closest if ratio > 0.7) - len(row_format.schema)


def _first_problem(rows: Sequence[RawRow]) -> str:
    problems = [row.problem for row in rows if row.problem is not None]
    return f" The first: {problems[0].message}" if problems else ""
