"""Models beside each other: what each is called on the page, and a table with a column for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from plaudit.evaluation.result import Estimate, RewardEvaluation, short_names
from plaudit.page.html import Html, element, shortened
from plaudit.page.marks import KINDS, Span
from plaudit.page.words import percent

MOST_NAME = 60
"""Letters of a model's name, or a category's, that have room in a sentence or a table."""
NOT_KNOWN = "–"
"""What stands in a table where there is no figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An evaluation and what the page calls it.

    Example: ``Shown(name="mean-head", found=evaluation)``
    """

    name: str
    """Unlike every other on the page."""
    found: RewardEvaluation
    """What was found."""


def shown(evaluations: Sequence[RewardEvaluation]) -> tuple[Shown, ...]:
    """The evaluations under names that tell them apart: by model, then by file, then by number."""
    files = [f" on {shortened(found.data, MOST_NAME)}" for found in evaluations]
    numbers = [f" ({at})" for at in range(1, len(evaluations) + 1)]
    names = [shortened(name, MOST_NAME) for name in short_names(evaluations)]
    names = _told_apart(_told_apart(names, files), numbers)
    return tuple(Shown(name=name, found=found) for name, found in zip(names, evaluations, strict=True))


def _told_apart(names: Sequence[str], more: Sequence[str]) -> list[str]:
    """The names, with more after those that occur more than once, where more tells them apart."""
    ends = {name: {end for other, end in zip(names, more, strict=True) if other == name} for name in names}
    return [f"{name}{end}" if len(ends[name]) > 1 else name for name, end in zip(names, more, strict=True)]


def groups(models: Sequence[Shown]) -> Iterator[Sequence[Shown]]:
    """The models for as few charts as can tell them apart, about as many in each."""
    count = -(-len(models) // len(KINDS))
    for at in range(count):
        yield models[at * len(models) // count : (at + 1) * len(models) // count]


def span(estimate: Estimate) -> Span:
    """An estimate as charts draw it."""
    return Span(value=estimate.value, low=estimate.low, high=estimate.high)


def share(estimate: Estimate | None) -> Html:
    """The cell of a share: its value, and its interval under it."""
    if estimate is None:
        return element("td", {}, NOT_KNOWN)
    ends = element("span", {"class": "interval"}, interval(estimate))
    return element("td", {}, percent(estimate.value), " ", ends)


def interval(estimate: Estimate) -> str:
    """From where to where a share may be."""
    if estimate.low is None or estimate.high is None:
        return "interval not known"
    return f"{percent(estimate.low).removesuffix(' %')} to {percent(estimate.high).removesuffix(' %')}"


def paragraph(text: str, kind: str = "") -> Html:
    """A sentence or more, in which no number is parted from its per cent."""
    unbroken = text.replace(" %", "\N{NO-BREAK SPACE}%")
    return element("p", {"class": kind} if kind else {}, unbroken)


def cell(text: str) -> Html:
    """A cell of a table."""
    return element("td", {}, text)


def table(
    caption: str, models: Sequence[Shown], rows: Mapping[str, Callable[[RewardEvaluation], Html]]
) -> Html:
    """A row for each figure and a column for each model; it scrolls by itself where it is too wide."""
    names = ["", *(model.name for model in models)]
    head = element("tr", {}, *(element("th", {"scope": "col"}, name) for name in names))
    body = [
        element("tr", {}, element("th", {"scope": "row"}, label), *(write(model.found) for model in models))
        for label, write in rows.items()
    ]
    parts = (element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, *body))
    # A keyboard reaches what lies beyond the edge only where the box itself can be reached.
    box = {"class": "wide", "tabindex": 0, "role": "region", "aria-label": caption}
    return element("div", box, element("table", {"class": "numbers beside"}, *parts))
