"""A value of a raw row together with its path, so that any complaint names the field by itself."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from plaudit.sources.problems import BadRowError, listed, shown

_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One place in a raw row.

    Example: ``Node(value={"rank": 2}, path="answers[3]").get("rank").number()`` is 2.0
    """

    value: object
    """What the row holds there."""
    path: str = ""
    """Where it is: ``answers[3].rank``; empty for the row itself."""
    cells: bool = False
    """True for rows of CSV, where numbers, truths and lists are written as text."""

    def maybe(self, field: str) -> Node | None:
        """The field, or None where it is absent, null or an empty CSV cell."""
        if not isinstance(self.value, Mapping):
            raise self.wrong("an object")
        value = self.value.get(field)
        if value is None or (self.cells and value == ""):
            return None
        return Node(value=value, path=f"{self.path}.{field}" if self.path else field, cells=self.cells)

    def get(self, field: str) -> Node:
        """The field; a row without it is bad."""
        node = self.maybe(field)
        if node is not None:
            return node
        names = self.fields()
        path = f"{self.path}.{field}" if self.path else field
        if field in names and self.cells:
            raise BadRowError("empty side", path, expected="a value", found="an empty cell")
        found = "null" if field in names else f"only {listed(names)}" if names else "an empty object"
        raise BadRowError("missing field", path, expected="a value", found=found)

    def fields(self) -> tuple[str, ...]:
        """The names of an object's fields; none for anything else."""
        return tuple(map(str, self.value)) if isinstance(self.value, Mapping) else ()

    def items(self) -> tuple[Node, ...]:
        """The elements of a list."""
        value = self._decoded()
        if not isinstance(value, list | tuple):
            raise self.wrong("a list")
        return tuple(Node(value=item, path=f"{self.path}[{i}]") for i, item in enumerate(value))

    def text(self) -> str:
        """The value as a text that can be encoded."""
        if not isinstance(self.value, str):
            raise self.wrong("a text")
        if "\0" in self.value:
            raise BadRowError("NUL", self.path, expected="a text without NUL", found=shown(self.value))
        try:
            self.value.encode("utf-8")
        except UnicodeEncodeError:
            raise BadRowError(
                "bad UTF-8", self.path, expected="a text that UTF-8 can hold", found="half a surrogate pair"
            ) from None
        return self.value

    def number(self) -> float:
        """The value as a finite number."""
        value = self._decoded()
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong("a number")
        if not (math.isfinite(value) if isinstance(value, float) else abs(value) < 2**1000):
            raise BadRowError("non-finite number", self.path, expected="a finite number", found=shown(value))
        return float(value)

    def number_between(self, low: float, high: float) -> float:
        """The value as a number of a closed interval."""
        number = self.number()
        if not low <= number <= high:
            raise BadRowError(
                "wrong value",
                self.path,
                expected=f"a number from {low:g} to {high:g}",
                found=shown(self.value),
            )
        return number

    def truth(self) -> bool:
        """The value as true or false; 0 and 1 count as such."""
        if isinstance(self.value, bool) or (isinstance(self.value, int) and self.value in (0, 1)):
            return bool(self.value)
        if self.cells and isinstance(self.value, str) and self.value.strip().lower() in _TRUTHS:
            return _TRUTHS[self.value.strip().lower()]
        raise self.wrong("true or false")

    def name(self) -> str:
        """A short text that names someone or something; a whole number counts."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return str(self.value)
        return self.text()

    def wrong(self, expected: str) -> BadRowError:
        """The complaint that something else was expected here."""
        return BadRowError("wrong type", self.path, expected=expected, found=shown(self.value))

    def _decoded(self) -> object:
        """The value; in CSV, what its text says as JSON when it says something."""
        if not (self.cells and isinstance(self.value, str)):
            return self.value
        try:
            return json.loads(self.value)
        except (ValueError, RecursionError):
            return self.value


def optional_number(row: Node, field: str) -> float | None:
    """A number that may be absent."""
    node = row.maybe(field)
    return None if node is None else node.number()


def optional_name(row: Node, field: str) -> str | None:
    """A name that may be absent."""
    node = row.maybe(field)
    return None if node is None else node.name()


def optional_category(row: Node, field: str) -> str | None:
    """A category that may be absent; of several in a list, all their names.

    >>> optional_category(Node(value={"source": ["sharegpt", "flan"]}), "source")
    'sharegpt, flan'
    """
    node = row.maybe(field)
    if node is None or not isinstance(node.value, list | tuple):
        return None if node is None else node.name()
    return ", ".join(item.name() for item in node.items()) or None


class About(TypedDict):
    """Who judged a row and what kind of question it holds."""

    annotator: str | None
    group: str | None
    category: str | None


def about(row: Node) -> About:
    """What a row says, in fields that all may be absent, about who judged and about the question."""
    return About(
        annotator=optional_name(row, "annotator"),
        group=optional_name(row, "group"),
        category=optional_category(row, "category"),
    )
