"""What many rows take: seconds and memory of a short run on so many, read for the first time and again.

python -m benchmarks.rows --rows 10000 100000 1000000 10000000
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from plaudit.lab.world import SHIPPED_MODEL_FOLDER

WORDS = [
    "the",
    "hawk",
    "fears",
    "smoke",
    "and",
    "the",
    "cat",
    "sees",
    "a",
    "lamp",
    "near",
    "old",
    "river",
    "where",
    "Mira",
    "lives",
    "with",
    "her",
    "dog",
]


def write(path: Path, rows: int) -> None:
    """Short questions with short answers, some 90 bytes each."""
    with path.open("w", encoding="utf-8") as file:
        for row in range(rows):
            first, second, third = (WORDS[row // 18**power % 18] for power in range(3))
            prompt = f"Question {row}: does {first} {second} {third}?"
            print(json.dumps({"prompt": prompt, "completion": f"No, {third} {second} {first}."}), file=file)


def train(data: Path, folder: Path, number: int) -> tuple[float, float]:
    """Seconds and MiB of twenty steps; children are waited for one by one, so the peak is this one's."""
    command = [sys.executable, "-m", "plaudit", "train", "sft", "--model", str(SHIPPED_MODEL_FOLDER)]
    command += ["--data", str(data), "--out", str(folder / f"run-{number}"), "--rows.on-disk", "always"]
    command += ["--steps", "20", "--batch-size", "16", "--held-out", "0.0001", "--sample.rows", "0"]
    command += ["--device", "cpu", "--allow", "base-loss"]
    begin = time.perf_counter()
    child = subprocess.Popen(command, env={**os.environ, "XDG_CACHE_HOME": str(folder)})
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: status {status}")
    return time.perf_counter() - begin, usage.ru_maxrss / 2**10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    given = parser.parse_args()
    # What this process has taken would be its children's at their start.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2**20
    print("| rows | first run, s | MiB | second run, s | MiB |\n|---|---|---|---|---|")
    for rows in given.rows:
        with tempfile.TemporaryDirectory() as name:
            data = Path(name) / "rows.jsonl"
            write(data, rows)
            figures = [train(data, Path(name), number) for number in (1, 2)]
            cells = " | ".join(f"{seconds:.0f} | {mib:,.0f}" for seconds, mib in figures)
            print(f"| {rows:,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
