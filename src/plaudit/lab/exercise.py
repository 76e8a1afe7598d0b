"""What an exercise is: a question, a pipeline that answers it, and a look at what the pipeline left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from plaudit.page.html import Html
from plaudit.pipeline.folder import Folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence that what was measured bears out, or does not.

    Example: ``Claim(says="Without a leash answers grow.", holds=True, saw="27 tokens became 48")``
    """

    says: str
    """What is claimed, as a whole sentence that would be the same whatever was measured."""
    holds: bool | None
    """Whether it holds as measured; None where the measurement does not decide it."""
    saw: str
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
class Picture:
    """A drawing, and what to look at.

    Example: ``Picture(title="How long", says="Look at the end.", drawn=curves("tokens", lines))``
    """

    title: str
    """What it shows."""
    says: str
    """A sentence: what to look at."""
    drawn: Html
    """A figure made with plaudit.page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen in the folder of an exercise.

    Example: ``Seen(claims=(Claim(…),), table=None, pictures=(Picture(…),))``
    """

    claims: tuple[Claim, ...]
    """In the order in which they are told."""
    table: Table | None = None
    """The figures beside each other."""
    pictures: tuple[Picture, ...] = ()
    """In the order in which they are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """One exercise of the lab.

    Example: ``Exercise(name="leash", title="What does the leash hold?", why="…", minutes=1.5, look=look)``
    """

    name: str
    """What the command calls it."""
    title: str
    """The question that it answers."""
    why: str
    """What goes wrong, and who found it, in two to four sentences."""
    minutes: int | float
    """About how long it takes on two quiet cores."""
    look: Callable[[Folder], Seen]
    """Reads what the stages left, and says what was seen."""
    further: tuple[str, ...] = ()
    """What to try next: a command, ``: `` and what for."""

    @property
    def config(self) -> Path:
        """Its pipeline, as ``plaudit run`` reads it."""
        return Path(__file__).with_name("exercises") / f"{self.name}.yaml"
