"""What a curve is drawn from: few points that keep every spike, and axes with few readable ticks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plaudit.training.metrics import Number
from plaudit.training.page.history import Column
from plaudit.training.page.words import exponent

_FLAT = 1e-4
"""Values that agree in so many digits are drawn as a level line: their ticks could not be told apart."""
_NOTHING = 1e-300
"""A difference that cannot be divided into ticks."""

Point = tuple[int, Number]
"""A step and its value."""


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


def thinned(column: Column, most: int = 500) -> list[Point]:
    """At most so many points of the column: the lowest and the highest of each stretch, so spikes survive.

    A stretch with a value that is not finite keeps one of those as well, where the curve has its gap; the
    ends stay. ``most`` is at least 5.

    >>> from array import array
    >>> spike = array("d", [1.0] * 50 + [9.0] + [1.0] * 49)
    >>> thinned(Column(name="loss", steps=array("q", range(100)), values=spike), most=6)
    [(0, 1.0), (50, 9.0), (99, 1.0)]
    """
    count = len(column.values)
    if count <= most:
        return list(zip(column.steps, column.values, strict=True))
    kept = {0, count - 1}
    stretches = max(1, (most - 2) // 3)
    for at in range(stretches):
        start, end = at * count // stretches, (at + 1) * count // stretches
        kept |= _extremes(column.values[start:end], start)
    return [(column.steps[at], column.values[at]) for at in sorted(kept)]


def segments(points: Sequence[Point]) -> Iterator[list[Point]]:
    """The points between the gaps.

    >>> list(segments([(1, 2.0), (2, float("nan")), (3, 1.0), (4, 1.5)]))
    [[(1, 2.0)], [(3, 1.0), (4, 1.5)]]
    """
    piece: list[Point] = []
    for point in points:
        if not math.isnan(point[1]):
            piece.append(point)
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def step_axis(first: int, last: int) -> Axis:
    """The axis of steps; whole numbers only."""
    if first == last:
        return Axis(low=first - 1, high=last + 1, ticks=((first, f"{first:,}"),))
    ticks = tuple((tick, f"{tick:,.0f}") for tick, _ in round_ticks(first, last) if tick == int(tick))
    return Axis(low=first, high=last, ticks=ticks)


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


def _extremes(values: Sequence[float], start: int) -> set[int]:
    """Where the lowest and the highest value lie, and the first that is none."""
    numbers = [value for value in values if not math.isnan(value)]
    kept = {start + values.index(extreme(numbers)) for extreme in (min, max) if numbers}
    if len(numbers) < len(values):
        kept.add(start + next(at for at, value in enumerate(values) if math.isnan(value)))
    return kept
