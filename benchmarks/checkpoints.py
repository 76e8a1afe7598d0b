"""What a checkpoint of a model divided over ranks costs: how long training stands still, seconds to write and
to load, and memory beside the rank's own share.

python -m benchmarks.checkpoints --width 1024 --layers 12 --ranks 1 2 4
python -m benchmarks.checkpoints --foreground              written before training goes on
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.loading import made, resident
from plaudit.engine.checkpoint import save
from plaudit.engine.checkpoint.state import expected_shapes, load_snapshot, snapshot
from plaudit.engine.distributed import process_group
from plaudit.engine.optimizer import make_optimizer
from plaudit.engine.settings import OptimizerSettings
from plaudit.engine.step import Stepper
from plaudit.methods.parts import read_by_parts
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from tests.engine.distributed.launch import free_port


def rank(folder: Path, out: Path, *, background: bool) -> None:
    """One rank: take a step, save twice, load, and report as a line of JSON."""
    torch.set_num_threads(1)
    with process_group("cpu") as ranks:
        policy = read_by_parts(folder, torch.float32, None, ranks) or Policy(
            load_model(folder, dtype=torch.float32, device=ranks.device)
        )
        optimizer = make_optimizer(policy, 1e-5, OptimizerSettings())
        for weight in policy.parameters():
            weight.grad = torch.zeros_like(weight)
        optimizer.step()
        optimizer.zero_grad()
        stepper: Stepper[Any] = Stepper(
            module=policy, optimizer=optimizer, objective=lambda row: row, clip=0.0, ranks=ranks
        )
        share = 12 * sum(weight.numel() for weight in policy.parameters()) / ranks.world_size
        before, found = resident("VmRSS"), {"rank": ranks.rank, "share": share}
        writer = save.CheckpointWriter(ranks, background=background)
        # While the second step is computed.
        writer.make_room(lambda: snapshot(stepper, {}, step=0, facts={}))
        time.sleep(4 * share / 1e9)
        for step in (1, 2):
            ranks.barrier()
            begin = time.perf_counter()
            state = snapshot(stepper, {}, step=step, facts={})
            writer.save(out, state, keep=1, best=None)
            found[f"stall {step}"] = time.perf_counter() - begin
            writer.finish()
            found[f"written {step}"] = time.perf_counter() - begin
        writer.close()
        found["most while saving"] = resident("VmHWM") - before
        del writer, state
        ranks.barrier()
        begin = time.perf_counter()
        loaded = save.load_latest_checkpoint(out, expected=expected_shapes(policy), ranks=ranks)
        assert loaded is not None
        found["proven"] = time.perf_counter() - begin
        load_snapshot(loaded.state, policy, optimizer, ranks)
        found["loaded"] = time.perf_counter() - begin
        print(json.dumps(found), flush=True)


def measured(folder: Path, out: Path, ranks: int, *, background: bool) -> list[dict[str, float]]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--master-port", str(free_port()), "-m", "benchmarks.checkpoints", "--rank", str(out)]
    done = subprocess.run(
        [*command, "--model", str(folder), *([] if background else ["--foreground"])],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--foreground", action="store_true")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        rank(given.model, given.rank, background=not given.foreground)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = given.model or made(Path(name) / "model", given.width, given.layers)
        print("| ranks | a rank's GB | stands still, s (first, later) | s for 10 GB | written, s |", end="")
        print(" loaded, s | rank 0 takes more, MiB | of its share |")
        print("|---|---|---|---|---|---|---|---|")
        for ranks in given.ranks:
            out = Path(name) / "checkpoints"
            rows = measured(folder, out, ranks, background=not given.foreground)
            most = {key: max(row[key] for row in rows) for key in rows[0]}
            [first] = [row for row in rows if row["rank"] == 0]
            share = most["share"]
            print(
                f"| {ranks} | {share / 1e9:.2f} | {most['stall 1']:.2f}, {most['stall 2']:.2f} "
                f"| {most['stall 2'] / share * 1e10:.2f} | {most['written 2']:.1f} | {most['loaded']:.1f} "
                f"| {first['most while saving'] / 2**20:,.0f} | {first['most while saving'] / share:.2f} |",
                flush=True,
            )
            shutil.rmtree(out)


if __name__ == "__main__":
    main()
