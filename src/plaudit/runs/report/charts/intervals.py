"""Charts of numbers with their intervals: forest plots and shares in rows, and things with two figures each.

A row is a thing that was measured; in a scatter chart each thing is named at the right edge.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from plaudit.runs.report.charts import axes
from plaudit.runs.report.words import Number, number_text, percent

_ROWS_LEFT, _ROWS_RIGHT = 14, 232
_ROWS_TOP, _LABEL_HEIGHT, _SERIES_HEIGHT, _GAP, _AXIS_HEIGHT = 24, 15, 14, 5, 24
_MAX_LABEL_LENGTH = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalRow:
    """A labelled row with one interval for each series.

    Example: ``IntervalRow(label="maths, 40 pairs", spans=(Span(value=0.71, low=0.56, high=0.83),))``
    """

    label: str
    """What it is called."""
    spans: tuple[axes.Span | None, ...]
    """One for each series, in their order; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideLine:
    """An upright line through all rows, or a stripe."""

    low: Number
    high: Number
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalRows:
    """What a chart of rows shows.

    Example: ``IntervalRows(rows=[row], series=("attacks that work", "harmless prompts that are refused"))``
    """

    rows: Sequence[IntervalRow]
    """From top to bottom."""
    series: Sequence[str]
    """What the lines of each row are; at most four."""
    guide: GuideLine | None = None
    """A line through all rows that they are read beside, where there is one."""


def forest_plot(title: str, unit: str, data: IntervalRows) -> Markup:
    """A forest plot: ratios on a logarithmic axis, with the line of no effect at 1; each series is a line of
    every row. What lies beyond a factor of 1,000 ends in an arrow."""
    no_effect = GuideLine(low=1.0, high=1.0, label="1: no effect")
    guided = IntervalRows(rows=data.rows, series=data.series, guide=data.guide or no_effect)
    return _rows_chart((title, unit), axes.ratio_axis(_all_numbers(data)), guided, ratio_text)


def share_chart(title: str, unit: str, data: IntervalRows) -> Markup:
    """Shares, such as accuracies, with their intervals; the axis begins at one half or below."""
    marks = [] if data.guide is None else [data.guide.low]
    # A hair below, so that a share on a full tenth does not lie on the very end of the axis.
    lowest = math.floor(10 * min([0.5, *_all_numbers(data), *marks]) - 1e-9) / 10
    return _rows_chart((title, unit), axes.share_axis(max(0.0, lowest), 1.0), data, percent)


def amount_chart(title: str, unit: str, data: IntervalRows) -> Markup:
    """Numbers of any size, such as lengths, with their intervals on a common axis."""
    marks = [] if data.guide is None else [data.guide.low, data.guide.high]
    x = axes.value_axis([*_all_numbers(data), *marks] or [0.0, 1.0])
    return _rows_chart((title, unit), x, data, number_text)


def ratio_text(value: Number) -> str:
    """A ratio, as it is read beside 1.

    >>> [ratio_text(value) for value in (0.318, 2.34, 1234.5, 0.0004)]
    ['0.32', '2.34', '1,234', '0.0004']
    """
    return f"{value:.2f}" if 0.01 <= value < 10 else number_text(value)


def _all_numbers(data: IntervalRows) -> list[Number]:
    return [number for row in data.rows for span in row.spans if span for number in span.numbers]


def _rows_chart(
    heading: tuple[str, str], x: axes.Axis, data: IntervalRows, write: Callable[[Number], str]
) -> Markup:
    (title, unit), series, rows = heading, data.series, data.rows
    assert len(series) <= len(axes.SERIES_CLASSES)
    row_height = _LABEL_HEIGHT + _SERIES_HEIGHT * len(series) + _GAP
    bottom = _ROWS_TOP + row_height * len(rows)
    plot = axes.Plot(x, axes.NO_AXIS, _ROWS_LEFT, _ROWS_RIGHT, _ROWS_TOP, bottom)
    guide = [] if data.guide is None else _draw_guide(data.guide, plot, rows)
    lanes = [
        part
        for at, row in enumerate(rows)
        for part in _draw_row(row, _ROWS_TOP + at * row_height, plot, write)
    ]
    description = "; ".join(_row_text(row, series, write) for row in rows)
    svg = axes.svg_drawing(title, description, bottom + _AXIS_HEIGHT, *guide, *axes.draw_x_axis(plot), *lanes)
    keys = map(axes.series_key, axes.SERIES_CLASSES, series) if len(series) > 1 else ()
    return axes.chart_figure(title, unit, svg, *keys)


def _draw_row(
    row: IntervalRow, top: Number, plot: axes.Plot, write: Callable[[Number], str]
) -> Iterator[Markup]:
    yield axes.svg_text("label", 0, top + 11, axes.truncated(row.label, _MAX_LABEL_LENGTH))
    for at, (kind, span) in enumerate(zip(axes.SERIES_CLASSES, row.spans, strict=False)):
        down = top + _LABEL_HEIGHT + _SERIES_HEIGHT * (at + 0.5)
        if span is not None and span.is_finite:
            # Beyond the axis the mark stays at its end, and the text beside it has the number.
            place = plot.x_position(min(max(span.value, plot.x.low), plot.x.high))
            yield from axes.interval_line(kind, plot, down, span)
            yield axes.point_mark(kind, place, down, f"{row.label}: {span.text(write)}")
        yield axes.svg_text("number", axes.WIDTH, down + 3.5, _span_text(span, write))


