"""The benchmarks run: our side on a tiny folder, its report, the tables, and the page that keeps them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.growth import Point, exponent, run_point, working_mib
from benchmarks.measure import Report, report_from
from benchmarks.ours import rows_in, trial_of
from benchmarks.table import Side, save_section, side_by_side
from benchmarks.work import SHAPES, Rows, write_work
from plaudit.models.files import load_model
from plaudit.models.policy import Policy

ROOT = Path(__file__).resolve().parents[2]
linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured on Linux")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    write_work(folder, SHAPES["tiny"], Rows(count=4, prompt=12, completion=6))
    return folder


@pytest.fixture(scope="module")
def report(work: Path) -> Report:
    words = ["-m", "benchmarks.ours", str(work), "--batch", "2", "--steps", "2", "--threads", "1"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return report_from(done.stdout)


def test_rows_have_the_lengths_that_were_asked_for(work: Path):
    rows = rows_in(work)
    assert len(rows) == 4
    assert all(6 <= len(row.prompt) <= 12 for row in rows)
    # An end-of-turn token follows the words, and it is trained.
    assert all(3 + 1 <= len(row.completions[0].ids) <= 6 + 1 for row in rows)
    assert all(row.trained_tokens == len(row.completions[0].ids) for row in rows)


def test_the_same_seed_writes_the_same_work(work: Path, tmp_path: Path):
    write_work(tmp_path, SHAPES["tiny"], Rows(count=4, prompt=12, completion=6))
    for name in ("rows.jsonl", "model/model.safetensors", "model/tokenizer.json"):
        assert (tmp_path / name).read_bytes() == (work / name).read_bytes()


@linux
def test_our_side_reports_the_loss_of_its_own_model(work: Path, report: Report):
    """The first loss is what plain transformers says of the same rows."""
    model = load_model(work / "model", dtype=torch.float32, device=torch.device("cpu"))
    total, count = 0.0, 0
    for row in rows_in(work)[:2]:
        ids = torch.tensor([[*row.prompt, *row.completions[0].ids]])
        with torch.no_grad():
            logp = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        total -= float(logp[len(row.prompt) - 1 :].sum())
        count += row.trained_tokens
    assert report.first_loss == pytest.approx(total / count, abs=1e-5)


@linux
def test_our_side_reports_each_step_and_its_memory(work: Path, report: Report):
    assert len(report.seconds) == len(report.cpu_seconds) == 2
    assert min(report.seconds) > 0
    assert report.peak_mib >= report.base_mib > 50
    assert report.matmul_flops > 1e9
    assert report.tokens == sum(row.tokens for row in rows_in(work))


def test_needed_operations_are_those_of_the_formula(work: Path):
    rows = rows_in(work)[:1]
    policy = Policy(load_model(work / "model", dtype=torch.float32, device=torch.device("cpu")))
    size, row = SHAPES["tiny"], rows[0]
    body = size.layers * (4 * size.hidden**2 + 3 * size.hidden * size.inner)
    head = size.vocabulary * size.hidden
    products = 6 * (body * row.tokens + head * row.trained_tokens)
    attention = 6 * size.layers * size.hidden * row.tokens**2
    assert trial_of(policy).flops(rows) == products + attention


@linux
def test_a_point_of_the_growth_table_runs():
    point = Point(prompts=2, prompt=8, completion=4, answers=2, hidden=64, vocabulary=64)
    report = run_point(point)
    assert report.tokens == 4 * 2 * (8 + 2 * 4)
    assert working_mib(report, point) < report.above_base_mib


def test_the_exponent_of_a_square_root_is_a_half():
    assert exponent([1, 4, 16], [5, 10, 20]) == pytest.approx(0.5)


def report_of(**changes: object) -> Report:
    plain = Report(
        who="plaudit 0",
        setting="float32",
        versions={},
        batch=8,
        first_loss=10.0,
        seconds=(9.0, 1.0, 3.0, 2.0),
        cpu_seconds=(9.0, 2.0, 4.0, 3.0),
        base_mib=100.0,
        peak_mib=300.0,
        flops=3e9,
        matmul_flops=2e9,
    )
    return replace(plain, **changes)


def cells(table: str, row: int) -> list[str]:
    return [cell.strip() for cell in table.splitlines()[2 + row].strip("|").split("|")]


def test_the_table_compares_medians_without_each_runs_first_step():
    slow = report_of(seconds=(1.0, 10.0, 10.0, 10.0), peak_mib=900.0)
    sides = [Side(name="ours", reports=(report_of(),)), Side(name="theirs", reports=(slow,))]
    table = side_by_side(sides, exact=2)
    assert cells(table, 0) == ["ours", "2.00", "4.00", "1.00 ×", "2.00", "200", "1.00", "75%", "10.00000"]
    assert cells(table, 1) == ["theirs", "10.00", "0.80", "5.00 ×", "2.00", "800", "0.25", "15%", "10.00000"]


def test_a_side_that_did_other_work_does_not_count():
    other = Side(name="theirs", reports=(report_of(first_loss=10.00011),))
    row = cells(side_by_side([Side(name="ours", reports=(report_of(),)), other], exact=2), 1)
    assert row[1] == "does not count: first loss 10.00011, ours 10.00000"
    assert not any(row[2:])


def test_a_side_that_did_not_run_is_no_win():
    failed = Side(name="theirs", reports=(), failure="MemoryError")
    row = cells(side_by_side([Side(name="ours", reports=(report_of(),)), failed], exact=2), 1)
    assert row[1] == "did not run: MemoryError"
    assert not any(row[2:])


def test_a_report_survives_its_line():
    assert report_from("noise\n" + report_of().line() + "\n") == report_of()
    assert json.loads(report_of().line())["seconds"] == [9.0, 1.0, 3.0, 2.0]


def test_a_section_takes_the_place_of_the_old_one(tmp_path: Path):
    page = tmp_path / "RESULTS.md"
    save_section("One", "first", page)
    save_section("Two", "second", page)
    save_section("One", "third", page)
    text = page.read_text(encoding="utf-8")
    assert "first" not in text
    assert text.startswith("# Results\n")
    assert text.endswith("## One\n\nthird\n\n## Two\n\nsecond\n")
