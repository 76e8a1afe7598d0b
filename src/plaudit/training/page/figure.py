"""One curve, or two on the same axes, as inline SVG that can be read without colours, scripts or a mouse."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plaudit.training.page.curves import Axis, Point, segments, step_axis, thinned, value_axis
from plaudit.training.page.history import Column, History
from plaudit.training.page.html import Html, element, together
from plaudit.training.page.words import figure, percent

_WIDTH, _HEIGHT = 360, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 352, 10, 164
_STRIPS = 60
_DOTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What one figure of the page shows.

    Example: ``Curve(title="Loss", unit="nats per token", trained="loss", held_out="held_out/loss")``
    """

    title: str
    """Its heading."""
    unit: str
    """What the values are in; empty where they are bare numbers."""
    trained: str
    """The metric of every step."""
    held_out: str = ""
    """The metric on held-out rows that belongs on the same axes."""
    from_zero: bool = False
    """Whether the axis begins at 0."""
    may_be_log: bool = False
    """Whether spikes may turn the axis logarithmic."""
    share: bool = False
    """Whether the values are shares, to be shown as per cent."""

    def said(self, value: float) -> str:
        """A value as this figure writes it."""
        return percent(value) if self.share else figure(value)


CURVES = (
    Curve(title="Loss", unit="nats per token", trained="loss", held_out="held_out/loss", may_be_log=True),
    Curve(
        title="Token accuracy",
        unit="per cent of the trained tokens",
        trained="token_accuracy",
        held_out="held_out/token_accuracy",
        share=True,
    ),
    Curve(title="Gradient norm", unit="before clipping", trained="grad_norm", may_be_log=True),
    Curve(title="Learning rate", unit="", trained="learning_rate", from_zero=True),
    Curve(
        title="Speed", unit="tokens per second", trained="timing/tokens_per_second", from_zero=True
    ),
)
"""The figures of the page, in its order."""


def figures(history: History) -> Html:
    """Every curve that the run has points for."""
    drawn = [_figure(curve, found) for curve in CURVES if (found := _columns(curve, history))]
    return together(*drawn)


def _columns(curve: Curve, history: History) -> list[tuple[str, Column]]:
    names = [("training", curve.trained), ("held out", curve.held_out)]
    return [(label, history.columns[name]) for label, name in names if name in history.columns]


def _figure(curve: Curve, columns: list[tuple[str, Column]]) -> Html:
    lines = [(label, thinned(column)) for label, column in columns]
    drawn = [value for _, points in lines for _, value in points if not math.isnan(value)]
    unit = element("span", {"class": "unit"}, curve.unit)
    head = element("h3", {}, curve.title, " ", unit)
    ends = [_ends(curve, label if len(columns) > 1 else "", column) for label, column in columns]
    body = _svg(curve, lines, drawn, "; ".join(ends)) if drawn else element("p", {}, "Never a finite number.")
    key = [_key(label, text, plain=len(columns) == 1) for (label, _), text in zip(columns, ends, strict=True)]
    log = "logarithmic axis" if drawn and _axis(curve, drawn).logarithmic else ""
    caption = element("figcaption", {}, *key, element("span", {"class": "unit"}, log) if log else "")
    return element("figure", {}, head, body, caption)


def _axis(curve: Curve, drawn: Sequence[float]) -> Axis:
    scale = 100.0 if curve.share else 1.0
    return value_axis(
        [scale * value for value in drawn], from_zero=curve.from_zero, may_be_log=curve.may_be_log
    )
