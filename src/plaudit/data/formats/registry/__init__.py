"""Every layout in one table: how each is known, and what it gives."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from plaudit.config import did_you_mean
from plaudit.data.formats.annotation_tools import ANNOTATION_FORMATS
from plaudit.data.formats.layout import (
    ANSWER,
    ENDS_WITH_USER,
    MESSAGES,
    OBJECT,
    TEXT,
    TEXTS,
    UNANSWERED,
    ReadOptions,
    RowFormat,
)
from plaudit.data.formats.problems import INSTRUCTION_FORMATS, PROBLEM_FORMATS
from plaudit.data.formats.transcripts import TRANSCRIPT_FORMATS, TREE_FORMATS
from plaudit.data.formats.trl import PLAUDIT_FORMATS, TRL_FORMATS
from plaudit.data.formats.ultrafeedback import SCORED_FORMATS
from plaudit.data.formats.votes import VOTE_FORMATS
from plaudit.errors import UserError

__all__ = ["FORMATS", "ReadOptions", "RowFormat", "format_named", "formats_table"]

_WRITTEN: tuple[RowFormat, ...] = (
    *PLAUDIT_FORMATS,
    *TRL_FORMATS,
    *INSTRUCTION_FORMATS,
    *PROBLEM_FORMATS,
    *TRANSCRIPT_FORMATS,
    *SCORED_FORMATS,
    *TREE_FORMATS,
    *VOTE_FORMATS,
    *ANNOTATION_FORMATS,
)
_KINDS_OF_FIELDS = {
    kind.name: kind for kind in (TEXT, MESSAGES, TEXTS, OBJECT, ANSWER, UNANSWERED, ENDS_WITH_USER)
}


def _renamed_formats() -> Iterator[RowFormat]:
    """The formats of ``layouts.toml``: each is another one, whose fields have other names."""
    text = Path(__file__).with_name("layouts.toml").read_text("utf-8")
    table: Mapping[str, Mapping[str, Any]] = tomllib.loads(text)
    written = {row_format.name: row_format for row_format in _WRITTEN}
    for name, entry in table.items():
        model = written[entry["like"]]
        fields, types = entry["fields"], entry.get("types", {})
        kinds = {
            path: _KINDS_OF_FIELDS[types[field]] if field in types else model.schema[field]
            for field, path in fields.items()
        }
        optional = None if model.optional_fields is None else model.optional_fields - {*fields}
        yield replace(
            model,
            name=name,
            title=entry["title"],
            schema=kinds | {path: _KINDS_OF_FIELDS[kind] for path, kind in entry.get("also", {}).items()},
            names={field: path for field, path in (fields | entry.get("maybe", {})).items() if field != path},
            optional_fields=optional,
            excluded_fields=model.excluded_fields - {*fields.values()},
            is_generic=not entry.get("known", False),
            produces=entry["produces"],
            aliases=(),
        )


FORMATS: tuple[RowFormat, ...] = (*_WRITTEN, *_renamed_formats())
"""Every format that can be read, in the order in which they are listed."""


def format_named(name: str) -> RowFormat:
    """The layout that ``--format`` means; an unknown name is answered with the nearest one."""
    named = {other: row_format for row_format in FORMATS for other in (row_format.name, *row_format.aliases)}
    if name in named:
        return named[name]
    hint = did_you_mean(name, named) or "."
    raise UserError(f"unknown format {name!r}{hint} Known formats: {', '.join(named)}.")


def formats_table() -> str:
    """The table of layouts in Markdown, for the page about data."""
    lines = ["| `--format` | rows have | each row gives |", "|---|---|---|"]
    for row_format in FORMATS:
        format_names = ", ".join(f"`{name}`" for name in (row_format.name, *row_format.aliases))
        lines.append(f"| {format_names} | {row_format.schema_text} | {row_format.produces} |")
    return "\n".join(lines)
