"""What an exercise is: a question, a pipeline that answers it, and a look at what the pipeline left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from plaudit.pipeline.store import PipelineFolder
from plaudit.report.html import Html


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence that what was measured bears out, or does not.

    Example: ``Claim(statement="Without a leash answers grow.", holds=True, evidence="27 tokens became 48")``
    """

    statement: str
    """What is claimed, as a whole sentence that would be the same whatever was measured."""
    holds: bool | None
    """Whether it holds as measured; None where the measurement does not decide it."""
    evidence: str
    """The figures that it was decided by, with their intervals where there are any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A small table; its first column names the rows.

    Example: ``Table(head=("pooling", "accuracy"), rows=(("last", "71 %"), ("mean", "74 %")))``
    """

    head: tuple[str, ...]
    """What each column is."""
    rows: tuple[tuple[str, ...], ...]
    """Each as long as the head."""
    note: str = ""
    """What must be known to read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionedChart:
    """A chart, and a sentence that says what to look at.

    Example: ``CaptionedChart(title="How long", caption="Look at the end.", chart=curves("tokens", lines))``
    """

    title: str
    """What it shows."""
    caption: str
    """A sentence: what to look at."""
    chart: Html
    """A figure made with plaudit.report.charts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExerciseResult:
    """The result of an exercise: what its pipeline's folder shows.

    Example: ``ExerciseResult(claims=(Claim(…),), table=None, charts=(CaptionedChart(…),))``
    """

    claims: tuple[Claim, ...]
    """In the order in which they are told."""
    table: Table | None = None
    """The figures beside each other."""
    charts: tuple[CaptionedChart, ...] = ()
    """In the order in which they are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """One exercise of the lab.

    Example: ``Exercise(name="leash", title="What does the leash hold?", background="…",
        minutes=1.5, analyse=look)``
    """

    name: str
    """What the command calls it."""
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
