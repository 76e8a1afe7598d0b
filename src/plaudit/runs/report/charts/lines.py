"""Line charts as inline SVG: bands of intervals over an axis with named places, and curves over steps.

They can be read without scripts, a mouse or colours. A curve is drawn from few points that keep every spike,
in pieces between gaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import pairwise
from statistics import fmean

import yaml
from markupsafe import Markup

from plaudit.runs.report.charts import axes
from plaudit.runs.report.run.data import MetricColumn, MetricHistory
from plaudit.runs.report.words import Number, number_text, short_name

_BANDS, _CURVES = (44, 352, 34, 208), (44, 354, 8, 162)
_LETTER_SPACING = 7
"""How far apart the names above must be, for each of their letters."""
_MIN_ARROW_PIECE = 16
"""Pieces of a path that are shorter have no room for a tip between their marks."""
_MAX_MARKED_POINTS = 40
"""A line of more points has no shapes: they would hide it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandLine:
    """One line of a chart and the band of its intervals."""

    label: str
    points: tuple[tuple[Number, axes.Span], ...]
    """Where on the lower axis, and what was found there, in the order of the line; one with
    a band goes from left to right."""
    directed: bool = False
    """Whether its order is time: arrows show which way it goes, also where it turns back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandChart:
    lines: Sequence[BandLine]
    comparison_line: BandLine | None = None
    named_positions: Sequence[tuple[Number, str]] = ()
    """Places on the lower axis that are named above the drawing."""
    names_title: str = ""
    vertical_line: tuple[Number, str] | None = None
    """A place on the lower axis that everything is seen from, and what it is."""

    @property
    def all_lines(self) -> list[BandLine]:
        return [*self.lines, *([] if self.comparison_line is None else [self.comparison_line])]


def band_chart(title: str, unit: str, spec: BandChart, *, note: str = "") -> Markup:
    """Lines over a common axis, each with its interval as a band and its shape at every point."""
    assert 0 < len(spec.lines) <= len(axes.SERIES_CLASSES)
    points = [point for line in spec.all_lines for point in line.points]
    places = [at for at, _ in points] + ([spec.vertical_line[0]] if spec.vertical_line else [])
    y = axes.value_axis([number for _, span in points for number in span.numbers])
    plot = axes.Plot(axes.value_axis(places, from_zero=True), y, *_BANDS)
    parts = [*axes.draw_axes(plot), *_named_positions(spec, plot), *_vertical_line(spec, plot)]
    if spec.comparison_line is not None:
        parts.append(axes.element("path", {"class": "ideal", "d": plot.path(_values(spec.comparison_line))}))
    for kind, line in zip(axes.SERIES_CLASSES, spec.lines, strict=False):
        parts += _band_line(kind, line, plot)
    description = "; ".join(f"{line.label}: {_line_description(line, spec)}" for line in spec.all_lines)
    svg = axes.svg_drawing(title, description, plot.bottom + 24, *parts)
    return axes.chart_figure(title, unit, svg, *_band_keys(spec), note=note)


def _values(line: BandLine) -> list[tuple[Number, Number]]:
    return [(at, span.value) for at, span in line.points]


def _band_line(kind: str, line: BandLine, plot: axes.Plot) -> Iterator[Markup]:
    lower = [(at, span.low) for at, span in line.points if span.low is not None and span.high is not None]
    upper = [(at, span.high) for at, span in line.points if span.low is not None and span.high is not None]
    if len(lower) > 1:
        # Along the upper ends and back along the lower ones: that closes the band.
        yield axes.element("path", {"class": f"band {kind}", "d": plot.path([*upper, *reversed(lower)])})
    yield axes.element("path", {"class": f"line {kind}", "d": plot.path(_values(line))})
    if line.directed:
        yield from _arrows(kind, [(plot.x_position(at), plot.y_position(up)) for at, up in _values(line)])
    for at, span in line.points if len(line.points) <= _MAX_MARKED_POINTS else ():
        tip = f"{line.label} {span.text(number_text)} at {number_text(at)}"
        yield axes.point_mark(kind, plot.x_position(at), plot.y_position(span.value), tip)


def _arrows(kind: str, positions: Sequence[tuple[float, float]]) -> Iterator[Markup]:
    for (left, up), (right, down) in pairwise(positions):
        length = math.hypot(right - left, down - up)
        if length < _MIN_ARROW_PIECE:
            continue
        x, y = (right - left) / length, (down - up) / length
        middle = ((left + right) / 2 + 4 * x, (up + down) / 2 + 4 * y)
        wings = [(middle[0] - 8 * x - side * 3.5 * y, middle[1] - 8 * y + side * 3.5 * x) for side in (1, -1)]
        tip = "L".join(f"{across:.1f} {below:.1f}" for across, below in (wings[0], middle, wings[1]))
        yield axes.element("path", {"class": f"tip {kind}", "d": f"M{tip}Z"})


def _named_positions(spec: BandChart, plot: axes.Plot) -> Iterator[Markup]:
    if not spec.named_positions:
        return
    yield axes.svg_text("note", 0, plot.top - 12, spec.names_title)
    free = float(plot.left) - _LETTER_SPACING
    for at, label in spec.named_positions:
        across, half_width = plot.x_position(at), _LETTER_SPACING * len(label) / 2
        yield axes.element("path", {"class": "base", "d": f"M{across} {plot.top - 6}v4"})
        # Of names that would touch, the first stays.
        if across - half_width >= free:
            yield axes.svg_text("tick", across, plot.top - 12, label)
            free = across + half_width


def _vertical_line(spec: BandChart, plot: axes.Plot) -> Iterator[Markup]:
    if spec.vertical_line is not None:
        at, label = spec.vertical_line
        across = plot.x_position(at)
        yield axes.element("path", {"class": "guide", "d": f"M{across} {plot.top - 4}V{plot.bottom}"})
        yield axes.side_note(plot, across, plot.top - 9, label)


def _band_keys(spec: BandChart) -> Iterator[Markup]:
    for kind, line in zip(axes.SERIES_CLASSES, spec.lines, strict=False):
        yield axes.series_key(kind, axes.element("b", {}, line.label), f" {_first_to_last(line)}")
    if (line := spec.comparison_line) is not None:
        yield axes.swatch_key("ideal", axes.element("b", {}, line.label), f" {_first_to_last(line)}")


def _line_description(line: BandLine, spec: BandChart) -> str:
    names = {at: f"{spec.names_title} {label}" for at, label in spec.named_positions}
    return ", ".join(
        f"{span.text(number_text)} at {names[at] if at in names else number_text(at)}"
        for at, span in line.points
    )


def _first_to_last(line: BandLine) -> str:
    first, last = line.points[0][1].value, line.points[-1][1].value
    return f"{number_text(first)} to {number_text(last)}"


Point = tuple[int, Number]


def thin_points(column: MetricColumn, max_points: int = 500) -> list[Point]:
    """At most so many points of the column: the lowest and the highest of each stretch, so spikes survive.
    A stretch with a value that is not finite keeps one of those as well, where the curve has its gap; the
    ends stay. ``max_points`` is at least 5.

    >>> from array import array
    >>> spike = array("d", [1.0] * 50 + [9.0] + [1.0] * 49)
    >>> thin_points(MetricColumn(name="loss", steps=array("q", range(100)), values=spike), max_points=6)
    [(0, 1.0), (50, 9.0), (99, 1.0)]
    """
    count = len(column.values)
    if count <= max_points:
        return list(zip(column.steps, column.values, strict=True))
    indices = {0, count - 1}
    # A stretch keeps up to three points (lowest, highest, a gap), and two are the ends.
    stretches = max(1, (max_points - 2) // 3)
    for stretch in range(stretches):
        start, end = stretch * count // stretches, (stretch + 1) * count // stretches
        indices |= _extreme_indices(column.values[start:end], start)
    return [(column.steps[stretch], column.values[stretch]) for stretch in sorted(indices)]


def segments(points: Sequence[Point]) -> Iterator[list[Point]]:
    """The points between the gaps.

    >>> list(segments([(1, 2.0), (2, float("nan")), (3, 1.0), (4, 1.5)]))
    [[(1, 2.0)], [(3, 1.0), (4, 1.5)]]
    """
    segment: list[Point] = []
    for point in points:
        if not math.isnan(point[1]):
            segment.append(point)
        elif segment:
            yield segment
            segment = []
    if segment:
        yield segment


def step_axis(first: int, last: int) -> axes.Axis:
    if first == last:
        return axes.Axis(low=first - 1, high=last + 1, ticks=((first, f"{first:,}"),))
    ticks = tuple((tick, f"{tick:,.0f}") for tick, _ in axes.round_ticks(first, last) if tick == int(tick))
    return axes.Axis(low=first, high=last, ticks=ticks)


def _extreme_indices(values: Sequence[float], start: int) -> set[int]:
    """Where the lowest and the highest value lie, and the first that is none."""
    numbers = [value for value in values if not math.isnan(value)]
    indices = {start + values.index(extreme(numbers)) for extreme in (min, max) if numbers}
    if len(numbers) < len(values):
        indices.add(start + next(at for at, value in enumerate(values) if math.isnan(value)))
    return indices


_FIGURE_HEIGHT = 184
_STRIPS = 60
_MAX_DOTS = 60
_MAX_SMOOTH, _MAX_OVERLAID = 200, 120
_MIN_WINDOW = 5
"""Means over fewer steps would say what the points say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    title: str
    unit: str
    train_metric: str
    held_out_metric: str = ""
    """The metric on held-out rows that belongs on the same axes."""
    from_zero: bool = False
    may_be_log: bool = False
    """Whether a spike may turn the axis logarithmic."""
    scale: float = 1.0
    """What the values are multiplied by: 100 for per cent."""
    is_noisy: bool = True
    """Whether means say more of it than its points do."""


