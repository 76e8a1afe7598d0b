"""The shipped default in a valley by which nothing was ever chosen: other facts, test prompts and people.

    PLAUDIT_VALLEY=fresh python -m benchmarks.fresh --out lab --seeds 5    # begun again, it goes on

The base model is trained anew, for it has to have read about this valley. Each seed is the pipeline of
`plaudit run` as it ships, from that model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import yaml

from benchmarks.findings import SEEDS, SeedRun, value_of
from benchmarks.intervals import numbers
from benchmarks.lab import Lab
from benchmarks.studies import Table, run_studies
from examples.base_model.model import build_base
from plaudit.errors import UserError
from plaudit.lab.world import ANOTHER
from plaudit.runs.pipeline.read import DEFAULT_CONFIG


def fresh(lab: Lab) -> Table:
    """The shipped default in another valley: means over seeds, with 95 % intervals by Student's t."""
    if not ANOTHER:
        raise UserError("PLAUDIT_VALLEY is not set: this is the valley that the default was chosen in")
    folder = lab.folder / ANOTHER
    base = build_base(folder / "base")
    document = yaml.safe_load(DEFAULT_CONFIG.read_text("utf-8")) | {"model": str(base.absolute())}
    runs = []
    for seed in range(lab.seeds or SEEDS):
        made, pipeline = lab.piped(f"{ANOTHER}/seeds", seed, document)
        runs.append(SeedRun(folder=made, pipeline=pipeline))
    yield "policy", "true worth", "win rate vs sft, %", "without ties, %", "KL"
    for policy in ("base", "sft", "dpo", "grpo", "ppo"):
        yield policy, *figures(runs, policy)


def figures(runs: Sequence[SeedRun], policy: str) -> Iterator[str]:
    """One row of the table that docs/ten-minutes.md has of the shipped valley."""
    yield numbers([run.worth(policy) for run in runs], 3)
    for name in ("raw", "decided") if policy != "sft" else ():
        yield numbers([100 * value_of(getattr(run.contest(policy), name)) for run in runs], 1)
    yield from ("", "") if policy == "sft" else ()
    evaluated = (next(row for row in run.evaluation.policies if row.name == policy) for run in runs)
    yield "0" if policy == "sft" else numbers([value_of(row.kl) for row in evaluated], 2)


if __name__ == "__main__":
    run_studies(__doc__, {"fresh": fresh})
