"""plaudit's SFT step against TRL's: in turn, each run in its own process, on the same folder.

python -m benchmarks.sft            prints one table for each shape
python -m benchmarks.sft --save     and keeps them in RESULTS.md
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.table import Side, side_by_side
from benchmarks.turns import BATCH, EXACT, about, both, in_turn, options, ours, run_plan, theirs
from benchmarks.work import SHAPES, Rows, write_work

TITLE = "SFT against TRL"
BEST: Mapping[str, str] = {"tiny": "plain", "mid": "padding-free", "smol": "plain"}
"""The fastest of the peer's variants."""


def compare(shape: str, given: argparse.Namespace) -> tuple[str, list[Side]]:
    """The same rows on all sides."""
    rows, batch = Rows(), ("--batch", str(BATCH[shape]))
    commands = both(ours("ours", *batch), theirs("sft", *batch), BEST[shape])
    with tempfile.TemporaryDirectory() as folder:
        write_work(Path(folder), SHAPES[shape], rows)
        sides = in_turn(commands, Path(folder), given)
    head = about(shape, f"{BATCH[shape]} rows", rows, given.threads)
    return f"{head}\n\n{side_by_side(sides, exact=EXACT)}", sides


def main() -> None:
    """From the command line: python -m benchmarks.sft [--shapes mid smol] [--save]."""
    given = options("compare plaudit's SFT step with TRL's").parse_args()
    run_plan(TITLE, [partial(compare, shape, given) for shape in given.shapes], given)


if __name__ == "__main__":
    main()
