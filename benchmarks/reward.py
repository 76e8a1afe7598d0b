"""plaudit's reward step against TRL's: in turn, each run in its own process, on the same folder.

python -m benchmarks.reward            prints a table for each shape, and one for rankings of nine answers
python -m benchmarks.reward --save     and keeps them in RESULTS.md
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import comb
from pathlib import Path

from benchmarks.table import Side, side_by_side
from benchmarks.turns import (
    BATCH,
    EXACT,
    Command,
    about,
    both,
    in_turn,
    largest_difference,
    options,
    ours,
    run_plan,
    theirs,
    without_peer,
)
from benchmarks.work import SHAPES, Rows, write_judged_work

TITLE = "Reward models against TRL"
BEST = "plain"
"""The fastest of the peer's variants; its RewardTrainer has no padding-free one."""
MAX_REWARD_DIFFERENCE = 1e-5
"""Rewards further apart than this are another model's, or another text's: no timing counts."""
MAX_LOSS_DIFFERENCE = 1e-5
"""First losses have to agree to five decimals."""
SMALL = 1024
"""Tokens of a piece where memory is short; the step is the same."""
ANSWERS = 9
"""Of a ranking: as many as InstructGPT's annotators had before them at most."""


def compare(shape: str, rows: Rows, given: argparse.Namespace) -> tuple[str, list[Side]]:
    """Comparisons: the same pairs on all sides."""
    batch = ("--batch", str(BATCH[shape]))
    mine = ours("our_reward", *batch)
    first, *others = both(mine, theirs("reward", *batch), BEST)
    name = f"plaudit, {SMALL:,} tokens at once, float32"
    sides = (first, Command(name=name, words=(*mine, "--tokens-at-once", str(SMALL))), *others)
    rows = replace(rows, count=given.steps * BATCH[shape])
    sentence, outcome = _measured(shape, rows, 2, sides, given)
    head = about(shape, f"{BATCH[shape]} comparisons", rows, given.threads)
    return f"{head} {sentence}\n\n{_table(outcome, EXACT + 1)}", outcome


def compare_rankings(shape: str, rows: Rows, given: argparse.Namespace) -> tuple[str, list[Side]]:
    """One ranking a step, whole or as all of its comparisons."""
    pairs = ("--batch", str(comb(ANSWERS, 2)))
    fastest = theirs("reward", *pairs, "--variant", BEST)
    sides = (
        Command(
            name=f"plaudit, one ranking of {ANSWERS}", words=ours("our_reward", "--rankings", "--batch", "1")
        ),
        Command(name=f"plaudit, its {comb(ANSWERS, 2)} comparisons", words=ours("our_reward", *pairs)),
        Command(name="TRL, its defaults, the comparisons", words=theirs("reward", *pairs)),
        Command(name=f"TRL, its best ({BEST}), the comparisons", words=fastest),
    )
    rows = replace(rows, count=given.steps)
    sentence, outcome = _measured(shape, rows, ANSWERS, sides, given)
    head = about(shape, f"one ranking of {ANSWERS} answers", rows, given.threads)
    return f"{head} {sentence}\n\n{_table(outcome, len(sides))}", outcome


def _measured(
    shape: str, rows: Rows, answers: int, sides: Sequence[Command], given: argparse.Namespace
) -> tuple[str, list[Side]]:
    """What was found to be equal, and the sides; where rewards differ, the peer's do not count."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_judged_work(work, SHAPES[shape], rows, answers)
        difference, count = reward_difference(work, given.threads, given.device)
        outcome = in_turn(sides, work, given)
    sentence = f"The rewards of {count} answers differ by at most {difference:.1g}."
    return sentence, outcome if difference <= MAX_REWARD_DIFFERENCE else without_peer(
        sides, outcome, sentence
    )


def reward_difference(work: Path, threads: int, device: str = "cpu") -> tuple[float, int]:
    """The largest difference between the two sides' rewards of the folder's pairs, and how many there are."""
    options = ("--rewards", "--threads", str(threads), "--device", device, str(work))
    return largest_difference(ours("our_reward", *options), theirs("reward", *options))


def _table(sides: Sequence[Side], exact: int) -> str:
    return side_by_side(sides, exact=exact, unit="comparisons", agreement=MAX_LOSS_DIFFERENCE)


def main() -> None:
    """From the command line: python -m benchmarks.reward [--shapes mid smol] [--save]."""
    parser = options("compare plaudit's reward step with TRL's")
    parser.add_argument("--rankings", nargs="*", choices=SHAPES, default=["mid"], help="shapes to rank with")
    given = parser.parse_args()
    plan = [partial(compare, shape, Rows(), given) for shape in given.shapes]
    plan += [partial(compare_rankings, shape, Rows(), given) for shape in given.rankings]
    run_plan(TITLE, plan, given)


if __name__ == "__main__":
    main()
