"""Where a drawing has its axes, and what every drawing has: a name, and words for who does not see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from unicodedata import east_asian_width

from plaudit.page.axes import Axis
from plaudit.page.html import Html, element
from plaudit.page.words import Number

WIDTH = 360
"""How wide every drawing is in its own units; about a phone's, so text there has its nominal size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A rectangle of a drawing, with an axis along its lower and its left edge.

    Example: ``Plot(x=step_axis(1, 100), y=value_axis([3.2, 1.8]), left=44, right=354, top=8, bottom=162)``
    """

    x: Axis
    """To the right."""
    y: Axis
    """Upwards."""
    left: Number
    """Where x begins."""
    right: Number
    """Where x ends."""
    top: Number
    """Where y ends."""
    bottom: Number
    """Where y begins."""

    def across(self, value: Number) -> float:
        """Where a value of x lies in the drawing."""
        return round(self.left + self.x.place(value) * (self.right - self.left), 1)

    def down(self, value: Number) -> float:
        """Where a value of y lies in the drawing."""
        return round(self.bottom - self.y.place(value) * (self.bottom - self.top), 1)


def axes(plot: Plot) -> Iterator[Html]:
    """Level lines with their names on the left, and ticks with theirs below."""
    for value, label in plot.y.ticks:
        down = plot.down(value)
        yield element("path", {"class": "grid", "d": f"M{plot.left} {down}H{plot.right}"})
        yield element("text", {"class": "tick y", "x": f"{plot.left - 6}", "y": f"{down + 3.5:.1f}"}, label)
    yield from foot(plot)


def foot(plot: Plot) -> Iterator[Html]:
    """The lower axis alone."""
    yield element("path", {"class": "base", "d": f"M{plot.left} {plot.bottom}H{plot.right}"})
    for value, label in plot.x.ticks:
        across = plot.across(value)
        yield element("path", {"class": "base", "d": f"M{across} {plot.bottom}v4"})
        # A label in the middle of its tick would be cut off at the right edge.
        kind = "tick end" if across > plot.right - 15 else "tick"
        yield element("text", {"class": kind, "x": f"{across}", "y": f"{plot.bottom + 16}"}, label)


def words(kind: str, across: Number, down: Number, text: str) -> Html:
    """Text in a drawing: real text, which can be searched, copied and read out."""
    return element("text", {"class": kind, "x": f"{across:.1f}", "y": f"{down:.1f}"}, text)


def cut(text: str, most: int) -> str:
    """As much of a text as has room; a wide letter, as in Chinese, takes the room of two.

    >>> cut("instructions", 8), cut("数学题目", 5)
    ('instruc…', '数学…')
    """
    room = most
    for at, letter in enumerate(text):
        room -= 2 if east_asian_width(letter) in "WF" else 1
        if room < (at + 1 < len(text)):
            return f"{text[:at]}…"
    return text


def drawing(title: str, told: str, height: Number, *parts: Html) -> Html:
    """A drawing with its name and what it shows in words."""
    named = (element("title", {}, title), element("desc", {}, told))
    box = f"0 0 {WIDTH} {height:.0f}"
    return element("svg", {"viewBox": box, "role": "img"}, *named, *parts)


def chart(title: str, unit: str, drawn: Html, *key: Html) -> Html:
    """A figure: heading, drawing, and what its lines and colours mean."""
    quiet = element("span", {"class": "unit"}, unit)
    heading = element("h3", {}, title, " ", quiet) if unit else element("h3", {}, title)
    return element("figure", {"class": "chart"}, heading, drawn, element("figcaption", {}, *key))
