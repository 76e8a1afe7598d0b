"""Things with two figures each: marks with their intervals, each named at the right edge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plaudit.page.axes import value_axis
from plaudit.page.html import Html, element
from plaudit.page.marks import Span, mark
from plaudit.page.plot import Plot, axes, chart, cut, drawing, words
from plaudit.page.words import Number, figure

_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 258, 12, 208
_NAMES, _APART, _MOST_NAME = 272, 13, 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One thing and where it lies.

    Example: ``Spot(label="ppo", across=1.2, up=Span(value=0.7, low=0.66, high=0.74))``
    """

    label: str
    """What it is called."""
    across: Number
    """Where it lies on the lower axis."""
    up: Span
    """Where it lies on the upright axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What a chart of places shows.

    Example: ``Places(spots=(Spot(…),), path=((0.0, 0.4), (0.44, 0.6)), path_label="best of n")``
    """

    spots: Sequence[Spot]
    """At least one, and no more than there is room to name: about fifteen."""
    path: Sequence[tuple[Number, Number]] = ()
    """A broken line that they are compared with, from left to right."""
    path_label: str = ""
    """What that line is."""


def places(title: str, unit: str, shown: Places, *, note: str = "") -> Html:
    """Every thing at its place, with its interval upright, and its name where names do not touch."""
    ups = [number for spot in shown.spots for number in spot.up.numbers] + [up for _, up in shown.path]
    plot = Plot(
        x=value_axis([spot.across for spot in shown.spots] + [at for at, _ in shown.path], from_zero=True),
        y=value_axis(ups),
        left=_LEFT,
        right=_RIGHT,
        top=_TOP,
        bottom=_BOTTOM,
    )
    told = "; ".join(f"{one.label}: {one.up.said(figure)} at {figure(one.across)}" for one in shown.spots)
    drawn = [part for spot in shown.spots for part in _spot(spot, plot)]
    svg = drawing(
        title, told, _BOTTOM + 24, *axes(plot), *_path(shown, plot), *_names(shown.spots, plot), *drawn
    )
    return chart(title, unit, svg, *_keys(shown, note))


def _spot(spot: Spot, plot: Plot) -> Iterator[Html]:
    across = plot.across(spot.across)
    if spot.up.low is not None and spot.up.high is not None:
        ends = f"M{across} {plot.down(spot.up.low)}V{plot.down(spot.up.high)}"
        yield element("path", {"class": "reach first", "d": ends})
    tip = f"{spot.label}: {spot.up.said(figure)} at {figure(spot.across)}"
    yield mark("first", across, plot.down(spot.up.value), tip)


def _names(spots: Sequence[Spot], plot: Plot) -> Iterator[Html]:
    """Names from above in the order of their marks, pushed apart, each with a thin line to its mark."""
    ranked = sorted(spots, key=lambda spot: -spot.up.value)
    downs: list[float] = []
    for spot in ranked:
        downs.append(max([plot.down(spot.up.value), *(down + _APART for down in downs[-1:])]))
    over = max(0.0, downs[-1] - (_BOTTOM - 4))
    for at in reversed(range(len(downs))):
        below = downs[at + 1] - _APART if at + 1 < len(downs) else downs[at] - over
        downs[at] = min(downs[at], below) if over else downs[at]
    for spot, down in zip(ranked, downs, strict=True):
        start = f"M{plot.across(spot.across)} {plot.down(spot.up.value)}"
        yield element("path", {"class": "leader", "d": f"{start}L{_RIGHT} {down:.1f}H{_NAMES - 4}"})
        yield words("label", _NAMES, down + 3.5, cut(spot.label, _MOST_NAME))


def _path(shown: Places, plot: Plot) -> Iterator[Html]:
    if len(shown.path) > 1:
        points = "L".join(f"{plot.across(at)} {plot.down(up)}" for at, up in shown.path)
        yield element("path", {"class": "ideal", "d": f"M{points}"})


def _keys(shown: Places, note: str) -> Iterator[Html]:
    if len(shown.path) > 1:
        yield element("span", {"class": "key"}, element("span", {"class": "swatch ideal"}), shown.path_label)
    if note:
        yield element("span", {"class": "key"}, note)
