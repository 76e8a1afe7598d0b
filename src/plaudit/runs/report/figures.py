"""Figures with their intervals as a page shows them: in words, in the cells of a table, on a chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from plaudit.evaluation.stats import Bin, Estimate, wilson_interval
from plaudit.runs.report.charts.axes import Span
from plaudit.runs.report.charts.bars import HistogramBin, ReliabilityBin
from plaudit.runs.report.words import Number, number_text, percent

NO_VALUE = "–"
"""What stands where there is no figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A figure that stands out.

    Example: ``Card(label="Held-out loss", value="1.84", more="its best")``
    """

    label: str
    value: str
    more: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of a table.

    Example: ``Cell(text="71.2 %", interval="67.4 to 75.0")``
    """

    text: str
    """The figure or the words."""
    interval: str = ""
    """What stands small beside it, or on a phone under it."""
    kind: str = ""
    """Its class in the style sheets, where it has one: ``quiet``, ``long``, ``degree d3``."""
    link: str = ""
    """Where it leads, as ``#stage-3``; empty where it leads nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A row of figures for each thing.

    Example: ``Table(caption="Figures", columns=("loss",), rows=(("sft", (Cell(text="0.31"),)),))``
    """

    caption: str
    """What stands above it, with what its intervals are."""
    columns: Sequence[str]
    """What stands above each figure; the first column has the names of things and no head."""
    rows: Sequence[tuple[str, Sequence[Cell]]]
    """The name of each thing, and its figures."""
    stacked: bool = True
    """Whether a phone shows the figures of a row under each other; otherwise the table scrolls by itself."""


def interval_text(estimate: Estimate, *, share: bool = False) -> str:
    """From where to where a figure may be.

    >>> interval_text(Estimate(value=0.7, low=0.61, high=0.79, n=9, prompts=9), share=True)
    '61.0 to 79.0'
    """
    if estimate.low is None or estimate.high is None:
        return "interval not known"
    ends = [
        percent(end).removesuffix(" %") if share else number_text(end)
        for end in (estimate.low, estimate.high)
    ]
    return " to ".join(ends)


def estimate_cell(estimate: Estimate | None, write: Callable[[Number], str] = number_text) -> Cell:
    """A measured figure with its interval; a share where ``write`` is `percent`.

    >>> estimate_cell(Estimate(value=0.7, low=0.61, high=0.79, n=9, prompts=9), percent)
    Cell(text='70.0 %', interval='61.0 to 79.0', kind='', link='')
    """
    if estimate is None:
        return Cell(text=NO_VALUE)
    return Cell(text=write(estimate.value), interval=interval_text(estimate, share=write is percent))


def value_cell(value: Number | None, write: Callable[[Number], str] = number_text) -> Cell:
    """A figure that has no interval, or a dash where there is no figure.

    >>> value_cell(0.0612), value_cell(None).text
    (Cell(text='0.0612', interval='', kind='', link=''), '–')
    """
    return Cell(text=NO_VALUE if value is None else write(value))


@overload
def estimate_span(estimate: Estimate) -> Span: ...
@overload
def estimate_span(estimate: None) -> None: ...
def estimate_span(estimate: Estimate | None) -> Span | None:
    """The same figure as a chart draws it."""
    return None if estimate is None else Span(value=estimate.value, low=estimate.low, high=estimate.high)


def reliability_bin(calibration_bin: Bin) -> ReliabilityBin:
    low, high = wilson_interval(calibration_bin.right, calibration_bin.pairs)
    return ReliabilityBin(
        bin=HistogramBin(low=calibration_bin.low, high=calibration_bin.high, count=calibration_bin.pairs),
        predicted=calibration_bin.confidence,
        observed=Span(value=calibration_bin.right, low=low, high=high),
    )
