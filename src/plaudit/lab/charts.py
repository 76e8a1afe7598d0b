"""Pictures that several exercises draw: figures over steps, along √KL, and answers side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from plaudit.evaluation.policies.result import PolicyAnswer, PolicyEvaluation, PromptAnswers
from plaudit.report.charts.axes import Span
from plaudit.report.charts.lines import BandChart, BandLine, band_chart
from plaudit.report.html import Html, element, quoted_text, text_column
from plaudit.report.words import Number, counted, number_text

_MAX_TEXT_LENGTH = 400


def chart_over_steps(title: str, unit: str, runs: Mapping[str, Sequence[tuple[int, float]]]) -> Html:
    """A figure of held-out prompts for every run, over its steps."""
    lines = [
        BandLine(label=name, points=tuple((step, Span(value=value)) for step, value in run))
        for name, run in runs.items()
    ]
    return band_chart(title, unit, BandChart(lines=lines), note="to the right: moves of the weights")


def chart_over_root_kl(title: str, unit: str, lines: Mapping[str, Sequence[tuple[Number, Span]]]) -> Html:
    """A figure of each optimiser along √KL, from near to far."""
    band_lines = [
        BandLine(label=name, points=tuple(sorted(points, key=lambda point: point[0])))
        for name, points in lines.items()
    ]
    return band_chart(title, unit, BandChart(lines=band_lines), note="to the right: √KL from the start")


def answers_side_by_side(names: Mapping[str, str], rows: Sequence[PromptAnswers]) -> Html:
    """What some policies said to some prompts; ``names`` says what each is called there."""
    articles = [_prompt_article(one, names) for one in rows]
    heading = element("h3", {}, "Answers to the same prompts")
    return element("div", {"class": "answers-of-lab"}, heading, *articles)


def _prompt_article(row: PromptAnswers, names: Mapping[str, str]) -> Html:
    answer_by_policy = {answer.policy: answer for answer in row.said}
    sides = [
        text_column(
            f"{label}: {answer_by_policy[name].tokens} tokens, worth {_worth_text(answer_by_policy[name])}",
            quoted_text(answer_by_policy[name].text, _MAX_TEXT_LENGTH),
            "now" if index else "before",
        )
        for index, (name, label) in enumerate(names.items())
        if name in answer_by_policy
    ]
    return element(
        "article",
        {"class": "exchange"},
        quoted_text(row.prompt, _MAX_TEXT_LENGTH),
        element("div", {"class": "sides answers"}, *sides),
    )


def _worth_text(answer: PolicyAnswer) -> str:
    return "not known" if answer.gold is None else number_text(answer.gold)


def answer_counts(evaluation: PolicyEvaluation, names: Mapping[str, str], prompts: Sequence[str]) -> Html:
    """All answers of some policies to some prompts, the commonest first."""
    articles = [
        element(
            "article",
            {"class": "exchange"},
            quoted_text(prompt, _MAX_TEXT_LENGTH),
            element("div", {"class": "sides answers"}, *_answer_count_columns(evaluation, names, prompt)),
        )
        for prompt in prompts
    ]
    return element("div", {}, element("h3", {}, "Answers, and how often each came"), *articles)


def _answer_count_columns(
    evaluation: PolicyEvaluation, names: Mapping[str, str], prompt: str
) -> Iterator[Html]:
    for index, (name, label) in enumerate(names.items()):
        counts = Counter(
            answer.text
            for one in evaluation.all_answers
            if one.prompt == prompt
            for answer in one.said
            if answer.policy == name
        )
        text_block = "\n".join(f"{count} × {text}" for text, count in counts.most_common())
        yield text_column(
            f"{label}: {counted(len(counts), 'answer')}",
            quoted_text(text_block, 3 * _MAX_TEXT_LENGTH),
            "now" if index else "before",
        )
