"""A pendulum that learns from comparisons of clips, beside one that knows its reward."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from plaudit.cli.parser import integer, positive_integer
from plaudit.cli.sample import make_console
from plaudit.errors import UserError

if TYPE_CHECKING:
    from examples.control.train import ControlResult

_EPILOG = """\
true return  sum of the true reward over an episode, mean of fresh ones; 100 would be to stand all the time
share        how much of the way from the untrained policy to the one on the true reward was gone

The policy on comparisons never sees the true reward: only the judge does, and whoever measures.
Both runs together take about half a minute on one core."""


def make_parser() -> argparse.ArgumentParser:
    control = argparse.ArgumentParser(
        prog="python -m examples.control",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    add = control.add_argument
    add(
        "--comparisons",
        type=positive_integer,
        default=1000,
        metavar="N",
        help="questions to the judge (default: 1000)",
    )
    add("--seed", type=integer, default=0, help="the same seed gives the same run (default: 0)")
    add("--wrong", type=float, default=0.1, help="share of answers that are wrong (default: 0.1)")
    add("--queries", choices=("disagreement", "random"), default="disagreement", help="how pairs are chosen")
    add(
        "--rounds",
        type=positive_integer,
        default=60,
        help="how often the policy plays and learns (default: 60)",
    )
    add("--json", action="store_true", help="print one JSON object and no table")
    return control


def main(words: Sequence[str] | None = None) -> int:
    """Run as the words say; what cannot be run is said in a sentence."""
    try:
        return run(make_parser().parse_args(words))
    except UserError as error:
        print(f"control: {error}", file=sys.stderr)
        return 2


def run(args: argparse.Namespace) -> int:
    """Train on the true reward and on comparisons, measure both, print the table."""
    import torch

    from examples.control.reward_model import ClipJudge, QuerySettings
    from examples.control.train import ControlSettings, train_on_preferences, train_on_true_reward

    settings = ControlSettings(
        seed=args.seed,
        rounds=args.rounds,
        asking=QuerySettings(comparisons=args.comparisons, queries=args.queries),
        judge=ClipJudge(wrong=args.wrong),
    )
    # Threads of networks so small mostly wait for each other.
    torch.set_num_threads(1)
    say = partial(print, file=sys.stderr) if args.json else make_console().print
    say("on the true reward")
    truth = train_on_true_reward(settings, say)
    say(f"on {args.comparisons:,} comparisons")
    outcome = train_on_preferences(settings, truth, say)
    if args.json:
        print(
            json.dumps({"settings": asdict(settings), "outcome": asdict(outcome) | {"share": outcome.share}})
        )
    else:
        _print_table(outcome)
    return 0


def _print_table(outcome: ControlResult) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("learnt from", no_wrap=True)
    for head in ("true return", "share"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_row("nothing", f"{outcome.random:.1f}", "0.00")
    table.add_row("the true reward", f"{outcome.true_reward:.1f}", "1.00")
    table.add_row("comparisons", f"{outcome.learned_reward:.1f}", f"{outcome.share:.2f}")
    console = make_console()
    console.print(table)
    answers = f"{outcome.queries:,} asked, {outcome.answered:,} answered, {outcome.ties:,} of them ties"
    console.print(f"{answers}; {outcome.seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