@cache
def all_curves() -> Sequence[Curve]:
    text = resources.files("plaudit.runs.report").joinpath("curves.yaml").read_text("utf-8")
    return [Curve(title=title, **fields) for title, fields in yaml.safe_load(text).items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveLine:
    label: str
    """What it is called, with a space behind it; empty where it is alone."""
    kind: str
    """How it is drawn: the name of its class in page.css."""
    points: Sequence[Point]
    """Its points, thinned; NaN makes a gap."""
    smooth: Sequence[Point] = ()
    """Its means over some steps, drawn over the faint points; empty where these are few."""

    @property
    def first_and_last(self) -> str:
        (first, before), (last, after) = self.points[0], self.points[-1]
        if first == last:
            return f"{number_text(after)} at step {last:,}"
        return f"{number_text(before)} at step {first:,}, {number_text(after)} at step {last:,}"


def curve_figures(history: MetricHistory, curves: Sequence[Curve] | None = None) -> Markup:
    return Markup().join(
        _curve_figure(curve, lines)
        for curve in curves or all_curves()
        if (lines := _curve_lines(curve, history.columns))
    )


def _curve_lines(curve: Curve, columns: dict[str, MetricColumn]) -> list[CurveLine]:
    candidates = (
        ("training", "trained", curve.train_metric),
        ("held out", "held-out", curve.held_out_metric),
    )
    present = [(label, kind, columns[name]) for label, kind, name in candidates if name in columns]
    return [
        CurveLine(
            label=f"{label} " if len(present) > 1 else "",
            kind=kind,
            points=[(step, curve.scale * value) for step, value in thin_points(column)],
            smooth=[(step, curve.scale * value) for step, value in smoothed(column) if curve.is_noisy],
        )
        for label, kind, column in present
    ]


def smoothed(column: MetricColumn) -> list[Point]:
    """Means over a tenth of all steps around each of some; none where that is less than ``_MIN_WINDOW``.

    >>> from array import array
    >>> rising = MetricColumn(name="reward", steps=array("q", range(60)), values=array("d", range(60)))
    >>> smoothed(rising)[29:31]
    [(29, 29.0), (30, 30.0)]
    """
    count, points = len(column.values), list[Point]()
    half = count // 20
    for at in range(0, count, 1 + count // _MAX_SMOOTH) if 2 * half + 1 >= _MIN_WINDOW else ():
        near = [value for value in column.values[max(0, at - half) : at + half + 1] if math.isfinite(value)]
        points.append((column.steps[at], fmean(near) if near else math.nan))
    return points


ColumnsByName = Mapping[str, Mapping[str, MetricColumn]]
"""The figures of several runs, by their names."""


def overlaid_charts(curve: Curve, columns: ColumnsByName) -> Iterator[Markup]:
    """A figure of all runs that have it, held out if any is: as many lines a chart as can be told apart."""
    names = [curve.held_out_metric, curve.train_metric]
    metric = next((name for name in names if any(name in of_run for of_run in columns.values())), "")
    lines = [
        BandLine(label=short_name(run), points=points)
        for run, of_run in columns.items()
        if metric in of_run and (points := _overlaid_points(of_run[metric], curve.scale))
    ]
    where = "over the steps" if metric == curve.train_metric else "held out, over the steps"
    for start in range(0, len(lines), len(axes.SERIES_CLASSES)):
        group = BandChart(lines=lines[start : start + len(axes.SERIES_CLASSES)])
        yield band_chart(curve.title, f"{curve.unit}, {where}", group)


def _overlaid_points(column: MetricColumn, scale: float) -> tuple[tuple[Number, axes.Span], ...]:
    thinned = thin_points(column, _MAX_OVERLAID)
    return tuple((step, axes.Span(value=scale * value)) for step, value in thinned if math.isfinite(value))


def _curve_figure(curve: Curve, lines: list[CurveLine]) -> Markup:
    values = [value for line in lines for _, value in line.points if not math.isnan(value)]
    heading = axes.element("h3", {}, curve.title, " ", axes.element("span", {"class": "unit"}, curve.unit))
    if not values:
        return axes.element("figure", {}, heading, axes.element("figcaption", {}, "Never a finite number."))
    steps = [step for line in lines for step, _ in line.points]
    y = axes.value_axis(values, from_zero=curve.from_zero, may_be_log=curve.may_be_log)
    plot = axes.Plot(step_axis(min(steps), max(steps)), y, *_CURVES)
    keys = [_line_key(line) for line in lines]
    if y.logarithmic:
        keys.append(axes.element("span", {"class": "key"}, "The upright axis is logarithmic."))
    description = "; ".join(f"{line.label}{line.first_and_last}" for line in lines)
    attributes = {
        "viewBox": f"0 0 {axes.WIDTH} {_FIGURE_HEIGHT}",
        "role": "img",
        "aria-label": f"{curve.title} ({curve.unit}) over the steps: {description}",
    }
    marks = [part for line in lines for part in _line_marks(line, plot)]
    svg = axes.element("svg", attributes, *axes.draw_axes(plot), *marks, *_tooltip_strips(lines, plot))
    return axes.element("figure", {}, heading, svg, axes.element("figcaption", {}, *keys))


def _line_key(line: CurveLine) -> Markup:
    if not line.label:
        return axes.element("span", {"class": "key"}, line.first_and_last)
    return axes.swatch_key(line.kind, axes.element("b", {}, line.label), line.first_and_last)


def _line_marks(line: CurveLine, plot: axes.Plot) -> Iterator[Markup]:
    pieces = list(segments(line.points))
    yield axes.element("path", {"class": f"line {line.kind}", "d": "".join(map(plot.path, pieces))})
    if line.smooth:
        path = "".join(map(plot.path, segments(line.smooth)))
        yield axes.element("path", {"class": f"line {line.kind} smooth", "d": path})
    # A value without neighbours has no line; held-out values, where they are few, are marked anyway.
    mark_all = line.kind == "held-out" and len(line.points) <= _MAX_DOTS
    for step, value in (point for piece in pieces if mark_all or len(piece) == 1 for point in piece):
        position = {"cx": str(plot.x_position(step)), "cy": str(plot.y_position(value))}
        yield axes.element("circle", {"class": f"dot {line.kind}", **position, "r": "2.4"})
    for step, value in line.points:
        if math.isnan(value):
            yield axes.element("path", {"class": "gap", "d": f"M{plot.x_position(step)} {plot.bottom}v-9"})


def _tooltip_strips(lines: list[CurveLine], plot: axes.Plot) -> Iterator[Markup]:
    steps = [step for line in lines for step, _ in line.points]
    first, span = min(steps), max(steps) - min(steps) + 1
    count = min(_STRIPS, span)
    for at in range(count):
        # Rounded up at both ends: strips meet without a gap, and no step is in two of them.
        start, end = first + -(-at * span // count), first + -(-(at + 1) * span // count)
        values_text = [text for line in lines if (text := _values_between(line, start, end))]
        if not values_text:
            continue
        where = f"step {start:,}" if end - start == 1 else f"steps {start:,} to {end - 1:,}"
        left = max(plot.left, plot.x_position(start - 0.5))
        width = min(plot.right, plot.x_position(end - 0.5)) - left
        strip = {"class": "strip", "x": f"{left:.1f}", "y": f"{plot.top}", "width": f"{width:.1f}"}
        title = axes.element("title", {}, f"{where}: {', '.join(values_text)}")
        yield axes.element("rect", {**strip, "height": f"{plot.bottom - plot.top}"}, title)


def _values_between(line: CurveLine, start: int, end: int) -> str:
    values = [value for step, value in line.points if start <= step < end]
    finite = [value for value in values if not math.isnan(value)]
    if not values:
        return ""
    if not finite:
        return f"{line.label}not finite"
    low, high = number_text(min(finite)), number_text(max(finite))
    gaps = " (and values that are not finite)" if len(finite) < len(values) else ""
    return f"{line.label}{low if low == high else f'{low} to {high}'}{gaps}"
