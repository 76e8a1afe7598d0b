"""What charts share: escaped elements, axes with few readable ticks, numbers with intervals, and marks.

Marks differ in shape as well as in colour, and every drawing has a name and words for who does not see it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

from markupsafe import Markup, escape

from plaudit.runs.report.words import Number, escape_invisible, trim_exponent, with_minus

Attributes = Mapping[str, str | int]


def element(name: str, attributes: Attributes, *inside: str) -> Markup:
    """One element with what stands inside it.

    >>> print(element("text", {"class": "a&b"}, "1 < 2, ", element("tspan", {}, "bold")))
    <text class="a&amp;b">1 &lt; 2, <tspan>bold</tspan></text>
    """
    pairs = (f' {key}="{_escaped(str(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{''.join(pairs)}>{''.join(map(_escaped, inside))}</{name}>")


def _escaped(text: str) -> Markup:
    return text if isinstance(text, Markup) else escape(escape_invisible(text))


_FLAT_TOLERANCE = 1e-4
"""Values that agree in so many digits are drawn as a level line: their ticks could not be told apart."""
_MIN_RANGE = 1e-300
"""A difference that cannot be divided into ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Maps values to positions between 0 and 1, with labelled ticks."""

    low: Number
    high: Number
    ticks: tuple[tuple[Number, str], ...]
    logarithmic: bool = False

    def position(self, value: Number) -> float:
        """The position of a value, 0 at the low end and 1 at the high end.

        >>> Axis(low=1.0, high=100.0, ticks=(), logarithmic=True).position(10.0)
        0.5
        """
        if self.logarithmic:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(value) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)


NO_AXIS = Axis(low=0, high=1, ticks=())
"""The upright axis of a drawing of rows, which has none."""


def value_axis(values: Sequence[Number], *, from_zero: bool = False, may_be_log: bool = False) -> Axis:
    """The axis of these finite values, of which there is at least one.
    A lone spike would press a linear axis flat: where values may be drawn on a logarithmic one, and the
    highest is more than thirty times the middle one, they are."""
    low, high = min(values), max(values)
    if may_be_log and low > 0 and high > 30 * sorted(values)[len(values) // 2]:
        low, high = low * 0.9, high * 1.1
        return Axis(low=low, high=high, ticks=power_ticks(low, high), logarithmic=True)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= max(_FLAT_TOLERANCE * max(abs(low), abs(high)), _MIN_RANGE):
        low, high = low - (abs(low) / 10 or 1.0), high + (abs(high) / 10 or 1.0)
    margin = (high - low) * 0.06
    # Where the scale ends at 0 nothing lies beyond it, and no margin is left there.
    low, high = low - (0.0 if from_zero and low == 0 else margin), high + margin
    return Axis(low=low, high=high, ticks=round_ticks(low, high))


def share_axis(low: Number = 0.0, high: Number = 1.0) -> Axis:
    """The axis of shares, in per cent.

    >>> [label for _, label in share_axis(0.5, 1.0).ticks]
    ['50 %', '60 %', '70 %', '80 %', '90 %', '100 %']
    """
    ticks = tuple((tick, f"{100 * tick:.3g} %") for tick, _ in round_ticks(low, high))
    return Axis(low=low, high=high, ticks=ticks)


def ratio_axis(values: Sequence[Number]) -> Axis:
    """The logarithmic axis of ratios: 1 is on it and named, and no end is beyond a factor of 1,000.

    >>> [label for _, label in ratio_axis([0.4, 3.0]).ticks]
    ['0.5', '0.7', '1', '1.5', '2', '3']
    """
    bounded = [min(max(value, 1e-3), 1e3) for value in values]
    low, high = min([0.6, *bounded]) / 1.15, max([1.6, *bounded]) * 1.15
    for factors in ((1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        ticks = [factor * 10.0**power for power in range(-4, 4) for factor in factors]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= 6:
            break
    return Axis(low=low, high=high, ticks=tuple((tick, f"{tick:,g}") for tick in ticks), logarithmic=True)


def round_ticks(low: Number, high: Number) -> tuple[tuple[Number, str], ...]:
    """Two to six round numbers between two values, and how they are written.

    >>> [label for _, label in round_ticks(-1.2, 0.4)], [label for _, label in round_ticks(0, 2e-5)]
    (['−1.0', '−0.5', '0'], ['0', '5e-6', '1e-5', '1.5e-5', '2e-5'])
    """
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    # 0.999 forgives the rounding that would jump to the next larger step.
    width = unit * next(factor for factor in (1, 2, 5, 10) if factor * unit >= rough * 0.999)
    # 1e-9 keeps a tick that rounding puts a hair beyond an end.
    first, last = math.ceil(low / width - 1e-9), math.floor(high / width + 1e-9)
    return tuple((index * width, _tick_label(index * width, width)) for index in range(first, last + 1))


def power_ticks(low: Number, high: Number) -> tuple[tuple[Number, str], ...]:
    """Powers of ten between two positive values; with their 2nd and 5th multiples where they are few.

    >>> [label for _, label in power_ticks(0.7, 40.0)], [label for _, label in power_ticks(0.01, 4e5)]
    (['1', '2', '5', '10', '20'], ['0.01', '1', '100', '10,000'])
    """
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    has_multiples = len(tens) <= 4
    ticks = [factor * 10.0**power for power in tens for factor in ((1, 2, 5) if has_multiples else (1,))]
    ticks = [tick for tick in ticks if low <= tick <= high]
    # Every k-th, so that no more than six are left.
    return tuple((tick, trim_exponent(f"{tick:,g}")) for tick in ticks[:: 1 + (len(ticks) - 1) // 6])


def _tick_label(value: Number, width: Number) -> str:
    if value == 0:
        return "0"
    exponent_of_width = math.floor(math.log10(width))
    if width < 1e-3 or abs(value) >= 1e6:
        digits = max(1, round(math.log10(abs(value))) - exponent_of_width + 1)
        text = trim_exponent(f"{value:.{digits}g}")
        # 0.00015 would be wider than the room beside an axis, and 1.5e-4 is not.
        return with_minus(_with_exponent(value, digits) if abs(value) < 1e-3 else text)
    return with_minus(f"{value:,.{max(0, -exponent_of_width)}f}")


def _with_exponent(value: Number, digits: int) -> str:
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    return f"{value / 10.0**exponent:.{digits}g}e{exponent}"


WIDTH = 360
"""How wide every drawing is in its own units; about a phone's, so text there has its nominal size."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A rectangle of a drawing, with an axis along its lower and its left edge."""

    x: Axis
    y: Axis
    left: Number
    right: Number
    top: Number
    bottom: Number

    def x_position(self, value: Number) -> float:
        return round(self.left + self.x.position(value) * (self.right - self.left), 1)

    def y_position(self, value: Number) -> float:
        return round(self.bottom - self.y.position(value) * (self.bottom - self.top), 1)

    def path(self, points: Iterable[tuple[Number, Number]]) -> str:
        return "M" + "L".join(f"{self.x_position(x)} {self.y_position(y)}" for x, y in points)


