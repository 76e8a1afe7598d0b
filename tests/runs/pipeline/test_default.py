"""The pipeline that comes with plaudit: small in every test run, whole where there is time."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from plaudit.data.read import read_records
from plaudit.data.records import Demonstration
from plaudit.lab.world.gold import gold_of
from plaudit.runs.pipeline.read import DEFAULT_CONFIG
from tests.runs.pipeline.places import seal, well

SMALL = {
    "demonstrations.n": 48,
    "prompts.n": 64,
    "sft.held-out": 0,
    "comparisons.n": 48,
    "reward.steps": 2,
    "dpo.steps": 2,
    "grpo.rounds": 1,
    "ppo.rounds": 1,
    "ppo.batch-size": 16,
    "fresh.n": 24,
    "reward-judged.world": "false",
    "evaluation.n": 24,
    "evaluation.bootstrap": 50,
}


def table(out: Path) -> dict[str, dict[str, Any]]:
    told = json.loads((out / "summary.json").read_text("utf-8"))
    return {row["policy"]: row for row in told["table"]}


README = Path(__file__).parents[3] / "README.md"
WALK = README.parent / "docs" / "ten-minutes.md"
COLUMNS = ("gold", "win_rate", "win_rate_decided")
"""What the tables have of each policy, after its name."""
HALF_DIGIT = 0.005
"""What rounding may take from the end of a printed interval."""
SEEDS = 5
"""Runs of which docs/ten-minutes.md has the means, with Student's intervals."""


def figures(text: str, form: str) -> Iterator[tuple[str, str, tuple[float, ...]]]:
    """Policy, column, and the numbers of a cell of this form, as summary.json has them."""
    for line in re.findall(r"^\| (?:base|sft|dpo|grpo|ppo) \|.*$", text, re.MULTILINE):
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for column, cell in zip(COLUMNS, cells, strict=False):
            if found := re.fullmatch(form, cell):
                scale = 1 if column == "gold" else 100
                yield name, column, tuple(float(number) / scale for number in found.groups())


def of_this_valley(walk: str) -> str:
    return walk.partition("**Was it this valley?**")[0]


def expected(readme: str, walk: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Where a figure of the run lies: in README's interval over prompts, or where one more run would.

    Another machine has other bits, which is as good as another seed: other weights, and no other prompts.
    """
    intervals = {
        (name, column): (low, high)
        for name, column, (low, high) in figures(readme, r"[\d.]+ \(([\d.]+)–([\d.]+)\)")
    }
    for name, column, (mean, half) in figures(of_this_valley(walk), r"([\d.]+) ± ([\d.]+)"):
        # The interval of a mean of n is t·s/√n; one more run lies within t·s·√(1 + 1/n).
        spread = half * math.sqrt(SEEDS + 1)
        low, high = intervals[name, column]
        intervals[name, column] = min(low, mean - spread), max(high, mean + spread)
    return intervals


def outside(found: dict[str, dict[str, Any]], readme: str, walk: str) -> list[str]:
    return [
        f"{name} {column}: {found[name][column]['value']:.3f}, expected {low:.3g} to {high:.3g}"
        for (name, column), (low, high) in expected(readme, walk).items()
        if not low - HALF_DIGIT <= found[name][column]["value"] <= high + HALF_DIGIT
    ]


def test_a_figure_that_left_its_interval_is_named() -> None:
    printed = "| base | 0.554 (0.52–0.59) | 34.8 (31–39) | 26.9 (22–32) | 1.43 | 10.6 |\n"
    printed += "| sft | 0.7 (0.6–0.8) | | | 0 | 8 |"
    found = {
        "base": {"gold": {"value": 0.53}, "win_rate": {"value": 0.45}, "win_rate_decided": {"value": 0.30}},
        "sft": {"gold": {"value": 0.9}},
    }
    assert outside(found, printed, "") == [
        "base win_rate: 0.450, expected 0.31 to 0.39",
        "sft gold: 0.900, expected 0.6 to 0.8",
    ]
    # Four points from the mean of five, whose interval is two: one run in twenty lies beyond 4.9.
    seeds = "| base | 0.550 ± 0.010 | 41.0 ± 2.0 | 27.0 ± 2.0 | 1.4 |\n| sft | 0.7 ± 0.01 | | | 0 |"
    assert outside(found, printed, seeds) == ["sft gold: 0.900, expected 0.6 to 0.8"]
    readme, walk = (path.read_text("utf-8") for path in (README, WALK))
    assert len(expected(readme, walk)) == 3 * 5 - 2
    assert len(list(figures(of_this_valley(walk), r"([\d.]+) ± ([\d.]+)"))) == 3 * 5 - 2


@pytest.mark.slow
def test_a_small_one_goes_from_rows_to_the_report(device: torch.device, tmp_path: Path) -> None:
    out = tmp_path / "out"
    changes = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    went = well(DEFAULT_CONFIG, out, "--jobs", 1, "--device", device.type, *changes)
    found = table(out)
    assert list(found) == ["base", "sft", "dpo", "grpo", "ppo"]
    assert found["sft"]["kl"]["value"] == 0
    assert found["sft"]["win_rate"] is None
    assert {row["judge"] for name, row in found.items() if name != "sft"} == {"gold"}
    assert f"The report: {out / 'report.html'}" in went.out
    assert all(name in went.out for name in found)
    assert [look["verdict"] for look in seal(out, "sft")["checks"]]
    page = (out / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert "ppo" in page


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_whole_one_makes_better_policies(tmp_path: Path) -> None:
    """Intervals above one half, on prompts that nothing was trained on; README's table found again."""
    out = tmp_path / "out"
    well(DEFAULT_CONFIG, out)
    found = table(out)
    rows = read_records(out / "stages" / "demonstrations" / "rows.jsonl").records
    written = fmean(
        gold_of(row.prompt, row.completion).utility for row in rows if isinstance(row, Demonstration)
    )
    assert found["sft"]["gold"]["low"] < written < 0.65
    for name in ("dpo", "grpo", "ppo"):
        # Better than what it began as, and than what it was shown.
        assert found[name]["win_rate_decided"]["low"] > 0.7
        assert found[name]["win_rate"]["low"] > 0.6
        assert found[name]["gold"]["low"] > max(written, found["base"]["gold"]["high"])
        assert 0 < found[name]["kl"]["value"] < 2
    assert outside(found, README.read_text("utf-8"), WALK.read_text("utf-8")) == []
