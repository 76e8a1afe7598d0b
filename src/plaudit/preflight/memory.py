"""Whether a run fits into the memory of its GPU, which the wing that plans runs is asked before one loads."""

from __future__ import annotations

from typing import Any

from plaudit.engine.distributed import Ranks
from plaudit.preflight.check import Check, PreflightSubject, Result, not_applicable
from plaudit.wings import offered_if_any


def estimate_memory_use(method: str, config: Any, ranks: Ranks) -> Result | None:
    """What the planner says of this run; None where none is installed."""
    estimate = offered_if_any("memory_fit")
    return None if estimate is None else estimate(method, config, ranks)


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
