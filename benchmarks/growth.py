"""How the time and the memory of a step grow with length, completions a prompt, vocabulary and size.

python -m benchmarks.growth            prints the table
python -m benchmarks.growth --save     and keeps it in RESULTS.md
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from benchmarks.measure import MIB, Report, report_from
from benchmarks.ours import trial_of
from benchmarks.table import machine, markdown, save_section
from benchmarks.trial import measured
from benchmarks.turns import DEVICES
from benchmarks.work import Shape, model_of
from plaudit.models.policy import Policy
from plaudit.tokens.batch import Completion, Example

ROOT = Path(__file__).resolve().parents[1]
TITLE = "How cost grows"
STEPS = 4
"""Of each point; the first is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One size of model and batch.

    Example: ``Point(prompt=512)`` is the usual size with longer prompts.
    """

    prompts: int = 8
    """How many prompts a batch has."""
    prompt: int = 128
    """Tokens of each prompt."""
    completion: int = 64
    """Tokens of each completion."""
    answers: int = 1
    """Completions of each prompt."""
    share: bool = True
    """Whether a prompt is computed once for all its completions."""
    hidden: int = 256
    """Width of the states; the feed-forward part is 2.75 times as wide."""
    vocabulary: int = 8_000
    """How many tokens there are."""

    @property
    def shape(self) -> Shape:
        """Four layers with heads of 64."""
        heads = self.hidden // 64
        return Shape(
            hidden=self.hidden,
            layers=4,
            heads=heads,
            key_heads=heads,
            inner=self.hidden * 11 // 4,
            vocabulary=self.vocabulary,
        )


USUAL = Point()
"""What an axis varies one thing of."""
Axis = tuple[str, tuple[int, ...], Callable[[int], Point]]
"""A name, the values, and the point of a value."""
AXES: tuple[Axis, ...] = (
    ("prompt tokens", (128, 256, 512, 1024), lambda n: replace(USUAL, prompt=n)),
    ("completion tokens", (64, 128, 256, 512), lambda n: replace(USUAL, completion=n)),
    ("completions a prompt, shared", (1, 2, 4, 8), lambda n: replace(USUAL, prompt=256, answers=n)),
    (
        "completions a prompt, not shared",
        (1, 2, 4, 8),
        lambda n: replace(USUAL, prompt=256, answers=n, share=False),
    ),
    ("vocabulary", (8_000, 16_000, 32_000, 64_000), lambda n: replace(USUAL, vocabulary=n)),
    ("width", (128, 256, 512, 1024), lambda n: replace(USUAL, hidden=n)),
)
"""What is varied."""


def run_point(point: Point, device: str = "cpu") -> Report:
    """A few steps at this size, in this process."""
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(3, point.vocabulary, (count,), generator=generator).tolist())

    def answer() -> Completion:
        return Completion(ids=tokens(point.completion), mask=(True,) * point.completion, finished=True)

    batch = [
        Example(prompt=tokens(point.prompt), completions=tuple(answer() for _ in range(point.answers)))
        for _ in range(point.prompts)
    ]
    model = model_of(point.shape, device=device)
    trial = trial_of(Policy(model, share_prompts=point.share), tokens_at_once=2**20)
    return measured(trial, [batch] * STEPS)


def working_mib(report: Report, point: Point) -> float:
    """What a step holds beyond process, weights, optimiser and gradients."""
    with torch.device("meta"):
        parameters = sum(p.numel() for p in model_of(point.shape).parameters())
    return report.above_base_mib - 4 * parameters / MIB


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The slope of log y over log x by least squares: y grows like x to this power.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    log_x, log_y = [math.log(x) for x in xs], [math.log(y) for y in ys]
    mean_x, mean_y = sum(log_x) / len(log_x), sum(log_y) / len(log_y)
    over = sum((x - mean_x) * (y - mean_y) for x, y in zip(log_x, log_y, strict=True))
    return over / sum((x - mean_x) ** 2 for x in log_x)


def row_of(name: str, seconds: Mapping[int, float], mib: Mapping[int, float]) -> list[str]:
    """One axis as a row of the table."""
    values = list(seconds)
    return [
        name,
        " · ".join(f"{value:,}" for value in values),
        " · ".join(f"{seconds[value]:.2f}" for value in values),
        f"{exponent(values, list(seconds.values())):.2f}",
        " · ".join(f"{mib[value]:.0f}" for value in values),
        f"{exponent(values, [max(1.0, size) for size in mib.values()]):.2f}",
    ]


def _in_a_process(point: Point, given: argparse.Namespace) -> Report:
    words = ["-m", "benchmarks.growth", "--threads", str(given.threads), "--device", given.device]
    words += ["--point", json.dumps(asdict(point))]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return report_from(done.stdout)


def table(given: argparse.Namespace) -> str:
    """Every point in a process of its own, since a process's peak never falls."""
    rows: list[list[str]] = []
    for name, values, point_of in AXES:
        seconds: dict[int, float] = {}
        mib: dict[int, float] = {}
        for value in values:
            report = _in_a_process(point_of(value), given)
            seconds[value] = min((report.cpu_seconds if given.device == "cpu" else report.seconds)[1:])
            mib[value] = working_mib(report, point_of(value))
            print(".", end="", file=sys.stderr, flush=True)
        rows.append(row_of(name, seconds, mib))
    time = "CPU s / step" if given.device == "cpu" else "s / step"
    return markdown(["what", "values", time, "exponent", "working MiB", "exponent"], rows)


def main() -> None:
    """From the command line: python -m benchmarks.growth [--save]."""
    parser = argparse.ArgumentParser(description="show how the cost of plaudit's SFT step grows")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--save", action="store_true", help="keep the table in RESULTS.md")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.point is not None:
        torch.set_num_threads(given.threads)
        print(run_point(Point(**json.loads(given.point)), given.device).line())
        return
    text = table(given)
    print(f"\n{text}")
    if given.save:
        about = (
            f"{machine(given.device)}. `python -m benchmarks.growth --threads {given.threads} "
            f"--device {given.device} --save`\n\n"
            f"All else is as in `{USUAL}` (prompts of 256 where completions share one). Working MiB: "
            "above process, weights, optimiser and gradients."
        )
        save_section(TITLE, f"{about}\n\n{text}")


if __name__ == "__main__":
    main()
