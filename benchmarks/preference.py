"""plaudit's DPO and KTO steps against TRL's: in turn, each run in its own process, on the same folder.

python -m benchmarks.preference            prints a table for each shape and length, and one for KTO
python -m benchmarks.preference --save     and keeps them in RESULTS.md
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.table import Side, side_by_side
from benchmarks.turns import (
    BATCH,
    Command,
    about,
    in_turn,
    largest_difference,
    options,
    ours,
    run_plan,
    theirs,
    without_peer,
)
from benchmarks.work import SHAPES, Rows, write_preference_work

TITLE = "Preference optimisation against TRL"
MAX_DIFFERENCE = 1e-3
"""Log-ratios of whole answers further apart than this are of other models or texts: no timing counts."""
MAX_LOSS_DIFFERENCE = {"dpo": 1e-5, "kto": 2e-2}
"""First losses agree; KTO's depend on which answers to other prompts each side happens to take."""
SMALL = 1024
"""Tokens of a piece where memory is short; the step is the same."""
LENGTHS = {"256+128": (256, 128), "64+256": (64, 256)}
"""Words of the longest prompt and completion."""


def compare(method: str, shape: str, length: str, given: argparse.Namespace) -> tuple[str, list[Side]]:
    """One method on one shape: the reference beside the policy, and computed before."""
    live, precomputed = _sides(method, BATCH[shape])
    sides = [*live, *precomputed]
    prompt, completion = LENGTHS[length]
    rows = Rows(prompt=prompt, completion=completion, count=given.steps * BATCH[shape])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_preference_work(work, SHAPES[shape], rows)
        difference, count = ratio_difference(work, given.threads, given.device)
        outcome = in_turn(sides, work, given)
    sentence = f"log π − log π_ref of {count} answers differs by at most {difference:.1g}."
    if difference > MAX_DIFFERENCE:
        outcome = without_peer(sides, outcome, sentence)
    unit = "thumbs" if method == "kto" else "comparisons"
    batch = f"{BATCH[shape] * (2 if method == 'kto' else 1)} {unit}"
    head = about(shape, batch, rows, given.threads)
    tables = [
        side_by_side(part, exact=len(part), unit=unit, agreement=MAX_LOSS_DIFFERENCE[method])
        for part in (outcome[: len(live)], outcome[len(live) :])
    ]
    return "\n\n".join([f"{head} {method.upper()}; {sentence}", *tables]), outcome


def _sides(method: str, rows: int) -> tuple[list[Command], list[Command]]:
    """With the reference beside the policy, and with one that was asked before; ours come first."""
    answers = ("--batch", str(2 * rows if method == "kto" else rows))
    mine, peer = ("our_preference", "--method", method), (method, *answers)
    some = [("", answers)]
    if method == "kto":
        # Comparisons are what thumbs are mostly made of, and then two of them share a prompt.
        some = [(" from comparisons", ("--batch", str(rows), "--pairs")), (" from thumbs", answers)]
    live = [Command(name=f"plaudit{name}, live", words=ours(*mine, *words)) for name, words in some]
    small = ours(*mine, *some[0][1], "--tokens-at-once", str(SMALL))
    live.append(Command(name=f"plaudit{some[0][0]}, {SMALL:,} tokens at once, live", words=small))
    precomputed = [
        Command(name=f"plaudit{name}, precomputed", words=ours(*mine, *words, "--reference", "precomputed"))
        for name, words in some
    ]
    for own, end, variants in (
        (live, "live", ("default", "plain")),
        (precomputed, "precomputed", ("precomputed", "plain-precomputed")),
    ):
        for name, variant in zip(("its defaults", "its best (plain)"), variants, strict=True):
            own.append(Command(name=f"TRL, {name}, {end}", words=theirs(*peer, "--variant", variant)))
    return live, precomputed


def ratio_difference(work: Path, threads: int, device: str = "cpu") -> tuple[float, int]:
    """The largest difference between both sides' log-ratios of answers, and how many there are."""
    options = ("--rewards", "--threads", str(threads), "--device", device, str(work))
    return largest_difference(ours("our_preference", *options), theirs("dpo", *options))


def main() -> None:
    """From the command line: python -m benchmarks.preference [--shapes mid smol] [--kto mid] [--save]."""
    parser = options("compare plaudit's preference step with TRL's")
    parser.add_argument("--lengths", nargs="+", choices=LENGTHS, default=[*LENGTHS])
    parser.add_argument("--kto", nargs="*", choices=SHAPES, default=["mid"], help="shapes for KTO")
    given = parser.parse_args()
    wanted = [("dpo", shape, length) for shape in given.shapes for length in given.lengths]
    wanted += [("kto", shape, given.lengths[0]) for shape in given.kto]
    run_plan(TITLE, [partial(compare, *is_wanted, given) for is_wanted in wanted], given)


if __name__ == "__main__":
    main()
