"""plaudit's SFT step against TRL's: in turn, each run in its own process, on the same folder.

python -m benchmarks.sft            prints one table for each shape
python -m benchmarks.sft --save     and keeps them in RESULTS.md
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.table import side_by_side
from benchmarks.turns import (
    BATCH,
    EXACT,
    about,
    both,
    in_turn,
    keep,
    options,
    ours,
    refuse_without_peer,
    theirs,
)
from benchmarks.work import SHAPES, Rows, write_work

TITLE = "SFT against TRL"
BEST: Mapping[str, str] = {"tiny": "plain", "mid": "padding-free", "smol": "plain"}
"""The fastest of the peer's variants."""


def main() -> None:
    """From the command line: python -m benchmarks.sft [--shapes mid smol] [--save]."""
    given = options("compare plaudit's SFT step with TRL's").parse_args()
    refuse_without_peer()
    sections: list[str] = []
    rows = Rows()
    for shape in given.shapes:
        batch = ("--batch", str(BATCH[shape]))
        with tempfile.TemporaryDirectory() as folder:
            write_work(Path(folder), SHAPES[shape], rows)
            sides = in_turn(
                both(ours("ours", *batch), theirs("sft", *batch), BEST[shape]), Path(folder), given
            )
        head = about(shape, f"{BATCH[shape]} rows", rows, given.threads)
        sections.append(f"{head}\n\n{side_by_side(sides, exact=EXACT)}")
        print(f"\n{sections[-1]}\n")
        if given.save:
            keep(TITLE, sections, sides, given)


if __name__ == "__main__":
    main()
