"""Pictures that several exercises draw: figures over steps, along √KL, and answers side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from plaudit.evaluation.policies.result import PolicyEvaluation, Shown
from plaudit.page.bands import Band, Bands, bands
from plaudit.page.html import Html, element, quoted, side
from plaudit.page.marks import Span
from plaudit.page.words import Number, counted, figure

_MOST_CHARACTERS = 400


def over_steps(title: str, unit: str, runs: Mapping[str, Sequence[tuple[int, float]]]) -> Html:
    """A figure of held-out prompts for every run, over its steps."""
    lines = [
        Band(label=name, points=tuple((step, Span(value=value)) for step, value in run))
        for name, run in runs.items()
    ]
    return bands(title, unit, Bands(lines=lines), note="to the right: moves of the weights")


def along(title: str, unit: str, lines: Mapping[str, Sequence[tuple[Number, Span]]], note: str = "") -> Html:
    """A figure of each optimiser along √KL, from near to far."""
    drawn = [
        Band(label=name, points=tuple(sorted(points, key=lambda point: point[0])))
        for name, points in lines.items()
    ]
    return bands(title, unit, Bands(lines=drawn), note=f"to the right: √KL from the start{note}")


def answers(found: PolicyEvaluation, names: Mapping[str, str], shown: Sequence[Shown]) -> Html:
    """What some policies said to some prompts; ``names`` says what each is called there."""
    asked = [_asked(one, names) for one in shown]
    heading = element("h3", {}, "Answers to the same prompts")
    return element("div", {"class": "answers-of-lab"}, heading, *asked)


def _asked(one: Shown, names: Mapping[str, str]) -> Html:
    said = {own.policy: own for own in one.said}
    sides = [
        side(
            f"{label}: {said[name].tokens} tokens, worth {figure(said[name].gold or 0.0)}",
            quoted(said[name].text, _MOST_CHARACTERS),
            "now" if at else "before",
        )
        for at, (name, label) in enumerate(names.items())
        if name in said
    ]
    return element(
        "article",
        {"class": "exchange"},
        quoted(one.prompt, _MOST_CHARACTERS),
        element("div", {"class": "sides answers"}, *sides),
    )


def several(found: PolicyEvaluation, names: Mapping[str, str], prompts: Sequence[str]) -> Html:
    """All answers of some policies to some prompts, the commonest first."""
    asked = [
        element(
            "article",
            {"class": "exchange"},
            quoted(prompt, _MOST_CHARACTERS),
            element("div", {"class": "sides answers"}, *_columns(found, names, prompt)),
        )
        for prompt in prompts
    ]
    return element("div", {}, element("h3", {}, "Answers, and how often each came"), *asked)


def _columns(found: PolicyEvaluation, names: Mapping[str, str], prompt: str) -> Iterator[Html]:
    for at, (name, label) in enumerate(names.items()):
        counts = Counter(
            said.text
            for one in found.every
            if one.prompt == prompt
            for said in one.said
            if said.policy == name
        )
        told = "\n".join(f"{count} × {text}" for text, count in counts.most_common())
        yield side(
            f"{label}: {counted(len(counts), 'answer')}",
            quoted(told, 3 * _MOST_CHARACTERS),
            "now" if at else "before",
        )
