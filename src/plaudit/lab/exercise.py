"""What an exercise is: a question, a pipeline that answers it, and a look at what the pipeline left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from plaudit.lab.exercises.pages import ExerciseResult, PipelineFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    name: str
    title: str
    """The question that it answers."""
    background: str
    """What goes wrong, and who found it, in two to four sentences."""
    minutes: int | float
    """About how long it takes on two quiet cores."""
    analyse: Callable[[PipelineFolder], ExerciseResult]
    """Reads what the stages left, and returns claims, a table and charts."""
    next_commands: tuple[str, ...] = ()
    """What to try next: a command, ``: `` and what for."""

    @property
    def config(self) -> Path:
        """Its pipeline, as ``plaudit run`` reads it."""
        return Path(__file__).with_name("exercises") / f"{self.name}.yaml"


def exercise(name: str, analyse: Callable[[PipelineFolder], ExerciseResult]) -> Exercise:
    words = _exercises()[name]
    return Exercise(
        name=name,
        analyse=analyse,
        title=words["title"],
        background=words["background"],
        minutes=words["minutes"],
        next_commands=tuple(words["next_commands"]),
    )


def claim_rows(name: str) -> Sequence[Mapping[str, Any]]:
    return _exercises()[name]["claims"]


@cache
def _exercises() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    return found
