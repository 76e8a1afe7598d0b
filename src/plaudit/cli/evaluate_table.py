"""An evaluation on the console: what matters first, several models side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from plaudit.evaluation.result import Ceiling, Estimate, RewardEvaluation, Slice

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 12
"""Rows of a table of slices; the files hold all."""


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
    table(
        "", [(name, [cell(one) for one in evaluations]) for name, cell in rows], _heads(evaluations), console
    )


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
    table(f"Accuracy by {title} (pairs), {order}", rows, _heads(evaluations), console)
    if len(names) < len(found[0]):
        console.print(f"… and {len(found[0]) - len(names)} more")


def _benchmarks(evaluations: Sequence[RewardEvaluation], console: Console) -> None:
    if any(one.benchmark is None for one in evaluations):
        return
    found = [one.benchmark for one in evaluations if one.benchmark is not None]
    scores = [{section.name: section.score for section in one.sections} for one in found]
    rows = [(name, [share(one.get(name)) for one in scores]) for name in scores[0]]
    overall = ["–" if one.overall is None else f"{100 * one.overall:.1f} %" for one in found]
    table(f"{found[0].name}, by its rules", [*rows, ("overall", overall)], _heads(evaluations), console)
    for note in found[0].notes:
        console.print(note)


def _best_of(evaluations: Sequence[RewardEvaluation], console: Console) -> None:
    curves = [one.best_of for one in evaluations if one.best_of is not None]
    if len(curves) < len(evaluations):
        return
    rows = []
    for place, point in enumerate(curves[0].points):
        truths = (curve.points[place].truth for curve in curves)
        cells = [mean(one) for one in truths]
        rows.append((f"n = {point.n}, KL ≤ {point.kl:.2f}", [*cells, f"{point.possible:.3f}"]))
    title = f"True utility of the answer liked best of n, {curves[0].prompts} prompts; KL in nats"
    table(title, rows, (*_heads(evaluations), "possible"), console)


def _words(evaluations: Sequence[RewardEvaluation], console: Console) -> None:
    for one in evaluations:
        console.print(f"{one.model}:")
        for probe in one.probes.features:
            console.print(f"  {probe.name} ({probe.unit}, {probe.pairs} pairs): {probe.words}")
        for sentence in (one.probes.words, *one.notes):
            if sentence:
                console.print(f"  {sentence}")
    console.print(f"Ceiling: {evaluations[0].ceiling.words}.")


def _heads(evaluations: Sequence[RewardEvaluation]) -> tuple[str, ...]:
    return tuple(one.model for one in evaluations)


def table(
    title: str, rows: Sequence[tuple[str, Sequence[str]]], heads: Sequence[str], console: Console
) -> None:
    """A column for each head, as many side by side as fit, below the title."""
    from rich.table import Table

    if title:
        console.print(title)
    room = console.width - max((len(name) for name, _ in rows), default=0) - 4
    widths = [max((len(cells[place]) for _, cells in rows), default=0) for place in range(len(heads))]
    for shown in _side_by_side(widths, room):
        drawn = Table()
        drawn.add_column("", no_wrap=True)
        for place in shown:
            drawn.add_column(heads[place], justify="right", overflow="fold", min_width=widths[place])
        for name, cells in rows:
            drawn.add_row(name, *(cells[place] for place in shown))
        console.print(drawn)


def _side_by_side(widths: Sequence[int], room: int) -> list[list[int]]:
    """As many columns together as have room with their frames; heads give way, cells do not.

    >>> _side_by_side([10, 10, 40], 26)
    [[0, 1], [2]]
    """
    groups: list[list[int]] = [[]]
    left = room
    for place, width in enumerate(widths):
        if groups[-1] and width + 3 > left:
            groups.append([])
            left = room
        groups[-1].append(place)
        left -= width + 3
    return groups


def mean(found: Estimate | None, digits: int = 3) -> str:
    """A mean with its interval.

    >>> mean(Estimate(value=0.712, low=0.66, high=0.75, n=400, prompts=180))
    '0.712 (0.660–0.750)'
    """
    if found is None:
        return "–"
    if found.low is None or found.high is None:
        return f"{found.value:.{digits}f}"
    to = " to " if found.low < 0 else "–"
    return f"{found.value:.{digits}f} ({found.low:.{digits}f}{to}{found.high:.{digits}f})"


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
