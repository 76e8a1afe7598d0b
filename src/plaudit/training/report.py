"""report.html: a run on one page, for eyes; written at its end, and again whenever somebody asks."""

from __future__ import annotations

from pathlib import Path

from plaudit.page.frame import document, style_of
from plaudit.page.html import element
from plaudit.training import durable
from plaudit.training.page.facts import RunFacts, read_facts
from plaudit.training.page.head import curves, head
from plaudit.training.page.origins import commands, origins, settings
from plaudit.training.page.said import notes, samples


def write_report(run: Path, *, command: str = "plaudit train sft") -> Path:
    """Writes ``report.html`` from what lies in the run folder, finished or not; returns where it is.

    ``command`` is what the run was started with; the page shows it with the run's own config.
    """
    facts = read_facts(run)
    path = run / "report.html"
    durable.write_text(path, page_of(facts, command))
    return path


def page_of(facts: RunFacts, command: str) -> str:
    """The whole page."""
    main = element(
        "main",
        {},
        head(facts),
        curves(facts.history),
        samples(facts.exchanges),
        notes(facts.notes),
        origins(facts.origin),
        settings(facts.config),
        commands(facts, command),
    )
    style = style_of("plaudit.page", "charts.css") + style_of("plaudit.training.page", "run.css")
    return document(facts.name, main, style=style)
