"""What the models like in an answer beyond what the annotators like in it."""

from __future__ import annotations

from collections.abc import Sequence

from plaudit.evaluation.page_shown import Shown
from plaudit.evaluation.probe_result import Odds, Probe, Probes
from plaudit.page.html import Html, element, section
from plaudit.page.intervals import Row, Rows, forest
from plaudit.page.marks import Span
from plaudit.page.words import counted


def probes(models: Sequence[Shown]) -> Html:
    """For each model a forest plot of odds beside a sentence on each feature."""
    blocks = [_block(model, alone=len(models) == 1) for model in models]
    return section("What it likes beyond what it should", "probes", *blocks)


def _block(model: Shown, *, alone: bool) -> Html:
    found = model.found.probes
    title = "Odds of being preferred" if alone else f"{model.name}: odds of being preferred"
    drawn = [probe for probe in found.features if probe.model or probe.annotators]
    said = [_said(found), element("ul", {"class": "notes"}, *(_sentence(probe) for probe in found.features))]
    words = element("div", {}, *said)
    if not drawn:
        heading = [] if alone else [element("h3", {}, model.name)]
        return element("div", {}, *heading, words)
    rows = [_row(probe) for probe in drawn]
    chart = forest(
        title, "with the feature, others held fixed", Rows(rows=rows, series=("the model", "annotators"))
    )
    return element("div", {"class": "pair"}, chart, words)


def _said(found: Probes) -> Html:
    if not found.features:
        return element("p", {}, _ended(found.words or "Nothing was probed"))
    fixed = ", the true utility of both answers held fixed" if found.at_equal_worth else ""
    first = f"One regression on {counted(found.pairs, 'pair')}{fixed}. "
    what = "Right of 1 the feature helps an answer, left of 1 it harms it."
    return element("p", {}, first, what, f" {_ended(found.words)}" if found.words else "")


def _ended(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"


def _sentence(probe: Probe) -> Html:
    name = element("b", {}, f"{probe.name[:1].upper()}{probe.name[1:]}")
    unit = element("span", {"class": "quiet"}, f" ({probe.unit})")
    return element("li", {}, name, unit, f": {probe.words}{'' if probe.words.endswith('.') else '.'}")


def _row(probe: Probe) -> Row:
    return Row(
        label=f"{probe.what} · {counted(probe.pairs, 'pair')}",
        spans=(_span(probe.model), _span(probe.annotators)),
    )


def _span(odds: Odds | None) -> Span | None:
    return None if odds is None else Span(value=odds.ratio, low=odds.low, high=odds.high)
