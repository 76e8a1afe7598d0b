"""Sections of a pipeline's page that wings bring: each is written from a file that a stage leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from plaudit.runs.report.figures import Table
from plaudit.wings import everything, load


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWarning:
    """Something on the page that a reader should doubt.

    Example: ``ReportWarning(about="ppo", finding="answers are twice as long", reason="Judges like length.")``
    """

    about: str
    """The policy, stage or judge."""
    finding: str
    """What was found, without a full stop."""
    reason: str
    """The threshold from which it is reported, and why it matters."""
    grave: bool = False
    """Whether the finding at the head of the page may be wrong because of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFindings:
    """What the page shows of one stage, in a section of its wing's.

    Example: ``StageFindings(sentences=("sft falls for 12.5 % of 40 attacks.",), tables=(table,))``
    """

    sentences: tuple[str, ...]
    """What was found; they open the page where no stage compares policies."""
    details: tuple[str, ...] = ()
    """How it was measured, in sentences too."""
    missing: tuple[str, ...] = ()
    """What was not measured, so that the other figures are not read for the whole."""
    charts: tuple[Markup, ...] = ()
    """Drawings, as `share_chart` makes them."""
    tables: tuple[Table, ...] = ()
    """Figures in numbers."""
    warnings: tuple[ReportWarning, ...] = ()
    """What a reader should doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A section of the page, registered by a wing among its ``page_sections``.

    Example: ``PageSection(title="Thanks", note="Thanks are words.", file="thanks.json", read=thanks_of)``
    """

    title: str
    """What stands above it."""
    note: str
    """What one should know before one reads any figure of it."""
    file: str
    """What a stage that has something to show leaves in its folder; a folder with it alone has a page too."""
    read: Callable[[Path], StageFindings]
    """What there is to show, of a stage's folder with that file."""


def page_sections() -> Mapping[str, PageSection]:
    """Those of all wings, by the anchors that they have on the page."""
    return {name: load(place) for name, place in everything("page_sections").items()}


def section_files() -> Iterator[str]:
    for section in page_sections().values():
        yield section.file


def read_findings(folder: Path) -> dict[str, StageFindings]:
    """What there is to show of a stage, by the anchor of the section."""
    sections = page_sections().items()
    return {name: section.read(folder) for name, section in sections if (folder / section.file).is_file()}
