"""report.html of reward models: what was found about one or several of them, on a page that stands alone.

The foot of the page: the surest mistakes, what was left out, and how all of it was made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from plaudit.errors import UserError
from plaudit.evaluation.reward_models.result import Mistake, RewardEvaluation
from plaudit.report.html import (
    Html,
    document,
    element,
    quoted_text,
    read_stylesheet,
    section,
    shortened,
    text_column,
)
from plaudit.report.reward_models.sections import (
    accuracy_section,
    benchmark_sections,
    best_of_n_section,
    calibration_section,
    probes_section,
)
from plaudit.report.reward_models.summary import (
    ReportedModel,
    header,
    models_table,
    reported_models,
    text_cell,
)
from plaudit.report.words import counted, number_text

_MAX_MISTAKES = 12
_MAX_TEXT_LENGTH = 1000
_MAX_NAME_LENGTH = 120


def mistakes_section(models: Sequence[ReportedModel]) -> Html:
    """The pairs that each model is surest about and wrong, side by side with what annotators prefer."""
    title = "Where it is sure and wrong"
    max_per_model = max(3, _MAX_MISTAKES // len(models))
    articles = [
        _mistake_article(
            f"Mistake {number}" if len(models) == 1 else f"{model.name}: mistake {number}", mistake
        )
        for model in models
        for number, mistake in enumerate(model.evaluation.mistakes[:max_per_model], start=1)
    ]
    if not articles:
        return section(title, "mistakes", element("p", {}, "There is no mistake to show."))
    return section(title, "mistakes", *articles)


def left_out_section(models: Sequence[ReportedModel]) -> Html:
    """What is in no figure, and what a reader must know."""
    lines = dict.fromkeys(
        line if len(models) == 1 else f"{model.name}: {line}"
        for model in models
        for line in _left_out_lines(model.evaluation)
    )
    if not lines:
        return section("What was left out", "left-out", element("p", {}, "Nothing."))
    items = [element("li", {}, shortened(line, _MAX_TEXT_LENGTH)) for line in lines]
    return section("What was left out", "left-out", element("ul", {"class": "notes"}, *items))


def provenance_section(models: Sequence[ReportedModel]) -> Html:
    """The section with the files, models and seeds that the figures were made from."""
    rows = {
        "model": lambda found: _name_cell(found.model),
        "preferences": lambda found: _name_cell(found.data),
        "pairs": lambda found: text_cell(f"{found.pairs:,}"),
        "prompts": lambda found: text_cell(f"{found.prompts:,}"),
        "draws of the bootstrap, by prompt": lambda found: text_cell(f"{found.bootstrap:,}"),
        "seed of the bootstrap": lambda found: text_cell(str(found.seed)),
    }
    return section("How it was made", "made", models_table("Files, models and chance", models, rows))


def _name_cell(name: str) -> Html:
    return element("td", {"class": "long"}, shortened(name, _MAX_NAME_LENGTH))


def _mistake_article(title: str, mistake: Mistake) -> Html:
    facts = (mistake.category, f"margin {number_text(mistake.margin)}", mistake.origin)
    details = " · ".join(shortened(part, _MAX_NAME_LENGTH) for part in facts if part)
    quiet = element("span", {"class": "quiet"}, f" {details}")
    sides = (
        text_column("Annotators prefer", quoted_text(mistake.preferred, _MAX_TEXT_LENGTH), "now"),
        text_column("The model prefers", quoted_text(mistake.other, _MAX_TEXT_LENGTH), "before"),
    )
    return element(
        "article",
        {"class": "exchange"},
        element("h3", {}, title, quiet),
        quoted_text(mistake.prompt, _MAX_TEXT_LENGTH),
        element("div", {"class": "sides"}, *sides),
    )


def _left_out_lines(evaluation: RewardEvaluation) -> Iterator[str]:
    if evaluation.ties is not None:
        pairs = counted(evaluation.ties.pairs, "pair")
        yield f"{pairs} of which annotators prefer neither: in no accuracy and no calibration"
    if evaluation.equal:
        yield f"{counted(evaluation.equal, 'pair')} with the same reward on both sides: counted as half right"
    if evaluation.best_of is not None and evaluation.best_of.left_out:
        prompts = counted(evaluation.best_of.left_out, "prompt")
        yield f"best-of-n: {prompts} with an answer on which there is no verdict"
    yield from evaluation.notes


def write_reward_page(evaluations: Sequence[RewardEvaluation], path: Path) -> Path:
    """Writes the page of these models to ``path`` and returns it; a reader sees the old page or the new."""
    text = reward_page(evaluations)
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise UserError(
            f"{path}: the page cannot be written ({error.strerror}). Choose another place for it."
        ) from error
    return path


def reward_page(evaluations: Sequence[RewardEvaluation]) -> str:
    """The whole page."""
    if not evaluations:
        raise UserError("a page needs at least one evaluation: name a reward model")
    models = reported_models(evaluations)
    main = element(
        "main",
        {},
        header(models),
        accuracy_section(models),
        calibration_section(models),
        probes_section(models),
        best_of_n_section(models),
        *benchmark_sections(models),
        mistakes_section(models),
        left_out_section(models),
        provenance_section(models),
    )
    title = models[0].name if len(models) == 1 else f"{len(models)} reward models"
    return document(title, main, style=read_stylesheet("plaudit.report.charts", "charts.css"))
