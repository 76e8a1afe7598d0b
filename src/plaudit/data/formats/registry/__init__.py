"""Every layout in one table: how each is known, and what it gives."""

from __future__ import annotations

from difflib import get_close_matches

from plaudit.data.formats.annotation_tools import ANNOTATION_FORMATS
from plaudit.data.formats.benchmarks import BENCHMARK_FORMATS
from plaudit.data.formats.instructions import INSTRUCTION_FORMATS
from plaudit.data.formats.layout import ReadOptions, RowFormat
from plaudit.data.formats.own import PLAUDIT_FORMATS
from plaudit.data.formats.prm800k import STEP_FORMATS
from plaudit.data.formats.problems import PROBLEM_FORMATS
from plaudit.data.formats.summaries import SUMMARY_FORMATS
from plaudit.data.formats.transcripts import TRANSCRIPT_FORMATS, TREE_FORMATS
from plaudit.data.formats.trl import TRL_FORMATS
from plaudit.data.formats.ultrafeedback import SCORED_FORMATS
from plaudit.data.formats.votes import VOTE_FORMATS
from plaudit.errors import UserError

__all__ = ["FORMATS", "ReadOptions", "RowFormat", "format_named", "formats_table"]

FORMATS: tuple[RowFormat, ...] = (
    *PLAUDIT_FORMATS,
    *TRL_FORMATS,
    *INSTRUCTION_FORMATS,
    *PROBLEM_FORMATS,
    *TRANSCRIPT_FORMATS,
    *SCORED_FORMATS,
    *SUMMARY_FORMATS,
    *STEP_FORMATS,
    *TREE_FORMATS,
    *VOTE_FORMATS,
    *ANNOTATION_FORMATS,
    *BENCHMARK_FORMATS,
)
"""Every format that can be read, in the order in which they are listed."""


def format_named(name: str) -> RowFormat:
    """The layout that ``--format`` means; an unknown name is answered with the nearest one.

    >>> format_named("kto").name
    'trl-unpaired'
    """
    named = {other: row_format for row_format in FORMATS for other in (row_format.name, *row_format.aliases)}
    if name in named:
        return named[name]
    near = get_close_matches(name, named, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UserError(f"unknown format {name!r}: {hint}Known formats: {', '.join(named)}.")


def formats_table() -> str:
    """The table of layouts in Markdown, for the page about data."""
    lines = ["| `--format` | rows have | each row gives |", "|---|---|---|"]
    for row_format in FORMATS:
        format_names = ", ".join(f"`{name}`" for name in (row_format.name, *row_format.aliases))
        lines.append(f"| {format_names} | {row_format.schema_text} | {row_format.produces} |")
    return "\n".join(lines)
