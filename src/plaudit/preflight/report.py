"""What the checks found, as a table, text and JSON, and the pages of docs/checks/ made from the same checks.

The pages are written anew by:

    python -m plaudit.preflight.report docs
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from plaudit.preflight.check import Check, Finding
from plaudit.preflight.checks import CHECKS

PAGE_WIDTH = 120


def check_page(check: Check) -> str:
    """The Markdown page of one check in docs/checks/."""
    when = "In `plaudit check` only: it takes steps or passes that a run would have to pay for again."
    if check.at_start:
        when = "In `plaudit check`, and before the first step of every run."
    parts = {
        "What it proves": check.texts["proves"],
        "Why it matters": check.texts["matters"],
        "How it looks": " ".join((check.run.__doc__ or "").split()),
        "How to mend it": check.texts["mend"],
        "When it looks": f"{when} `--allow {check.name}` lets a run go on although it fails.",
    }
    body = "\n\n".join(
        f"## {head}\n\n{fill(text, PAGE_WIDTH, break_on_hyphens=False)}" for head, text in parts.items()
    )
    return f"# {check.name}\n\n{body}\n\n[All checks](../checks.md)\n"


def checks_table() -> str:
    rows = (
        f"| [{name}](checks/{name}.md) | {check.texts['proves']} | {'yes' if check.at_start else ''} |"
        for name, check in CHECKS.items()
    )
    return "\n".join(["| check | what it proves | at the start of a run |", "|---|---|---|", *rows])


def write_pages(docs: Path) -> None:
    """Rewrite every page in docs/checks/, and the table between its marks in docs/checks.md."""
    folder = docs / "checks"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        old.unlink()
    for check in CHECKS.values():
        (folder / f"{check.name}.md").write_text(check_page(check), encoding="utf-8")
    overview = docs / "checks.md"
    before, _, rest = overview.read_text(encoding="utf-8").partition(TABLE_BEGIN)
    after = rest.partition(TABLE_END)[2]
    overview.write_text(f"{before}{TABLE_BEGIN}\n\n{checks_table()}\n\n{TABLE_END}{after}", encoding="utf-8")


TABLE_BEGIN = "<!-- the table is built from plaudit.preflight.checks -->"
TABLE_END = "<!-- here it ends -->"


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))

VERDICT_COLOURS = {
    "pass": "green",
    "warn": "yellow",
    "FAIL": "bold red",
    "allowed": "yellow",
    "not applicable": "dim",
}


def finding_table(findings: Sequence[Finding]) -> Table:
    """A line for each check that had something to look at."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("seen", overflow="fold")
    for finding in findings:
        if finding.result.holds is not None:
            table.add_row(
                finding.check.name,
                Text(finding.verdict, style=VERDICT_COLOURS[finding.verdict]),
                Text(finding.result.details),
            )
    return table


def not_applicable_text(findings: Sequence[Finding]) -> str:
    """The checks that were not applicable, grouped by reason, one reason a line."""
    names: dict[str, list[str]] = {}
    for finding in findings:
        if finding.result.holds is None:
            names.setdefault(finding.result.details, []).append(finding.check.name)
    return "\n".join(f"{', '.join(check_names)}: {why}" for why, check_names in names.items())


def failures_text(findings: Sequence[Finding]) -> str:
    """For each check that fails: what should hold, why it matters and how to fix it."""
    return "\n\n".join(
        f"{finding.check.name}: {finding.result.details}\n"
        f"  should hold: {finding.check.texts['proves']}\n"
        f"  why it matters: {finding.check.texts['matters']}\n"
        f"  to mend it: {finding.check.texts['mend']}\n"
        f"  docs/checks/{finding.check.name}.md"
        for finding in findings
        if finding.result.holds is False
    )


def as_dict(findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "holds": not any(finding.blocks_run for finding in findings),
        "checks": [
            {
                "name": finding.check.name,
                "verdict": finding.verdict,
                "finding": finding.result.details,
                "seconds": round(finding.seconds, 3),
                "proves": finding.check.texts["proves"],
                "matters": finding.check.texts["matters"],
                "mend": finding.check.texts["mend"],
            }
            for finding in findings
        ],
    }
