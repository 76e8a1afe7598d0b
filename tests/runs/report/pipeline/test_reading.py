"""A pipeline's folder is read as far as it goes, and what cannot be read is named with what to do."""

import json
import re
from pathlib import Path

import pytest

from plaudit.errors import UserError
from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.files.restored import restore
from plaudit.runs.report.pipeline.data import read_pipeline_folder
from plaudit.runs.report.pipeline.page import write_folder_report, write_report
from tests.runs.report.pipeline.pipelines import FOUND, STAGES, json_of, write_pipeline, write_stage
from tests.runs.report.read_page import read_page
from tests.runs.report.reward_models.page_zoo import FULL


def test_all_that_was_written_comes_back(tmp_path: Path) -> None:
    story = read_pipeline_folder(write_pipeline(tmp_path / "valley"))
    assert story.finished
    assert [stage.name for stage in story.stages] == [*STAGES]
    assert story.evaluation == FOUND
    judged = next(stage for stage in story.stages if stage.reward_evaluations)
    assert judged.reward_evaluations == (restore(RewardEvaluation, json_of((FULL,))["evaluations"][0]),)
    assert [stage.name for stage, _ in story.training_stages] == ["sft", "reward", "dpo", "grpo", "ppo"]
    assert not any(stage.changed_files for stage in story.stages)


def test_an_unfinished_pipeline_says_what_is_missing(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "half", stages=4)
    (folder / "stages" / "reward").mkdir()
    (folder / "stages" / "reward" / "begun.json").write_text("{}")
    story = read_pipeline_folder(folder)
    assert [stage.state for stage in story.stages] == ["done"] * 4 + ["begun"] + ["waiting"] * 5
    assert story.stages[-1].needs == ("model", "sft", "dpo", "grpo", "ppo", "reward")
    page = read_page(write_report(folder))
    assert "Not finished" in page.sections["head"]
    assert "reward (begun), reward-judged (to do)" in page.sections["head"]
    assert page.sections["Results"] == "No stage has compared policies yet."


def test_without_its_config_the_stages_that_are_there_are_shown(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "valley")
    (folder / "pipeline.yaml").unlink()
    assert {stage.name for stage in read_pipeline_folder(folder).stages} == {*STAGES}
    assert "Finished" in read_page(write_report(folder)).sections["head"]


def test_an_evaluation_alone_has_a_page(tmp_path: Path) -> None:
    write_stage(tmp_path / "evaluation")
    (tmp_path / "evaluation" / "stage.json").unlink()
    page = read_page(write_folder_report(tmp_path / "evaluation"))
    assert page.sections["head"].startswith("evaluationFinished")
    assert "Samples" in page.sections


def test_a_training_run_has_its_own_page(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "valley", stages=2)
    page = read_page(
        write_folder_report(folder / "stages" / "sft" / "run", tmp_path / "elsewhere" / "one.html")
    )
    assert "Curves" in page.sections


def test_a_folder_that_is_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither a pipeline \(it has no pipeline.yaml\), nor a run"):
        write_folder_report(tmp_path)
    (tmp_path / "pipeline.yaml").write_text("name: valley\nstages: []\n")
    with pytest.raises(UserError, match="no stage is planned here, and none has been run"):
        write_folder_report(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("stages/sft/stage.json", "{", "this is no JSON that plaudit wrote"),
        ("stages/sft/stage.json", "[]", "not a stage that plaudit wrote"),
        ("stages/sft/stage.json", '{"do": "sft"}', "not a stage that plaudit wrote.*outputs"),
        ("stages/sft/stage.json", '{"do": "sft", "outputs": {}, "seconds": NaN}', "NaN is not JSON"),
        ("stages/sft/run/metrics.jsonl", "{\n", "not a line of JSON"),
        ("stages/evaluation/policies.json", '{"policies": 3}', "policies.json: this is no evaluation"),
        ("stages/reward-judged/summary.json", '{"evaluations": [{}]}', "summary.json: not what plaudit eval"),
        ("pipeline.yaml", "stages: {a: [}", "pipeline.yaml: not a pipeline's config"),
        ("pipeline.yaml", "stages: 3", "pipeline.yaml: not a pipeline's config"),
        ("pipeline.yaml", "stages: [../../etc: {do: sft}]", "is no name of a stage: it leads out of"),
    ],
)
def test_a_damaged_file_is_named(file: str, content: str, said: str, tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "valley")
    (folder / file).write_text(content)
    with pytest.raises(
        UserError, match=re.compile(f"{file.rsplit('/', maxsplit=1)[-1]}.*{said}|{said}", re.DOTALL)
    ):
        write_report(folder)


def test_a_figure_that_is_no_number_is_a_gap_and_a_note(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "valley", stages=2)
    metrics = folder / "stages" / "sft" / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    lines[30]["loss"] = None
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = read_page(write_report(folder))
    assert "loss was not a finite number at step 31" in page.sections["What to doubt"]


def test_a_file_that_was_changed_by_hand_is_doubted(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "valley")
    path = folder / "stages" / "evaluation" / "policies.json"
    path.write_text(path.read_text().replace("0.77", "0.99"))
    page = read_page(write_report(folder))
    assert "evaluation: policies.json is not as the stage left it" in page.sections["What to doubt"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"value": 0.5}, "Estimate lacks or has too much: high, low, n, prompts"),
        ([], "Estimate is not an object"),
        ({"value": "x", "low": None, "high": None, "n": 1, "prompts": 1}, "Estimate.value is 'x'"),
        ({"value": 0.5, "low": None, "high": None, "n": 1.5, "prompts": 1}, "Estimate.n is 1.5"),
    ],
)
def test_what_does_not_fit_a_record_is_named(value: object, said: str) -> None:
    from plaudit.evaluation.stats import Estimate

    with pytest.raises(ValueError, match=re.escape(said)):
        restore(Estimate, value)
