"""The benchmarks run: our side on a tiny folder, its report, the tables, and the page that keeps them."""

import json
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from benchmarks import judging, sampling
from benchmarks.growth import Point, exponent, run_point, working_mib
from benchmarks.measure import Report, report_from
from benchmarks.our_reward import config_of, flops_of_scorer, judged_in, rewards_of, scorer_of
from benchmarks.ours import rows_in, trial_of
from benchmarks.reward import MAX_REWARD_DIFFERENCE
from benchmarks.table import Side, save_section, side_by_side
from benchmarks.turns import both, numbers_from, ours, theirs
from benchmarks.work import (
    PAIRS,
    RANKINGS,
    SHAPES,
    Rows,
    model_of,
    tokenizer_of,
    write_judged_work,
    write_work,
)
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from tests.peer import RECORDED, PeerValues

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_DEVICE = (
    *("annotators", "checkpoints", "control", "kills", "labelling", "loading", "rows", "serving", "skill"),
    *("corrected", "routing", "traffic", "work"),
)
"""Benchmarks that are of no device, as README.md says of them."""
COMMANDS = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if "__main__" in path.read_text(encoding="utf-8") and not path.stem.startswith("peer_")
)
"""What can be run here: the peers need an environment of their own."""
linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured on Linux")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    write_work(folder, SHAPES["tiny"], Rows(count=4, prompt=12, completion=6))
    return folder


@pytest.fixture(scope="module")
def report(work: Path) -> Report:
    return report_of_run("ours", work, "--batch", "2", "--steps", "2")


