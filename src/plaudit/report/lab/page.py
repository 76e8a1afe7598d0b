"""The page of an exercise: its question, its claims, its pictures; and one page over all exercises."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from plaudit.report import figures
from plaudit.report.figures import Cell
from plaudit.report.lab.result import ExerciseResult, Table
from plaudit.report.page import render
from plaudit.report.pipeline.data import CONFIG_FILE, PipelineData
from plaudit.report.pipeline.page import progress_text, reported_stages, stages_chart
from plaudit.report.words import unbroken

PAGE_FILE = "lab.html"
"""What the page is called, of an exercise and of all of them."""
_INTERVAL = re.compile(r"(\S[^()]*) \(([^()]+ to [^()]+)\)")


@runtime_checkable
class Question(Protocol):
    """What a page says of an exercise beside its result."""

    @property
    def name(self) -> str:
        """What the command calls it."""
        ...

    @property
    def title(self) -> str:
        """The question that it answers."""
        ...

    @property
    def background(self) -> str:
        """What goes wrong, and who found it."""
        ...

    @property
    def next_commands(self) -> tuple[str, ...]:
        """What to try next: a command, ``: `` and what for."""
        ...


def exercise_page(
    exercise: Question, pipeline: PipelineData, result: ExerciseResult, changed: tuple[str, ...] = ()
) -> str:
    """The whole page; ``changed`` is what was run otherwise than the exercise has it."""
    path = _relative_path(pipeline.path)
    return render(
        "exercise",
        exercise=exercise,
        result=result,
        progress=progress_text(pipeline),
        changed=changed,
        table=None if result.table is None else _figures_of(result.table),
        flow=stages_chart(pipeline),
        stages=reported_stages(pipeline),
        next_commands=[*_next_commands(exercise)],
        path=path,
        commands=[*_commands(exercise, path)],
        config=pipeline.config,
    )


def _figures_of(table: Table) -> figures.Table:
    """The table of a result with the intervals of its figures apart from them."""
    caption = unbroken(table.note) or "The figures beside each other"
    rows = [(row[0], [*map(_interval_cell, row[1:])]) for row in table.rows]
    return figures.Table(caption=caption, columns=table.head[1:], rows=rows)


def _interval_cell(text: str) -> Cell:
    match = _INTERVAL.fullmatch(text)
    if match is None:
        return Cell(text=unbroken(text))
    return Cell(text=unbroken(match[1]), interval=unbroken(match[2]))


def _next_commands(exercise: Question) -> Iterator[tuple[str, str]]:
    for line in exercise.next_commands:
        command, _, why = line.partition(": ")
        yield f"{why[:1].upper()}{why[1:]}:", command


def _commands(exercise: Question, path: Path) -> Iterator[tuple[str, str]]:
    """How to make all of it again."""
    out, folder, again = map(shlex.quote, (str(path.parent), str(path), f"{path}-again"))
    lab = f"plaudit lab {exercise.name}"
    yield "The exercise again; what is finished is kept:", f"{lab} --out {out}"
    config = f"{folder}/{CONFIG_FILE}"
    yield "Exactly what was run here, whatever was changed:", f"plaudit run {config} --out {again}"
    yield "This page again:", f"{lab} --look --out {out}"


def _relative_path(path: Path) -> Path:
    """The path relative to the current folder, where it lies below it."""
    current_folder = Path.cwd()
    return path.relative_to(current_folder) if path.is_relative_to(current_folder) else path


def overview_page(
    results: Sequence[tuple[Question, ExerciseResult | str]], exercises: Sequence[Question]
) -> str:
    """The whole page over all exercises; of one that cannot be looked at, why."""
    claims = [claim for _, result in results if not isinstance(result, str) for claim in result.claims]
    names = {exercise.name for exercise, _ in results}
    return render(
        "lab",
        results=results,
        holding=sum(claim.holds is True for claim in claims),
        claims=claims,
        run=sum(not isinstance(result, str) for _, result in results),
        exercises=exercises,
        table=figures.Table(
            caption="What was run",
            columns=("question", "claims"),
            rows=[(exercise.name, _overview_cells(exercise, result)) for exercise, result in results],
        ),
        not_run=[exercise for exercise in exercises if exercise.name not in names],
        page_file=PAGE_FILE,
    )


def _overview_cells(exercise: Question, result: ExerciseResult | str) -> list[Cell]:
    outcome = "not finished" if isinstance(result, str) else result.summary
    return [Cell(text=exercise.title, link=f"#{exercise.name}"), Cell(text=outcome)]
