"""report.html of reward models: what was found about one or several of them, on a page that stands alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from plaudit.errors import UserError
from plaudit.evaluation.page_calibration import calibration
from plaudit.evaluation.page_foot import left_out, made, mistakes
from plaudit.evaluation.page_head import head
from plaudit.evaluation.page_parts import parts
from plaudit.evaluation.page_probes import probes
from plaudit.evaluation.page_shown import shown
from plaudit.evaluation.page_truth import benchmarks, best_of
from plaudit.evaluation.result import RewardEvaluation
from plaudit.page.frame import document, style_of
from plaudit.page.html import element


def write_page(evaluations: Sequence[RewardEvaluation], path: Path) -> Path:
    """Writes the page of these models to ``path`` and returns it; a reader sees the old page or the new."""
    text = page_of(evaluations)
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


def page_of(evaluations: Sequence[RewardEvaluation]) -> str:
    """The whole page."""
    if not evaluations:
        raise UserError("a page needs at least one evaluation: name a reward model")
    models = shown(evaluations)
    main = element(
        "main",
        {},
        head(models),
        parts(models),
        calibration(models),
        probes(models),
        best_of(models),
        *benchmarks(models),
        mistakes(models),
        left_out(models),
        made(models),
    )
    title = models[0].name if len(models) == 1 else f"{len(models)} reward models"
    return document(title, main, style=style_of("plaudit.page", "charts.css"))
