"""Charts of bins: how often each value came, and whether what came was as likely as was said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plaudit.page.axes import Axis, round_ticks, share_axis
from plaudit.page.html import Html, element
from plaudit.page.marks import Span, mark
from plaudit.page.plot import Plot, axes, chart, drawing, foot, words
from plaudit.page.words import Number, counted, figure, percent

_LEFT, _RIGHT = 44, 352
_UPPER = (10, 216)
_LOWER = (250, 298)
_BARS = (20, 170)
_WRITABLE = 20
"""A bar that is narrower than this has no room for its count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Everything between two values.

    Example: ``Bar(low=0.5, high=0.6, count=40)``
    """

    low: Number
    """Where it begins."""
    high: Number
    """Where it ends."""
    count: int
    """How many fell into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Predictions of about the same probability, and how often they came true.

    Example: ``Promise(bar=Bar(low=0.5, high=0.6, count=40), said=0.55, came=Span(value=0.6))``
    """

    bar: Bar
    """The probabilities, and how many predictions there were."""
    said: Number
    """Their mean probability."""
    came: Span
    """The share that came true."""


def reliability(
    title: str, promises: Sequence[Promise], *, unit: str = "", note: str = "", of: str = "pair"
) -> Html:
    """A reliability diagram: on the diagonal, what was said to be likely came as often as was said.

    Bins that hold nothing are left out; the counts, ``of`` whatever was predicted, stand under the points.
    """
    held = [promise for promise in promises if promise.bar.count]
    low = math.floor(10 * min((one.bar.low for one in held), default=0.5) + 1e-9) / 10
    high = math.ceil(10 * max((one.bar.high for one in held), default=1.0) - 1e-9) / 10
    ends = [number for one in held for number in one.came.numbers]
    x, y = share_axis(low, high), share_axis(math.floor(5 * min([low, *ends])) / 5, 1.0)
    upper = Plot(x=x, y=y, left=_LEFT, right=_RIGHT, top=_UPPER[0], bottom=_UPPER[1])
    lower = Plot(x=x, y=_counts(held), left=_LEFT, right=_RIGHT, top=_LOWER[0], bottom=_LOWER[1])
    corners = "L".join(f"{upper.across(at)} {upper.down(at)}" for at in (low, high))
    diagonal = element("path", {"class": "ideal", "d": f"M{corners}"})
    told = "; ".join(_kept(promise, of) for promise in held) or "nothing was predicted"
    parts = [*axes(upper), diagonal, *(part for one in held for part in _point(one, upper, of))]
    parts += [part for one in held for part in _bar(one.bar, lower, "first", _kept(one, of))]
    parts.append(element("path", {"class": "base", "d": f"M{_LEFT} {_LOWER[1]}H{_RIGHT}"}))
    parts.append(words("note", _LEFT, _LOWER[1] + 14, f"{of}s in each bin"))
    drawn = drawing(title, told, _LOWER[1] + 20, *parts)
    sign = element("span", {"class": "swatch ideal"})
    keys = [element("span", {"class": "key"}, sign, "said and came agree")]
    return chart(title, unit, drawn, *keys, *([element("span", {"class": "key"}, note)] if note else []))


def histogram(title: str, bins: Sequence[Bar], *, unit: str = "", zero: str = "", note: str = "") -> Html:
    """How often each value came; bins below 0 have their own colour and pattern, and ``zero`` names 0."""
    low, high = (bins[0].low, bins[-1].high) if bins else (-1, 1)
    x = Axis(low=low, high=high, ticks=round_ticks(low, high))
    plot = Plot(x=x, y=_counts(bins), left=_LEFT, right=_RIGHT, top=_BARS[0], bottom=_BARS[1])
    told = "; ".join(f"{_range(one)}: {one.count:,}" for one in bins) or "nothing was counted"
    parts = [*axes(plot)]
    for one in bins:
        kind = "second" if one.high <= 0 else "first"
        parts += _bar(one, plot, kind, f"{_range(one)}: {one.count:,}", written=False)
    if zero and low < 0 < high:
        across = plot.across(0)
        parts.append(element("path", {"class": "zero", "d": f"M{across} {_BARS[0] - 6}V{_BARS[1]}"}))
        parts.append(words("note end" if across > 200 else "note", across, _BARS[0] - 9, zero))
    parts += foot(plot)
    drawn = drawing(title, told, _BARS[1] + 24, *parts)
    return chart(title, unit, drawn, *([element("span", {"class": "key"}, note)] if note else []))


def _counts(bins: Sequence[Bar | Promise]) -> Axis:
    most = max((one.bar.count if isinstance(one, Promise) else one.count for one in bins), default=0)
    top = max(most, 1) * 1.08
    ticks = tuple((tick, f"{tick:,.0f}") for tick, _ in round_ticks(0, top) if tick == int(tick))
    return Axis(low=0, high=top, ticks=ticks)


def _point(promise: Promise, plot: Plot, of: str) -> Iterator[Html]:
    came, across = promise.came, plot.across(promise.said)
    if came.low is not None and came.high is not None:
        ends = f"M{across} {plot.down(came.low)}V{plot.down(came.high)}"
        yield element("path", {"class": "reach first", "d": ends})
    yield mark("first", across, plot.down(came.value), _kept(promise, of))


def _bar(one: Bar, plot: Plot, kind: str, tip: str, *, written: bool = True) -> Iterator[Html]:
    left, right, top = plot.across(one.low), plot.across(one.high), plot.down(one.count)
    wide = max(right - left - 1, 0.5)
    place = {"x": f"{left + 0.5:.1f}", "y": f"{top}", "width": f"{wide:.1f}"}
    tall = {"height": f"{plot.bottom - top:.1f}"}
    yield element("rect", {"class": f"bar {kind}", **place, **tall}, element("title", {}, tip))
    if written and wide >= _WRITABLE:
        yield words("tick small", (left + right) / 2, top - 3, _short(one.count))


def _short(count: int) -> str:
    """A count in at most five signs.

    >>> _short(999), _short(12345), _short(1234567)
    ('999', '12k', '1.2M')
    """
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1e3:.0f}k" if count < 999_500 else f"{count / 1e6:.1f}M"


def _kept(promise: Promise, of: str) -> str:
    held = counted(promise.bar.count, of)
    return f"said {percent(promise.said)}, came {promise.came.said(percent)}, {held}"


def _range(one: Bar) -> str:
    return f"{figure(one.low)} to {figure(one.high)}"
