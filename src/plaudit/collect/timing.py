"""How long people take for a label of a project, and what is still to be labelled in it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from sqlalchemy import bindparam, select

from plaudit.collect.progress import project_status
from plaudit.collect.store import LabelStore
from plaudit.collect.tables import label, task

_SECONDS = select(label.c.seconds).where(
    label.c.project == bindparam("p"), label.c.purpose != "judged", label.c.seconds.is_not(None)
)
_ITEMS = select(task.c.id).where(task.c.project == bindparam("p"), task.c.purpose == "gold").limit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A project as a plan needs it."""

    ask: str
    overlap: int
    most: int
    """Up to how many where they are divided."""
    open_tasks: int
    missing: int
    checks: float
    """The share of gold and of repeated items among what is given out."""
    timed: int
    """Labels whose seconds are known."""
    median_seconds: float | None
    """Their median: a break while a page stands open would carry a mean away."""


def project_timing(store: LabelStore, project: str) -> Timing:
    """How long people took in a project so far, and what is left to do."""
    with store.looking() as look:
        settings = look.settings(project)
        status = project_status(look, project)
        seconds = [float(row.seconds) for row in look.connection.execute(_SECONDS, {"p": project})]
        has_gold = look.connection.execute(_ITEMS, {"p": project}).first() is not None
    return Timing(
        ask=settings.ask,
        overlap=settings.overlap,
        most=settings.limit,
        open_tasks=status.tasks.get("open", 0),
        missing=status.missing,
        checks=(settings.gold_share if has_gold else 0.0) + settings.repeat,
        timed=len(seconds),
        median_seconds=median(seconds) if seconds else None,
    )