def draw_axes(plot: Plot) -> Iterator[Markup]:
    """Grid lines with labels on the left, and the lower axis with its ticks."""
    yield from draw_y_axis(plot)
    yield from draw_x_axis(plot)


def draw_y_axis(plot: Plot) -> Iterator[Markup]:
    for value, label in plot.y.ticks:
        y = plot.y_position(value)
        yield element("path", {"class": "grid", "d": f"M{plot.left} {y}H{plot.right}"})
        yield element("text", {"class": "tick y", "x": f"{plot.left - 6}", "y": f"{y + 3.5:.1f}"}, label)


_LETTER_WIDTH = 6.5


def draw_x_axis(plot: Plot) -> Iterator[Markup]:
    yield element("path", {"class": "base", "d": f"M{plot.left} {plot.bottom}H{plot.right}"})
    free = -math.inf
    for value, label in plot.x.ticks:
        x, width = plot.x_position(value), text_width(label)
        yield element("path", {"class": "base", "d": f"M{x} {plot.bottom}v4"})
        # A label in the middle of its tick would be cut off at the edges of the drawing.
        at_end, at_start = x > plot.right - 15, x < width / 2
        left = x - width if at_end else x if at_start else x - width / 2
        # Of labels that would touch, the first stays: its tick is still drawn.
        if left >= free:
            kind = "tick end" if at_end else "tick start" if at_start else "tick"
            yield element("text", {"class": kind, "x": f"{x}", "y": f"{plot.bottom + 16}"}, label)
            free = left + width + _LETTER_WIDTH


def side_note(plot: Plot, across: Number, down: Number, text: str) -> Markup:
    """Words at an upright line; those of a line in the right half end there, so that they stay inside."""
    return svg_text("note end" if across > (plot.left + plot.right) / 2 + 1 else "note", across, down, text)


def svg_text(kind: str, x: Number, y: Number, text: str) -> Markup:
    """Text in a drawing: real text, which can be searched, copied and read out."""
    return element("text", {"class": kind, "x": f"{x:.1f}", "y": f"{y:.1f}"}, text)


def text_width(text: str) -> float:
    return _LETTER_WIDTH * sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def truncated(text: str, max_width: int) -> str:
    """As much of a text as has room; a wide letter, as in Chinese, takes the room of two.

    >>> truncated("instructions", 8), truncated("数学题目", 5)
    ('instruc…', '数学…')
    """
    room = max_width
    for at, letter in enumerate(text):
        room -= 2 if east_asian_width(letter) in "WF" else 1
        # The ellipsis takes room too, unless this was the last letter.
        if room < (at + 1 < len(text)):
            return f"{text[:at]}…"
    return text


