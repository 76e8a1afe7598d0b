"""Every check, by its name, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping

from plaudit.preflight import (
    contents,
    data,
    logprobs,
    memory,
    rewards,
    sampling,
    tokenization,
    truncation,
    updates,
)
from plaudit.preflight.check import Check

CHECKS: Mapping[str, Check] = {
    check.name: check
    for group in (
        tokenization.CHECKS,
        data.PROMPT_CHECKS,
        truncation.CHECKS,
        data.CHECKS,
        contents.CHECKS,
        logprobs.CHECKS,
        updates.GRADIENT_CHECKS,
        updates.CHECKS,
        sampling.CHECKS,
        rewards.CHECKS,
        memory.CHECKS,
    )
    for check in group
}
"""Every check by its name, in the order of the table."""
