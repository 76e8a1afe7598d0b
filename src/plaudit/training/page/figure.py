"""One curve, or two on the same axes, as inline SVG that can be read without scripts, a mouse or colours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plaudit.page.axes import value_axis
from plaudit.page.html import Html, element, together
from plaudit.page.plot import WIDTH, Plot, axes
from plaudit.page.words import figure
from plaudit.training.page.curves import Point, segments, step_axis, thinned
from plaudit.training.page.history import Column, History

_HEIGHT = 184
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 354, 8, 162
_STRIPS = 60
_MOST_DOTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What one figure of the page shows.

    Example: ``Curve(title="Loss", unit="nats", trained="loss", held_out="held_out/loss")``
    """

    title: str
    """Its heading."""
    unit: str
    """What the values are in."""
    trained: str
    """The metric of every step."""
    held_out: str = ""
    """The metric on held-out rows that belongs on the same axes."""
    from_zero: bool = False
    """Whether the axis begins at 0."""
    may_be_log: bool = False
    """Whether a spike may turn the axis logarithmic."""
    times: float = 1.0
    """What the values are multiplied by: 100 for per cent."""


CURVES = (
    Curve(title="Reward", unit="mean score of answers", trained="reward", held_out="held_out/reward"),
    Curve(title="Judge", unit="mean score of held-out answers", trained="held_out/judge"),
    Curve(title="Loss", unit="nats", trained="loss", held_out="held_out/loss", may_be_log=True),
    Curve(
        title="Accuracy",
        unit="% of pairs, thumbs or steps",
        trained="accuracy",
        held_out="held_out/accuracy",
        times=100.0,
    ),
    Curve(
        title="Margin",
        unit="reward of the better answer less the other's",
        trained="margin",
        held_out="held_out/margin",
    ),
    Curve(
        title="Log-prob of the preferred", unit="nats", trained="logp_chosen", held_out="held_out/logp_chosen"
    ),
    Curve(
        title="Distance from the reference", unit="nats", trained="kl", held_out="held_out/kl", from_zero=True
    ),
    Curve(title="Entropy", unit="nats a token", trained="entropy", held_out="held_out/entropy"),
    Curve(title="Length", unit="tokens", trained="length_mean", held_out="held_out/length_mean"),
    Curve(title="Explained variance", unit="of the critic", trained="explained"),
    Curve(title="Error", unit="points", trained="error", held_out="held_out/error", from_zero=True),
    Curve(
        title="Token accuracy",
        unit="% of trained tokens",
        trained="token_accuracy",
        held_out="held_out/token_accuracy",
        times=100.0,
    ),
    Curve(title="Gradient norm", unit="before clipping", trained="grad_norm", may_be_log=True),
    Curve(title="Learning rate", unit="per step", trained="learning_rate", from_zero=True),
    Curve(title="Speed", unit="tokens per second", trained="timing/tokens_per_second", from_zero=True),
)
"""The figures of the page, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a figure.

    Example: ``Line(label="held out ", kind="held-out", points=[(10, 2.1), (20, 1.9)])``
    """

    label: str
    """What it is called, with a space behind it; empty where it is alone."""
    kind: str
    """How it is drawn: the name of its class in page.css."""
    points: Sequence[Point]
    """Its points, thinned; NaN makes a gap."""

    @property
    def ends(self) -> str:
        """Where it starts and ends, in words."""
        (first, before), (last, after) = self.points[0], self.points[-1]
        if first == last:
            return f"{figure(after)} at step {last:,}"
        return f"{figure(before)} at step {first:,}, {figure(after)} at step {last:,}"


def figures(history: History, curves: Sequence[Curve] = CURVES) -> Html:
    """Every figure of these that the run has points for."""
    return together(*(_figure(curve, lines) for curve in curves if (lines := _lines(curve, history.columns))))


def _lines(curve: Curve, columns: dict[str, Column]) -> list[Line]:
    wanted = [("training", "trained", curve.trained), ("held out", "held-out", curve.held_out)]
    found = [(label, kind, columns[name]) for label, kind, name in wanted if name in columns]
    return [
        Line(
            label=f"{label} " if len(found) > 1 else "",
            kind=kind,
            points=[(step, curve.times * value) for step, value in thinned(column)],
        )
        for label, kind, column in found
    ]


