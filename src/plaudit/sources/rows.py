"""A raw row: what a file holds before anyone asks what it means."""

from __future__ import annotations

import json
from dataclasses import dataclass

from plaudit.sources.problems import BadRowError, Problem, ProblemKind, short

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
        origin=origin, problem=BadRowError(kind, "", expected=expected, found=found).at(origin), text=text
    )


def parsed(line: bytes, origin: str) -> RawRow:
    """One line of JSON as a row.

    >>> parsed(b'{"a": 1}', "a.jsonl:1").value
    {'a': 1}
    >>> parsed(b'{"a": 1', "a.jsonl:1").problem.kind
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
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        return bad_row(
            "broken row", origin, expected="a JSON object", found="thousands of brackets", text=text
        )
    except json.JSONDecodeError as error:
        found = f"{error.msg} at position {error.pos + 1}: {short(text)}"
        return bad_row("broken row", origin, expected="a JSON object", found=found, text=text)
    except ValueError as error:
        kind = "non-finite number" if isinstance(error, _NonFiniteError) else "broken row"
        return bad_row(kind, origin, expected="finite numbers", found=str(error).split(";")[0], text=text)
    return row_of(value, origin, text)


def row_of(value: object, origin: str, text: str | None = None) -> RawRow:
    """A value that has been read already, when it is an object."""
    text = json.dumps(value, ensure_ascii=False, default=str) if text is None else text
    if not isinstance(value, dict):
        return bad_row("wrong type", origin, expected="a JSON object", found=short(text), text=text)
    return RawRow(origin=origin, value=value, text=text)


def too_large(origin: str, limit: int, head: str) -> RawRow:
    """A row beyond the limit, of which only the beginning is kept."""
    return bad_row(
        "row too large", origin, expected=f"at most {limit:,} bytes", found="more", text=short(head, 200)
    )


class _NonFiniteError(ValueError):
    """JSON has no NaN and no infinity, though some writers do."""


def _refuse(constant: str) -> object:
    raise _NonFiniteError(constant)