def svg_drawing(title: str, description: str, height: Number, *parts: Markup) -> Markup:
    title_and_description = (element("title", {}, title), element("desc", {}, description))
    box = f"0 0 {WIDTH} {height:.0f}"
    return element("svg", {"viewBox": box, "role": "img"}, *title_and_description, *parts)


def chart_figure(title: str, unit: str, svg: Markup, *keys: Markup, note: str = "") -> Markup:
    """A figure: heading, drawing, what its lines and colours mean, and a note under them."""
    quiet = element("span", {"class": "unit"}, unit)
    heading = element("h3", {}, title, " ", quiet) if unit else element("h3", {}, title)
    notes = [element("span", {"class": "key"}, note)] if note else []
    return element("figure", {"class": "chart"}, heading, svg, element("figcaption", {}, *keys, *notes))


def sign_key(shape: Markup, *label: str, kind: str = "key") -> Markup:
    """A line of the legend: a mark as it is drawn, and what it stands for."""
    sign = element("svg", {"class": "sign", "viewBox": "-6 -6 12 12", "aria-hidden": "true"}, shape)
    return element("span", {"class": kind}, sign, *label)


def swatch_key(kind: str, *label: str) -> Markup:
    return element("span", {"class": "key"}, element("span", {"class": f"swatch {kind}"}), *label)


def bar(kind: str, place: tuple[Number, Number, Number, Number], tip: str) -> Markup:
    attributes = dict(zip(("x", "y", "width", "height"), (f"{number:.1f}" for number in place), strict=True))
    return element("rect", {"class": f"bar {kind}", **attributes}, element("title", {}, tip))


SERIES_CLASSES = ("first", "second", "third", "fourth")
"""The series of a chart by the names of their classes in page.css; a chart has no more than these."""
_SHAPES = {
    "first": "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0Z",
    "second": "M-3.3 -3.3H3.3V3.3H-3.3Z",
    "third": "M0 -4.6L4.6 0L0 4.6L-4.6 0Z",
    "fourth": "M0 -4.4L4.4 3.4H-4.4Z",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A number with its interval, as charts draw it.

    Example: ``Span(value=0.71, low=0.66, high=0.76)``
    """

    value: Number
    """The best guess; NaN where there is none."""
    low: Number | None = None
    """Where its interval begins; None where nobody knows."""
    high: Number | None = None
    """Where it ends; None where nobody knows."""

    @property
    def is_finite(self) -> bool:
        """Whether the best guess is a number that can be drawn; without one there is no mark."""
        return math.isfinite(self.value)

    @property
    def numbers(self) -> list[Number]:
        """The finite ones of the three."""
        return [n for n in (self.value, self.low, self.high) if n is not None and math.isfinite(n)]

    def text(self, format_number: Callable[[Number], str]) -> str:
        """The number and its interval in words.

        >>> Span(value=0.71, low=0.562, high=0.83).text("{:.2f}".format)
        '0.71 (0.56 to 0.83)'
        """
        if self.low is None or self.high is None:
            return format_number(self.value)
        low, high = (_end_text(number, format_number) for number in (self.low, self.high))
        return f"{format_number(self.value)} ({low} to {high})"


def _end_text(number: Number, format_number: Callable[[Number], str]) -> str:
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    return format_number(number).removesuffix(" %")


def point_mark(kind: str, across: Number, down: Number, tip: str) -> Markup:
    place = {"class": f"mark {kind}", "d": _SHAPES[kind], "transform": f"translate({across:.1f} {down:.1f})"}
    return element("path", place, element("title", {}, tip))


def series_key(kind: str, *label: str) -> Markup:
    return sign_key(element("path", {"class": f"mark {kind}", "d": _SHAPES[kind]}), *label)


def point_with_interval(kind: str, plot: Plot, at: Number, span: Span, tip: str) -> Iterator[Markup]:
    """A mark over a place of the lower axis, on its upright interval where that is known."""
    across = plot.x_position(at)
    if span.low is not None and span.high is not None:
        ends = f"M{across} {plot.y_position(span.low)}V{plot.y_position(span.high)}"
        yield element("path", {"class": f"reach {kind}", "d": ends})
    yield point_mark(kind, across, plot.y_position(span.value), tip)


def interval_line(kind: str, plot: Plot, down: Number, span: Span) -> Iterator[Markup]:
    """An interval along x, with an arrow where it goes on beyond the axis."""
    if span.low is None or span.high is None:
        return
    low, high = (min(max(end, plot.x.low), plot.x.high) for end in (span.low, span.high))
    left, right = plot.x_position(low), plot.x_position(high)
    yield element("path", {"class": f"reach {kind}", "d": f"M{left} {down:.1f}H{right}"})
    for beyond, at, back in ((span.low < low, left, 4), (span.high > high, right, -4)):
        if beyond:
            tip = f"M{at + back:.1f} {down - 3:.1f}L{at} {down:.1f}L{at + back:.1f} {down + 3:.1f}"
            yield element("path", {"class": f"reach {kind}", "d": tip})
