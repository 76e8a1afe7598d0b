"""Errors that are meant for the user's eyes, and the end that a command chooses itself."""

from collections.abc import Mapping
from typing import Protocol


class UserError(ValueError):
    """What is wrong, where, and what to do; the command line prints it without a traceback."""


class Wait(Protocol):
    """What somebody waits for: labels of people, as `plaudit.collect.waiting.Wait`."""

    @property
    def sentence(self) -> str:
        """What is missing, and where."""
        ...

    @property
    def facts(self) -> Mapping[str, str | int]:
        """The same for a file: its ``sentence``, and whatever else there is to say."""
        ...


class WaitingError(UserError):
    """People are still to answer; says who waits for what, and how to go on. Exit status 3, not a fault."""

    def __init__(self, message: str, *waits: Wait) -> None:
        super().__init__(message)
        self.waits = waits


class CommandEnd(SystemExit):
    """A command ends here by its own choice, with all said; any other `SystemExit` is somebody's fault."""
