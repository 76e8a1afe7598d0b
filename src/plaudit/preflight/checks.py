"""Every check, by its name, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping

from plaudit.preflight import (
    contents,
    data,
    logprobs,
    prompts,
    rewards,
    sampling,
    tokenization,
    truncation,
    updates,
)
from plaudit.preflight.check import Check, PreflightSubject, Result, not_applicable


def check_memory(subject: PreflightSubject) -> Result:
    """On a GPU the run is planned before any model is loaded, as `plaudit plan` does it: with its own rows,
    settings and number of processes. The peak is compared with all the memory that the GPU has. What other
    programs hold there is not looked at, nor is a run that cannot be planned, or one on a CPU.
    """
    return subject.memory or not_applicable("nobody has estimated what the run takes")


MEMORY = Check(
    name="memory",
    proves="By the estimate of `plaudit plan` the run takes no more memory than its GPU has.",
    matters="A run that is too large ends minutes or hours after it began, at its longest batch, and "
    "nothing says what to change (ms-swift#5894); how much a model needs is asked again and again "
    "(FastChat#1110).",
    mend="Add one of the settings that are named; where none is, take a smaller model or a larger GPU. "
    "plaudit plan in place of plaudit train says what takes the memory, line by line.",
    run=check_memory,
    at_start=True,
)
"""The check of a run's size, which the wing that plans runs estimates before a model is loaded."""

CHECKS: Mapping[str, Check] = {
    check.name: check
    for group in (
        tokenization.CHECKS,
        prompts.CHECKS,
        truncation.CHECKS,
        data.CHECKS,
        contents.CHECKS,
        logprobs.CHECKS,
        updates.GRADIENT_CHECKS,
        updates.CHECKS,
        sampling.CHECKS,
        rewards.CHECKS,
        (MEMORY,),
    )
    for check in group
}
"""Every check by its name, in the order of the table."""
