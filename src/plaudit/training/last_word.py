"""What a rank says when a fault ends it: the first one gives the reason, the others a sentence or nothing."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from plaudit.errors import UserError

REPORT = "TORCHELASTIC_ERROR_FILE"
"""The environment variable with the file in which torchrun looks for a rank's reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFault:
    """The fault that came first, on whichever rank.

    Example: ``FirstFault(rank=1, words="ValueError: …")``
    """

    rank: int
    """Where it came."""
    words: str
    """What it was."""


def words_of(error: BaseException) -> str:
    """A fault in words, by which two ranks know that theirs is the same.

    >>> words_of(KeyError("x"))
    "KeyError: 'x'"
    """
    return f"{type(error).__name__}: {error}"


def first_line(error: BaseException) -> str:
    """As much of a message as fits into another one."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def last_word(
    error: Exception, *, rank: int, world: int, lost: bool, first: FirstFault | None
) -> BaseException:
    """What to end with. ``lost``: all that this rank knows is that the others are gone.

    >>> lost = RuntimeError("connection closed")
    >>> str(last_word(lost, rank=0, world=2, lost=True, first=FirstFault(rank=1, words="ValueError: no")))
    'rank 0 of 2: stopped, because rank 1 failed'
    """
    me = f"rank {rank} of {world}"
    if first is None:
        return UserError(
            f"{me}: another rank ended without a word, or did not answer in time ({first_line(error)}). "
            "The same command goes on from the last checkpoint"
        )
    if first.rank == rank:
        error.add_note(f"This was {me}.")
        return UserError(f"{me}: {error}") if isinstance(error, UserError) else error
    if first.words == words_of(error):
        return SystemExit(2)
    own = "" if lost else f"; its own fault: {first_line(error)}"
    return UserError(f"{me}: stopped, because rank {first.rank} failed{own}")


def report(error: Exception, last: BaseException) -> None:
    """Leave the words for torchrun's summary, which takes the earliest fault for the cause."""
    if REPORT not in os.environ:
        return
    silent, follows = (
        isinstance(last, SystemExit),
        isinstance(last, UserError) and not isinstance(error, UserError),
    )
    facts = {"message": words_of(error if silent else last), "timestamp": int(time.time()) + follows}
    Path(os.environ[REPORT]).write_text(json.dumps(facts), encoding="utf-8")
