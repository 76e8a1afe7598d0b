"""A check: what it proves, why that matters, how to mend it, and the function that looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from plaudit.checks.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a check saw.

    Example: ``Result(holds=False, saw="rows.jsonl:3 begins with <s><s>")``
    """

    holds: bool | None
    """None where there is nothing to check: no reward, no adapters."""
    saw: str
    """The figures, or the row, or why there was nothing to look at."""
    shown: str | None = None
    """Rows as the model will see them, with colours where there are any: for eyes, below the table."""


def passed(saw: str, shown: str | None = None) -> Result:
    """It holds."""
    return Result(holds=True, saw=saw, shown=shown)


def failed(saw: str, shown: str | None = None) -> Result:
    """It does not."""
    return Result(holds=False, saw=saw, shown=shown)


def not_applicable(why: str) -> Result:
    """There is nothing to look at."""
    return Result(holds=None, saw=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that is easily wrong without a word.

    Example: ``CHECKS["one-bos"].look(subject).holds``
    """

    name: str
    """What the user calls it: in tables, in ``--allow``, on its page."""
    proves: str
    """What holds when it passes, as a sentence."""
    matters: str
    """What happens to a run where it does not, and where that has happened."""
    mend: str
    """What to do."""
    look: Callable[[Subject], Result]
    """Looks; leaves everything as it was."""
    at_start: bool = False
    """Whether a run looks too, before its first step: it costs little and needs no second copy of weights."""
