"""What the page of a pipeline shows of its labels: who gave how many, and what revisions changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.files import exact_json
from plaudit.runs.report.figures import NO_VALUE, Cell, Table
from plaudit.runs.report.pipeline.data import PipelineData, StageData
from plaudit.runs.report.words import counted, percent, short_name

FIGURES_FILE = "figures.json"
"""What a stage that revises writes beside its rows."""
_AI = "ai"
_ROWS_FILE = "rows.jsonl"
_BY_MODELS, _BY_OTHERS, _UNNAMED = "by models", "by people, or simulated", "without a name"
_GIVERS = (_BY_MODELS, _BY_OTHERS, _UNNAMED)
_MAX_NAMES = 3


def labels_table(pipeline: PipelineData) -> Table | None:
    """Who gave the labels of each stage's rows; None where no stage made any."""
    rows = [(stage, _givers(stage)) for stage in _label_stages(pipeline)]
    found = [
        (
            short_name(stage.name),
            [
                *(Cell(text=f"{sum(givers[name].values()):,}") for name in _GIVERS),
                Cell(text=_names(givers), kind="long"),
            ],
        )
        for stage, givers in rows
        if any(givers.values())
    ]
    if not found:
        return None
    return Table(caption="Rows by who labelled them", columns=(*_GIVERS, "who"), rows=found)


def labels_sentence(pipeline: PipelineData) -> str:
    """The shares of all labels, in words; empty where there are none."""
    totals = Counter[str]()
    for stage in _label_stages(pipeline):
        totals.update({name: sum(who.values()) for name, who in _givers(stage).items()})
    whole = sum(totals.values())
    if not whole:
        return ""
    shares = ", ".join(f"{percent(totals[name] / whole)} {name}" for name in _GIVERS if totals[name])
    return f"Of {counted(whole, 'label')}: {shares}."


def revisions_tables(pipeline: PipelineData) -> list[Table]:
    """What each stage that revises changed: length, refusals, evasions, sameness."""
    return [
        _revisions_table(stage, figures)
        for stage in pipeline.stages
        if stage.kind == "revise" and (figures := _figures(stage.folder / FIGURES_FILE))
    ]


def _label_stages(pipeline: PipelineData) -> Iterator[StageData]:
    """The stages that made rows with labels; rows that are imported keep the names that they came with."""
    return (stage for stage in pipeline.stages if _has_rows(stage))


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
    rows.append(
        ("begin alike", [Cell(text=percent(look["opening_share"])) for look in (before, after)]),
    )
    rows.append(("distinct-2", [_number(look["distinct_2"], 2) for look in (before, after)]))
    counted_outcomes = ", ".join(f"{count} {name}" for name, count in figures["outcomes"].items())
    return Table(
        caption=f"{short_name(stage.name)}: {counted_outcomes} by {short_name(figures['by'])}",
        columns=("before", "after"),
        rows=rows,
    )


def _number(value: float | None, places: int = 1) -> Cell:
    return Cell(text=NO_VALUE if value is None else f"{value:.{places}f}")


def _figures(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        return exact_json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: cannot be read ({error}); run the stage again") from error
