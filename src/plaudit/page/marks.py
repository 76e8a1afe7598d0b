"""What charts share: a number with its interval, and marks that differ in shape as well as in colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from plaudit.page.html import Html, element
from plaudit.page.plot import Plot
from plaudit.page.words import Number

KINDS = ("first", "second", "third", "fourth")
"""The series of a chart by the names of their classes in page.css; a chart has no more than these."""
_SHAPES = {
    "first": "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0Z",
    "second": "M-3.3 -3.3H3.3V3.3H-3.3Z",
    "third": "M0 -4.6L4.6 0L0 4.6L-4.6 0Z",
    "fourth": "M0 -4.4L4.4 3.4H-4.4Z",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A number and how far it may be off.

    Example: ``Span(value=0.71, low=0.66, high=0.76)``
    """

    value: Number
    """The best guess; NaN where there is none."""
    low: Number | None = None
    """Where its interval begins; None where nobody knows."""
    high: Number | None = None
    """Where its interval ends."""

    @property
    def known(self) -> bool:
        """Whether there is a number to draw."""
        return math.isfinite(self.value)

    @property
    def numbers(self) -> list[Number]:
        """The finite ones of the three."""
        return [n for n in (self.value, self.low, self.high) if n is not None and math.isfinite(n)]

    def said(self, write: Callable[[Number], str]) -> str:
        """The number and its interval in words.

        >>> Span(value=0.71, low=0.562, high=0.83).said("{:.2f}".format)
        '0.71 (0.56 to 0.83)'
        """
        if self.low is None or self.high is None:
            return write(self.value)
        low, high = (_end(number, write) for number in (self.low, self.high))
        return f"{write(self.value)} ({low} to {high})"


def _end(number: Number, write: Callable[[Number], str]) -> str:
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    return write(number).removesuffix(" %")


def mark(kind: str, across: Number, down: Number, tip: str) -> Html:
    """The mark of a series at a place, with its values for those who point at it."""
    place = {"class": f"mark {kind}", "d": _SHAPES[kind], "transform": f"translate({across:.1f} {down:.1f})"}
    return element("path", place, element("title", {}, tip))


def key(kind: str, *said: str) -> Html:
    """A line of the legend: the mark, and what it stands for."""
    shape = element("path", {"class": f"mark {kind}", "d": _SHAPES[kind]})
    sign = element("svg", {"class": "sign", "viewBox": "-6 -6 12 12", "aria-hidden": "true"}, shape)
    return element("span", {"class": "key"}, sign, *said)


def reach(kind: str, plot: Plot, down: Number, span: Span) -> Iterator[Html]:
    """An interval along x, with an arrow where it goes on beyond the axis."""
    if span.low is None or span.high is None:
        return
    low, high = (min(max(end, plot.x.low), plot.x.high) for end in (span.low, span.high))
    left, right = plot.across(low), plot.across(high)
    yield element("path", {"class": f"reach {kind}", "d": f"M{left} {down:.1f}H{right}"})
    for beyond, at, back in ((span.low < low, left, 4), (span.high > high, right, -4)):
        if beyond:
            tip = f"M{at + back:.1f} {down - 3:.1f}L{at} {down:.1f}L{at + back:.1f} {down + 3:.1f}"
            yield element("path", {"class": f"reach {kind}", "d": tip})
