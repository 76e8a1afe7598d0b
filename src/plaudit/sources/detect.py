"""Which layout a file has, by the schema of its first rows, as a sentence to say aloud."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from plaudit.errors import UserError
from plaudit.sources.layouts import LAYOUTS, Layout, layout_named
from plaudit.sources.layouts.layout import MESSAGES, SAID, TEXT, Shape
from plaudit.sources.node import Node
from plaudit.sources.problems import listed, shown
from plaudit.sources.rows import RawRow

SAMPLE = 64
"""How many rows are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """A layout and why.

    Example: ``Detected(layout=…, sentence="pairs.jsonl: read as TRL preference, … because …")``
    """

    layout: Layout
    """How the rows are read."""
    sentence: str
    """What to say about it."""


def detect(rows: Sequence[RawRow], name: str) -> Detected:
    """The layout that at least half of the first rows have and that no narrower one explains better."""
    nodes = _nodes(rows)
    if not nodes:
        raise UserError(f"{name}: none of the first {len(rows)} rows can be read.{_first_problem(rows)}")
    votes = {layout.name: sum(layout.fits(node) for node in nodes) for layout in LAYOUTS}
    fitting = [layout for layout in LAYOUTS if 2 * votes[layout.name] >= len(nodes)]
    best = [
        layout
        for layout in fitting
        if not any(other is not layout and other.narrower_than(layout) for other in fitting)
    ]
    if not best:
        raise UserError(_unknown(nodes, name))
    if len(best) > 1:
        names = " or ".join(layout.name for layout in best)
        raise UserError(
            f"{name}: the rows could be {' or '.join(layout.title for layout in best)} "
            f"(fields: {listed(_fields(nodes))}); say which with --format {names}"
        )
    share = "the rows" if votes[best[0].name] == len(nodes) else "most rows"
    because = f"because {share} have {_found(best[0], nodes)}{_but_no(best[0])}"
    return Detected(layout=best[0], sentence=_sentence(best[0], nodes, name, because))


def chosen_by_name(format_name: str, rows: Sequence[RawRow], name: str) -> Detected:
    """The layout that the user asked for."""
    layout = layout_named(format_name)
    return Detected(layout=layout, sentence=_sentence(layout, _nodes(rows), name, "as --format says"))


def _nodes(rows: Sequence[RawRow]) -> list[Node]:
    return [Node(value=row.value, cells=row.cells) for row in rows if isinstance(row.value, Mapping)]


def _sentence(layout: Layout, nodes: Sequence[Node], name: str, because: str) -> str:
    unread = layout.unread(_fields(nodes))
    tail = f" Fields left unread: {listed(unread)}." if unread else ""
    return f"{name}: read as {layout.title} ({layout.name}), {because}.{tail}"


def _found(layout: Layout, nodes: Sequence[Node]) -> str:
    """The schema as the rows have it: where a text or messages would do, which of the two it is."""
    return ", ".join(f"{name} ({_seen(name, shape, nodes)})" for name, shape in layout.schema.items())


def _seen(name: str, shape: Shape, nodes: Sequence[Node]) -> str:
    values = [node for row in nodes if (node := row.maybe(name)) is not None]
    for narrower in (TEXT, MESSAGES) if shape is SAID else ():
        if all(narrower.fits(value) for value in values):
            return narrower.name
    return shape.name


def _but_no(layout: Layout) -> str:
    return " and no prompt" if "prompt" in layout.without and "prompt" not in layout.schema else ""


def _fields(nodes: Sequence[Node]) -> list[str]:
    """The fields of the rows, the most frequent first."""
    return [name for name, _ in Counter(field for node in nodes for field in node.fields()).most_common()]


def _unknown(nodes: Sequence[Node], name: str) -> str:
    fields = _fields(nodes)
    held = [f"{field} ({_held(field, nodes)})" for field in fields]
    seen = f"the fields {listed(held, 16)}" if held else "no field"
    nearest = sorted(LAYOUTS, key=lambda layout: -_likeness(layout, fields))[:3]
    lines = [
        f"{name}: no known layout; the rows have {seen}. The nearest layouts:",
        *(f"  {layout.name}: wants {layout.wants}" for layout in nearest),
        "Rename or convert the fields, or say --format NAME.",
    ]
    return "\n".join(lines)


def _held(field: str, nodes: Sequence[Node]) -> str:
    """What the first row that has the field holds there."""
    value = next((node.value for row in nodes if (node := row.maybe(field)) is not None), None)
    if isinstance(value, list | tuple | Mapping):
        return "a list" if isinstance(value, list | tuple) else "an object"
    return "a text" if isinstance(value, str) else shown(value)


def _likeness(layout: Layout, fields: Sequence[str]) -> float:
    """The wanted fields that are there less those that are not, a similar spelling counting in part."""
    closest = (
        max((SequenceMatcher(None, wanted, field).ratio() for field in fields), default=0.0)
        for wanted in layout.schema
    )
    return 2.0 * sum(ratio for ratio in closest if ratio > 0.7) - len(layout.schema)


def _first_problem(rows: Sequence[RawRow]) -> str:
    problems = [row.problem for row in rows if row.problem is not None]
    return f" The first: {problems[0].sentence}" if problems else ""
