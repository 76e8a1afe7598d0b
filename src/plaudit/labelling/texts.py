"""Texts from outside: what a database, a page or a file could not hold is refused by field."""

from __future__ import annotations

from plaudit.labelling.refusals import FieldError

MOST_CHARACTERS = 1_000_000
"""The longest text of a task or an answer."""
MOST_OF_A_NOTE = 10_000
"""The longest note, reason or name."""


def checked_text(field: str, value: object, *, most: int = MOST_OF_A_NOTE, empty: bool = True) -> str:
    """The text, or a refusal that names its field.

    >>> checked_text("name", "Ada")
    'Ada'
    """
    if not isinstance(value, str):
        raise FieldError(field=field, found=type(value).__name__, expected="a text")
    if len(value) > most:
        raise FieldError(field=field, found=f"{len(value)} characters", expected=f"at most {most}")
    if not empty and not value.strip():
        raise FieldError(field=field, found="an empty text", expected="words")
    if "\0" in value:
        raise FieldError(field=field, found="a NUL character", expected="a text without it")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FieldError(field=field, found="half of a letter (a lone surrogate)", expected="UTF-8") from None
    return value
