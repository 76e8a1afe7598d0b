"""Tables of the page: cells with intervals, and rows that a phone shows one under the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plaudit.evaluation.result import Estimate
from plaudit.page.html import Html, element, together
from plaudit.page.words import Number, figure, percent
from plaudit.reports.wording import between

NOT_KNOWN = "–"
"""What stands where there is no figure."""


def amount(one: Estimate | None, write: Callable[[Number], str] = figure) -> Html:
    """A figure with its interval."""
    if one is None:
        return together(NOT_KNOWN)
    ends = element("span", {"class": "interval"}, between(one, share=write is percent))
    return together(write(one.value), " ", ends)


def plain(value: Number | None, write: Callable[[Number], str] = figure) -> Html:
    """A figure without one."""
    return together(NOT_KNOWN if value is None else write(value))


def table(caption: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> Html:
    """A row of figures for each thing; on a phone the columns' names stand in the cells."""
    head = element("tr", {}, *(element("th", {"scope": "col"}, name) for name in ("", *columns)))
    body = [
        element(
            "tr",
            {},
            element("th", {"scope": "row"}, name),
            *(element("td", {"data-of": column}, cell) for column, cell in zip(columns, cells, strict=True)),
        )
        for name, cells in rows
    ]
    parts = (element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, *body))
    box = {"class": "wide", "tabindex": 0, "role": "region", "aria-label": caption}
    return element("div", box, element("table", {"class": "numbers stacked"}, *parts))
