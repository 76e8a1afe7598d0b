"""The pendulum on comparisons beside the pendulum on its true reward: how many comparisons, and which ones.

python -m benchmarks.control --seeds 5                       a table; about a quarter of an hour on one core
python -m benchmarks.control --seeds 10 --comparisons 200    of one number of comparisons

The one benchmark without ``--device``: its networks have some dozens of units and its pendulum is stepped in
Python, so a GPU would wait for the host all the time, and `plaudit control` has no such setting either.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace

import torch

from benchmarks.intervals import numbers
from benchmarks.table import machine, markdown
from examples.control.reward_model import QUERIES, QuerySettings
from examples.control.train import ControlResult, ControlSettings, train_on_preferences, train_on_true_reward

COMPARISONS = (1000, 200, 50, 20)
"""Comparisons of a run."""
HEAD = ("comparisons", "queries", "answered", "ties", "true return", "share of the way", "least", "seconds")
"""What the columns are."""


def row(way: QuerySettings, found: list[ControlResult]) -> tuple[object, ...]:
    """One way of asking, over all seeds."""
    return (
        f"{way.comparisons:,}",
        way.queries,
        f"{statistics.fmean(item.answered for item in found):.0f}",
        f"{statistics.fmean(item.ties for item in found):.0f}",
        numbers([item.learned_reward for item in found], 1),
        numbers([item.share for item in found], 3),
        f"{min(item.share for item in found):.3f}",
        f"{statistics.fmean(item.seconds for item in found):.0f}",
    )


def study(seeds: int, comparisons: Sequence[int]) -> None:
    """Print what bounds the figures, a row for each way of asking, and how far both ways are apart."""
    torch.set_num_threads(1)
    runs = [ControlSettings(seed=seed) for seed in range(seeds)]
    truths = [train_on_true_reward(settings, _quiet) for settings in runs]
    found = dict[tuple[int, str], list[ControlResult]]()
    for n in comparisons:
        for queries in QUERIES:
            way = QuerySettings(comparisons=n, queries=queries)
            found[n, queries] = [
                train_on_preferences(replace(settings, asking=way), truth, _quiet)
                for settings, truth in zip(runs, truths, strict=True)
            ]
            print(*row(way, found[n, queries]), file=sys.stderr, flush=True)
    random_returns = [name.random for name in next(iter(found.values()))]
    print(f"{machine()}; {seeds} seeds\n")
    print(f"untrained: {numbers(random_returns, 1)}; on the true reward: {numbers(truths, 1)}\n")
    print(
        markdown(
            HEAD,
            [
                row(QuerySettings(comparisons=n, queries=how), outcomes)
                for (n, how), outcomes in found.items()
            ],
        )
    )
    for n in comparisons:
        both = zip(*(found[n, how] for how in QUERIES), strict=True)
        lead = numbers([choosy.share - random.share for choosy, random in both], 3)
        print(f"\n{n:,}: disagreement is ahead of random by {lead}")


def _quiet(line: str) -> None:
    del line


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="runs of each kind (default: 5)")
    parser.add_argument(
        "--comparisons", type=int, nargs="+", default=COMPARISONS, help="(default: 1000 200 50 20)"
    )
    given = parser.parse_args()
    study(given.seeds, given.comparisons)
