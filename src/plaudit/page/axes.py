"""Axes with few, readable ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from plaudit.page.words import Number, exponent

_FLAT = 1e-4
"""Values that agree in so many digits are drawn as a level line: their ticks could not be told apart."""
_NOTHING = 1e-300
"""A difference that cannot be divided into ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """From values to places between 0 and 1, with a few places named.

    Example: ``Axis(low=0.0, high=2.0, ticks=((0.0, "0"), (1.0, "1"), (2.0, "2")))``
    """

    low: Number
    """The value at 0."""
    high: Number
    """The value at 1."""
    ticks: tuple[tuple[Number, str], ...]
    """Values that are named, and how."""
    logarithmic: bool = False
    """Whether equal distances are equal ratios."""

    def place(self, value: Number) -> float:
        """Where a value lies.

        >>> Axis(low=1.0, high=100.0, ticks=(), logarithmic=True).place(10.0)
        0.5
        """
        if self.logarithmic:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(value) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)


def value_axis(values: Sequence[Number], *, from_zero: bool = False, may_be_log: bool = False) -> Axis:
    """The axis of these finite values, of which there is at least one.

    A lone spike would press a linear axis flat: where values may be drawn on a logarithmic one, and the
    highest is more than thirty times the middle one, they are.
    """
    low, high = min(values), max(values)
    if may_be_log and low > 0 and high > 30 * sorted(values)[len(values) // 2]:
        low, high = low * 0.9, high * 1.1
        return Axis(low=low, high=high, ticks=powers(low, high), logarithmic=True)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= max(_FLAT * max(abs(low), abs(high)), _NOTHING):
        low, high = low - (abs(low) / 10 or 1.0), high + (abs(high) / 10 or 1.0)
    room = (high - low) * 0.06
    low, high = low - (0.0 if from_zero and low == 0 else room), high + room
    return Axis(low=low, high=high, ticks=round_ticks(low, high))


def share_axis(low: Number = 0.0, high: Number = 1.0) -> Axis:
    """The axis of shares, in per cent.

    >>> [label for _, label in share_axis(0.5, 1.0).ticks]
    ['50 %', '60 %', '70 %', '80 %', '90 %', '100 %']
    """
    ticks = tuple((tick, f"{100 * tick:.3g} %") for tick, _ in round_ticks(low, high))
    return Axis(low=low, high=high, ticks=ticks)


def ratio_axis(values: Sequence[Number]) -> Axis:
    """The logarithmic axis of ratios: 1 is on it and named, and no end is beyond a factor of 1,000.

    >>> [label for _, label in ratio_axis([0.4, 3.0]).ticks]
    ['0.5', '0.7', '1', '1.5', '2', '3']
    """
    inside = [min(max(value, 1e-3), 1e3) for value in values]
    low, high = min([0.6, *inside]) / 1.15, max([1.6, *inside]) * 1.15
    for factors in ((1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        ticks = [factor * 10.0**power for power in range(-4, 4) for factor in factors]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= 6:
            break
    return Axis(low=low, high=high, ticks=tuple((tick, f"{tick:,g}") for tick in ticks), logarithmic=True)


def round_ticks(low: Number, high: Number) -> tuple[tuple[Number, str], ...]:
    """Two to six round numbers between two values, and how they are written.

    >>> [label for _, label in round_ticks(1.7, 3.4)], [label for _, label in round_ticks(0, 2e-5)]
    (['2.0', '2.5', '3.0'], ['0', '5e-6', '1e-5', '1.5e-5', '2e-5'])
    """
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    width = unit * next(factor for factor in (1, 2, 5, 10) if factor * unit >= rough * 0.999)
    first, last = math.ceil(low / width - 1e-9), math.floor(high / width + 1e-9)
    return tuple((at * width, _written(at * width, width)) for at in range(first, last + 1))


def powers(low: Number, high: Number) -> tuple[tuple[Number, str], ...]:
    """Powers of ten between two positive values; with their 2nd and 5th multiples where they are few.

    >>> [label for _, label in powers(0.7, 40.0)], [label for _, label in powers(0.01, 4e5)]
    (['1', '2', '5', '10', '20'], ['0.01', '1', '100', '10,000'])
    """
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few = len(tens) <= 4
    ticks = [factor * 10.0**power for power in tens for factor in ((1, 2, 5) if few else (1,))]
    ticks = [tick for tick in ticks if low <= tick <= high]
    return tuple((tick, exponent(f"{tick:,g}")) for tick in ticks[:: 1 + (len(ticks) - 1) // 6])


def _written(value: Number, width: Number) -> str:
    if value == 0:
        return "0"
    place = math.floor(math.log10(width))
    if width < 1e-3 or abs(value) >= 1e6:
        digits = max(1, round(math.log10(abs(value))) - place + 1)
        return exponent(f"{value:.{digits}g}")
    return f"{value:,.{max(0, -place)}f}"
