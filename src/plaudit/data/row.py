"""Raw rows as a file holds them, and what can be wrong with one, in words that help a person to mend it."""

from __future__ import annotations

import json
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
    def message(self) -> str:
        """The problem in one line.

        >>> Problem(kind="NUL", origin="a.jsonl:2", field="chosen", expected="a text", found="3").message
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

    def problem_at(self, origin: str) -> Problem:
        """The same fault with its file and row."""
        return Problem(
            kind=self.kind, origin=origin, field=self.field, expected=self.expected, found=self.found
        )


class LeftOutError(ValueError):
    """Raised by a layout for a sound row without a record (a dropped tie): counted, and no fault."""


def describe_value(value: object) -> str:
    """A value in a few words, for the end of a sentence.

    >>> describe_value([1, 2]), describe_value(None), describe_value("hello")
    ('a list of 2', 'null', 'the text "hello"')
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return f'the text "{shorten(value)}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"an object with {join_names([str(key) for key in value])}" if value else "an empty object"
    if isinstance(value, Sequence):
        return f"a list of {len(value)}"
    return shorten(str(value))


def shorten(text: str, limit: int = 60) -> str:
    """A text on one line, cut with an ellipsis; what cannot be printed is escaped.

    >>> print(shorten("été\\nnoir"), shorten("abcdefgh", 4))
    été\\nnoir abcd…
    """
    head = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text[:limit]
    )
    return head + ("…" if len(text) > limit else "")


def join_names(names: Sequence[str], limit: int = 8) -> str:
    """Names with commas, the long tail counted.

    >>> join_names(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    text = ", ".join(names[:limit])
    return f"{text} and {len(names) - limit} more" if len(names) > limit else text


ROW_LIMIT = 10_000_000
"""Bytes that a row may have; a row beyond it is nearly always a missing line break."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """One row of a file, or the reason why it could not be had.

    Example: ``RawRow(origin="pairs.jsonl:12", value={"prompt": "Hi"}, text='{"prompt": "Hi"}')``
    """

    origin: str
    """File and row."""
    value: object = None
    """What the row says; None when it could not be read."""
    problem: Problem | None = None
    """Why it could not be read."""
    text: str = ""
    """The row as it stands in the file, as far as it can be shown."""
    cells: bool = False
    """True for CSV, where every value is a text."""


def bad_row(kind: ProblemKind, origin: str, *, expected: str, found: str, text: str = "") -> RawRow:
    """A row that could not be read."""
    return RawRow(
        origin=origin,
        problem=BadRowError(kind, "", expected=expected, found=found).problem_at(origin),
        text=text,
    )


def parse_line(line: bytes, origin: str) -> RawRow:
    """One line of JSON as a row.

    >>> parse_line(b'{"a": 1}', "a.jsonl:1").value
    {'a': 1}
    >>> parse_line(b'{"a": 1', "a.jsonl:1").problem.kind
    'broken row'
    """
    line = line.rstrip(b"\r\n")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return bad_row(
            "bad UTF-8",
            origin,
            expected="text in UTF-8",
            found=f"byte 0x{line[error.start]:02x} at position {error.start + 1}",
            text=line.decode("utf-8", errors="backslashreplace"),
        )
    if "\0" in text:
        return bad_row("NUL", origin, expected="text without NUL", found="a NUL byte", text=text)
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        return bad_row(
            "broken row", origin, expected="a JSON object", found="thousands of brackets", text=text
        )
    except json.JSONDecodeError as error:
        found = f"{error.msg} at position {error.pos + 1}: {shorten(text)}"
        return bad_row("broken row", origin, expected="a JSON object", found=found, text=text)
    except ValueError as error:
        kind = "non-finite number" if isinstance(error, _NonFiniteError) else "broken row"
        return bad_row(kind, origin, expected="finite numbers", found=str(error).split(";")[0], text=text)
    return row_from_value(value, origin, text)


def row_from_value(value: object, origin: str, text: str | None = None) -> RawRow:
    """The raw row of a value that is read already; a bad row where the value is no object."""
    text = json.dumps(value, ensure_ascii=False, default=str) if text is None else text
    if not isinstance(value, dict):
        return bad_row("wrong type", origin, expected="a JSON object", found=shorten(text), text=text)
    return RawRow(origin=origin, value=value, text=text)


def too_large_row(origin: str, limit: int, head: str) -> RawRow:
    """A row beyond the limit, of which only the beginning is kept."""
    return bad_row(
        "row too large", origin, expected=f"at most {limit:,} bytes", found="more", text=shorten(head, 200)
    )


class _NonFiniteError(ValueError):
    """JSON has no NaN and no infinity, though some writers do."""


def _refuse_constant(constant: str) -> object:
    raise _NonFiniteError(constant)