def _figure(curve: Curve, lines: list[Line]) -> Html:
    values = [value for line in lines for _, value in line.points if not math.isnan(value)]
    heading = element("h3", {}, curve.title, " ", element("span", {"class": "unit"}, curve.unit))
    key = [_key(line) for line in lines]
    if not values:
        return element("figure", {}, heading, element("figcaption", {}, "Never a finite number."))
    steps = [step for line in lines for step, _ in line.points]
    y = value_axis(values, from_zero=curve.from_zero, may_be_log=curve.may_be_log)
    plot = Plot(x=step_axis(min(steps), max(steps)), y=y, left=_LEFT, right=_RIGHT, top=_TOP, bottom=_BOTTOM)
    if y.logarithmic:
        key.append(element("span", {"class": "key"}, "The upright axis is logarithmic."))
    return element("figure", {}, heading, _drawing(curve, lines, plot), element("figcaption", {}, *key))


def _key(line: Line) -> Html:
    if not line.label:
        return element("span", {"class": "key"}, line.ends)
    swatch = element("span", {"class": f"swatch {line.kind}"})
    return element("span", {"class": "key"}, swatch, element("b", {}, line.label), line.ends)


def _drawing(curve: Curve, lines: list[Line], plot: Plot) -> Html:
    said = "; ".join(f"{line.label}{line.ends}" for line in lines)
    attributes = {
        "viewBox": f"0 0 {WIDTH} {_HEIGHT}",
        "role": "img",
        "aria-label": f"{curve.title} ({curve.unit}) over the steps: {said}",
    }
    drawn = [part for line in lines for part in _drawn(line, plot)]
    return element("svg", attributes, *axes(plot), *drawn, *_strips(lines, plot))


def _drawn(line: Line, plot: Plot) -> Iterator[Html]:
    pieces = list(segments(line.points))
    path = "".join(
        "M" + "L".join(f"{plot.across(step)} {plot.down(value)}" for step, value in piece) for piece in pieces
    )
    yield element("path", {"class": f"line {line.kind}", "d": path})
    # A value without neighbours has no line; held-out values, where they are few, are marked anyway.
    few = line.kind == "held-out" and len(line.points) <= _MOST_DOTS
    for step, value in (point for piece in pieces if few or len(piece) == 1 for point in piece):
        place = {"cx": str(plot.across(step)), "cy": str(plot.down(value))}
        yield element("circle", {"class": f"dot {line.kind}", **place, "r": "2.4"})
    for step, value in line.points:
        if math.isnan(value):
            yield element("path", {"class": "gap", "d": f"M{plot.across(step)} {_BOTTOM}v-9"})


def _strips(lines: list[Line], plot: Plot) -> Iterator[Html]:
    """Upright strips over the drawing, each with its values as a tooltip."""
    steps = [step for line in lines for step, _ in line.points]
    first, span = min(steps), max(steps) - min(steps) + 1
    count = min(_STRIPS, span)
    for at in range(count):
        start, end = first + -(-at * span // count), first + -(-(at + 1) * span // count)
        said = [text for line in lines if (text := _between(line, start, end))]
        if not said:
            continue
        where = f"step {start:,}" if end - start == 1 else f"steps {start:,} to {end - 1:,}"
        left = max(_LEFT, plot.across(start - 0.5))
        width = min(_RIGHT, plot.across(end - 0.5)) - left
        strip = {"class": "strip", "x": f"{left:.1f}", "y": _TOP, "width": f"{width:.1f}"}
        title = element("title", {}, f"{where}: {', '.join(said)}")
        yield element("rect", {**strip, "height": _BOTTOM - _TOP}, title)


def _between(line: Line, start: int, end: int) -> str:
    values = [value for step, value in line.points if start <= step < end]
    finite = [value for value in values if not math.isnan(value)]
    if not values:
        return ""
    if not finite:
        return f"{line.label}not finite"
    low, high = figure(min(finite)), figure(max(finite))
    gaps = " (and values that are not finite)" if len(finite) < len(values) else ""
    return f"{line.label}{low if low == high else f'{low} to {high}'}{gaps}"
