"""What a curve is drawn from: few points that keep every spike, in pieces between gaps, over its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from plaudit.page.axes import Axis, round_ticks
from plaudit.training.metrics import Number
from plaudit.training.page.history import Column

Point = tuple[int, Number]
"""A step and its value."""


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


def _extremes(values: Sequence[float], start: int) -> set[int]:
    """Where the lowest and the highest value lie, and the first that is none."""
    numbers = [value for value in values if not math.isnan(value)]
    kept = {start + values.index(extreme(numbers)) for extreme in (min, max) if numbers}
    if len(numbers) < len(values):
        kept.add(start + next(at for at, value in enumerate(values) if math.isnan(value)))
    return kept