def report_of_run(module: str, work: Path, *words: str) -> Report:
    command = [*ours(module, *words), str(work), "--threads", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return report_from(done.stdout)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_judged(tmp_path_factory.mktemp("judged"))


def write_judged(folder: Path) -> Path:
    """Two rankings of three answers, and their six pairs."""
    write_judged_work(folder, SHAPES["tiny"], Rows(count=2, prompt=12, completion=6), answers=3)
    return folder


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


@pytest.mark.slow
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


@pytest.mark.slow
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
    # Above the last layer's attention only states that are read are needed.
    spared = 3 * size.hidden * size.inner * (row.tokens - row.trained_tokens)
    products = 6 * (body * row.tokens + head * row.trained_tokens - spared)
    assert trial_of(policy).flops(rows) == products + 6 * size.layers * size.hidden * row.tokens**2


def test_pairs_and_rankings_are_the_same_judgements(judged: Path):
    pairs, rankings = (judged_in(config_of(judged, rows=name)) for name in (PAIRS, RANKINGS))
    assert [len(row.example.completions) for row in rankings] == [3, 3]
    wanted = [
        (row.prompt, row.example.completions[one].ids, row.example.completions[other].ids)
        for row in rankings
        for one, other in ((0, 1), (0, 2), (1, 2))
    ]
    assert [(row.prompt, *(a.ids for a in row.example.completions)) for row in pairs] == wanted


def test_our_rewards_are_those_of_transformers_on_the_same_folder(judged: Path):
    config = config_of(judged)
    rows, model = judged_in(config), scorer_of(config)
    plain = AutoModelForSequenceClassification.from_pretrained(judged / "model").eval()
    wanted = [
        float(plain(torch.tensor([[*row.prompt, *answer.ids]])).logits[0, 0].detach())
        for row in rows
        for answer in row.example.completions
    ]
    assert rewards_of(model, rows) == pytest.approx(wanted, abs=1e-5)
    assert max(wanted) - min(wanted) > 0.1


@pytest.mark.slow
@linux
def test_a_ranking_and_its_pairs_have_one_loss_and_count_the_same_comparisons(judged: Path):
    """Σ over the pairs / pairs, of whole rankings and of pairs that each computed their prompt again."""
    by_pairs = report_of_run("our_reward", judged, "--batch", "6", "--steps", "1")
    by_rankings = report_of_run("our_reward", judged, "--rankings", "--batch", "2", "--steps", "1")
    rewards = torch.tensor(rewards_of(scorer_of(config_of(judged)), judged_in(config_of(judged))))
    wanted = float(torch.nn.functional.softplus(rewards[1::2] - rewards[::2]).mean())
    assert by_pairs.first_loss == pytest.approx(wanted, abs=1e-5)
    assert by_rankings.first_loss == pytest.approx(wanted, abs=1e-5)
    assert by_pairs.batch == by_rankings.batch == 6
    assert by_rankings.tokens < by_pairs.tokens
    assert by_rankings.flops < by_pairs.flops


def test_needed_operations_of_a_shared_prompt_are_counted_once(judged: Path):
    config = config_of(judged, rows=RANKINGS)
    row, size = judged_in(config)[0], SHAPES["tiny"]
    body = size.layers * (4 * size.hidden**2 + 3 * size.hidden * size.inner) + size.hidden
    prompt, answers = len(row.prompt), [len(answer.ids) for answer in row.example.completions]
    pairs = prompt**2 + sum(2 * prompt * answer + answer**2 for answer in answers)
    spared = 3 * size.hidden * size.inner * (prompt + sum(answers) - len(answers))
    wanted = 6 * (body * (prompt + sum(answers)) - spared) + 6 * size.layers * size.hidden * pairs
    assert flops_of_scorer(scorer_of(config), [row]) == wanted


def peer_scores() -> list[float]:
    with TemporaryDirectory() as where:
        return numbers_from(theirs("reward", "--rewards", "--threads", "1", str(write_judged(Path(where)))))


VALUES = PeerValues(file=Path(__file__).with_name("peer_values") / "reward.json", ask=peer_scores)


def test_the_peer_has_scored_the_same_answers_alike(judged: Path):
    config, wanted = config_of(judged), VALUES.answers(RECORDED)
    assert len(wanted) == 12
    found = rewards_of(scorer_of(config), judged_in(config))
    assert found == pytest.approx(wanted, rel=0, abs=MAX_REWARD_DIFFERENCE)


@pytest.mark.peer
def test_the_record_is_what_the_peer_says():
    VALUES.prove()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_benchmark_says_where_it_computes(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [name, "--help"])
    monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
    with pytest.raises(SystemExit):
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    assert ("--device " in capsys.readouterr().out) == (name not in WITHOUT_DEVICE)


def test_every_side_is_told_the_same_batch():
    sides = both(ours("our_reward", "--batch", "3"), theirs("reward", "--batch", "3"), "plain")
    assert len({side.name for side in sides}) == len(sides)
    for side in sides:
        assert side.words[side.words.index("--batch") + 1] == "3"
        assert ("bfloat16" in side.words) == ("bfloat16" in side.name)


def test_a_judge_is_timed_beside_the_scoring_of_the_very_same_tokens(tmp_path: Path):
    tasks = judging.tasks_of(4)
    judging.write_model(tmp_path, SHAPES["tiny"], judging.questions_of(tasks))
    rates = judging.rates_of(tmp_path, tasks, "cpu", runs=1)
    assert rates.tokens > 100 * len(judging.questions_of(tasks))
    assert len(rates.plain) == len(rates.judged) == 1
    assert rates.share > 0


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


def test_a_side_that_did_other_work_has_other_rewards_or_did_not_run_does_not_count():
    other = Side(name="theirs", reports=(report_of(first_loss=10.00011),))
    row = cells(side_by_side([Side(name="ours", reports=(report_of(),)), other], exact=2), 1)
    assert row[1] == "does not count: first loss 10.00011, ours 10.00000"
    assert not any(row[2:])
    other = Side(name="theirs", reports=(report_of(),), objection="rewards differ by 0.1")
    row = cells(side_by_side([Side(name="ours", reports=(report_of(),)), other], exact=2), 1)
    assert row[1] == "does not count: rewards differ by 0.1"
    assert not any(row[2:])
    failed = Side(name="theirs", reports=(), failure="MemoryError")
    row = cells(side_by_side([Side(name="ours", reports=(report_of(),)), failed], exact=2), 1)
    assert row[1] == "did not run: MemoryError"
    assert not any(row[2:])


def test_losses_may_have_to_agree_more_closely():
    sides = [
        Side(name=n, reports=(report_of(first_loss=f),)) for n, f in (("ours", 10.0), ("theirs", 10.00005))
    ]
    assert cells(side_by_side(sides, exact=2, unit="comparisons"), 1)[1] == "2.00"
    assert cells(side_by_side(sides, exact=2, agreement=1e-5), 1)[1].startswith("does not count")


def test_where_ours_did_not_run_there_is_nothing_to_compare_with():
    failed = Side(name="ours", reports=(), failure="MemoryError")
    table = side_by_side([failed, Side(name="theirs", reports=(report_of(),))], exact=2)
    assert cells(table, 0)[1] == "did not run: MemoryError"
    assert cells(table, 1)[1] == "nothing to compare with"


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


def test_both_samplers_say_the_same_when_nothing_is_left_to_chance(tmp_path):
    workload = sampling.Workload(prompts=2, answers=3, prompt=12, completion=6)
    tokenizer_of(SHAPES["tiny"]).save_pretrained(tmp_path)
    model_of(SHAPES["tiny"]).save_pretrained(tmp_path)
    told = [
        sampling.measured_side(side, tmp_path, SHAPES["tiny"], workload, times=1) for side in sampling.SIDES
    ]
    assert told[0].greedy == told[1].greedy
    assert all(0 < one.tokens <= 2 * 3 * 6 for one in told)
