"""Constitutional AI as a pipeline that comes with plaudit: by a word, without people, above its base."""

import json
from pathlib import Path
from typing import Any

import pytest

from plaudit.cli.main import main
from plaudit.runs.pipeline.read import SHIPPED, config_path, read_pipeline
from tests.runs.pipeline.places import go, seal, well

CONFIG = SHIPPED["constitutional"]
SMALL = {
    "ordinary.n": 40,
    "red-team.n": 40,
    "first-answers.n": 24,
    "revisions.n": 40,
    "helpful.held-out": 0,
    "sft.held-out": 0,
    "harmlessness.n": 30,
    "helpfulness.n": 30,
    "reward.steps": 2,
    "dpo.steps": 2,
    "grpo.rounds": 1,
    "evaluation.n": 24,
    "evaluation.bootstrap": 50,
}


def table(out: Path) -> dict[str, dict[str, Any]]:
    told = json.loads((out / "summary.json").read_text("utf-8"))
    return {row["policy"]: row for row in told["table"]}


def test_a_pipeline_that_comes_with_plaudit_is_named_by_a_word(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert config_path("constitutional") == CONFIG
    assert main(["run", "--show-default"]) == 0
    assert capsys.readouterr().out == SHIPPED["default"].read_text("utf-8")
    assert main(["run", "constitutional", "--show-default"]) == 0
    assert capsys.readouterr().out == CONFIG.read_text("utf-8")
    assert main(["run", "constitutional", "--write", "mine.yaml"]) == 0
    assert Path("mine.yaml").read_text("utf-8") == CONFIG.read_text("utf-8")
    assert main(["run", "constitutional", "--write", "mine.yaml"]) == 2
    assert "mine.yaml: something is there already" in capsys.readouterr().err
    assert main(["run", "constitutionnel", "--write", "other.yaml"]) == 2
    assert "there is default, constitutional" in capsys.readouterr().err
    assert main(["run", "constitutionel", "--dry-run"]) == 2
    assert "constitutionel: no such file" in (error := capsys.readouterr().err)
    assert "did you mean constitutional?" in error
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in SHIPPED)
    # A file of that name is meant before the word.
    Path("constitutional").write_text(Path("mine.yaml").read_text("utf-8").replace("seed: 0", "seed: 7"))
    assert read_pipeline(config_path("constitutional")).seed == 7
    assert "14 of 14 stages to run" in go(Path("constitutional"), tmp_path / "out", "--dry-run").words


def test_nobody_but_the_helper_labels_and_the_truth_is_asked_in_the_evaluation_alone():
    pipeline = read_pipeline(CONFIG)
    rows = [stage for stage in pipeline.stages if stage.kind.produces == "rows"]
    made = {stage.kind.name: {stage.config({}).make} for stage in rows if stage.kind.name == "world-rows"}
    assert made["world-rows"] <= {"prompts", "red-team"}
    assert {stage.kind.name for stage in rows} == {"world-rows", "revise", "judge"}
    for word in ("call:plaudit.lab.world.minds:mind", "openai:http://127.0.0.1:9/v1#real"):
        found = read_pipeline(CONFIG, helper=word)
        assert {stage.config({}).by for stage in found.stages if stage.kind.name in ("revise", "judge")} == {
            word
        }
    learnt = [stage for stage in pipeline.stages if stage.kind.name != "evaluate"]
    assert not [stage.name for stage in learnt if "gold" in json.dumps(dict(stage.raw_settings), default=str)]


@pytest.mark.slow
def test_a_small_one_goes_from_prompts_to_the_report(device, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "out"
    changes = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    well(CONFIG, out, "--jobs", 1, "--device", device.type, *changes)
    assert list(table(out)) == ["base", "helpful", "sft", "dpo", "grpo"]
    assert "100.0 % by models." in (out / "report.html").read_text("utf-8")
    assert "revised" in " ".join(seal(out, "revisions")["summary"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_whole_one_makes_a_better_model_without_people(tmp_path, monkeypatch):
    """True worth on prompts that nothing was trained on; see docs/constitutional.md for the figures."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "out"
    well(CONFIG, out)
    found = table(out)
    for worse, better in (("base", "sft"), ("helpful", "sft"), ("helpful", "grpo")):
        assert found[better]["gold"]["low"] > found[worse]["gold"]["value"]
    assert found["grpo"]["gold"]["value"] > found["sft"]["gold"]["value"]
