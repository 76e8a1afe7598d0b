"""The stage that makes rows of the world."""

from __future__ import annotations

from pathlib import Path

from plaudit.lab.world.wanted import RowRequest, write_requested_rows
from plaudit.runs import StageKind, StageResult, command_line, options_of


def _make_rows(settings: RowRequest, out: Path, *_: object) -> StageResult:
    path = out / "rows.jsonl"
    sentences = write_requested_rows(settings, path)
    options = {**options_of(settings, "make"), "category": [*settings.category]}
    command = command_line("plaudit world make", settings.make, out=path, **options)
    return StageResult(sentences=sentences, command=command)


WORLD_ROWS = StageKind(
    name="world-rows",
    produces="rows",
    settings=RowRequest,
    accepts={"model": ("model",)},
    run=_make_rows,
    weight=5,
    divides=lambda settings: settings.model is not None,
)
