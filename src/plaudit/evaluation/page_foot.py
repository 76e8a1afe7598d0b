"""The foot of the page: the surest mistakes, what was left out, and how all of it was made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plaudit.evaluation.page_shown import Shown, cell, table
from plaudit.evaluation.result import Mistake, RewardEvaluation
from plaudit.page.html import Html, element, quoted, section, shortened, side
from plaudit.page.words import counted, figure

_MOST_MISTAKES = 12
_MOST_CHARACTERS = 1000
_MOST_PLACE = 120


def mistakes(models: Sequence[Shown]) -> Html:
    """The pairs that each model is surest about and wrong, side by side with what annotators prefer."""
    title = "Where it is sure and wrong"
    most = max(3, _MOST_MISTAKES // len(models))
    articles = [
        _mistake(f"Mistake {number}" if len(models) == 1 else f"{model.name}: mistake {number}", mistake)
        for model in models
        for number, mistake in enumerate(model.found.mistakes[:most], start=1)
    ]
    if not articles:
        return section(title, "mistakes", element("p", {}, "There is no mistake to show."))
    return section(title, "mistakes", *articles)


def left_out(models: Sequence[Shown]) -> Html:
    """What is in no figure, and what a reader must know."""
    said = dict.fromkeys(
        line if len(models) == 1 else f"{model.name}: {line}"
        for model in models
        for line in _left_out(model.found)
    )
    if not said:
        return section("What was left out", "left-out", element("p", {}, "Nothing."))
    items = [element("li", {}, shortened(line, _MOST_CHARACTERS)) for line in said]
    return section("What was left out", "left-out", element("ul", {"class": "notes"}, *items))


def made(models: Sequence[Shown]) -> Html:
    """From which files, by which model, with which chance."""
    rows = {
        "model": lambda found: _place(found.model),
        "preferences": lambda found: _place(found.data),
        "pairs": lambda found: cell(f"{found.pairs:,}"),
        "prompts": lambda found: cell(f"{found.prompts:,}"),
        "draws of the bootstrap, by prompt": lambda found: cell(f"{found.bootstrap:,}"),
        "seed of the bootstrap": lambda found: cell(str(found.seed)),
    }
    return section("How it was made", "made", table("Files, models and chance", models, rows))


def _place(name: str) -> Html:
    return element("td", {"class": "long"}, shortened(name, _MOST_PLACE))


def _mistake(title: str, mistake: Mistake) -> Html:
    about = (mistake.category, f"margin {figure(mistake.margin)}", mistake.origin)
    said = " · ".join(shortened(part, _MOST_PLACE) for part in about if part)
    quiet = element("span", {"class": "quiet"}, f" {said}")
    sides = (
        side("Annotators prefer", quoted(mistake.preferred, _MOST_CHARACTERS), "now"),
        side("The model prefers", quoted(mistake.other, _MOST_CHARACTERS), "before"),
    )
    return element(
        "article",
        {"class": "exchange"},
        element("h3", {}, title, quiet),
        quoted(mistake.prompt, _MOST_CHARACTERS),
        element("div", {"class": "sides"}, *sides),
    )


def _left_out(found: RewardEvaluation) -> Iterator[str]:
    if found.ties is not None:
        pairs = counted(found.ties.pairs, "pair")
        yield f"{pairs} of which annotators prefer neither: in no accuracy and no calibration"
    if found.equal:
        yield f"{counted(found.equal, 'pair')} with the same reward on both sides: counted as half right"
    if found.best_of is not None and found.best_of.left_out:
        prompts = counted(found.best_of.left_out, "prompt")
        yield f"best-of-n: {prompts} with an answer on which there is no verdict"
    yield from found.notes
