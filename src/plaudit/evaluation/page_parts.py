"""Where the models are right and where they are not: accuracy by category, strength, annotator and group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from plaudit.evaluation.page_head import ceiling_ends
from plaudit.evaluation.page_shown import MOST_NAME, Shown, groups, share, span, table
from plaudit.evaluation.result import RewardEvaluation, Slice
from plaudit.page.html import Html, element, folded, section, shortened
from plaudit.page.intervals import Guide, Row, Rows, shares
from plaudit.page.words import counted

_MOST_ROWS = 24
_READING = (
    "Each mark is an accuracy, each line its 95 % interval by resampling prompts. The broken line, or the "
    "grey stripe, is the ceiling of all pairs that annotators leave; a part of them may have another."
)

_Parts = Callable[[RewardEvaluation], tuple[Slice, ...]]


def parts(models: Sequence[Shown]) -> Html:
    """A chart for each way to divide the pairs, and the same as tables."""
    ways: tuple[tuple[str, bool, _Parts], ...] = (
        ("By category", True, lambda found: found.categories),
        ("By strength of the preference", False, lambda found: found.strengths),
        ("By annotator", True, lambda found: found.annotators),
        ("By group of annotators", True, lambda found: found.groups),
    )
    held = [
        (title, worst_first, way) for title, worst_first, way in ways if any(way(m.found) for m in models)
    ]
    if not held:
        nothing = "The pairs name no category, no strength and no annotator to divide them by."
        return section("Where it is right", "parts", element("p", {}, nothing))
    charts = [
        chart
        for title, worst_first, way in held
        for group in groups(models)
        for chart in _chart(title, group, way, worst_first=worst_first)
    ]
    tables = [_table(title, models, way, worst_first=worst_first) for title, worst_first, way in held]
    return section(
        "Where it is right",
        "parts",
        element("div", {"class": "curves"}, *charts, element("p", {"class": "how"}, _READING)),
        folded("The same as tables", *tables),
    )


def _names(models: Sequence[Shown], way: _Parts, *, worst_first: bool) -> list[str]:
    """Every part that one of the models has; the worst for any of them first, or as they come."""
    lowest: dict[str, float] = {}
    for model in models:
        for part in way(model.found):
            lowest[part.name] = min(part.accuracy.value, lowest.get(part.name, 1.0))
    return sorted(lowest, key=lambda name: lowest[name]) if worst_first else list(lowest)


def _chart(title: str, models: Sequence[Shown], way: _Parts, *, worst_first: bool) -> Iterator[Html]:
    names = _names(models, way, worst_first=worst_first)
    if not names:
        return
    rows = [_row(name, [_of(model.found, way, name) for model in models]) for name in names[:_MOST_ROWS]]
    rest = f", {_MOST_ROWS} of {len(names)}" if len(names) > _MOST_ROWS else ""
    unit = f"worst first{rest}" if worst_first else f"faint first{rest}"
    shown = Rows(rows=rows, series=[model.name for model in models], guide=_guide(models))
    yield shares(title, unit, shown)


def _row(name: str, found: Sequence[Slice | None]) -> Row:
    most = max(part.accuracy.n for part in found if part is not None)
    return Row(
        label=f"{shortened(name, MOST_NAME) if name else '(empty)'} · {counted(most, 'pair')}",
        spans=tuple(None if part is None else span(part.accuracy) for part in found),
    )


def _of(found: RewardEvaluation, way: _Parts, name: str) -> Slice | None:
    return next((part for part in way(found) if part.name == name), None)


def _guide(models: Sequence[Shown]) -> Guide | None:
    """The ceiling, where the models of a chart have the same one."""
    ends = {ceiling_ends(model.found.ceiling) for model in models}
    (first, *others) = ends
    if first is None or others:
        return None
    return Guide(low=first[0], high=first[1], label="ceiling")


def _table(title: str, models: Sequence[Shown], way: _Parts, *, worst_first: bool) -> Html:
    def of(name: str) -> Callable[[RewardEvaluation], Html]:
        def write(found: RewardEvaluation) -> Html:
            part = _of(found, way, name)
            return share(part and part.accuracy)

        return write

    names = _names(models, way, worst_first=worst_first)
    return table(title, models, {shortened(name, MOST_NAME): of(name) for name in names})
