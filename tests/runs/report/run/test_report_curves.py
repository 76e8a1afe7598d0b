"""Curves of long runs: few points, every spike, a small page and a short wait."""

import json
import math
import random
import re
import subprocess
import sys
from array import array
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from plaudit.runs.report.charts.lines import segments, smoothed, step_axis, thin_points
from plaudit.runs.report.run.data import MetricColumn
from plaudit.runs.report.run.page import write_report
from tests.engine.toy_runs import ToyRun, report, write_run
from tests.runs.report.read_page import read_page

VALUES = st.floats(min_value=-1e9, max_value=1e9) | st.just(math.nan)


def column(values: list[float]) -> MetricColumn:
    return MetricColumn(name="loss", steps=array("q", range(1, len(values) + 1)), values=array("d", values))


@given(st.lists(VALUES, min_size=1, max_size=400), st.integers(min_value=5, max_value=60))
def test_thinning_keeps_the_ends_the_extremes_the_order_and_the_gaps(values: list[float], most: int) -> None:
    whole = column(values)
    points = thin_points(whole, most)
    steps = [step for step, _ in points]
    assert len(points) <= most
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (1, len(values))
    assert all(value == values[step - 1] or math.isnan(value) for step, value in points)
    finite = [value for _, value in points if not math.isnan(value)]
    assert (min(finite, default=None), max(finite, default=None)) == (whole.lowest, whole.highest)
    assert any(math.isnan(value) for _, value in points) == any(map(math.isnan, values))


def test_a_long_noisy_curve_has_a_smooth_line_over_its_faint_points(tmp_path: Path) -> None:
    values = [2.0 + (-1) ** step for step in range(1000)]
    assert all(abs(value - 2) < 0.03 for _, value in smoothed(column(values)))
    assert smoothed(column(values[:30])) == []
    assert math.isnan(smoothed(column([math.nan] * 100))[0][1])
    text = write_report(write_run(tmp_path, ToyRun(steps=120))).read_text()
    loss, rate = (
        text.partition(f"<h3>{title} ")[2].partition("</figure>")[0] for title in ("Loss", "Learning")
    )
    assert 'class="line trained smooth"' in loss
    assert "smooth" not in rate


def test_a_short_run_is_drawn_in_full() -> None:
    assert thin_points(column([float(at) for at in range(500)])) == [(at + 1, float(at)) for at in range(500)]


@given(st.lists(VALUES, max_size=60))
def test_segments_hold_every_number_once_and_nothing_else(values: list[float]) -> None:
    points = list(enumerate(values))
    pieces = list(segments(points))
    assert [point for piece in pieces for point in piece] == [p for p in points if not math.isnan(p[1])]
    assert all(after[0][0] - before[-1][0] > 1 for before, after in pairwise(pieces))


@pytest.mark.parametrize(
    ("first", "last", "labels"),
    [
        (1, 3, ["1", "2", "3"]),
        (1, 100, ["20", "40", "60", "80", "100"]),
        (7, 7, ["7"]),
        (1, 100_000, ["20,000", "40,000", "60,000", "80,000", "100,000"]),
    ],
)
def test_the_axis_of_steps_names_whole_steps(first: int, last: int, labels: list[str]) -> None:
    assert [label for _, label in step_axis(first, last).ticks] == labels


TIMED = """
import json, sys, time
from pathlib import Path
from plaudit.runs.report.run.page import write_report
folder, before = Path(sys.argv[1]), time.process_time()
for line in (folder / "metrics.jsonl").read_text().splitlines():
    json.loads(line)
read = time.process_time()
write_report(folder)
print((time.process_time() - read) / (read - before))
"""


@pytest.mark.slow
def test_a_run_of_a_hundred_thousand_steps_makes_a_small_page_in_little_time(tmp_path: Path) -> None:
    steps, toy, chance = 100_000, ToyRun(evaluate_every=100), random.Random(0)
    lines = [report(step, toy, chance).as_json() for step in range(1, 101)]
    odd: dict[int, float | None] = {70_000: 88.0, 80_000: None}
    with (tmp_path / "metrics.jsonl").open("w") as file:
        for step in range(1, steps + 1):
            line = {**lines[(step - 1) % 100], "step": step, "steps": steps, "epoch": 4 * step / steps}
            file.write(json.dumps({**line, "loss": odd.get(step, line["loss"])}) + "\n")
    (tmp_path / "config.yaml").write_text("model: base\n")
    # In a process of its own, without the checks of types that tests run under and users do not.
    command = [sys.executable, "-c", TIMED, str(tmp_path)]
    times_reading = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    path = tmp_path / "report.html"
    page = read_page(path)
    # In CPU time, whatever the machine: reading the lines as JSON, which nothing can spare. About 2.4.
    assert times_reading < 8
    assert path.stat().st_size < 200_000
    assert max(drawn.count("L") for drawn in page.values("path", "d")) < 500
    assert page.values("path", "class").count("gap") == 1
    assert re.search(r"steps 6\d,\d+ to 7\d,\d+: training 1\.\d+ to 88\.0", " ".join(page.words["title"]))
    assert page.words["p"][1].startswith("100,000 steps over 4.0 epochs of 200,000 rows; held-out loss")
