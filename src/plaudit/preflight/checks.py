"""Every check, by its name, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plaudit.config import did_you_mean, rename_note
from plaudit.errors import UserError
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

OLD_CHECK_NAMES: Mapping[str, str] = {
    "all-learn": "gradient-flow",
    "at-rest": "initial-kl",
    "draws-as-told": "exact-sampling",
    "left-right": "padding-side",
    "reward-alone": "reward-batching",
    "reward-differs": "reward-variance",
    "reward-place": "reward-position",
    "reward-steady": "reward-deterministic",
    "right-end": "end-of-turn",
    "room": "truncation",
    "sampled-is-trained": "rollout-tokens",
    "sampler-fresh": "sampler-weights",
    "sharing": "shared-prompt",
    "stops": "stop-tokens",
}
"""Checks that were called otherwise, with their names now; the old ones are taken for one release."""


def current_check_names(names: Iterable[str]) -> tuple[str, ...]:
    """The same checks by the names that they have now."""
    return tuple(OLD_CHECK_NAMES.get(name, name) for name in names)


def named_checks(option: str, names: Iterable[str]) -> tuple[str, ...]:
    """The checks that an option names, an old name with a note of the new one; an unknown one is refused."""
    given = tuple(names)
    for name, current in zip(given, current_check_names(given), strict=True):
        if current not in CHECKS:
            hint = did_you_mean(name, CHECKS) or f"; they are {', '.join(CHECKS)}"
            raise UserError(f"{option} {name}: there is no such check{hint}")
        if current != name:
            rename_note(f"{option} {name}", current)
    return current_check_names(given)
