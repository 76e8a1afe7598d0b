"""Where a step's time goes: the profiler's table, and each kind of operation's share.

python -m benchmarks.profile --shape mid
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch.profiler import profile

from benchmarks.our_reward import config_of, judged_in, scorer_of, trial_of_scorer
from benchmarks.ours import rows_in, trial_of
from benchmarks.trial import Trial
from benchmarks.turns import BATCH, DEVICES
from benchmarks.work import SHAPES, Rows, write_judged_work, write_work
from plaudit.engine.metrics import matmul_rate
from plaudit.models.load import device_of, load_model
from plaudit.models.policy import Policy

Dtype = Literal["float32", "bfloat16"]
"""What matrix products are made in."""
PRODUCTS = ("aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::matmul")
"""Matrix products."""


def supervised(shape: str, work: Path, dtype: Dtype, device: str) -> tuple[Trial[Any], Sequence[Any]]:
    """A supervised run, and its batch."""
    write_work(work, SHAPES[shape], Rows(count=BATCH[shape]))
    policy = Policy(load_model(work / "model", dtype=torch.float32, device=device_of(device)))
    return trial_of(policy, dtype=dtype), rows_in(work)


def judged(shape: str, work: Path, dtype: Dtype, device: str) -> tuple[Trial[Any], Sequence[Any]]:
    """A run that learns from comparisons, and its batch."""
    write_judged_work(work, SHAPES[shape], Rows(count=BATCH[shape]))
    config = config_of(work, dtype=dtype, device=device)
    rows = judged_in(config)
    return trial_of_scorer(scorer_of(config), rows, config), rows


TASKS = {"sft": supervised, "reward": judged}
"""What can be looked at."""


def profiled(task: str, shape: str, *, dtype: Dtype, rows: int, device: str) -> str:
    """Two steps to warm up, then one under the profiler."""
    with tempfile.TemporaryDirectory() as folder:
        trial, batch = TASKS[task](shape, Path(folder), dtype, device)
    for number in (1, 2):
        trial.step(batch, number, 3)
    with profile() as profiler:
        trial.step(batch, 3, 3)
    averages = profiler.key_averages()
    # On a GPU the host only launches: what counts is the time of the kernels that an operation launched.
    time = "self_cpu_time_total" if device == "cpu" else "self_device_time_total"
    operations = [event for event in averages if event.key.startswith("aten::") or device == "cpu"]
    total = sum(getattr(event, time) for event in operations) / 1e6
    products = sum(getattr(event, time) for event in operations if event.key in PRODUCTS) / 1e6
    limit = trial.flops(batch) / matmul_rate(device, torch.float32)
    head = (
        f"{task}, {shape}, {dtype}: {total:.2f} s, of them {products:.2f} s in matrix products outside "
        f"attention ({products / total:.0%}); the arithmetic that is needed takes {limit:.2f} s at the "
        "measured float32 rate"
    )
    return f"{head}\n{averages.table(sort_by=time, row_limit=rows, max_name_column_width=48)}"


def main() -> None:
    """From the command line: python -m benchmarks.profile --shape mid."""
    parser = argparse.ArgumentParser(description="profile one of plaudit's steps")
    parser.add_argument("--task", choices=TASKS, default="sft")
    parser.add_argument("--shape", choices=SHAPES, default="mid")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rows", type=int, default=20, help="operations to list")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(profiled(given.task, given.shape, dtype=given.dtype, rows=given.rows, device=given.device))


if __name__ == "__main__":
    main()
