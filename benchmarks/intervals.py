"""Means over a few runs, with their intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy.stats import t


def shares(values: Sequence[float]) -> str:
    """The mean with its 95 % interval, in per cent; one value alone has none."""
    return f"{statistics.fmean(values):.1%}" + (f" ± {half_width(values):.1%}" if len(values) > 1 else "")


def numbers(values: Sequence[float], digits: int) -> str:
    """The mean with its 95 % interval; one value alone has none.

    >>> numbers([1.0, 3.0], 1)
    '2.0 ± 12.7'
    """
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean + (f" ± {half_width(values):.{digits}f}" if len(values) > 1 else "")


def half_width(values: Sequence[float]) -> float:
    """Half of the mean's 95 % interval by Student's t, each run being one value; infinite for one alone.

    >>> half_width([2.0]), round(half_width([1.0, 3.0]), 1)
    (inf, 12.7)
    """
    if len(values) < 2:
        return math.inf
    return float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
