"""``plaudit control``: a pendulum learns from comparisons of clips, beside one that knows its reward."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from plaudit.cli.numbers import count, whole
from plaudit.cli.parser import Verbs
from plaudit.cli.talking import make_console

if TYPE_CHECKING:
    from plaudit.control.run import Outcome

_EPILOG = """\
true return  sum of the true reward over an episode, mean of fresh ones; 100 would be to stand all the time
share        how much of the way from the untrained policy to the one on the true reward was gone

The policy on comparisons never sees the true reward: only the judge does, and whoever measures.
Both runs together take about half a minute on one core."""


def add_parser(subparsers: Verbs) -> None:
    """Add ``control``."""
    control = subparsers.add_parser(
        "control",
        help="a pendulum learns from comparisons of clips, beside one that knows its reward",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    add = control.add_argument
    add("--comparisons", type=count, default=1000, metavar="N", help="questions to the judge (default: 1000)")
    add("--seed", type=whole, default=0, help="the same seed gives the same run (default: 0)")
    add("--wrong", type=float, default=0.1, help="share of answers that are wrong (default: 0.1)")
    add("--queries", choices=("disagreement", "random"), default="disagreement", help="how pairs are chosen")
    add("--rounds", type=count, default=60, help="how often the policy plays and learns (default: 60)")
    add("--json", action="store_true", help="print one JSON object and no table")
    control.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Learn twice, measure, print."""
    import torch

    from plaudit.control.clips import Asking
    from plaudit.control.judge import Judge
    from plaudit.control.run import Settings, on_preferences, on_truth

    settings = Settings(
        seed=args.seed,
        rounds=args.rounds,
        asking=Asking(comparisons=args.comparisons, queries=args.queries),
        judge=Judge(wrong=args.wrong),
    )
    # Threads of networks so small mostly wait for each other.
    torch.set_num_threads(1)
    say = _to_stderr if args.json else make_console().print
    say("on the true reward")
    truth = on_truth(settings, say)
    say(f"on {args.comparisons:,} comparisons")
    found = on_preferences(settings, truth, say)
    if args.json:
        print(json.dumps({"settings": asdict(settings), "outcome": asdict(found) | {"share": found.share}}))
    else:
        _print(found)
    return 0


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def _print(found: Outcome) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("learnt from", no_wrap=True)
    for head in ("true return", "share"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_row("nothing", f"{found.chance:.1f}", "0.00")
    table.add_row("the true reward", f"{found.truth:.1f}", "1.00")
    table.add_row("comparisons", f"{found.learned:.1f}", f"{found.share:.2f}")
    console = make_console()
    console.print(table)
    answers = f"{found.asked:,} asked, {found.answered:,} answered, {found.ties:,} of them ties"
    console.print(f"{answers}; {found.seconds:.0f} s")
