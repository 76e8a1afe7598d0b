"""Charts of counts: histograms, reliability diagrams, stacked bars of parts of a whole; and of few amounts.

A reliability diagram shows whether what came was as likely as was said; a stacked bar shows, for example,
won, tied and lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from plaudit.runs.report.charts.axes import (
    WIDTH,
    Axis,
    Plot,
    Span,
    chart_figure,
    draw_axes,
    draw_x_axis,
    draw_y_axis,
    element,
    point_mark,
    round_ticks,
    share_axis,
    svg_drawing,
    svg_text,
    truncated,
    value_axis,
)
from plaudit.runs.report.words import Number, counted, number_text, percent

_LEFT, _RIGHT = 44, 352
_UPPER = (10, 216)
_LOWER = (250, 298)
_HISTOGRAM = (20, 170)
_MIN_LABEL_WIDTH = 20
"""A bar that is narrower than this has no room for its count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramBin:
    """A bin: how many values lie between two.

    Example: ``HistogramBin(low=0.5, high=0.6, count=40)``
    """

    low: Number
    high: Number
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """Predictions of about the same probability, and how often they came true.

    Example: ``ReliabilityBin(bin=HistogramBin(low=0.5, high=0.6, count=40),
        predicted=0.55, observed=Span(value=0.6))``
    """

    bin: HistogramBin
    """The probabilities, and how many predictions there were."""
    predicted: Number
    observed: Span
    """The share that came true."""


def reliability_diagram(
    title: str, bins: Sequence[ReliabilityBin], *, unit: str = "", note: str = "", of: str = "pair"
) -> Markup:
    """A reliability diagram: on the diagonal, predictions came true as often as was predicted.

    Bins that hold nothing are left out; the counts, ``of`` whatever was predicted, stand under the points.
    """
    filled = [promise for promise in bins if promise.bin.count]
    # 1e-9: rounding in 10 · 0.7 must not push the axis a whole tenth further out.
    low = math.floor(10 * min((reliability.bin.low for reliability in filled), default=0.5) + 1e-9) / 10
    high = math.ceil(10 * max((reliability.bin.high for reliability in filled), default=1.0) - 1e-9) / 10
    ends = [number for reliability in filled for number in reliability.observed.numbers]
    x, y = share_axis(low, high), share_axis(math.floor(5 * min([low, *ends])) / 5, 1.0)
    upper = Plot(x=x, y=y, left=_LEFT, right=_RIGHT, top=_UPPER[0], bottom=_UPPER[1])
    lower = Plot(x=x, y=_count_axis(filled), left=_LEFT, right=_RIGHT, top=_LOWER[0], bottom=_LOWER[1])
    corners = "L".join(f"{upper.x_position(at)} {upper.y_position(at)}" for at in (low, high))
    diagonal = element("path", {"class": "ideal", "d": f"M{corners}"})
    description = "; ".join(_bin_description(promise, of) for promise in filled) or "nothing was predicted"
    parts = [
        *draw_axes(upper),
        diagonal,
        *(part for reliability in filled for part in _reliability_point(reliability, upper, of)),
    ]
    parts += [
        part
        for reliability in filled
        for part in _draw_bar(reliability.bin, lower, "first", _bin_description(reliability, of))
    ]
    parts.append(element("path", {"class": "base", "d": f"M{_LEFT} {_LOWER[1]}H{_RIGHT}"}))
    parts.append(svg_text("note", _LEFT, _LOWER[1] + 14, f"{of}s in each bin"))
    svg = svg_drawing(title, description, _LOWER[1] + 20, *parts)
    sign = element("span", {"class": "swatch ideal"})
    keys = [element("span", {"class": "key"}, sign, "said and came agree")]
    return chart_figure(title, unit, svg, *keys, *([element("span", {"class": "key"}, note)] if note else []))


def histogram(
    title: str, bins: Sequence[HistogramBin], *, unit: str = "", zero: str = "", note: str = ""
) -> Markup:
    """How often each value came; bins below 0 have their own colour and pattern, and ``zero`` names 0."""
    low, high = (bins[0].low, bins[-1].high) if bins else (-1, 1)
    x = Axis(low=low, high=high, ticks=round_ticks(low, high))
    plot = Plot(x=x, y=_count_axis(bins), left=_LEFT, right=_RIGHT, top=_HISTOGRAM[0], bottom=_HISTOGRAM[1])
    description = (
        "; ".join(f"{_range_text(histogram_bin)}: {histogram_bin.count:,}" for histogram_bin in bins)
        or "nothing was counted"
    )
    parts = [*draw_y_axis(plot)]
    for histogram_bin in bins:
        kind = "second" if histogram_bin.high <= 0 else "first"
        parts += _draw_bar(
            histogram_bin,
            plot,
            kind,
            f"{_range_text(histogram_bin)}: {histogram_bin.count:,}",
            shows_count=False,
        )
    if zero and low < 0 < high:
        across = plot.x_position(0)
        parts.append(
            element("path", {"class": "zero", "d": f"M{across} {_HISTOGRAM[0] - 6}V{_HISTOGRAM[1]}"})
        )
        parts.append(svg_text("note end" if across > 200 else "note", across, _HISTOGRAM[0] - 9, zero))
    parts += draw_x_axis(plot)
    svg = svg_drawing(title, description, _HISTOGRAM[1] + 24, *parts)
    return chart_figure(title, unit, svg, *([element("span", {"class": "key"}, note)] if note else []))


