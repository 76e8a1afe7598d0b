"""Every check, by its name, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping

from plaudit.checks import fitting, learning, moving, prompts, rewarding, rows, sampling, scoring, text
from plaudit.checks.check import Check

MODULES = (text, prompts, fitting, rows, scoring, learning, moving, sampling, rewarding)
"""Where they are, in their order."""
CHECKS: Mapping[str, Check] = {check.name: check for module in MODULES for check in module.CHECKS}
"""The table."""
