"""What was found as a table for eyes, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from plaudit.checks.checking import Finding

COLOURS = {"pass": "green", "FAIL": "bold red", "allowed": "yellow", "not applicable": "dim"}
"""Of each verdict."""


def finding_table(findings: Sequence[Finding]) -> Table:
    """A line for each check that had something to look at.

    >>> finding_table([]).row_count
    0
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("seen", overflow="fold")
    for one in findings:
        if one.result.holds is not None:
            table.add_row(one.check.name, Text(one.word, style=COLOURS[one.word]), Text(one.result.saw))
    return table


def left_aside(findings: Sequence[Finding]) -> str:
    """The checks that had nothing to look at, under the reasons.

    >>> left_aside([])
    ''
    """
    names: dict[str, list[str]] = {}
    for one in findings:
        if one.result.holds is None:
            names.setdefault(one.result.saw, []).append(one.check.name)
    return "\n".join(f"{', '.join(own)}: {why}" for why, own in names.items())


def failures(findings: Sequence[Finding]) -> str:
    """For each check that fails: what should hold, why it matters, how to mend it.

    >>> failures([])
    ''
    """
    return "\n\n".join(
        f"{one.check.name}: {one.result.saw}\n"
        f"  should hold: {one.check.proves}\n"
        f"  why it matters: {one.check.matters}\n"
        f"  to mend it: {one.check.mend}\n"
        f"  docs/checks/{one.check.name}.md"
        for one in findings
        if one.result.holds is False
    )


def as_dict(findings: Sequence[Finding]) -> dict[str, Any]:
    """Everything that was found, for JSON.

    >>> as_dict([])
    {'holds': True, 'checks': []}
    """
    return {
        "holds": not any(one.stops for one in findings),
        "checks": [
            {
                "name": one.check.name,
                "verdict": one.word,
                "saw": one.result.saw,
                "seconds": round(one.seconds, 3),
                "proves": one.check.proves,
                "matters": one.check.matters,
                "mend": one.check.mend,
            }
            for one in findings
        ],
    }