def _span_text(span: axes.Span | None, write: Callable[[Number], str]) -> str:
    return "not known" if span is None or not span.is_finite else span.text(write)


def _row_text(row: IntervalRow, series: Sequence[str], write: Callable[[Number], str]) -> str:
    values = zip(series, row.spans, strict=True)
    return f"{row.label}: {', '.join(f'{name} {_span_text(span, write)}' for name, span in values)}"


def _draw_guide(guide: GuideLine, plot: axes.Plot, rows: Sequence[IntervalRow]) -> Iterator[Markup]:
    """The guide through all rows; it never crosses the name of one."""
    left, right = plot.x_position(guide.low), plot.x_position(min(guide.high, plot.x.high))
    if right > left:
        place = {"x": f"{left}", "y": plot.top - 4, "width": f"{right - left:.1f}"}
        yield axes.element("rect", {"class": "stripe", **place, "height": f"{plot.bottom - plot.top + 4}"})
    for across in sorted({left, right}):
        yield axes.element("path", {"class": "guide", "d": _path_clear_of_names(across, plot, rows)})
    end = left > (plot.left + plot.right) / 2
    yield axes.svg_text("note end" if end else "note", right if end else left, plot.top - 9, guide.label)


def _path_clear_of_names(across: Number, plot: axes.Plot, rows: Sequence[IntervalRow]) -> str:
    """One line where it is beyond all names; else a piece in every row, below the strip of its name."""
    names = [axes.truncated(row.label, _MAX_LABEL_LENGTH) for row in rows]
    if all(axes.text_width(name) < across for name in names):
        return f"M{across} {plot.top - 4}V{plot.bottom}"
    height = (plot.bottom - plot.top) / len(rows)
    tops = (plot.top + at * height for at in range(len(rows)))
    return "".join(f"M{across} {top + _LABEL_HEIGHT:g}V{top + height - _GAP / 2:g}" for top in tops)


_SCATTER = (44, 258, 12, 208)
_NAMES_LEFT, _NAME_SPACING, _MAX_NAME_LENGTH = 272, 13, 11


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterPoint:
    label: str
    x: Number
    y: axes.Span


def scatter_chart(
    title: str,
    unit: str,
    points: Sequence[ScatterPoint],
    *,
    path: Sequence[tuple[Number, Number]] = (),
    path_label: str = "",
    note: str = "",
) -> Markup:
    """Every point with its vertical interval, and its name; there is room for about fifteen names."""
    y_numbers = [number for spot in points for number in spot.y.numbers] + [up for _, up in path]
    x_numbers = [spot.x for spot in points] + [at for at, _ in path]
    plot = axes.Plot(axes.value_axis(x_numbers, from_zero=True), axes.value_axis(y_numbers), *_SCATTER)
    tips = [f"{spot.label}: {spot.y.text(number_text)} at {number_text(spot.x)}" for spot in points]
    marks = [
        part
        for spot, tip in zip(points, tips, strict=True)
        for part in axes.point_with_interval("first", plot, spot.x, spot.y, tip)
    ]
    has_path = len(path) > 1
    line = [axes.element("path", {"class": "ideal", "d": plot.path(path)})] if has_path else []
    keys = [axes.swatch_key("ideal", path_label)] if has_path else []
    parts = [*axes.draw_axes(plot), *line, *_point_names(points, plot), *marks]
    svg = axes.svg_drawing(title, "; ".join(tips), plot.bottom + 24, *parts)
    return axes.chart_figure(title, unit, svg, *keys, note=note)


def _point_names(points: Sequence[ScatterPoint], plot: axes.Plot) -> Iterator[Markup]:
    """Names from above in the order of their marks, pushed apart, each with a thin line to its mark."""
    ranked = sorted(points, key=lambda spot: -spot.y.value)
    name_positions: list[float] = []
    for spot in ranked:
        above = [down + _NAME_SPACING for down in name_positions[-1:]]
        name_positions.append(max([plot.y_position(spot.y.value), *above]))
    # Names that were pushed below the drawing are pushed up again, from the last one on.
    overflow = max(0.0, name_positions[-1] - (plot.bottom - 4))
    lowest = name_positions[-1] - overflow
    for at in reversed(range(len(name_positions))) if overflow else ():
        name_positions[at] = lowest = min(name_positions[at], lowest)
        lowest -= _NAME_SPACING
    for spot, down in zip(ranked, name_positions, strict=True):
        start = f"M{plot.x_position(spot.x)} {plot.y_position(spot.y.value)}"
        leader = f"{start}L{plot.right} {down:.1f}H{_NAMES_LEFT - 4}"
        yield axes.element("path", {"class": "leader", "d": leader})
        yield axes.svg_text("label", _NAMES_LEFT, down + 3.5, axes.truncated(spot.label, _MAX_NAME_LENGTH))
