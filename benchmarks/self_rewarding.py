"""Models that judge themselves, and self-play, on the embedded world: the table of docs/loops.md.

    python -m benchmarks.self_rewarding --out lab               # begun again, it goes on
    python -m benchmarks.self_rewarding --out lab --seeds 1 --only spin

Every arm is a loop of three rounds by the command line, with other prompts and other chances for each seed.
The rounds go on whatever is measured, so that what lies behind the stop is seen too. The truth of the world
says what each round's model is worth on test prompts, and which of a round's pairs are the right way round.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.intervals import numbers
from benchmarks.studies import table
from plaudit.cli.main import main as plaudit
from plaudit.data.read import read_records
from plaudit.data.records import Comparison
from plaudit.files import atomic
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.exam import mean_utilities, score_model_answers
from plaudit.lab.world.gold import gold_of
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings

ROUNDS, PROMPTS, HELD_OUT, PEOPLE, TESTED = 3, 100, 50, 120, 160
"""Rounds of a loop, its prompts, held-out prompts, comparisons by people, and test answers of a model."""
DEMONSTRATIONS, POINTS = 200, 6000
"""Rows that a model learns to answer from, and to judge from."""
LEARNING = ("--learning-rate", 1e-4, "--preference.beta", 0.3, "--epochs", 3, "--sample.rows", 0)
"""How pairs are learnt; nothing was tuned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One kind of loop.

    Example: ``ARMS["spin"].row``
    """

    row: str
    """The row of the loops table."""
    start: str
    """The model that it begins with."""
    prompts: str = "prompts"
    """The kind of rows that it is given."""
    more: tuple[str, ...] = ()
    """Its own settings."""


ARMS = {
    "self-rewarding, taught to judge": Arm(row="self-rewarding", start="taught"),
    "self-rewarding, never taught to judge": Arm(row="self-rewarding", start="answering"),
    "spin": Arm(row="spin", start="answering", prompts="demonstrations"),
    "iterated by the truth": Arm(
        row="iterated",
        start="taught",
        more=(
            "--reward",
            "plaudit.lab.world.gold:utility",
            "--loop.answers",
            "4",
            "--loop.reference",
            "newest",
        ),
    ),
}
"""What is compared: the last one shows what the same rounds do with a judge that is right."""


def run(*words: object) -> None:
    """A command, which has to end well."""
    code = plaudit([str(word) for word in words])
    if code:
        raise SystemExit(f"plaudit {' '.join(map(str, words))} ended with status {code}")


def made(home: Path, name: str, *words: object) -> Path:
    """Rows of the world, made once."""
    path = home / f"{name}.jsonl"
    if not path.exists():
        run("world", "make", *words, "--out", path)
    return path


def start_model(home: Path, name: str, device: str) -> Path:
    """A model that answers, or one that answers and judges, trained once for all seeds."""
    parts = [made(home, "demonstrations", "demonstrations", "--n", DEMONSTRATIONS)]
    if name == "taught":
        parts.append(made(home, "points", "points", "--n", POINTS))
    rows = home / f"{name}.jsonl"
    if not rows.exists():
        atomic.write_text(rows, "".join(part.read_text("utf-8") for part in parts))
    out = home / name
    if not (out / "model" / "model.safetensors").exists():
        run(
            *("train", "sft", "--model", base_model_folder(), "--data", rows, "--out", out, "--epochs", 1),
            *("--learning-rate", 5e-4, "--sample.rows", 0, "--device", device),
        )
    return out / "model"


def loop(home: Path, name: str, seed: int, device: str) -> Path:
    """The folder of an arm's loop."""
    arm, out = ARMS[name], home / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
    if (out / "model").exists():
        return out
    held_out = made(home, "held-out", "prompts", "--split", "validation", "--n", HELD_OUT)
    people = made(
        home, "people", "comparisons", "--annotators", "experts", "--split", "validation", "--n", PEOPLE
    )
    prompts = made(home, f"{arm.prompts}-{seed}", arm.prompts, "--n", PROMPTS, "--seed", seed)
    watched = ["--loop.held-out-judge", "plaudit.lab.world.gold:utility", "--loop.held-out-prompts", held_out]
    watched += ["--loop.people", people] if arm.row == "self-rewarding" else []
    run(
        *("train", arm.row, "--model", start_model(home, arm.start, device), "--prompts", prompts),
        *("--out", out, "--device", device),
        *("--seed", seed, "--loop.rounds", ROUNDS, "--loop.on-fall", "go-on"),
        *watched,
        *LEARNING,
        *arm.more,
    )
    return out


