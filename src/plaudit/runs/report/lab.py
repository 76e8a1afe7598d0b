"""Pages of the lab: an exercise with its question, claims, table and charts, and an overview of all.

Exercises give data (`ExerciseResult`) and draw with the charts that several of them share.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from markupsafe import Markup

from plaudit.evaluation.policies.result import PolicyEvaluation, PromptAnswers
from plaudit.runs.report import figures
from plaudit.runs.report.charts.axes import Span
from plaudit.runs.report.charts.lines import BandChart, BandLine, band_chart
from plaudit.runs.report.figures import Cell
from plaudit.runs.report.page import render, render_macro
from plaudit.runs.report.pipeline.data import CONFIG_FILE, PipelineData
from plaudit.runs.report.pipeline.page import progress_text, reported_stages, stages_chart
from plaudit.runs.report.words import Number, counted, number_text, shortened, unbroken

_MAX_TEXT_LENGTH = 400
_Column = tuple[str, str, str]
"""Who said something, how that is drawn (the first policy ``before``, others ``now``), and what it said."""
_VERDICTS = {True: "holds", False: "does not hold", None: "not decided"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence that what was measured bears out, or does not.

    Example: ``Claim(statement="Without a leash answers grow.", holds=True, evidence="27 tokens became 48")``
    """

    statement: str
    """What is claimed, as a whole sentence that would be the same whatever was measured."""
    holds: bool | None
    """Whether it holds as measured; None where the measurement does not decide it."""
    evidence: str
    """The figures that it was decided by, with their intervals where there are any."""

    @property
    def verdict(self) -> str:
        """How it came out, in words.

        >>> Claim(statement="Answers grow.", holds=None, evidence="27 tokens (20 to 40) became 31").verdict
        'not decided'
        """
        return _VERDICTS[self.holds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A small table; its first column names the rows.

    Example: ``Table(head=("pooling", "accuracy"), rows=(("last", "71 %"), ("mean", "74 %")))``
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionedChart:
    """A chart, and a sentence that says what to look at.

    Example: ``CaptionedChart(title="How long", caption="Look at the end.", chart=curves("tokens", lines))``
    """

    title: str
    caption: str
    """A sentence: what to look at."""
    chart: Markup
    """A figure made with plaudit.runs.report.charts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExerciseResult:
    """The result of an exercise: what its pipeline's folder shows."""

    claims: tuple[Claim, ...]
    table: Table | None = None
    charts: tuple[CaptionedChart, ...] = ()

    @property
    def all_hold(self) -> bool:
        return all(claim.holds for claim in self.claims)

    @property
    def summary(self) -> str:
        """How many claims came out how.

        >>> claim = Claim(statement="Answers grow.", holds=True, evidence="8 tokens became 48")
        >>> ExerciseResult(claims=(claim,)).summary
        '1 of 1 claim holds'
        """
        holding = sum(claim.holds is True for claim in self.claims)
        undecided = sum(claim.holds is None for claim in self.claims)
        summary = f"{holding} of {counted(len(self.claims), 'claim')} {'holds' if holding == 1 else 'hold'}"
        return f"{summary}, {undecided} not decided" if undecided else summary


def chart_over_steps(title: str, unit: str, runs: Mapping[str, Sequence[tuple[int, float]]]) -> Markup:
    """A figure of held-out prompts for every run, over its steps."""
    lines = [
        BandLine(label=name, points=tuple((step, Span(value=value)) for step, value in run))
        for name, run in runs.items()
    ]
    return band_chart(title, unit, BandChart(lines=lines), note="to the right: moves of the weights")


def chart_over_root_kl(title: str, unit: str, lines: Mapping[str, Sequence[tuple[Number, Span]]]) -> Markup:
    """A figure of each optimiser along √KL, from near to far."""
    band_lines = [
        BandLine(label=name, points=tuple(sorted(points, key=lambda point: point[0])))
        for name, points in lines.items()
    ]
    return band_chart(title, unit, BandChart(lines=band_lines), note="to the right: √KL from the start")


def charts_side_by_side(*charts: Markup) -> Markup:
    return render_macro("curves", charts)


def answers_side_by_side(names: Mapping[str, str], rows: Sequence[PromptAnswers]) -> Markup:
    """What some policies said to some prompts; ``names`` says what each is called there."""
    answers = [(row.prompt, [*_answer_columns(row, names)]) for row in rows]
    return render_macro("answers", "Answers to the same prompts", answers)


def _answer_columns(row: PromptAnswers, names: Mapping[str, str]) -> Iterator[_Column]:
    answer_by_policy = {answer.policy: answer for answer in row.answers}
    for index, (name, label) in enumerate(names.items()):
        if name in answer_by_policy:
            answer = answer_by_policy[name]
            worth = "not known" if answer.gold is None else number_text(answer.gold)
            yield (
                f"{label}: {answer.tokens} tokens, worth {worth}",
                "now" if index else "before",
                shortened(answer.text, _MAX_TEXT_LENGTH),
            )


def answer_counts(evaluation: PolicyEvaluation, names: Mapping[str, str], prompts: Sequence[str]) -> Markup:
    """All answers of some policies to some prompts, the commonest first."""
    answers = [(prompt, [*_count_columns(evaluation, names, prompt)]) for prompt in prompts]
    return render_macro("answers", "Answers, and how often each came", answers)


def _count_columns(evaluation: PolicyEvaluation, names: Mapping[str, str], prompt: str) -> Iterator[_Column]:
    for index, (name, label) in enumerate(names.items()):
        counts = Counter(
            answer.text
            for row in evaluation.all_answers
            if row.prompt == prompt
            for answer in row.answers
            if answer.policy == name
        )
        lines = "\n".join(f"{count} × {text}" for text, count in counts.most_common())
        yield (
            f"{label}: {counted(len(counts), 'answer')}",
            "now" if index else "before",
            shortened(lines, 3 * _MAX_TEXT_LENGTH),
        )


PAGE_FILE = "lab.html"
"""What the page is called, of an exercise and of all of them."""
_INTERVAL = re.compile(r"(\S[^()]*) \(([^()]+ to [^()]+)\)")


@runtime_checkable
class Question(Protocol):
    """What a page says of an exercise beside its result."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

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