def _count_axis(bins: Sequence[HistogramBin | ReliabilityBin]) -> Axis:
    most = max(
        (
            counted_bin.bin.count if isinstance(counted_bin, ReliabilityBin) else counted_bin.count
            for counted_bin in bins
        ),
        default=0,
    )
    top = max(most, 1) * 1.08
    ticks = tuple((tick, f"{tick:,.0f}") for tick, _ in round_ticks(0, top) if tick == int(tick))
    return Axis(low=0, high=top, ticks=ticks)


def _reliability_point(reliability_bin: ReliabilityBin, plot: Plot, of: str) -> Iterator[Markup]:
    observed, across = reliability_bin.observed, plot.x_position(reliability_bin.predicted)
    if observed.low is not None and observed.high is not None:
        ends = f"M{across} {plot.y_position(observed.low)}V{plot.y_position(observed.high)}"
        yield element("path", {"class": "reach first", "d": ends})
    yield point_mark("first", across, plot.y_position(observed.value), _bin_description(reliability_bin, of))


def _draw_bar(
    histogram_bin: HistogramBin, plot: Plot, kind: str, tip: str, *, shows_count: bool = True
) -> Iterator[Markup]:
    left, right, top = (
        plot.x_position(histogram_bin.low),
        plot.x_position(histogram_bin.high),
        plot.y_position(histogram_bin.count),
    )
    width = max(right - left - 1, 0.5)
    rectangle = {"x": f"{left + 0.5:.1f}", "y": f"{top}", "width": f"{width:.1f}"}
    height = {"height": f"{plot.bottom - top:.1f}"}
    yield element("rect", {"class": f"bar {kind}", **rectangle, **height}, element("title", {}, tip))
    if shows_count and width >= _MIN_LABEL_WIDTH:
        yield svg_text("tick small", (left + right) / 2, top - 3, _short_count(histogram_bin.count))


def _short_count(count: int) -> str:
    """A count in at most five signs.

    >>> _short_count(999), _short_count(12345), _short_count(1234567)
    ('999', '12k', '1.2M')
    """
    if count < 10_000:
        return f"{count:,}"
    # From 999,500 on, thousands would round to 1000k, one sign too many.
    return f"{count / 1e3:.0f}k" if count < 999_500 else f"{count / 1e6:.1f}M"


def _bin_description(reliability_bin: ReliabilityBin, of: str) -> str:
    count = counted(reliability_bin.bin.count, of)
    return (
        f"said {percent(reliability_bin.predicted)}, came {reliability_bin.observed.text(percent)}, {count}"
    )


def _range_text(histogram_bin: HistogramBin) -> str:
    return f"{number_text(histogram_bin.low)} to {number_text(histogram_bin.high)}"


PART_CLASSES = ("first", "plain", "second")
"""How the parts of a bar are filled, from the left."""
_STACK_HEIGHT, _STACK_LABEL_HEIGHT, _STACK_BAR_HEIGHT = 36, 15, 13
_MAX_LABEL_LENGTH = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedBar:
    """A whole in its parts.

    Example: ``StackedBar(label="ppo", counts=(130, 200, 70))``
    """

    label: str
    counts: tuple[int, ...]
    """How much falls to each part."""


def stacked_bar_chart(title: str, unit: str, rows: Sequence[StackedBar], names: Sequence[str]) -> Markup:
    """A bar of full width for each row, divided as its counts are; ``names`` says what the parts are."""
    assert len(names) == len(PART_CLASSES)
    description = "; ".join(f"{row.label}: {_counts_description(row, names)}" for row in rows)
    bar_parts = [part for at, row in enumerate(rows) for part in _stacked_bar(row, at * _STACK_HEIGHT, names)]
    return chart_figure(
        title,
        unit,
        svg_drawing(title, description, len(rows) * _STACK_HEIGHT, *bar_parts),
        *map(_part_legend, PART_CLASSES, names),
    )


def _stacked_bar(row: StackedBar, top: int, names: Sequence[str]) -> Iterator[Markup]:
    yield svg_text("label", 0, top + 11, truncated(row.label, _MAX_LABEL_LENGTH))
    yield svg_text("number", WIDTH, top + 11, " : ".join(f"{count:,}" for count in row.counts))
    total, left = sum(row.counts), 0.5
    for shade, count, name in zip(PART_CLASSES, row.counts, names, strict=True):
        width = (WIDTH - 1) * count / total if total else 0.0
        if width:
            rectangle = {
                "x": f"{left:.1f}",
                "y": top + _STACK_LABEL_HEIGHT,
                "width": f"{width:.1f}",
                "height": _STACK_BAR_HEIGHT,
            }
            tip = element(
                "title", {}, f"{row.label}: {name} {count:,} of {total:,}, {percent(count / total)}"
            )
            yield element("rect", {"class": f"bar {shade}", **rectangle}, tip)
        left += width


