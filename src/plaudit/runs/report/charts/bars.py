"""Charts of counts: histograms, reliability diagrams, stacked bars of parts of a whole; and of few amounts.

A reliability diagram shows whether what came was as likely as was said; a stacked bar shows, for example,
won, tied and lost.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from plaudit.evaluation.stats import Bin, wilson_interval
from plaudit.runs.report.charts import axes
from plaudit.runs.report.words import Number, counted, number_text, percent

_UPPER, _LOWER, _HISTOGRAM = (44, 352, 10, 216), (44, 352, 250, 298), (44, 352, 20, 170)
_MIN_LABEL_WIDTH = 20
"""A bar that is narrower than this has no room for its count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramBin:
    low: Number
    high: Number
    count: int


def reliability_diagram(
    title: str, bins: Sequence[Bin], *, unit: str = "", note: str = "", of: str = "pair"
) -> Markup:
    """A reliability diagram: on the diagonal, predictions came true as often as was predicted.
    Bins that hold nothing are left out; the counts, ``of`` whatever was predicted, stand under the points."""
    filled = [each for each in bins if each.pairs]
    shares = [_observed(each) for each in filled]
    # 1e-9: rounding in 10 · 0.7 must not push the axis a whole tenth further out.
    low = math.floor(10 * min((each.low for each in filled), default=0.5) + 1e-9) / 10
    high = math.ceil(10 * max((each.high for each in filled), default=1.0) - 1e-9) / 10
    ends = [number for share in shares for number in share.numbers]
    x, y = axes.share_axis(low, high), axes.share_axis(math.floor(5 * min([low, *ends])) / 5, 1.0)
    counts = [HistogramBin(low=each.low, high=each.high, count=each.pairs) for each in filled]
    upper, lower = axes.Plot(x, y, *_UPPER), axes.Plot(x, _count_axis(counts), *_LOWER)
    diagonal = axes.element("path", {"class": "ideal", "d": upper.path([(low, low), (high, high)])})
    parts = [*axes.draw_axes(upper), diagonal]
    tips = [
        f"said {percent(each.confidence)}, came {share.text(percent)}, {counted(each.pairs, of)}"
        for each, share in zip(filled, shares, strict=True)
    ]
    for each, share, tip in zip(filled, shares, tips, strict=True):
        parts += axes.point_with_interval("first", upper, each.confidence, share, tip)
    for count, tip in zip(counts, tips, strict=True):
        parts += _count_bar(count, lower, "first", tip)
    bottom = lower.bottom
    parts.append(axes.element("path", {"class": "base", "d": f"M{lower.left} {bottom}H{lower.right}"}))
    parts.append(axes.svg_text("note", lower.left, bottom + 14, f"{of}s in each bin"))
    svg = axes.svg_drawing(title, "; ".join(tips) or "nothing was predicted", bottom + 20, *parts)
    return axes.chart_figure(title, unit, svg, axes.swatch_key("ideal", "said and came agree"), note=note)


def _observed(each: Bin) -> axes.Span:
    low, high = wilson_interval(each.right, each.pairs)
    return axes.Span(value=each.right, low=low, high=high)


def histogram(
    title: str, bins: Sequence[HistogramBin], *, unit: str = "", zero: str = "", note: str = ""
) -> Markup:
    """How often each value came; bins below 0 have their own colour and pattern, and ``zero`` names 0."""
    low, high = (bins[0].low, bins[-1].high) if bins else (-1, 1)
    plot = axes.Plot(
        axes.Axis(low=low, high=high, ticks=axes.round_ticks(low, high)), _count_axis(bins), *_HISTOGRAM
    )
    tips = [f"{number_text(each.low)} to {number_text(each.high)}: {each.count:,}" for each in bins]
    parts = [*axes.draw_y_axis(plot)]
    for each, tip in zip(bins, tips, strict=True):
        parts += _count_bar(each, plot, "second" if each.high <= 0 else "first", tip, shows_count=False)
    if zero and low < 0 < high:
        across = plot.x_position(0)
        parts.append(axes.element("path", {"class": "zero", "d": f"M{across} {plot.top - 6}V{plot.bottom}"}))
        parts.append(axes.side_note(plot, across, plot.top - 9, zero))
    parts += axes.draw_x_axis(plot)
    svg = axes.svg_drawing(title, "; ".join(tips) or "nothing was counted", plot.bottom + 24, *parts)
    return axes.chart_figure(title, unit, svg, note=note)


def _count_axis(bins: Sequence[HistogramBin]) -> axes.Axis:
    top = max([1, *(each.count for each in bins)]) * 1.08
    ticks = tuple((tick, f"{tick:,.0f}") for tick, _ in axes.round_ticks(0, top) if tick == int(tick))
    return axes.Axis(low=0, high=top, ticks=ticks)


def _count_bar(
    each: HistogramBin, plot: axes.Plot, kind: str, tip: str, *, shows_count: bool = True
) -> Iterator[Markup]:
    left, right = plot.x_position(each.low), plot.x_position(each.high)
    top, width = plot.y_position(each.count), max(right - left - 1, 0.5)
    yield axes.bar(kind, (left + 0.5, top, width, plot.bottom - top), tip)
    if shows_count and width >= _MIN_LABEL_WIDTH:
        yield axes.svg_text("tick small", (left + right) / 2, top - 3, _short_count(each.count))


def _short_count(count: int) -> str:
    """A count in at most five signs.

    >>> _short_count(999), _short_count(12345), _short_count(1234567)
    ('999', '12k', '1.2M')
    """
    if count < 10_000:
        return f"{count:,}"
    # From 999,500 on, thousands would round to 1000k, one sign too many.
    return f"{count / 1e3:.0f}k" if count < 999_500 else f"{count / 1e6:.1f}M"


