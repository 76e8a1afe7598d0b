"""Every layout in one table: how each is known, and what it gives."""

from __future__ import annotations

from difflib import get_close_matches

from plaudit.errors import UserError
from plaudit.sources.layouts.benchmarks import BENCHMARK_LAYOUTS
from plaudit.sources.layouts.judged import JUDGED_LAYOUTS
from plaudit.sources.layouts.layout import Layout, ReadOptions
from plaudit.sources.layouts.own import OWN_LAYOUTS
from plaudit.sources.layouts.steps import STEP_LAYOUTS
from plaudit.sources.layouts.summaries import SUMMARY_LAYOUTS
from plaudit.sources.layouts.transcripts import TRANSCRIPT_LAYOUTS
from plaudit.sources.layouts.trees import TREE_LAYOUTS
from plaudit.sources.layouts.trl import TRL_LAYOUTS

__all__ = ["LAYOUTS", "Layout", "ReadOptions", "layout_named", "layouts_table"]

LAYOUTS: tuple[Layout, ...] = (
    *OWN_LAYOUTS,
    *TRL_LAYOUTS,
    *TRANSCRIPT_LAYOUTS,
    *JUDGED_LAYOUTS,
    *SUMMARY_LAYOUTS,
    *STEP_LAYOUTS,
    *TREE_LAYOUTS,
    *BENCHMARK_LAYOUTS,
)
"""All of them, in the order in which they are listed."""


def layout_named(name: str) -> Layout:
    """The layout that ``--format`` means; an unknown name is answered with the nearest one.

    >>> layout_named("kto").name
    'trl-unpaired'
    """
    named = {other: layout for layout in LAYOUTS for other in (layout.name, *layout.aliases)}
    if name in named:
        return named[name]
    near = get_close_matches(name, named, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UserError(f"unknown format {name!r}: {hint}Known formats: {', '.join(named)}.")


def layouts_table() -> str:
    """The table of layouts in Markdown, for the page about data."""
    lines = ["| `--format` | rows have | each row gives |", "|---|---|---|"]
    for layout in LAYOUTS:
        names = ", ".join(f"`{name}`" for name in (layout.name, *layout.aliases))
        lines.append(f"| {names} | {layout.wants} | {layout.gives} |")
    return "\n".join(lines)
