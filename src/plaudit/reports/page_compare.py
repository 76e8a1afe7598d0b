"""Runs beside each other on one page: settings that differ, figures, curves over each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from plaudit.evaluation.policies.result import PolicyFigures
from plaudit.evaluation.result import Estimate
from plaudit.page.bands import Band, Bands, bands
from plaudit.page.frame import document
from plaudit.page.html import Html, element, folded, section, shortened
from plaudit.page.intervals import Row, Rows, amounts, shares
from plaudit.page.marks import KINDS, Span
from plaudit.page.words import counted, percent
from plaudit.reports.cells import amount, plain, table
from plaudit.reports.compare import Run, differing, read_runs
from plaudit.reports.page import style
from plaudit.reports.page_curves import divided
from plaudit.reports.page_wins import span
from plaudit.reports.story import Story
from plaudit.reports.wording import contest_of, lede, named
from plaudit.training import durable
from plaudit.training.page.curves import thinned
from plaudit.training.page.figure import Curve
from plaudit.training.page.history import Column

_MOST_SETTINGS = 80
_MOST_VALUE = 80
_MOST_POINTS = 120
Of = Callable[[Story, PolicyFigures], Estimate | None]
"""One figure of a policy in the evaluation of a run."""


def won_by(story: Story, one: PolicyFigures) -> Estimate | None:
    """The raw share of wins of a policy against the reference of its run."""
    contest = contest_of(story.evaluation, one.name) if story.evaluation else None
    return contest and contest.raw


_FIGURES: tuple[tuple[str, str, Of], ...] = (
    ("True worth", "mean of answers", lambda _, one: one.gold),
    ("Share of wins", "raw, against the reference", won_by),
    ("KL", "nats an answer from the reference", lambda _, one: one.kl),
    ("Length", "tokens of an answer", lambda _, one: one.length),
)
_SHARES = "Share of wins"


def write_comparison(folders: Sequence[Path], path: Path) -> Path:
    """Writes the page that compares these runs; returns where it is."""
    text = comparison_of(read_runs(folders))
    durable.make_folder(path.parent)
    durable.write_text(path, text)
    return path


def comparison_of(runs: Sequence[Run]) -> str:
    """The whole page."""
    parts = (_head(runs), _settings(runs), *_figures(runs), *_learning(runs), _last(runs))
    return document(f"{len(runs)} runs", element("main", {}, *parts), style=style())


def _head(runs: Sequence[Run]) -> Html:
    items = [
        element("li", {}, element("b", {}, named(run.name)), f": {_came(run.story)}".replace(" %", "\u00a0%"))
        for run in runs
    ]
    title = element("h1", {}, counted(len(runs), "run"), " beside each other")
    return element("header", {}, title, element("ul", {"class": "notes"}, *items))


def _came(story: Story) -> str:
    if story.evaluation is not None:
        return lede(story.evaluation)
    ended = sum(stage.state == "done" for stage in story.stages)
    return f"{ended} of {counted(len(story.stages), 'stage')} have ended; no policies were compared."


def _settings(runs: Sequence[Run]) -> Html:
    found = differing(runs)
    if not found:
        said = "Their settings are the same: what differs is chance, data or code."
        return section("What differs in their settings", "settings", element("p", {}, said))
    rows = [
        (shortened(name, _MOST_VALUE), [shortened(value, _MOST_VALUE) for value in own])
        for name, own in [*found.items()][:_MOST_SETTINGS]
    ]
    rest = len(found) - len(rows)
    caption = f"{counted(len(found), 'setting')}{f', of which {rest} are left out' if rest else ''}"
    held = element("div", {"class": "runs"}, table(caption, [named(run.name) for run in runs], rows))
    return section("What differs in their settings", "settings", held)


def _figures(runs: Sequence[Run]) -> Iterator[Html]:
    held = [run for run in runs if run.story.evaluation is not None]
    policies = list(dict.fromkeys(one.name for run in held for one in _policies(run)))
    if not policies:
        return
    charts = [chart for one in _FIGURES for group in _groups(held) for chart in _chart(group, policies, *one)]
    tables = [_table(held, policies, title, of) for title, _, of in _FIGURES]
    how = (
        "Each run has its own prompts and answers. An interval says how far a figure of one run may be off "
        "by its prompts, and nothing of what another seed of training would give."
    )
    curves = element("div", {"class": "curves"}, *charts, element("p", {"class": "how"}, how))
    yield section("What came of them", "figures", curves, folded("The same as tables", *tables))


def _chart(
    runs: Sequence[Run],
    policies: Sequence[str],
    title: str,
    unit: str,
    of: Of,
) -> Iterator[Html]:
    rows = [Row(label=named(one), spans=tuple(span(_of(run, one, of)) for run in runs)) for one in policies]
    rows = [row for row in rows if any(row.spans)]
    if rows:
        draw = shares if title == _SHARES else amounts
        yield draw(title, unit, Rows(rows=rows, series=[named(run.name) for run in runs]))


def _table(
    runs: Sequence[Run],
    policies: Sequence[str],
    title: str,
    of: Of,
) -> Html:
    cells = {one: [_of(run, one, of) for run in runs] for one in policies}
    rows = [
        (named(one), [amount(cell, percent) if title == _SHARES else amount(cell) for cell in own])
        for one, own in cells.items()
    ]
    return table(title, [named(run.name) for run in runs], rows)


def _learning(runs: Sequence[Run]) -> Iterator[Html]:
    """Curves of stages of one name over each other."""
    names = list(dict.fromkeys(stage.name for run in runs for stage, _ in run.story.trained))
    parts: list[Html] = []
    for name in names:
        own = {run.name: _columns(run, name) for run in runs}
        first, rest = divided({metric for one in own.values() for metric in one})
        parts.append(element("h3", {"class": "stage"}, named(name)))
        parts.append(element("div", {"class": "curves"}, *_all_over(first, own)))
        more = element("div", {"class": "curves"}, *_all_over(rest, own))
        parts.append(element("div", {"class": "rarely"}, folded(f"More curves of {named(name)}", more)))
    if parts:
        yield section("How they learnt", "learning", *parts)


def _all_over(curves: Sequence[Curve], columns: dict[str, dict[str, Column]]) -> Iterator[Html]:
    for curve in curves:
        yield from _over(curve, columns)


def _over(curve: Curve, columns: dict[str, dict[str, Column]]) -> Iterator[Html]:
    """One figure of all runs that have it: on held-out rows, where there are any."""
    names = [curve.held_out, curve.trained]
    metric = next((one for one in names if one and any(one in own for own in columns.values())), "")
    lines = [line for run, own in columns.items() if metric in own for line in _line(run, own[metric], curve)]
    for at in range(0, len(lines), len(KINDS)):
        where = "held out" if metric == curve.held_out or metric.startswith("held_out/") else "training"
        yield bands(curve.title, f"{curve.unit}, {where}", Bands(lines=lines[at : at + len(KINDS)]))


def _line(run: str, column: Column, curve: Curve) -> Iterator[Band]:
    points = tuple(
        (step, Span(value=curve.times * value))
        for step, value in thinned(column, _MOST_POINTS)
        if math.isfinite(value)
    )
    if points:
        yield Band(label=named(run), points=points)


def _last(runs: Sequence[Run]) -> Html:
    """The last figures of every stage as numbers."""
    parts: list[Html] = []
    for name in dict.fromkeys(stage.name for run in runs for stage, _ in run.story.trained):
        own = [_columns(run, name) for run in runs]
        metrics = sorted({metric for one in own for metric in one if not metric.startswith("timing/")})
        rows = [
            (metric, [plain(one[metric].last if metric in one else None) for one in own])
            for metric in metrics
        ]
        parts.append(
            table(f"{named(name)}: the last of each figure", [named(run.name) for run in runs], rows)
        )
    places = [element("li", {}, element("b", {}, named(run.name)), f" {run.story.path}") for run in runs]
    listed = element("ul", {"class": "notes"}, *places)
    return section("Where they lie", "places", listed, *([folded("Last figures", *parts)] if parts else []))


def _columns(run: Run, stage: str) -> dict[str, Column]:
    return next((facts.history.columns for one, facts in run.story.trained if one.name == stage), {})


def _policies(run: Run) -> tuple[PolicyFigures, ...]:
    return run.story.evaluation.policies if run.story.evaluation else ()


def _of(run: Run, policy: str, of: Of) -> Estimate | None:
    return next((of(run.story, one) for one in _policies(run) if one.name == policy), None)


def _groups(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    """As few runs in a chart as can be told apart."""
    for at in range(0, len(runs), len(KINDS)):
        yield runs[at : at + len(KINDS)]