def _part_legend(shade: str, name: str) -> Markup:
    box = element("rect", {"class": f"bar {shade}", "x": "-5", "y": "-5", "width": "10", "height": "10"})
    sign = element("svg", {"class": "sign", "viewBox": "-6 -6 12 12", "aria-hidden": "true"}, box)
    return element("span", {"class": "key beside-others"}, sign, name)


def _counts_description(row: StackedBar, names: Sequence[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in zip(names, row.counts, strict=True))


_AMOUNT_RIGHT, _AMOUNT_TOP, _AMOUNT_ROW, _AMOUNT_LABEL, _AMOUNT_BAR = 222, 4, 42, 16, 18
_MAX_AMOUNT_LABEL = 54
_GUIDE_ROOM = 16
"""What a guide's name takes above the first bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountBar:
    """An amount with its interval, as a bar from zero.

    Example: ``AmountBar(label="ppo", span=Span(value=0.79, low=0.75, high=0.82))``
    """

    label: str
    span: Span
    is_plain: bool = False


def amount_bar_chart(
    title: str,
    unit: str,
    bars: Sequence[AmountBar],
    write: Callable[[Number], str] = number_text,
    *,
    guide: tuple[Number, str] | None = None,
    note: str = "",
) -> Markup:
    """A few amounts as bars from zero, each under its name; from 0 to 1 where all of them lie there.

    A guide is a value that they are compared with, and what it is.
    """
    numbers = [number for bar in bars for number in bar.span.numbers]
    if write is percent:
        x = Axis(low=0, high=1, ticks=((0, "0 %"), (0.5, "50 %"), (1, "100 %")))
    elif all(0 <= number <= 1 for number in numbers):
        x = Axis(low=0, high=1, ticks=round_ticks(0, 1))
    else:
        x = value_axis(numbers, from_zero=True)
    top = _AMOUNT_TOP + (_GUIDE_ROOM if guide else 0)
    bottom = top + _AMOUNT_ROW * len(bars)
    unit_axis = Axis(low=0, high=1, ticks=())
    plot = Plot(x=x, y=unit_axis, left=0.5, right=_AMOUNT_RIGHT, top=top, bottom=bottom)
    parts = [
        part
        for at, bar in enumerate(bars)
        for part in _amount_bar(bar, plot, top + at * _AMOUNT_ROW, bar.span.text(write))
    ]
    guides = [] if guide is None else _bar_guide(guide, plot, len(bars))
    description = "; ".join(f"{bar.label}: {bar.span.text(write)}" for bar in bars)
    svg = svg_drawing(title, description, bottom + 24, *parts, *guides, *draw_x_axis(plot))
    return chart_figure(title, unit, svg, *([element("span", {"class": "key"}, note)] if note else []))


def _amount_bar(bar: AmountBar, plot: Plot, top: Number, words: str) -> Iterator[Markup]:
    lane = top + _AMOUNT_LABEL
    zero, end = plot.x_position(0), plot.x_position(bar.span.value)
    shade = "plain" if bar.is_plain else "first"
    yield svg_text("label", 0, top + 12, truncated(bar.label, _MAX_AMOUNT_LABEL))
    place = {"x": f"{min(zero, end):.1f}", "y": f"{lane}", "width": f"{max(abs(end - zero), 0.5):.1f}"}
    tip = element("title", {}, f"{bar.label}: {words}")
    yield element("rect", {"class": f"bar {shade}", **place, "height": _AMOUNT_BAR}, tip)
    if bar.span.low is not None and bar.span.high is not None:
        low, high = plot.x_position(bar.span.low), plot.x_position(bar.span.high)
        middle = lane + _AMOUNT_BAR / 2
        ends = "".join(f"M{across} {middle - 4}v8" for across in (low, high))
        yield element("path", {"class": "whisker", "d": f"M{low} {middle}H{high}{ends}"})
    yield svg_text("number", WIDTH, lane + _AMOUNT_BAR / 2 + 3.5, words)


def _bar_guide(guide: tuple[Number, str], plot: Plot, bars: int) -> Iterator[Markup]:
    """A line through the bars alone, so that it crosses no name; its own name stands above."""
    value, label = guide
    across = plot.x_position(value)
    tops = (plot.top + at * _AMOUNT_ROW + _AMOUNT_LABEL for at in range(bars))
    path = "".join(f"M{across} {top - 1}v{_AMOUNT_BAR + 2}" for top in tops)
    yield element("path", {"class": "guide", "d": path})
    end = across > (plot.left + plot.right) / 2 + 1
    yield svg_text("note end" if end else "note", across, _GUIDE_ROOM - 5, label)
