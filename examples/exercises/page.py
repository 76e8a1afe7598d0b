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
from plaudit.runs.report import parts, parts as html
from plaudit.runs.report.charts.axes import Span
from plaudit.runs.report.charts.lines import BandChart, BandLine, band_chart
from plaudit.runs.report.page import lay_out, render
from plaudit.runs.report.pipeline.data import CONFIG_FILE, PipelineData
from plaudit.runs.report.pipeline.progress import origins_section, progress_text, stages_section
from plaudit.runs.report.words import Number, counted, number_text, shortened, unbroken

_VERDICTS = {True: "holds", False: "does not hold", None: "not decided"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence that what was measured bears out, or does not."""

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
    """A small table; its first column names the rows."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionedChart:
    """A chart, and a sentence that says what to look at."""

    title: str
    caption: str
    chart: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class ExerciseResult:
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
    band_lines = [
        BandLine(label=name, points=tuple(sorted(points, key=lambda point: point[0])))
        for name, points in lines.items()
    ]
    return band_chart(title, unit, BandChart(lines=band_lines), note="to the right: √KL from the start")


def charts_side_by_side(*charts: Markup) -> Markup:
    return lay_out(html.Charts(charts))


def answers_side_by_side(names: Mapping[str, str], rows: Sequence[PromptAnswers]) -> Markup:
    """What some policies said to some prompts; ``names`` says what each is called there."""
    return _answers(html.say("lab.answers"), [(row.prompt, [*_answers_of(row, names)]) for row in rows])


def _answers(heading: str, answers: Sequence[tuple[str, Sequence[html.Answer]]]) -> Markup:
    exchanges = [html.Exchange(prompt=shortened(prompt, 400), answers=columns) for prompt, columns in answers]
    return lay_out(
        html.Box("", (html.Heading(heading, kind=""), html.Samples(exchanges, "answers", max_length=2000)))
    )


def _answers_of(row: PromptAnswers, names: Mapping[str, str]) -> Iterator[html.Answer]:
    answer_by_policy = {answer.policy: answer for answer in row.answers}
    for index, (name, label) in enumerate(names.items()):
        if name in answer_by_policy:
            answer = answer_by_policy[name]
            worth = "not known" if answer.gold is None else number_text(answer.gold)
            yield _answer(index, html.say("lab.answer", label=label, answer=answer, worth=worth), answer.text)


def _answer(index: int, label: str, text: str, max_length: int = 400) -> html.Answer:
    return html.Answer(label=label, kind="now" if index else "before", text=shortened(text, max_length))


def answer_counts(evaluation: PolicyEvaluation, names: Mapping[str, str], prompts: Sequence[str]) -> Markup:
    """All answers of some policies to some prompts, the commonest first."""
    return _answers(
        html.say("lab.counts"), [(prompt, [*_counts_of(evaluation, names, prompt)]) for prompt in prompts]
    )


def _counts_of(evaluation: PolicyEvaluation, names: Mapping[str, str], prompt: str) -> Iterator[html.Answer]:
    for index, (name, label) in enumerate(names.items()):
        counts = Counter(
            answer.text
            for row in evaluation.all_answers
            if row.prompt == prompt
            for answer in row.answers
            if answer.policy == name
        )
        lines = "\n".join(f"{count} × {text}" for text, count in counts.most_common())
        yield _answer(index, f"{label}: {counted(len(counts), 'answer')}", lines, 1200)


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
    def background(self) -> str: ...

    @property
    def next_commands(self) -> tuple[str, ...]:
        """What to try next: a command, ``: `` and what for."""
        ...


def exercise_page(
    exercise: Question, pipeline: PipelineData, result: ExerciseResult, changed: tuple[str, ...] = ()
) -> str:
    """The whole page; ``changed`` is what was run otherwise than the exercise has it."""
    path = _relative_path(pipeline.path)
    facts = f" · exercise {exercise.name} · {progress_text(pipeline)}"
    head = [html.State(result.summary, result.all_hold, facts), html.Text(exercise.background, "lede")]
    if changed:
        notes = html.Notes([html.Note(shortened(change, 300)) for change in changed])
        head += [html.Text("", about=html.say("lab.changed")), notes]
    table = [] if result.table is None else [_figures_of(result.table)]
    sections = [
        html.Section(
            "What was seen", "seen", [html.Text(html.say("lab.seen"), "quiet"), Claims(result.claims), *table]
        ),
        *(
            [html.Section("Pictures", "pictures", [html.Box("pictures", result.charts)])]
            if result.charts
            else []
        ),
        stages_section(pipeline),
        *_next_section(exercise),
        origins_section(pipeline),
        _reproduce_section(exercise, path, pipeline.config),
    ]
    return render(
        html.Page(title=exercise.title, heading=exercise.title, head=head, sections=sections, styles=_STYLES)
    )


_STYLES = ("charts", "run", "reports", "lab")


@dataclass(frozen=True, slots=True)
class Claims:
    """The part of a page that has every claim with its mark and what it was decided by."""

    claims: Sequence[Claim]


def _figures_of(table: Table) -> parts.Table:
    """The table of a result with the intervals of its figures apart from them."""
    caption = unbroken(table.note) or html.say("lab.table")
    rows = [(row[0], [*map(_interval_cell, row[1:])]) for row in table.rows]
    return parts.Table(caption=caption, columns=table.head[1:], rows=rows)


def _interval_cell(text: str) -> html.Cell:
    match = _INTERVAL.fullmatch(text)
    if match is None:
        return html.Cell(text=unbroken(text))
    return html.Cell(text=unbroken(match[1]), interval=unbroken(match[2]))


def _next_section(exercise: Question) -> Iterator[html.Section]:
    lines = [line.partition(": ") for line in exercise.next_commands]
    commands = [html.Command(f"{why[:1].upper()}{why[1:]}:", command) for command, _, why in lines]
    if commands:
        yield html.Section("What to try next", "next", commands)


def _reproduce_section(exercise: Question, path: Path, config: str) -> html.Section:
    out, folder, again = map(shlex.quote, (str(path.parent), str(path), f"{path}-again"))
    lab = f"python -m examples.exercises {exercise.name}"
    commands = (
        html.Command(html.say("lab.again"), f"{lab} --out {out}"),
        html.Command(html.say("lab.exactly"), f"plaudit run {folder}/{CONFIG_FILE} --out {again}"),
        html.Command(html.say("again.page"), f"{lab} --look --out {out}"),
    )
    place = html.Text(
        html.say("lab.place", path=path), links=[("report.html", "report.html")], after=html.say("lab.report")
    )
    return html.Section(
        "Reproduce",
        "again",
        [place, *commands, html.Folded(html.say("again.config", verb="said"), [html.Code(config)])],
    )


def _relative_path(path: Path) -> Path:
    current_folder = Path.cwd()
    return path.relative_to(current_folder) if path.is_relative_to(current_folder) else path


def overview_page(
    results: Sequence[tuple[Question, ExerciseResult | str]], exercises: Sequence[Question]
) -> str:
    claims = [claim for _, result in results if not isinstance(result, str) for claim in result.claims]
    holding = sum(claim.holds is True for claim in claims)
    run = sum(not isinstance(result, str) for _, result in results)
    state = html.State(
        html.say("lab.holding", holding=holding, claims=len(claims)),
        holding == len(claims),
        html.say("lab.run", run=run, exercises=len(exercises)),
    )
    names = {exercise.name for exercise, _ in results}
    sections = [
        *(
            html.Section(exercise.title, exercise.name, [*_overview(exercise, result)])
            for exercise, result in results
        ),
        *_not_run_section([exercise for exercise in exercises if exercise.name not in names]),
    ]
    head = [state, html.Text(html.say("lab.lede"), "lede"), _shelf(results)]
    title = html.say("lab.title")
    return render(html.Page(title=title, heading=title, head=head, sections=sections, styles=_STYLES))


def _shelf(results: Sequence[tuple[Question, ExerciseResult | str]]) -> html.Part:
    rows = [
        (
            exercise.name,
            [
                html.Cell(text=exercise.title, link=f"#{exercise.name}"),
                html.Cell(text="not finished" if isinstance(result, str) else result.summary),
            ],
        )
        for exercise, result in results
    ]
    return html.Box("shelf", [parts.Table(caption="What was run", columns=("question", "claims"), rows=rows)])


def _overview(exercise: Question, result: ExerciseResult | str) -> Iterator[html.Part]:
    if isinstance(result, str):
        yield html.Text(result)
        return
    link = (f"{exercise.name}/{PAGE_FILE}", f"All of {exercise.name}")
    texts = [html.Text(exercise.background), Claims(result.claims), html.Text("", links=[link])]
    yield html.Box("told", [html.Box("", texts), *result.charts[:1]])


def _not_run_section(exercises: Sequence[Question]) -> Iterator[html.Section]:
    if exercises:
        notes = html.Notes([html.Note(f": {exercise.title}", about=exercise.name) for exercise in exercises])
        names = " ".join(exercise.name for exercise in exercises)
        yield html.Section("Not run yet", "left", [notes, html.Code(f"python -m examples.exercises {names}")])
