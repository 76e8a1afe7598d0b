"""report.html of a pipeline: what was done, what came of it, what to doubt; the page stands alone."""

from __future__ import annotations

from pathlib import Path

from plaudit.page.frame import document, style_of
from plaudit.page.html import element
from plaudit.reports.doubts import doubts
from plaudit.reports.page_answers import habits, samples
from plaudit.reports.page_confidence import confidence
from plaudit.reports.page_curves import distance, training
from plaudit.reports.page_faults import checks, warnings
from plaudit.reports.page_head import done, head, headline
from plaudit.reports.page_origins import again, origins
from plaudit.reports.page_reward import rewards
from plaudit.reports.page_wins import categories, wins
from plaudit.reports.reading import is_evaluation, is_pipeline, read_story
from plaudit.reports.story import Story
from plaudit.training import durable
from plaudit.training.page.facts import read_facts
from plaudit.training.report import page_of as page_of_training


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Writes ``report.html`` from what lies in the folder, finished or not; returns where it is."""
    return _written(page_of(read_story(folder)), out or folder / "report.html")


def write_any(folder: Path, out: Path | None = None) -> Path:
    """The page of a pipeline, of an evaluation, or of a training run, which has a page of its own."""
    if is_pipeline(folder) or is_evaluation(folder) or not (folder / "config.yaml").is_file():
        return write_report(folder, out)
    facts = read_facts(folder)
    method = facts.origin.method if facts.origin else ""
    text = page_of_training(facts, f"plaudit train {method or 'sft'}")
    return _written(text, out or folder / "report.html")


def page_of(story: Story) -> str:
    """The whole page."""
    found = doubts(story)
    main = element(
        "main",
        {},
        head(story, found),
        done(story),
        headline(story),
        *wins(story),
        *categories(story),
        *training(story),
        *distance(story),
        *rewards(story),
        *habits(story),
        *confidence(story),
        *samples(story),
        checks(story),
        warnings(story, found),
        origins(story),
        again(story),
    )
    return document(story.name, main, style=style())


def _written(text: str, path: Path) -> Path:
    durable.make_folder(path.parent)
    durable.write_text(path, text)
    return path


def style() -> str:
    """What the page has beside the common style sheet."""
    sheets = (
        ("plaudit.page", "charts.css"),
        ("plaudit.training.page", "run.css"),
        ("plaudit.reports", "reports.css"),
    )
    return "".join(style_of(package, name) for package, name in sheets)
