"""Runs beside each other: only what differs in settings, figures side by side, curves over each other."""

from dataclasses import replace
from pathlib import Path

import pytest

from plaudit.cli.main import main
from plaudit.errors import UserError
from plaudit.runs.report.compare import comparison_page, differing_settings, read_runs
from tests.engine.toy_runs import ToyRun, write_run
from tests.runs.report.in_browser import CHROMIUM, keeps_to_its_width
from tests.runs.report.pipeline.pipelines import FOUND, policy, write_pipeline
from tests.runs.report.read_page import read_page


def two(folder: Path) -> list[Path]:
    """Two pipelines, of which the second has another seed and another PPO."""
    policies = (*FOUND.policies[:-1], policy("ppo", 0.6, 0.9))
    folders = [
        write_pipeline(folder / "valley"),
        write_pipeline(folder / "valley-2", replace(FOUND, policies=policies)),
    ]
    config = folders[1] / "pipeline.yaml"
    config.write_text(config.read_text().replace("seed: 0", "seed: 1").replace(", epochs: 1", ", epochs: 2"))
    return folders


def test_only_settings_that_differ_are_named(tmp_path):
    runs = read_runs(two(tmp_path))
    assert [run.name for run in runs] == ["valley", "valley-2"]
    assert differing_settings(runs) == {"seed": ("0", "1"), "stages.sft.epochs": ("1", "2")}


def test_a_setting_that_one_lacks_is_a_difference(tmp_path):
    folders = two(tmp_path)
    config = folders[1] / "pipeline.yaml"
    config.write_text(config.read_text() + "- more: {do: sft, warmup: 3}\n")
    assert differing_settings(read_runs(folders))["stages.more.warmup"] == ("–", "3")


def test_figures_and_curves_of_both_are_on_the_page(tmp_path):
    (tmp_path / "both.html").write_text(comparison_page(read_runs(two(tmp_path))))
    page = read_page(tmp_path / "both.html")
    assert page.words["h1"] == ["2 runs beside each other"]
    assert "ppo, dpo and grpo answer better than sft." in page.sections["head"]
    told = [words for words in page.words["desc"] if words.startswith("base: valley 0.310")]
    assert "ppo: valley 0.800 (0.770 to 0.830), valley-2 0.600 (0.570 to 0.630)" in told[0]
    assert any(
        words.startswith("valley:") and "; valley-2:" in words and "0.147 at 10.0" in words
        for words in page.words["desc"]
    )
    assert "stages.sft.epochs12" in page.sections["What differs in their settings"]


@pytest.mark.slow
def test_five_runs_are_drawn_in_charts_of_four_at_most(tmp_path):
    folders = [write_pipeline(tmp_path / f"run-{at}") for at in range(5)]
    (tmp_path / "all.html").write_text(comparison_page(read_runs(folders)))
    page = read_page(tmp_path / "all.html")
    assert sum(title.startswith("True worth") for title in page.words["h3"]) == 2
    assert "Their settings are the same" in page.sections["What differs in their settings"]


def test_training_runs_are_compared_too(tmp_path):
    folders = [write_run(tmp_path / name, ToyRun(steps=20)) for name in ("one", "two")]
    (folders[1] / "config.yaml").write_text((folders[1] / "config.yaml").read_text().replace("8", "16"))
    (tmp_path / "both.html").write_text(comparison_page(read_runs(folders)))
    page = read_page(tmp_path / "both.html")
    assert "batch_size816" in page.sections["What differs in their settings"]
    assert "What came of them" not in page.sections
    assert sum(title.startswith("Loss") for title in page.words["h3"]) == 1


def test_a_run_is_not_compared_with_itself(tmp_path):
    folder = write_pipeline(tmp_path / "valley", stages=1)
    with pytest.raises(UserError, match="named twice"):
        read_runs([folder, folder])


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_nothing_is_wider_than_a_phone(tmp_path):
    keeps_to_its_width(comparison_page(read_runs(two(tmp_path))), tmp_path)


@pytest.mark.slow
def test_the_command_writes_where_it_is_told(tmp_path, capsys):
    one, other = two(tmp_path)
    assert main(["report", str(one)]) == 0
    assert capsys.readouterr().out.strip() == str(one / "report.html")
    assert main(["report", str(one), str(other), "--out", str(tmp_path / "new" / "both.html")]) == 0
    assert read_page(tmp_path / "new" / "both.html").words["h1"] == ["2 runs beside each other"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "nowhere"], "nowhere: there is no such folder"),
        (["report", ".", "--out", "."], "a folder; name the file to write"),
        (["report"], "RUN"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_a_page_is_written_again_until_the_run_has_ended(tmp_path, monkeypatch):
    run, pages = write_run(tmp_path / "run", ToyRun(steps=30, done=10)), []

    def end(seconds: float) -> None:
        pages.append((seconds, (run / "report.html").read_text()))
        write_run(run, ToyRun(steps=30))

    monkeypatch.setattr("plaudit.runs.verbs.report.time.sleep", end)
    assert main(["report", str(run), "--watch", "0.5"]) == 0
    assert [(seconds, 'http-equiv="refresh" content="1"' in page) for seconds, page in pages] == [(0.5, True)]
    last = (run / "report.html").read_text()
    assert "30 steps over" in last
    assert "refresh" not in last
    assert main(["report", str(run), "--watch", "0"]) == 2
