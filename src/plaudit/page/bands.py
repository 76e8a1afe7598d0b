"""Lines with the bands of their intervals, over an axis whose places also have names of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plaudit.page.axes import value_axis
from plaudit.page.html import Html, element
from plaudit.page.marks import KINDS, Span, key, mark
from plaudit.page.plot import Plot, axes, chart, drawing, words
from plaudit.page.words import Number, figure

_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 352, 34, 208
_APART = 7
"""How far apart the names above must be, for each of their letters."""
_MOST_MARKS = 40
"""A line of more points has no shapes: they would hide it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """One line and its band.

    Example: ``Band(label="gold", points=((0.0, Span(value=0.1, low=0.0, high=0.2)),))``
    """

    label: str
    """What it is called."""
    points: tuple[tuple[Number, Span], ...]
    """Where on the lower axis, and what was found there, in the order of the line; one with
    a band goes from left to right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """What a chart of lines shows.

    Example: ``Bands(lines=(Band(…),), places=((0.0, "1"), (0.44, "2")), over="n")``
    """

    lines: Sequence[Band]
    """At most four."""
    limit: Band | None = None
    """A line without a band that the others are compared with."""
    places: Sequence[tuple[Number, str]] = ()
    """Places on the lower axis that are named above the drawing."""
    over: str = ""
    """What those names are."""
    upright: tuple[Number, str] | None = None
    """A place on the lower axis that everything is seen from, and what it is."""

    @property
    def all_lines(self) -> list[Band]:
        """The lines, and the one that they are compared with."""
        return [*self.lines, *([] if self.limit is None else [self.limit])]


def bands(title: str, unit: str, shown: Bands, *, note: str = "") -> Html:
    """Lines over a common axis, each with its interval as a band and its shape at every point."""
    assert 0 < len(shown.lines) <= len(KINDS)
    points = [point for line in shown.all_lines for point in line.points]
    plot = Plot(
        x=value_axis(
            [at for at, _ in points] + ([shown.upright[0]] if shown.upright else []), from_zero=True
        ),
        y=value_axis([number for _, span in points for number in span.numbers]),
        left=_LEFT,
        right=_RIGHT,
        top=_TOP,
        bottom=_BOTTOM,
    )
    drawn = [part for kind, line in zip(KINDS, shown.lines, strict=False) for part in _line(kind, line, plot)]
    limit = (
        [] if shown.limit is None else [_path("ideal", [_place(point, plot) for point in shown.limit.points])]
    )
    told = "; ".join(f"{line.label}: {_told(line, shown)}" for line in shown.all_lines)
    svg = drawing(
        title, told, _BOTTOM + 24, *axes(plot), *_named(shown, plot), *_upright(shown, plot), *limit, *drawn
    )
    return chart(title, unit, svg, *_keys(shown, note))


def _line(kind: str, line: Band, plot: Plot) -> Iterator[Html]:
    held = [
        (at, span.low, span.high)
        for at, span in line.points
        if span.low is not None and span.high is not None
    ]
    if len(held) > 1:
        upper = [f"{plot.across(at)} {plot.down(high)}" for at, _, high in held]
        lower = [f"{plot.across(at)} {plot.down(low)}" for at, low, _ in reversed(held)]
        yield _path(f"band {kind}", upper + lower)
    yield _path(f"line {kind}", [_place(point, plot) for point in line.points])
    for at, span in line.points if len(line.points) <= _MOST_MARKS else ():
        tip = f"{line.label} {span.said(figure)} at {figure(at)}"
        yield mark(kind, plot.across(at), plot.down(span.value), tip)


def _place(point: tuple[Number, Span], plot: Plot) -> str:
    return f"{plot.across(point[0])} {plot.down(point[1].value)}"


def _path(kind: str, places: Sequence[str]) -> Html:
    return element("path", {"class": kind, "d": f"M{'L'.join(places)}"})


def _named(shown: Bands, plot: Plot) -> Iterator[Html]:
    if not shown.places:
        return
    yield words("note", 0, _TOP - 12, shown.over)
    free = float(_LEFT) - _APART
    for at, label in shown.places:
        across, half = plot.across(at), _APART * len(label) / 2
        yield element("path", {"class": "base", "d": f"M{across} {_TOP - 6}v4"})
        # Of names that would touch, the first stays.
        if across - half >= free:
            yield words("tick", across, _TOP - 12, label)
            free = across + half


def _upright(shown: Bands, plot: Plot) -> Iterator[Html]:
    if shown.upright is None:
        return
    at, label = shown.upright
    across = plot.across(at)
    yield element("path", {"class": "guide", "d": f"M{across} {_TOP - 4}V{_BOTTOM}"})
    yield words("note end" if across > (_LEFT + _RIGHT) / 2 else "note", across, _TOP - 9, label)


def _keys(shown: Bands, note: str) -> Iterator[Html]:
    for kind, line in zip(KINDS, shown.lines, strict=False):
        yield key(kind, element("b", {}, line.label), f" {_ends(line)}")
    if shown.limit is not None:
        name = element("b", {}, shown.limit.label)
        sign = element("span", {"class": "swatch ideal"})
        yield element("span", {"class": "key"}, sign, name, f" {_ends(shown.limit)}")
    if note:
        yield element("span", {"class": "key"}, note)


def _told(line: Band, shown: Bands) -> str:
    names = {at: f"{shown.over} {label}" for at, label in shown.places}
    return ", ".join(
        f"{span.said(figure)} at {names[at] if at in names else figure(at)}" for at, span in line.points
    )


def _ends(line: Band) -> str:
    first, last = line.points[0][1].value, line.points[-1][1].value
    return f"{figure(first)} to {figure(last)}"
