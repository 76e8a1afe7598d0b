"""What can be wrong with a row, said so that a person can find and mend it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

ProblemKind = Literal[
    "broken row",
    "bad UTF-8",
    "NUL",
    "row too large",
    "missing field",
    "wrong type",
    "wrong value",
    "non-finite number",
    "unknown role",
    "empty side",
    "chosen = rejected",
    "tie as preference",
    "too few answers",
    "unsupported",
]
"""The families of problems, for counting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One fault of one row.

    Example: ``Problem(kind="wrong type", origin="a.jsonl:2", field="chosen", expected="a text", found="3")``
    """

    kind: ProblemKind
    """Its family."""
    origin: str
    """File and row."""
    field: str
    """The field, as a path (``answers[3].rank``); empty when the row as a whole is at fault."""
    expected: str
    """What should be there."""
    found: str
    """What is there."""

    @property
    def sentence(self) -> str:
        """The problem in one line.

        >>> Problem(kind="NUL", origin="a.jsonl:2", field="chosen", expected="a text", found="3").sentence
        'a.jsonl:2: field chosen: expected a text, found 3'
        """
        where = f"{self.origin}: field {self.field}" if self.field else self.origin
        return f"{where}: expected {self.expected}, found {self.found}"


class BadRowError(ValueError):
    """Raised by a layout that cannot read a row; the reader turns it into a ``Problem``."""

    def __init__(self, kind: ProblemKind, field: str, *, expected: str, found: str) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")
        self.kind: ProblemKind = kind
        self.field = field
        self.expected = expected
        self.found = found

    def at(self, origin: str) -> Problem:
        """The same fault with its file and row."""
        return Problem(
            kind=self.kind, origin=origin, field=self.field, expected=self.expected, found=self.found
        )


class LeftOutError(ValueError):
    """Raised by a layout for a sound row without a record (a dropped tie): counted, and no fault."""


def shown(value: object) -> str:
    """A value in a few words, for the end of a sentence.

    >>> shown([1, 2]), shown(None), shown("hello")
    ('a list of 2', 'null', 'the text "hello"')
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return f'the text "{short(value)}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"an object with {listed([str(key) for key in value])}" if value else "an empty object"
    if isinstance(value, Sequence):
        return f"a list of {len(value)}"
    return short(str(value))


def short(text: str, limit: int = 60) -> str:
    """A text on one line, cut with an ellipsis; what cannot be printed is escaped.

    >>> print(short("été\\nnoir"), short("abcdefgh", 4))
    été\\nnoir abcd…
    """
    head = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text[:limit]
    )
    return head + ("…" if len(text) > limit else "")


def listed(names: Sequence[str], limit: int = 8) -> str:
    """Names with commas, the long tail counted.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown_names = ", ".join(names[:limit])
    return f"{shown_names} and {len(names) - limit} more" if len(names) > limit else shown_names