PART_CLASSES = ("first", "plain", "second")
_STACK_HEIGHT, _STACK_LABEL_HEIGHT, _STACK_BAR_HEIGHT = 36, 15, 13
_MAX_LABEL_LENGTH = 34


_StackedBar = tuple[str, Sequence[int]]


def stacked_bar_chart(title: str, unit: str, rows: Sequence[_StackedBar], names: Sequence[str]) -> Markup:
    """A bar of full width for each row, a label and counts; ``names`` says what its parts are."""
    assert len(names) == len(PART_CLASSES)
    pairs = ((label, zip(names, counts, strict=True)) for label, counts in rows)
    each = (f"{label}: {', '.join(f'{name} {count:,}' for name, count in pair)}" for label, pair in pairs)
    description = "; ".join(each)
    bars = [part for at, row in enumerate(rows) for part in _stacked_bar(row, at * _STACK_HEIGHT, names)]
    svg = axes.svg_drawing(title, description, len(rows) * _STACK_HEIGHT, *bars)
    return axes.chart_figure(title, unit, svg, *map(_part_key, PART_CLASSES, names))


def _stacked_bar(row: _StackedBar, top: int, names: Sequence[str]) -> Iterator[Markup]:
    label, counts = row
    yield axes.svg_text("label", 0, top + 11, axes.truncated(label, _MAX_LABEL_LENGTH))
    yield axes.svg_text("number", axes.WIDTH, top + 11, " : ".join(f"{count:,}" for count in counts))
    total, left = sum(counts), 0.5
    for shade, count, name in zip(PART_CLASSES, counts, names, strict=True):
        width = (axes.WIDTH - 1) * count / total if total else 0.0
        if width:
            tip = f"{label}: {name} {count:,} of {total:,}, {percent(count / total)}"
            yield axes.bar(shade, (left, top + _STACK_LABEL_HEIGHT, width, _STACK_BAR_HEIGHT), tip)
        left += width


def _part_key(shade: str, name: str) -> Markup:
    box = axes.element("rect", {"class": f"bar {shade}", "x": "-5", "y": "-5", "width": "10", "height": "10"})
    return axes.sign_key(box, name, kind="key beside-others")


_AMOUNT_RIGHT, _AMOUNT_TOP, _AMOUNT_ROW, _AMOUNT_LABEL, _AMOUNT_BAR = 222, 4, 42, 16, 18
_MAX_AMOUNT_LABEL = 54
_GUIDE_ROOM = 16
"""What a guide's name takes above the first bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountBar:
    """An amount with its interval, as a bar from zero."""

    label: str
    span: axes.Span
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
    A guide is a value that they are compared with, and what it is."""
    top = _AMOUNT_TOP + (_GUIDE_ROOM if guide else 0)
    bottom = top + _AMOUNT_ROW * len(bars)
    x = _amount_axis([number for each in bars for number in each.span.numbers], write)
    plot = axes.Plot(x, axes.NO_AXIS, 0.5, _AMOUNT_RIGHT, top, bottom)
    tips = [f"{each.label}: {each.span.text(write)}" for each in bars]
    parts = [
        part
        for at, (each, tip) in enumerate(zip(bars, tips, strict=True))
        for part in _amount_bar(each, plot, top + at * _AMOUNT_ROW, tip)
    ]
    guides = [] if guide is None else _bar_guide(guide, plot, len(bars))
    svg = axes.svg_drawing(title, "; ".join(tips), bottom + 24, *parts, *guides, *axes.draw_x_axis(plot))
    return axes.chart_figure(title, unit, svg, note=note)


def _amount_axis(numbers: Sequence[Number], write: Callable[[Number], str]) -> axes.Axis:
    if write is percent:
        return axes.Axis(low=0, high=1, ticks=((0, "0 %"), (0.5, "50 %"), (1, "100 %")))
    if all(0 <= number <= 1 for number in numbers):
        return axes.Axis(low=0, high=1, ticks=axes.round_ticks(0, 1))
    return axes.value_axis(numbers, from_zero=True)


def _amount_bar(each: AmountBar, plot: axes.Plot, top: Number, tip: str) -> Iterator[Markup]:
    lane, span = top + _AMOUNT_LABEL, each.span
    zero, end = plot.x_position(0), plot.x_position(span.value)
    yield axes.svg_text("label", 0, top + 12, axes.truncated(each.label, _MAX_AMOUNT_LABEL))
    place = (min(zero, end), lane, max(abs(end - zero), 0.5), _AMOUNT_BAR)
    yield axes.bar("plain" if each.is_plain else "first", place, tip)
    middle = lane + _AMOUNT_BAR / 2
    if span.low is not None and span.high is not None:
        low, high = plot.x_position(span.low), plot.x_position(span.high)
        ends = "".join(f"M{across} {middle - 4}v8" for across in (low, high))
        yield axes.element("path", {"class": "whisker", "d": f"M{low} {middle}H{high}{ends}"})
    yield axes.svg_text("number", axes.WIDTH, middle + 3.5, tip.removeprefix(f"{each.label}: "))


def _bar_guide(guide: tuple[Number, str], plot: axes.Plot, bars: int) -> Iterator[Markup]:
    """A line through the bars alone, so that it crosses no name; its own name stands above."""
    value, label = guide
    across = plot.x_position(value)
    tops = (plot.top + at * _AMOUNT_ROW + _AMOUNT_LABEL for at in range(bars))
    path = "".join(f"M{across} {top - 1}v{_AMOUNT_BAR + 2}" for top in tops)
    yield axes.element("path", {"class": "guide", "d": path})
    yield axes.side_note(plot, across, _GUIDE_ROOM - 5, label)
