"""Numbers with their intervals, a row for each thing that was measured: forest plots, accuracies by part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from plaudit.page.axes import Axis, ratio_axis, share_axis, value_axis
from plaudit.page.html import Html, element
from plaudit.page.marks import KINDS, Span, key, mark, reach
from plaudit.page.plot import WIDTH, Plot, chart, cut, drawing, foot, words
from plaudit.page.words import Number, figure, percent

_LEFT, _RIGHT = 14, 232
_TOP, _NAME, _LANE, _GAP, _FOOT = 24, 15, 14, 5, 24
_MOST_LABEL = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that was measured, once for each series.

    Example: ``Row(label="maths, 40 pairs", spans=(Span(value=0.71, low=0.56, high=0.83),))``
    """

    label: str
    """What it is called."""
    spans: tuple[Span | None, ...]
    """One for each series, in their order; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """An upright line through all rows, or a stripe.

    Example: ``Guide(low=0.77, high=0.84, label="ceiling")``
    """

    low: Number
    """Where on the axis."""
    high: Number
    """Where it ends; the same for a line."""
    label: str
    """What is written above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What a chart of rows shows.

    Example: ``Rows(rows=(Row(…),), series=("the model", "annotators"))``
    """

    rows: Sequence[Row]
    """From above."""
    series: Sequence[str]
    """What the lines of each row are; at most four."""
    guide: Guide | None = None
    """What all of them are compared with."""


def forest(title: str, unit: str, shown: Rows) -> Html:
    """Ratios on a logarithmic axis, with the line of no effect at 1; each series is a line of every row.

    What lies beyond a factor of 1,000 ends in an arrow.
    """
    one = Guide(low=1.0, high=1.0, label="1: no effect")
    guided = Rows(rows=shown.rows, series=shown.series, guide=shown.guide or one)
    drawn = _Drawing(x=ratio_axis(_numbers(shown)), shown=guided, write=ratio)
    return chart(title, unit, drawn.whole(title), *_keys(shown.series))


def shares(title: str, unit: str, shown: Rows) -> Html:
    """Shares, such as accuracies, with their intervals; the axis begins at one half or below."""
    marks = [] if shown.guide is None else [shown.guide.low]
    lowest = math.floor(10 * min([0.5, *_numbers(shown), *marks]) - 1e-9) / 10
    drawn = _Drawing(x=share_axis(max(0.0, lowest), 1.0), shown=shown, write=percent)
    return chart(title, unit, drawn.whole(title), *_keys(shown.series))


def amounts(title: str, unit: str, shown: Rows) -> Html:
    """Numbers of any size, such as lengths, with their intervals on a common axis."""
    marks = [] if shown.guide is None else [shown.guide.low, shown.guide.high]
    x = value_axis([*_numbers(shown), *marks] or [0.0, 1.0])
    drawn = _Drawing(x=x, shown=shown, write=figure)
    return chart(title, unit, drawn.whole(title), *_keys(shown.series))


def ratio(value: Number) -> str:
    """A ratio, as it is read beside 1.

    >>> [ratio(value) for value in (0.318, 2.34, 1234.5, 0.0004)]
    ['0.32', '2.34', '1,234', '0.0004']
    """
    return f"{value:.2f}" if 0.01 <= value < 10 else figure(value)


def _numbers(shown: Rows) -> list[Number]:
    return [number for row in shown.rows for span in row.spans if span for number in span.numbers]


def _keys(series: Sequence[str]) -> Iterator[Html]:
    if len(series) > 1:
        yield from (key(kind, name) for kind, name in zip(KINDS, series, strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    """A chart of rows on an axis.

    Example: ``_Drawing(x=share_axis(), shown=Rows(…), write=percent).whole("By category")``
    """

    x: Axis
    """To the right."""
    shown: Rows
    """What it shows."""
    write: Callable[[Number], str]
    """How a number is written."""

    def whole(self, title: str) -> Html:
        """The drawing under its title."""
        series, rows = self.shown.series, self.shown.rows
        assert len(series) <= len(KINDS)
        high = _NAME + _LANE * len(series) + _GAP
        bottom = _TOP + high * len(rows)
        flat = Axis(low=0, high=1, ticks=())
        plot = Plot(x=self.x, y=flat, left=_LEFT, right=_RIGHT, top=_TOP, bottom=bottom)
        told = "; ".join(self.told(row) for row in rows)
        guide = [] if self.shown.guide is None else _guide(self.shown.guide, plot)
        drawn = [part for at, row in enumerate(rows) for part in self.row(row, _TOP + at * high, plot)]
        return drawing(title, told, bottom + _FOOT, *guide, *foot(plot), *drawn)

    def row(self, row: Row, top: Number, plot: Plot) -> Iterator[Html]:
        """A row: its name, and a lane for each series."""
        yield words("label", 0, top + 11, cut(row.label, _MOST_LABEL))
        for at, (kind, span) in enumerate(zip(KINDS, row.spans, strict=False)):
            down = top + _NAME + _LANE * (at + 0.5)
            if span is None or not span.known:
                yield words("number", WIDTH, down + 3.5, "not known")
                continue
            place = plot.across(min(max(span.value, plot.x.low), plot.x.high))
            yield from reach(kind, plot, down, span)
            yield mark(kind, place, down, f"{row.label}: {span.said(self.write)}")
            yield words("number", WIDTH, down + 3.5, span.said(self.write))

    def told(self, row: Row) -> str:
        """The row in words."""
        said = [
            f"{name} {span.said(self.write) if span is not None and span.known else 'not known'}"
            for name, span in zip(self.shown.series, row.spans, strict=True)
        ]
        return f"{row.label}: {', '.join(said)}"


def _guide(guide: Guide, plot: Plot) -> Iterator[Html]:
    left, right = plot.across(guide.low), plot.across(min(guide.high, plot.x.high))
    if right > left:
        place = {"x": f"{left}", "y": plot.top - 4, "width": f"{right - left:.1f}"}
        yield element("rect", {"class": "stripe", **place, "height": f"{plot.bottom - plot.top + 4}"})
    for across in sorted({left, right}):
        yield element("path", {"class": "guide", "d": f"M{across} {plot.top - 4}V{plot.bottom}"})
    # Words stay inside the drawing: those of a line in its right half end at the line.
    end = left > (plot.left + plot.right) / 2
    yield words("note end" if end else "note", right if end else left, plot.top - 9, guide.label)
