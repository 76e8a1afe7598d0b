"""What ``plaudit lab`` prints: the exercises, what was seen, and how many claims hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from plaudit.cli.talking import make_console, shown
from plaudit.lab.exercise import Exercise, Seen, Table
from plaudit.lab.looking import tally, verdict
from plaudit.lab.page import PAGE
from plaudit.lab.shelf import EXERCISES

_COLOURS = {True: "green", False: "red", None: "yellow"}
_WIDE = 15
"""Letters of the longest verdict and two more."""


def print_list() -> None:
    """The exercises with their questions, and how to go on."""
    names = max(len(one.name) for one in EXERCISES)
    print("What goes wrong in RLHF, as exercises on the embedded world:\n")
    for one in EXERCISES:
        print(f"  {one.name:{names}}  {one.title} (about {one.minutes:g} min)")
    first = EXERCISES[0].name
    print(f"\nplaudit lab {first}                 runs one; several names, or all, run one after another")
    print(f"plaudit lab {first} --write my.yaml writes its config, to be changed")
    print("docs/lab.md says what each one shows")


def print_seen(exercise: Exercise, seen: Seen, out: Path) -> None:
    """The claims with what they were decided by, and the table."""
    console = make_console()
    console.print()
    for claim in seen.claims:
        console.print(f"  {verdict(claim):{_WIDE}}", style=_COLOURS[claim.holds], end="")
        console.print(shown(claim.says))
        console.print(f"  {'':{_WIDE}}{shown(claim.saw)}", style="dim")
    if seen.table is not None:
        console.print(_drawn(seen.table))
    console.print(f"  {tally(seen)}. The page: {out / exercise.name / PAGE}\n")


def print_tally(seen: Mapping[str, Seen], out: Path) -> None:
    """How many claims of each hold, where there are several; and the page over all."""
    console = make_console()
    names = max((len(name) for name in seen), default=0)
    for name, one in seen.items() if len(seen) > 1 else ():
        console.print(f"  {name:{names}}  {tally(one)}")
    if seen:
        console.print(f"All exercises: {out / PAGE}")


def _drawn(told: Table) -> object:
    from rich import box
    from rich.table import Table as Drawn

    rows = [[shown(cell).replace(" (", "\n(") for cell in row] for row in told.rows]
    table = Drawn(box=box.SIMPLE_HEAD, pad_edge=False, caption=shown(told.note), caption_justify="left")
    for at, name in enumerate(told.head):
        widest = max((len(line) for row in rows for line in row[at].splitlines()), default=0)
        # Heads are broken between words before a figure is.
        table.add_column(shown(name), justify="right" if at else "left", min_width=widest, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
