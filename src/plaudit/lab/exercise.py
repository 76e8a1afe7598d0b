"""What an exercise is: a question, a pipeline that answers it, and a look at what the pipeline left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from plaudit.runs.pipeline.store import PipelineFolder
from plaudit.runs.report.lab import ExerciseResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """One exercise of the lab."""

    name: str
    title: str
    background: str
    minutes: int | float
    analyse: Callable[[PipelineFolder], ExerciseResult]
    """Reads what the stages left, and returns claims, a table and charts."""
    next_commands: tuple[str, ...] = ()
    """What to try next: a command, ``: `` and what for."""

    @property
    def config(self) -> Path:
        """Its pipeline, as ``plaudit run`` reads it."""
        return Path(__file__).with_name("exercises") / f"{self.name}.yaml"
