"""Sentences of pages: sentences.yaml has them with named fields, and code decides which of them is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from string import Formatter
from typing import Any

import yaml

from plaudit.runs.report.parts import interval_text
from plaudit.runs.report.words import counted, names_text, number_text, percent, short_name

_WRITERS: Mapping[str, Callable[..., str]] = {
    "counted": counted,
    "ends": lambda estimate: interval_text(estimate, share=True),
    "interval": interval_text,
    "names": lambda names: names_text(map(short_name, names)),
    "number": number_text,
    "percent": percent,
    "short": short_name,
}
"""What may stand behind the colon of a field; ``counted`` is followed by its noun."""


class _SentenceFormatter(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        writer, _, noun = format_spec.partition(" ")
        if writer in _WRITERS:
            return _WRITERS[writer](value, noun) if noun else _WRITERS[writer](value)
        return format(value, format_spec)


@cache
def _sentences() -> Mapping[str, Any]:
    return yaml.safe_load(
        resources.files("plaudit.runs.report").joinpath("sentences.yaml").read_text("utf-8")
    )


def say(name: str, /, **fields: object) -> str:
    """The sentence of this name; what stands in its fields is never read as a field itself.

    >>> say("run.stayed", value=0.25)
    'stayed at 0.250'
    """
    return _SentenceFormatter().vformat(_entry(name), (), fields)


def say_each(name: str, /, **fields: object) -> dict[str, str]:
    """A group of sentences by their names, as the three of a warning are."""
    return {part: _SentenceFormatter().vformat(text, (), fields) for part, text in _entry(name).items()}


def _entry(name: str) -> Any:
    entry = _sentences()
    for part in name.split("."):
        entry = entry[part]
    return entry
