"""What a store refuses, by name, so that the API and the command line can each say it in their own way.

Texts from outside are looked at here: what a database, a page or a file could not hold is refused by field.
"""

from __future__ import annotations

from collections.abc import Iterable

from plaudit.errors import UserError

MOST_CHARACTERS = 1_000_000
MOST_OF_A_NOTE = 10_000


class StoreUnavailableError(UserError):
    """The database is locked, full, read-only or gone: nothing was acknowledged, so it can be sent again."""


class ModelUnavailableError(UserError):
    """The server that a conversation speaks with does not answer; the same can be said again."""


class KeyConflictError(UserError):
    """A key that was used before for other words."""


class ChangedMeanwhileError(UserError):
    """Something that somebody else changed since it was looked at: the older look is not to overwrite it."""


class NotYoursError(UserError):
    """Something that this person may not do, or not any more."""

    def __init__(self, message: str, *, tried_in: str | None = None) -> None:
        """``tried_in`` is the project whose log is to remember it: somebody tried what is another's."""
        super().__init__(message)
        self.tried_in = tried_in


class TooOftenError(UserError):
    """Something that failed so often that it is not looked at again for some time."""

    def __init__(self, message: str, *, until: str) -> None:
        super().__init__(message)
        self.until = until


class NotFoundError(UserError):
    """A store, project, task, person or invite that is not there."""


class FieldError(UserError):
    """A field that holds something else than it should."""

    def __init__(self, *, field: str, found: str, expected: str) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")
        self.field = field
        self.found = found
        self.expected = expected

    def under(self, field: str) -> FieldError:
        """The same of a field as it is called elsewhere."""
        return FieldError(field=field, found=self.found, expected=self.expected)


def check_choice(field: str, value: object, known: Iterable[str]) -> None:
    if value not in (choices := [*known]):
        raise FieldError(field=field, found=repr(value)[:200], expected=f"one of {', '.join(choices)}")


def checked_text(field: str, value: object, *, most: int = MOST_OF_A_NOTE, empty: bool = True) -> str:
    """The text, or a refusal that names its field."""
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
