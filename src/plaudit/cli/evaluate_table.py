"""An evaluation on the console: what matters first, several models side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from plaudit.evaluation.result import Ceiling, Estimate, RewardEvaluation, Slice

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 12
"""Rows of a table of slices; the files hold all."""
NARROWEST = 16
"""Signs of a column that an interval still fits into; more models than fit have tables of their own."""


def print_tables(evaluations: Sequence[RewardEvaluation], console: Console) -> None:
    """The headline, then categories worst first, then what explains them."""
    first = evaluations[0]
    ties = f", {first.ties.pairs} of them ties" if first.ties else ""
    console.print(f"{first.data}: {first.pairs} pairs of answers to {first.prompts} prompts{ties}")
    _headline(evaluations, console)
    for title, parts in (
        ("category", lambda one: one.categories),
        ("group", lambda one: one.groups),
        ("strength", lambda one: one.strengths),
        ("annotator", lambda one: one.annotators),
    ):
        _slices(title, [parts(one) for one in evaluations], evaluations, console)
    _benchmarks(evaluations, console)
    _best_of(evaluations, console)
    _words(evaluations, console)


def share(found: Estimate | None) -> str:
    """A share with its interval.

    >>> share(Estimate(value=0.712, low=0.66, high=0.75, n=400, prompts=180))
    '71.2 % (66.0–75.0)'
    """
    if found is None:
        return "–"
    if found.low is None or found.high is None:
        return f"{found.value:.1%}".replace("%", " %")
    return f"{100 * found.value:.1f} % ({100 * found.low:.1f}–{100 * found.high:.1f})"


def _headline(evaluations: Sequence[RewardEvaluation], console: Console) -> None:
    rows: list[tuple[str, Callable[[RewardEvaluation], str]]] = [
        ("accuracy", lambda one: share(one.accuracy)),
        ("ceiling", lambda one: _ceiling(one.ceiling)),
        ("worst category", _worst),
        ("log-loss (coin: 0.693)", lambda one: _number(one.calibration and one.calibration.log_loss)),
        ("Brier (coin: 0.250)", lambda one: _number(one.calibration and one.calibration.brier)),
        ("ECE, equal mass", lambda one: _number(one.calibration and one.calibration.ece_mass)),
        ("ECE, equal width", lambda one: _number(one.calibration and one.calibration.ece_width)),
        ("|r₁ − r₂|, ties", lambda one: _number(one.ties and one.ties.gap)),
        ("|r₁ − r₂|, others", lambda one: _number(one.ties and one.ties.gap_elsewhere)),
        ("equal rewards", lambda one: str(one.equal)),
        ("no verdict", lambda one: str(one.missing)),
    ]
    _table("", [(name, [cell(one) for one in evaluations]) for name, cell in rows], evaluations, console)


def _slices(
    title: str,
    parts: Sequence[Sequence[Slice]],
    evaluations: Sequence[RewardEvaluation],
    console: Console,
) -> None:
    """In the order of the first model."""
    if len(parts[0]) < 2:
        return
    found = [{one.name: one.accuracy for one in part} for part in parts]
    names = list(found[0])[:MOST_ROWS]
    rows = [(f"{name} ({found[0][name].n})", [share(one.get(name)) for one in found]) for name in names]
    order = "faint first" if title == "strength" else "worst first"
    _table(f"Accuracy by {title} (pairs), {order}", rows, evaluations, console)
    if len(names) < len(found[0]):
        console.print(f"… and {len(found[0]) - len(names)} more")


def _benchmarks(evaluations: Sequence[RewardEvaluation], console: Console) -> None:
    if any(one.benchmark is None for one in evaluations):
        return
    found = [one.benchmark for one in evaluations if one.benchmark is not None]
    scores = [{section.name: section.score for section in one.sections} for one in found]
    rows = [(name, [share(one.get(name)) for one in scores]) for name in scores[0]]
    overall = ["–" if one.overall is None else f"{100 * one.overall:.1f} %" for one in found]
    _table(f"{found[0].name}, by its rules", [*rows, ("overall", overall)], evaluations, console)
    for note in found[0].notes:
        console.print(note)


def _best_of(evaluations: Sequence[RewardEvaluation], console: Console) -> None:
    curves = [one.best_of for one in evaluations if one.best_of is not None]
    if len(curves) < len(evaluations):
        return
    rows = []
    for place, point in enumerate(curves[0].points):
        truths = (curve.points[place].truth for curve in curves)
        cells = [_mean(one) for one in truths]
        rows.append((f"n = {point.n}, KL ≤ {point.kl:.2f}", [*cells, f"{point.possible:.3f}"]))
    title = f"True utility of the answer liked best of n, {curves[0].prompts} prompts; KL in nats"
    _table(title, rows, evaluations, console, "possible")


def _words(evaluations: Sequence[RewardEvaluation], console: Console) -> None:
    for one in evaluations:
        console.print(f"{one.model}:")
        for probe in one.probes.features:
            console.print(f"  {probe.name} ({probe.unit}, {probe.pairs} pairs): {probe.words}")
        for sentence in (one.probes.words, *one.notes):
            if sentence:
                console.print(f"  {sentence}")
    console.print(f"Ceiling: {evaluations[0].ceiling.words}.")


def _table(
    title: str,
    rows: Sequence[tuple[str, Sequence[str]]],
    evaluations: Sequence[RewardEvaluation],
    console: Console,
    *more: str,
) -> None:
    from rich.table import Table

    if title:
        console.print(title)
    heads = (*(one.model for one in evaluations), *more)
    room = console.width - max((len(name) for name, _ in rows), default=0) - 4
    columns = max(1, room // NARROWEST)
    for start in range(0, len(heads), columns):
        shown = slice(start, start + columns)
        table = Table()
        table.add_column("", no_wrap=True)
        for head in heads[shown]:
            table.add_column(head, justify="right", overflow="fold")
        for name, cells in rows:
            table.add_row(name, *cells[shown])
        console.print(table)


def _mean(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return f"{found.value:.3f}"
    return f"{found.value:.3f} ({found.low:.3f}–{found.high:.3f})"


def _ceiling(found: Ceiling) -> str:
    if found.accuracy is None:
        return "not known"
    if found.at_most is None or found.at_most == found.accuracy.value:
        return share(found.accuracy)
    return f"{100 * found.accuracy.value:.1f} to {100 * found.at_most:.1f} %"


def _worst(one: RewardEvaluation) -> str:
    return one.worst or "–"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
