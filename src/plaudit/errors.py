"""Errors that are meant for the user's eyes, and the end that a command chooses itself."""

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """What is wrong, where, and what to do; the command line prints it without a traceback."""


@contextmanager
def located(where: str, *faults: type[Exception]) -> Iterator[None]:
    """Puts where, and perhaps what, in front of these faults; of none named, of each `UserError` within."""
    kinds = faults or (UserError,)
    try:
        yield
    except kinds as error:
        raise UserError(f"{where}: {error}") from error


class WaitingError(UserError):
    """People are still to answer; says who waits for what, and how to go on. Exit status 3, not a fault."""

    def __init__(self, message: str, *waits: object) -> None:
        """``waits`` are what is missing in label stores, as `plaudit.collect.waiting.Wait`."""
        super().__init__(message)
        self.waits = waits


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for use within another message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


class CommandEnd(SystemExit):
    """A command ends here by its own choice, with all said; any other `SystemExit` is somebody's fault."""
