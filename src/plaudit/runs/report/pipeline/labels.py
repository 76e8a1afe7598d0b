"""What the page of a pipeline shows of its labels: who gave how many, and what revisions changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.files import exact_json
from plaudit.runs.report.parts import NO_VALUE, Cell, Section, Table, Text
from plaudit.runs.report.pipeline.data import PipelineData, StageData
from plaudit.runs.report.sentences import say
from plaudit.runs.report.words import percent, short_name

FIGURES_FILE = "figures.json"
_AI = "ai"
_ROWS_FILE = "rows.jsonl"
_BY_MODELS, _BY_OTHERS, _UNNAMED = "by models", "by people, or simulated", "without a name"
_GIVERS = (_BY_MODELS, _BY_OTHERS, _UNNAMED)
_MAX_NAMES = 3


def labels_section(pipeline: PipelineData) -> Iterator[Section]:
    """Who gave the labels of each stage's rows, and what revisions changed of them."""
    found = [(stage, _givers(stage)) for stage in pipeline.stages if _has_rows(stage)]
    rows = [(short_name(stage.name), _giver_cells(givers)) for stage, givers in found if any(givers.values())]
    if not rows:
        return
    table = Table(caption="Rows by who labelled them", columns=(*_GIVERS, "who"), rows=rows)
    totals = Counter[str]()
    for _, givers in found:
        totals.update({name: sum(who.values()) for name, who in givers.items()})
    whole = sum(totals.values())
    shares = ", ".join(f"{percent(totals[name] / whole)} {name}" for name in _GIVERS if totals[name])
    revisions = [*_revisions_tables(pipeline)]
    texts = [Text(say("pipeline.revisions"))] if revisions else []
    brief = say("pipeline.labels", labels=whole, shares=shares)
    yield Section("Labels", "labels", [table, *texts, *revisions], brief)


def _giver_cells(givers: Mapping[str, Counter[str]]) -> list[Cell]:
    counts = (Cell(text=f"{sum(givers[name].values()):,}") for name in _GIVERS)
    return [*counts, Cell(text=_names(givers), kind="long")]


def _revisions_tables(pipeline: PipelineData) -> Iterator[Table]:
    """What each stage that revises changed: length, refusals, evasions, sameness."""
    for stage in pipeline.stages:
        if stage.kind == "revise" and (figures := _figures(stage.folder / FIGURES_FILE)):
            yield _revisions_table(stage, figures)


def _has_rows(stage: StageData) -> bool:
    return _ROWS_FILE in stage.outputs and (stage.folder / _ROWS_FILE).is_file()


def _givers(stage: StageData) -> Mapping[str, Counter[str]]:
    """How many rows each giver labelled; prompts alone are no labels."""
    found = {name: Counter[str]() for name in _GIVERS}
    for row in _labelled_rows(stage):
        who = row.get("annotator")
        giver = _BY_MODELS if row.get("group") == _AI else _BY_OTHERS if who else _UNNAMED
        found[giver][str(who or "")] += 1
    return found


def label_kinds(stages: Iterable[StageData]) -> Counter[str]:
    """How many rows of each kind these stages made: demonstrations, comparisons …; prompts alone are none."""
    return Counter(
        str(row.get("kind", "row")) for stage in stages if _has_rows(stage) for row in _labelled_rows(stage)
    )


def _labelled_rows(stage: StageData) -> Iterator[Mapping[str, Any]]:
    path = stage.folder / _ROWS_FILE
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise UserError(f"{path}:{number}: is no row ({error}); run the stage again") from error
            if row.get("kind") != "prompt":
                yield row


def _names(givers: Mapping[str, Counter[str]]) -> str:
    names = [name for who in givers.values() for name, _ in who.most_common() if name]
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(map(short_name, names[:_MAX_NAMES]))}{more}" if names else NO_VALUE


def _revisions_table(stage: StageData, figures: Mapping[str, Any]) -> Table:
    before, after = figures["before"], figures["after"]
    rows = [("words, mean", [_number(before["words"]), _number(after["words"])])]
    rows += [
        (str(name), [Cell(text=percent(share)), Cell(text=percent(after["marks"][name]))])
        for name, share in before["marks"].items()
    ]
    rows.append(("begin alike", [Cell(text=percent(look["opening_share"])) for look in (before, after)]))
    rows.append(("distinct-2", [_number(look["distinct_2"], 2) for look in (before, after)]))
    outcomes = ", ".join(f"{count} {name}" for name, count in figures["outcomes"].items())
    caption = say("pipeline.revised", stage=stage.name, outcomes=outcomes, by=figures["by"])
    return Table(caption=caption, columns=("before", "after"), rows=rows)


def _number(value: float | None, places: int = 1) -> Cell:
    return Cell(text=NO_VALUE if value is None else f"{value:.{places}f}")


def _figures(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        return exact_json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: cannot be read ({error}); run the stage again") from error
