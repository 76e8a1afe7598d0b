"""Sides of a comparison in turn, each run in a process of its own; what their commands share."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.measure import Report, report_from
from benchmarks.table import Side, machine, save_section
from benchmarks.work import SHAPES, Rows

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / ".peers" / "trl" / "bin" / "python"
BATCH: Mapping[str, int] = {"tiny": 4, "mid": 8, "smol": 4}
"""Rows of a step."""
DEVICES = ("cpu", "cuda")
"""What a comparison can be made on."""
EXACT = 3
"""The first of ``both`` sides compute in float32; the ones after them in bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How a side is run.

    Example: ``Command(name="plaudit, float32", words=(sys.executable, "-m", "benchmarks.ours"))``
    """

    name: str
    """What the table calls it."""
    words: tuple[str, ...]
    """Program and arguments, without the work folder."""


def ours(module: str, *words: str) -> tuple[str, ...]:
    """A run of our own."""
    return (sys.executable, "-m", f"benchmarks.{module}", *words)


def theirs(task: str, *words: str) -> tuple[str, ...]:
    """A run of the peer, in its own environment."""
    return (str(PEER), "-m", "benchmarks.peer_trl", "--task", task, *words)


def both(own: Sequence[str], peer: Sequence[str], best: str) -> tuple[Command, ...]:
    """The sides in the order in which they take turns; ours first, ``best`` the peer's fastest variant."""
    fastest = (*peer, "--variant", best)
    half = ("--dtype", "bfloat16")
    return (
        Command(name="plaudit, float32", words=tuple(own)),
        Command(name="TRL, its defaults, float32", words=tuple(peer)),
        Command(name=f"TRL, its best ({best}), float32", words=fastest),
        Command(name="plaudit, bfloat16", words=(*own, *half)),
        Command(name=f"TRL, its best ({best}), bfloat16", words=(*fastest, *half)),
    )


def in_turn(sides: Sequence[Command], work: Path, given: argparse.Namespace) -> list[Side]:
    """Every side once a round, A B C A B C …, so that what disturbs the machine disturbs all of them."""
    numbers = ("--steps", str(given.steps), "--threads", str(given.threads), "--device", given.device)
    outcomes: dict[str, list[Report | str]] = {command.name: [] for command in sides}
    for _ in range(given.rounds):
        for command in sides:
            outcomes[command.name].append(report_of([*command.words, str(work), *numbers]))
            print(".", end="", file=sys.stderr, flush=True)
    return [_side(name, outcome) for name, outcome in outcomes.items()]


def report_of(words: Sequence[str]) -> Report | str:
    """The report of a run, or the last words of one that failed."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return report_from(done.stdout)
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _side(name: str, outcomes: Sequence[Report | str]) -> Side:
    failures = [outcome for outcome in outcomes if isinstance(outcome, str)]
    reports = tuple(outcome for outcome in outcomes if isinstance(outcome, Report))
    return Side(name=name, reports=reports, failure=failures[0] if failures else None)


def numbers_from(words: Sequence[str]) -> list[float]:
    """What a process printed on its last line; one that fails says why, and nothing is compared."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def largest_difference(own: Sequence[str], peer: Sequence[str]) -> tuple[float, int]:
    """The largest difference between the numbers that two processes print, and how many there are."""
    mine, other = numbers_from(own), numbers_from(peer)
    if len(mine) != len(other):
        raise SystemExit(f"we score {len(mine)} answers and the peer {len(other)}: not the same rows")
    return max(abs(own - another) for own, another in zip(mine, other, strict=True)), len(mine)


def without_peer(commands: Sequence[Command], sides: Sequence[Side], objection: str) -> list[Side]:
    """The sides, of which the peer's do not count, since they compute something else."""
    return [
        replace(side, objection=objection) if command.words[0] == str(PEER) else side
        for command, side in zip(commands, sides, strict=True)
    ]


def about(shape: str, batch: str, rows: Rows, threads: int) -> str:
    """The head of a section: the model and the rows."""
    size = SHAPES[shape]
    return (
        f"### {shape}: {size.layers} layers of {size.hidden}, vocabulary of {size.vocabulary:,}\n\n"
        f"Batches of {batch} with prompts of {rows.prompt // 2}–{rows.prompt} tokens and "
        f"completions of {rows.completion // 2}–{rows.completion}; {threads} threads."
    )


def options(description: str) -> argparse.ArgumentParser:
    """What every comparison can be told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["mid", "smol"])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument("--steps", type=int, default=5, help="steps of a run; the first is not counted")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="what all sides compute on")
    parser.add_argument("--save", action="store_true", help="keep the tables in RESULTS.md")
    return parser


def _keep(title: str, sections: Sequence[str], sides: Sequence[Side], given: argparse.Namespace) -> None:
    """Put the tables on the page of results, with the machine, the versions and the command."""
    found = [
        f"{report.who} on {', '.join(f'{name} {version}' for name, version in report.versions.items())}"
        for side in sides
        for report in side.reports
    ]
    facts = f"{machine(given.device)}. {'; '.join(dict.fromkeys(found))}."
    save_section(title, "\n\n".join([facts, f"`{_command(given)}`", *sections]))


def run_plan(
    title: str, plan: Sequence[Callable[[], tuple[str, list[Side]]]], given: argparse.Namespace
) -> None:
    """Measure one section after the other; each is printed, and kept on the page, as soon as it is there."""
    if not PEER.exists():
        raise SystemExit("the peer's environment is missing; make it with: make bench-peer")
    sections: list[str] = []
    for measure in plan:
        section, sides = measure()
        sections.append(section)
        print(f"\n{section}\n", flush=True)
        if given.save:
            _keep(title, sections, sides, given)


def _command(given: argparse.Namespace) -> str:
    """The command with everything in it that was left to be the usual."""
    words = [f"python -m benchmarks.{Path(sys.argv[0]).stem}"]
    for name, value in vars(given).items():
        values = [] if value is True else value if isinstance(value, list) else [value]
        words += [f"--{name}", *map(str, values)] if value is not False else []
    return " ".join(words)
