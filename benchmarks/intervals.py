"""Means over a few runs, with their intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
"""The 97.5 % point of Student's t, by degrees of freedom."""


def shares(values: Sequence[float]) -> str:
    """The mean with its 95 % interval, in per cent; one value alone has none."""
    return f"{statistics.fmean(values):.1%}" + (f" ± {_half(values):.1%}" if len(values) > 1 else "")


def numbers(values: Sequence[float], digits: int) -> str:
    """The mean with its 95 % interval; one value alone has none."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean + (f" ± {_half(values):.{digits}f}" if len(values) > 1 else "")


def _half(values: Sequence[float]) -> float:
    return STUDENT[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
