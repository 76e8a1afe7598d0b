"""Whether a run fits into the memory of its GPU, asked before a model is loaded.

The estimate is the planner's, a wing's: without that wing nobody is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from plaudit.engine.distributed import Ranks
from plaudit.preflight.check import Check, PreflightSubject, Result, not_applicable
from plaudit.wings import everything, load

MemoryEstimate = Callable[[str, Any, Ranks], Result]
"""From a method, its config and this process to whether the run fits into the memory of its device."""

_checks: ContextVar[bool] = ContextVar("checks_memory", default=False)


@contextmanager
def memory_checked_first() -> Iterator[None]:
    """Runs that begin within are asked, before they load a model, whether they fit; a loop begins several."""
    token = _checks.set(True)
    try:
        yield
    finally:
        # To what was there before: one who asks may stand within another.
        _checks.reset(token)


def estimate_memory_use(method: str, config: Any, ranks: Ranks) -> Result | None:
    """What the wings say of this run, a refusal first; None where nobody is asked."""
    estimates = everything("before_training").values() if _checks.get() else ()
    results: list[Result] = [load(estimate)(method, config, ranks) for estimate in estimates]
    return min(results, key=lambda result: result.holds is not False, default=None)


def check_memory(subject: PreflightSubject) -> Result:
    """On a GPU the run is planned before any model is loaded, as `plaudit plan` does it: with its own rows,
    settings and number of processes. The peak is compared with all the memory that the GPU has. What other
    programs hold there is not looked at, nor is a run that cannot be planned, or one on a CPU.
    """
    return subject.memory or not_applicable("nobody has estimated what the run takes")


CHECKS = (
    Check(
        name="memory",
        proves="By the estimate of `plaudit plan` the run takes no more memory than its GPU has.",
        matters="A run that is too large ends minutes or hours after it began, at its longest batch, and "
        "nothing says what to change (ms-swift#5894); how much a model needs is asked again and again "
        "(FastChat#1110).",
        mend="Add one of the settings that are named; where none is, take a smaller model or a larger GPU. "
        "plaudit plan in place of plaudit train says what takes the memory, line by line.",
        run=check_memory,
        at_start=True,
    ),
)
"""Checks of a run's size."""
