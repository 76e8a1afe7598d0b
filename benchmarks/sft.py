"""plaudit's SFT step against TRL's: in turn, each run in its own process, on the same folder.

python -m benchmarks.sft            prints one table for each shape
python -m benchmarks.sft --save     and keeps them in RESULTS.md
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Report, report_from
from benchmarks.table import Side, machine, save_section, side_by_side
from benchmarks.work import SHAPES, Rows, write_work

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / ".peers" / "trl" / "bin" / "python"
TITLE = "SFT against TRL"
BATCH: Mapping[str, int] = {"tiny": 4, "mid": 8, "smol": 4}
"""Rows of a step."""
BEST: Mapping[str, str] = {"tiny": "plain", "mid": "padding-free", "smol": "plain"}
"""The fastest of the peer's variants."""
EXACT = 3
"""The first sides compute in float32; the ones after them in bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How a side is run.

    Example: ``Command(name="plaudit, float32", words=(sys.executable, "-m", "benchmarks.ours"))``
    """

    name: str
    """What the table calls it."""
    words: tuple[str, ...]
    """Program and arguments, without the work folder."""


OURS = (sys.executable, "-m", "benchmarks.ours")
THEIRS = (str(PEER), "-m", "benchmarks.peer_trl")


def commands(shape: str) -> tuple[Command, ...]:
    """The sides in the order in which they take turns; ours first."""
    best = (*THEIRS, "--variant", BEST[shape])
    half = ("--dtype", "bfloat16")
    return (
        Command(name="plaudit, float32", words=OURS),
        Command(name="TRL, its defaults, float32", words=THEIRS),
        Command(name=f"TRL, its best ({BEST[shape]}), float32", words=best),
        Command(name="plaudit, bfloat16", words=(*OURS, *half)),
        Command(name=f"TRL, its best ({BEST[shape]}), bfloat16", words=(*best, *half)),
    )


def compare(work: Path, shape: str, *, steps: int, rounds: int, threads: int) -> list[Side]:
    """Every side once a round, A B C A B C …, so that what disturbs the machine disturbs all of them."""
    sides = commands(shape)
    numbers = ("--batch", str(BATCH[shape]), "--steps", str(steps), "--threads", str(threads))
    outcomes: dict[str, list[Report | str]] = {command.name: [] for command in sides}
    for _ in range(rounds):
        for command in sides:
            outcomes[command.name].append(_run([*command.words, str(work), *numbers]))
            print(".", end="", file=sys.stderr, flush=True)
    return [_side(name, outcome) for name, outcome in outcomes.items()]


def _run(words: Sequence[str]) -> Report | str:
    """The report of a run, or the last words of one that failed."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return report_from(done.stdout)
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _side(name: str, outcomes: Sequence[Report | str]) -> Side:
    failures = [outcome for outcome in outcomes if isinstance(outcome, str)]
    reports = tuple(outcome for outcome in outcomes if isinstance(outcome, Report))
    return Side(name=name, reports=reports, failure=failures[0] if failures else None)


def text_of(shape: str, sides: Sequence[Side], rows: Rows, threads: int) -> str:
    """The section of one shape."""
    size = SHAPES[shape]
    about = (
        f"### {shape}: {size.layers} layers of {size.hidden}, vocabulary of {size.vocabulary:,}\n\n"
        f"Batches of {BATCH[shape]} rows with prompts of {rows.prompt // 2}–{rows.prompt} tokens and "
        f"completions of {rows.completion // 2}–{rows.completion}; {threads} threads."
    )
    return f"{about}\n\n{side_by_side(sides, exact=EXACT)}"


def _versions(sides: Sequence[Side]) -> str:
    found = [
        f"{report.who} on {', '.join(f'{name} {version}' for name, version in report.versions.items())}"
        for side in sides
        for report in side.reports
    ]
    return "; ".join(dict.fromkeys(found))


def main() -> None:
    """From the command line: python -m benchmarks.sft [--shapes mid smol] [--save]."""
    parser = argparse.ArgumentParser(description="compare plaudit's SFT step with TRL's")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["mid", "smol"])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument("--steps", type=int, default=5, help="steps of a run; the first is not counted")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="keep the tables in RESULTS.md")
    given = parser.parse_args()
    if not PEER.exists():
        raise SystemExit("the peer's environment is missing; make it with: make bench-peer")
    sections: list[str] = []
    rows, versions = Rows(), ""
    for shape in given.shapes:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            write_work(work, SHAPES[shape], rows)
            sides = compare(work, shape, steps=given.steps, rounds=given.rounds, threads=given.threads)
        sections.append(text_of(shape, sides, rows, given.threads))
        versions = _versions(sides)
        print(f"\n{sections[-1]}\n")
    if given.save:
        words = f"`python -m benchmarks.sft --shapes {' '.join(given.shapes)} --rounds {given.rounds} "
        words += f"--steps {given.steps} --threads {given.threads} --save`"
        save_section(TITLE, "\n\n".join([f"{machine()}. {versions}.\n\n{words}", *sections]))


if __name__ == "__main__":
    main()
