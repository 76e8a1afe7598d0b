"""Pictures that several exercises draw: figures over steps, along √KL, and answers side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from plaudit.evaluation.policies.result import PolicyEvaluation, PromptAnswers
from plaudit.report.charts.axes import Span
from plaudit.report.charts.lines import BandChart, BandLine, band_chart
from plaudit.report.page import render_macro
from plaudit.report.words import Number, counted, number_text, shortened

_MAX_TEXT_LENGTH = 400
_Column = tuple[str, str, str]
"""Who said something, how that is drawn (the first policy ``before``, others ``now``), and what it said."""


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
    """Several charts as one."""
    return render_macro("curves", charts)


def answers_side_by_side(names: Mapping[str, str], rows: Sequence[PromptAnswers]) -> Markup:
    """What some policies said to some prompts; ``names`` says what each is called there."""
    answers = [(row.prompt, [*_answer_columns(row, names)]) for row in rows]
    return render_macro("answers", "Answers to the same prompts", answers)


def _answer_columns(row: PromptAnswers, names: Mapping[str, str]) -> Iterator[_Column]:
    answer_by_policy = {answer.policy: answer for answer in row.said}
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
            for answer in row.said
            if answer.policy == name
        )
        lines = "\n".join(f"{count} × {text}" for text, count in counts.most_common())
        text = shortened(lines, 3 * _MAX_TEXT_LENGTH)
        yield (
            f"{label}: {counted(len(counts), 'answer')}",
            "now" if index else "before",
            shortened(text, 3 * _MAX_TEXT_LENGTH),
        )
