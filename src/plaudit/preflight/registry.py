"""Every check, by its name, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping

from plaudit.preflight import (
    data,
    gradients,
    logprobs,
    prompts,
    rewards,
    sampling,
    tokenization,
    truncation,
    updates,
)
from plaudit.preflight.check import Check

MODULES = (tokenization, prompts, truncation, data, logprobs, gradients, updates, sampling, rewards)
"""Where they are, in their order."""
CHECKS: Mapping[str, Check] = {check.name: check for module in MODULES for check in module.CHECKS}
"""The table."""