@cache
def worth(model: Path, seed: int, device: str) -> float:
    """The mean true utility of a model's answers to test prompts."""
    answers = score_model_answers(LocalSampler(model, device=device), SamplingSettings(seed=seed), n=TESTED)
    return mean_utilities(answers)["all"].mean


def right_pairs(rows: Path) -> float | None:
    """Of the pairs that differ in true worth, the share that is the right way round; None where none does."""
    gaps: list[float] = []
    for row in read_records(rows, format="plaudit").records:
        assert isinstance(row, Comparison)
        chosen, rejected = (gold_of(row.prompt, answer).utility for answer in (row.chosen, row.rejected))
        gaps += [chosen - rejected] if chosen != rejected else []
    return statistics.fmean(gap > 0 for gap in gaps) if gaps else None


def found(home: Path, name: str, seed: int, device: str) -> list[dict[str, Any]]:
    """What each round of a loop came to, the start first."""
    path = home / "found" / f"{name}-{seed}.json"
    if path.exists():
        return json.loads(path.read_text("utf-8"))
    out, start = loop(home, name, seed, device), start_model(home, ARMS[name].start, device)
    lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text("utf-8").splitlines()]
    rounds = []
    for line in lines:
        folder = out / "rounds" / str(line["round"])
        model = folder / "run" / "model" if line["round"] else start
        pairs = right_pairs(folder / "rows.jsonl") if line["round"] else None
        rounds.append({**line, "worth": worth(model, seed, device), "right_pairs": pairs})
    atomic.make_folder(path.parent)
    atomic.write_text(path, json.dumps(rounds))
    return rounds


def rows_of(name: str, loops: Sequence[Sequence[dict[str, Any]]]) -> list[tuple[str, ...]]:
    """The lines of a table: one for each round, means over seeds with their intervals."""
    rows: list[tuple[str, ...]] = []
    for number in range(ROUNDS + 1):
        lines = [rounds[number] for rounds in loops]
        gains = [rounds[number]["worth"] - rounds[0]["worth"] for rounds in loops]
        people = [line["people"] for line in lines if "people" in line]
        right = [line["right_pairs"] for line in lines if line["right_pairs"] is not None]
        rows.append(
            (
                name if number == 0 else "",
                str(number) if number else "start",
                f"{statistics.fmean(line['rows'] for line in lines):.0f}" if number else "",
                numbers(right, 2) if right else "",
                numbers([line["worth"] for line in lines], 3),
                numbers(gains, 3) if number else "",
                numbers(people, 3) if people else "",
                f"{sum(bool(line['fallen']) for line in lines)} of {len(lines)}" if number else "",
            )
        )
    return rows


HEAD = (
    "loop",
    "round",
    "pairs",
    "of these right",
    "true worth on test",
    "against the start",
    "judge and people",
    "fallen",
)


def main() -> None:
    """Run what is missing, seed by seed, and print the table of what is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="where runs and the table lie")
    parser.add_argument("--seeds", type=int, default=5, help="default: 5")
    parser.add_argument("--device", default="cpu", help="where models learn and answer (default: cpu)")
    parser.add_argument("--only", nargs="+", choices=ARMS, default=[*ARMS], help="default: all")
    args = parser.parse_args()
    atomic.make_folder(args.out)
    loops: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in args.only}
    for seed in range(args.seeds):
        for name in args.only:
            loops[name].append(found(args.out, name, seed, args.device))
    text = table(iter([HEAD, *(row for name in args.only for row in rows_of(name, loops[name]))]))
    atomic.write_text(args.out / "self_rewarding.md", text)
    print(f"\n{text}")


if __name__ == "__main__":
    main()
