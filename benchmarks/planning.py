"""What ``plaudit plan`` says beforehand, and what ``plaudit train`` then takes: memory and time.

python -m benchmarks.planning            sft, dpo, grpo and ppo on mid, with their default pieces
python -m benchmarks.planning --save     and keeps the table in RESULTS.md

Both are processes of their own. Memory is the most that was resident, with and without what Python and its
libraries take before a model is loaded; on a GPU the most that was allocated. Time is that of the steps, from
drawing to the last move.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import machine, save_section
from benchmarks.turns import DEVICES
from benchmarks.work import (
    PAIRS,
    PROMPTS,
    REFERENCE,
    REWARD,
    SHAPES,
    Rows,
    write_policy_work,
    write_preference_work,
    write_work,
)
from plaudit.cli.main import main as command_line
from plaudit.engine.metrics import measure_memory
from plaudit.engine.sinks.files import read_reports

TITLE = "What a plan says, and what the run takes"
MIB = 1024 * 1024
"""Bytes."""
BATCH = 8
"""Rows, or prompts, of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One run, before and after.

    Example: ``compared("sft", ["sft", …], work).table_row``
    """

    name: str
    """Method and setting."""
    planned_mib: float
    """The peak that was said, Python included."""
    took_mib: float
    """The most that was resident."""
    bare_mib: float
    """What Python and its libraries took before a model was loaded."""
    planned_seconds: float
    """Seconds that were said; not a number where nothing was."""
    took_seconds: float
    """Seconds of all steps."""

    @property
    def table_row(self) -> str:
        """As a line of the table."""
        above = (self.planned_mib - self.bare_mib) / (self.took_mib - self.bare_mib) - 1
        return (
            f"| {self.name} | {self.planned_mib:,.0f} | {self.took_mib:,.0f} | "
            f"{self.planned_mib / self.took_mib - 1:+.0%} | {above:+.0%} | {self.planned_seconds:.1f} | "
            f"{self.took_seconds:.1f} | {self.planned_seconds / self.took_seconds - 1:+.0%} |"
        )


def write(method: str, work: Path, shape: str, steps: int) -> None:
    """The folder that a method learns from."""
    if method == "sft":
        write_work(work, SHAPES[shape], Rows(count=BATCH * steps))
    elif method == "dpo":
        write_preference_work(work, SHAPES[shape], Rows(count=BATCH * steps))
    else:
        write_policy_work(work, SHAPES[shape], Rows(count=BATCH * steps, prompt=128, completion=64))


def words(method: str, work: Path, device: str) -> list[str]:
    """The command of a method, without its verb."""
    common = [
        *(method, "--model", str(work / "model"), "--held-out", "0", "--batch-size", str(BATCH)),
        *("--epochs", "1", "--device", device, "--sample.rows", "0"),
    ]
    if method == "sft":
        return [*common, "--data", str(work / "rows.jsonl")]
    near = ["--reference.model", str(work / REFERENCE)]
    if method == "dpo":
        return [*common, "--data", str(work / PAIRS), *near, "--reference.kind", "live"]
    arguments = [*common, "--prompts", str(work / PROMPTS), "--draw.max-tokens", "64", *near]
    if method == "ppo":
        return [*arguments, "--reward", str(work / REWARD), "--group-size", "1"]
    return [*arguments, "--reward", "benchmarks.work:sevens", "--divergence", "loss"]


def compared(name: str, command: Sequence[str], work: Path, plan_words: Sequence[str] = ()) -> Compared:
    """Plan and run this command; ``plan_words`` are the plan's own."""
    plan, out = work / "plan.json", work / "out"
    _child(["plan", *command, *plan_words, "--json", str(plan)])
    bare, took = json.loads(_child(["train", *command, "--out", str(out)]).splitlines()[-1])
    planned = json.loads(plan.read_text(encoding="utf-8"))
    return Compared(
        name=name,
        planned_mib=planned["peak_bytes"] / MIB,
        took_mib=took,
        bare_mib=bare,
        planned_seconds=math.nan if planned["seconds"] is None else planned["seconds"]["total"],
        took_seconds=sum(report.timing["seconds"] for report in read_reports(out)),
    )


def _child(command: Sequence[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.planning", "--child", *command],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _as_child(command: list[str]) -> int:
    """The command, and behind it what was resident before and at most, in MiB."""
    # What a run imports is in memory before it loads a model.
    for module in ("plaudit.methods.registry", "plaudit.rewards.load"):
        importlib.import_module(module)

    device = command[command.index("--device") + 1]
    before = measure_memory(device)
    status = command_line(command)
    # A GPU's memory holds nothing of Python's.
    print(json.dumps([before.now if device == "cpu" else 0.0, measure_memory(device).reported]))
    return status


def main() -> None:
    """From the command line: python -m benchmarks.planning [--methods sft dpo] [--steps 4] [--save]."""
    if sys.argv[1:2] == ["--child"]:
        raise SystemExit(_as_child(sys.argv[2:]))
    parser = argparse.ArgumentParser(description="compare plans with runs")
    parser.add_argument("--methods", nargs="+", choices=("sft", "dpo", "grpo", "ppo"))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["mid"])
    parser.add_argument("--steps", type=int, default=4, help="batches, or rounds, of a run")
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="further settings of each run")
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    lines = [
        "| run | MiB said | MiB taken | apart | above Python | seconds said | seconds taken | apart |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for shape in given.shapes:
        for method in given.methods or ("sft", "dpo", "grpo", "ppo"):
            with tempfile.TemporaryDirectory() as folder:
                write(method, Path(folder), shape, given.steps)
                command = [*words(method, Path(folder), given.device), *given.more]
                found = compared(" ".join((method, *given.more)), command, Path(folder))
            lines.append(found.table_row.replace("| ", f"| {shape}, ", 1))
            print(lines[-1], flush=True)
    text = "\n".join(lines)
    if given.save:
        save_section(TITLE, f"{machine(given.device)}\n\n{text}")
    print(text)


if __name__ == "__main__":
    main()
