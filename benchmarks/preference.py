"""plaudit's DPO and KTO steps against TRL's: in turn, each run in its own process, on the same folder.

python -m benchmarks.preference            prints a table for each shape and length, and one for KTO
python -m benchmarks.preference --save     and keeps them in RESULTS.md
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.table import Side, side_by_side
from benchmarks.turns import (
    BATCH,
    PEER,
    Command,
    about,
    in_turn,
    keep,
    numbers_from,
    options,
    ours,
    refuse_without_peer,
    theirs,
)
from benchmarks.work import SHAPES, Rows, write_preference_work

TITLE = "Preference optimisation against TRL"
APART = 1e-3
"""Log-ratios of whole answers further apart than this are of other models or texts: no timing counts."""
LOSSES_APART = {"dpo": 1e-5, "kto": 2e-2}
"""First losses agree; KTO's depend on which answers to other prompts each side happens to take."""
LIVE = 4
"""So many of the sides have their reference beside the policy; the others have asked it before."""
LENGTHS = {"256+128": (256, 128), "64+256": (64, 256)}
"""Words of the longest prompt and completion."""


def compare(method: str, shape: str, rows: Rows, given: argparse.Namespace) -> tuple[str, list[Side]]:
    """One method on one shape: the reference beside the policy, and computed before."""
    answers = BATCH[shape] * (2 if method == "kto" else 1)
    sides = _sides(method, ("--batch", str(answers)))
    rows = replace(rows, count=given.steps * BATCH[shape])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_preference_work(work, SHAPES[shape], rows)
        apart, count = ratios_apart(work, given.threads)
        outcome = in_turn(sides, work, given)
    told = f"log π − log π_ref of {count} answers differs by at most {apart:.1g}."
    if apart > APART:
        outcome = [
            replace(side, objection=told) if command.words[0] == str(PEER) else side
            for command, side in zip(sides, outcome, strict=True)
        ]
    batch = f"{answers} {'thumbs' if method == 'kto' else 'comparisons'}"
    head = about(shape, batch, rows, given.threads)
    unit = "thumbs" if method == "kto" else "comparisons"
    tables = [
        side_by_side(part, exact=len(part), unit=unit, agreement=LOSSES_APART[method])
        for part in (outcome[:LIVE], outcome[LIVE:])
    ]
    return "\n\n".join([f"{head} {method.upper()}; {told}", *tables]), outcome


def _sides(method: str, batch: Sequence[str]) -> tuple[Command, ...]:
    mine = ("our_preference", "--method", method, *batch)
    peer = (method, *batch)
    return (
        Command(name="plaudit, reference live", words=ours(*mine)),
        Command(name="plaudit, 1,024 tokens at once, live", words=ours(*mine, "--tokens-at-once", "1024")),
        Command(name="TRL, its defaults, live", words=theirs(*peer)),
        Command(name="TRL, its best (plain), live", words=theirs(*peer, "--variant", "plain")),
        Command(name="plaudit, precomputed", words=ours(*mine, "--reference", "precomputed")),
        Command(name="TRL, its defaults, precomputed", words=theirs(*peer, "--variant", "precomputed")),
        Command(
            name="TRL, its best (plain), precomputed", words=theirs(*peer, "--variant", "plain-precomputed")
        ),
    )


def ratios_apart(work: Path, threads: int) -> tuple[float, int]:
    """The largest difference between both sides' log-ratios of answers, and how many there are."""
    asked = ("--rewards", "--threads", str(threads), str(work))
    mine, other = numbers_from(ours("our_preference", *asked)), numbers_from(theirs("dpo", *asked))
    if len(mine) != len(other):
        raise SystemExit(f"we score {len(mine)} answers and the peer {len(other)}: not the same rows")
    return max(abs(one - another) for one, another in zip(mine, other, strict=True)), len(mine)


def main() -> None:
    """From the command line: python -m benchmarks.preference [--shapes mid smol] [--kto mid] [--save]."""
    parser = options("compare plaudit's preference step with TRL's")
    parser.add_argument("--lengths", nargs="+", choices=LENGTHS, default=[*LENGTHS])
    parser.add_argument("--kto", nargs="*", choices=SHAPES, default=["mid"], help="shapes for KTO")
    given = parser.parse_args()
    refuse_without_peer()
    plan = [("dpo", shape, length) for shape in given.shapes for length in given.lengths]
    plan += [("kto", shape, given.lengths[0]) for shape in given.kto]
    sections: list[str] = []
    for method, shape, length in plan:
        prompt, completion = LENGTHS[length]
        rows = Rows(prompt=prompt, completion=completion)
        section, sides = compare(method, shape, rows, given)
        sections.append(section)
        print(f"\n{section}\n", flush=True)
        if given.save:
            keep(TITLE, sections, sides, given)


if __name__ == "__main__":
    main()
