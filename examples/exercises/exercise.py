"""What an exercise is: a question, a pipeline that answers it, and a look at what the pipeline left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from examples.exercises.pages import CaptionedChart, ExerciseResult, PipelineFolder, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    name: str
    title: str
    background: str
    """What goes wrong, and who found it, in two to four sentences."""
    minutes: int | float
    analyse: Callable[[PipelineFolder], ExerciseResult]
    """Reads what the stages left, and returns claims, a table and charts."""
    next_commands: tuple[str, ...] = ()
    """What to try next: a command, ``: `` and what for."""

    @property
    def config(self) -> Path:
        """Its pipeline, as ``plaudit run`` reads it."""
        return Path(__file__).with_name(f"{self.name}.yaml")


def exercise(name: str, analyse: Callable[[PipelineFolder], ExerciseResult]) -> Exercise:
    words = _exercises()[name]
    headings = {part: words[part] for part in ("title", "background", "minutes")}
    return Exercise(name=name, analyse=analyse, next_commands=tuple(words["next_commands"]), **headings)


def claim_rows(name: str) -> Sequence[Mapping[str, Any]]:
    return _exercises()[name]["claims"]


def table_head(name: str) -> tuple[str, ...]:
    return tuple(_exercises()[name]["table"]["head"])


def result_table(name: str, rows: Iterable[tuple[str, ...]], **fields: object) -> Table:
    """Rows under the head that an exercise has for them; ``fields`` stand in the note below."""
    words = _exercises()[name]["table"]
    return Table(head=table_head(name), rows=tuple(rows), note=words["note"].format(**fields))


def captioned(name: str, *charts: Markup) -> tuple[CaptionedChart, ...]:
    """The charts of an exercise, in the order of its titles and captions."""
    words = zip(_exercises()[name]["charts"], charts, strict=True)
    return tuple(CaptionedChart(**row, chart=chart) for row, chart in words)


@cache
def _exercises() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    return found
