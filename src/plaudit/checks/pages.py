"""The pages of docs/checks/, made of the table, so that what a check says and what is written of it are one.

python -m plaudit.checks.pages docs
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import fill

from plaudit.checks.check import Check
from plaudit.checks.table import CHECKS

WIDTH = 120
"""Columns of a page."""


def page(check: Check) -> str:
    """One check's page.

    >>> page(CHECKS["one-bos"]).splitlines()[0]
    '# one-bos'
    """
    when = (
        "In `plaudit check`, and before the first step of every run."
        if check.at_start
        else ("In `plaudit check` only: it takes steps or passes that a run would have to pay for again.")
    )
    parts = {
        "What it proves": check.proves,
        "Why it matters": check.matters,
        "How it looks": (check.look.__doc__ or "").strip(),
        "How to mend it": check.mend,
        "When it looks": f"{when} `--allow {check.name}` lets a run go on although it fails.",
    }
    body = "\n\n".join(
        f"## {head}\n\n{fill(text, WIDTH, break_on_hyphens=False)}" for head, text in parts.items()
    )
    return f"# {check.name}\n\n{body}\n\n[All checks](../checks.md)\n"


def table() -> str:
    """The table of docs/checks.md."""
    rows = (
        f"| [{name}](checks/{name}.md) | {check.proves} | {'yes' if check.at_start else ''} |"
        for name, check in CHECKS.items()
    )
    return "\n".join(["| check | what it proves | at the start of a run |", "|---|---|---|", *rows])


def write(docs: Path) -> None:
    """Every page, and the table between its marks."""
    folder = docs / "checks"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        old.unlink()
    for check in CHECKS.values():
        (folder / f"{check.name}.md").write_text(page(check), encoding="utf-8")
    whole = docs / "checks.md"
    before, _, rest = whole.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    whole.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", encoding="utf-8")


BEGIN, END = "<!-- the table is built from plaudit.checks.table -->", "<!-- here it ends -->"
"""Marks around the table."""


if __name__ == "__main__":
    write(Path(sys.argv[1]))
