"""report.html: a run on one page, for eyes; written at its end, and again whenever somebody asks.

The page stands alone: no script, no font, no picture from elsewhere. What it shows of the model's words is
escaped, and its content policy forbids whatever might slip through.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from pathlib import Path

from plaudit.training import durable
from plaudit.training.page.facts import RunFacts, read_facts
from plaudit.training.page.head import curves, head
from plaudit.training.page.html import Html, element, empty
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
    body = element(
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
    page = element("html", {"lang": "en"}, _preamble(facts.name), element("body", {}, body))
    return f"<!DOCTYPE html>\n{page}\n"


def _preamble(name: str) -> Html:
    style = Html(resources.files("plaudit.training.page").joinpath("page.css").read_text("utf-8"))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # Only this one style sheet, known by its hash, may take effect; nothing may be loaded, run or sent.
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return element(
        "head",
        {},
        empty("meta", {"charset": "utf-8"}),
        empty("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        empty("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        empty("meta", {"name": "color-scheme", "content": "light dark"}),
        element("title", {}, name, " · plaudit"),
        element("style", {}, style),
    )
