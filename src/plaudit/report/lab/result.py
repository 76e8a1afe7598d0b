"""What an exercise of the lab found: claims, a table and charts."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from plaudit.report.words import counted

_VERDICTS = {True: "holds", False: "does not hold", None: "not decided"}


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

    @property
    def verdict(self) -> str:
        """How it came out, in words.

        >>> Claim(statement="Answers grow.", holds=None, evidence="27 tokens (20 to 40) became 31").verdict
        'not decided'
        """
        return _VERDICTS[self.holds]


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
    chart: Markup
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

    @property
    def all_hold(self) -> bool:
        """Whether every claim holds."""
        return all(claim.holds for claim in self.claims)

    @property
    def summary(self) -> str:
        """How many claims came out how.

        >>> claim = Claim(statement="Answers grow.", holds=True, evidence="8 tokens became 48")
        >>> ExerciseResult(claims=(claim,)).summary
        '1 of 1 claim holds'
        """
        holding = sum(claim.holds is True for claim in self.claims)
        undecided = sum(claim.holds is None for claim in self.claims)
        summary = f"{holding} of {counted(len(self.claims), 'claim')} {'holds' if holding == 1 else 'hold'}"
        return f"{summary}, {undecided} not decided" if undecided else summary
