"""A stage that waits for people fails nothing: others go on, exit status 3, and the same command goes on."""

import json
from pathlib import Path
from typing import Any

import pytest

from plaudit.cli.main import main
from plaudit.runs.report.pipeline.data import read_pipeline_folder
from tests.methods.iterative.answering import let_answer
from tests.runs.pipeline import places


def told(place: Path) -> dict[str, dict[str, Any]]:
    """A loop that asks people, what rests on it, and a lane beside it."""
    whole = places.stages(place)
    loop = {
        "do": "rlhf",
        "model": "$model",
        "prompts": str(place / "prompts.jsonl"),
        "comparisons": "people",
        "loop": {"rounds": 2, "teach": "reinforce"},
        "steps": 1,
        "policy.group_size": 2,
        "draw.max_tokens": 24,
        "reward_run": {"batch_size": 8, "held_out": 0.2, "learning_rate": 0.003},
        "learning_rate": 0.003,
        **places.QUICK,
        **places.SILENT,
        "max_length": 128,
    }
    return {
        "rlhf": loop,
        "below": {**whole["sft"], "model": "$rlhf", "data": "$demos"},
        "demos": whole["demos"],
        "beside": {**whole["sft"], "check": False},
    }


def config_of(place: Path, name: str = "waits", **changes: dict[str, Any]) -> Path:
    whole = told(place)
    for stage, settings in changes.items():
        whole[stage] |= settings
    order = ("rlhf", "demos", "below", "beside")
    return places.write_config(place, {stage: whole[stage] for stage in order}, name)


@pytest.fixture(scope="module")
def out(place: Path) -> Path:
    return place / "out"


@pytest.fixture(scope="module")
def waiting(place: Path, out: Path) -> places.Went:
    """The pipeline when nothing but people is left to wait for."""
    return places.go(config_of(place), out)


@pytest.fixture(scope="module")
def finished(place: Path, out: Path, waiting: places.Went) -> places.Went:
    """The same command after people have answered, twice."""
    assert waiting.code == 3
    let_answer(out / "labels.db", "rlhf")
    second = places.go(config_of(place), out)
    assert second.code == 3
    assert "drawing" not in second.words
    let_answer(out / "labels.db", "rlhf")
    return places.well(config_of(place), out)


@pytest.mark.slow
def test_others_go_on_and_the_exit_status_is_three(out, waiting):
    assert waiting.code == 3
    assert (out / "stages" / "demos" / "stage.json").exists()
    assert (out / "stages" / "beside" / "stage.json").exists()
    assert not (out / "stages" / "below").exists()
    assert not (out / "stages" / "rlhf" / "stage.json").exists()
    missing = f"15 of 15 labels are missing in project rlhf of {out / 'labels.db'}"
    assert f"waits for people: {missing}" in waiting.words
    assert f"plaudit: stage rlhf (rlhf): {missing}. " in waiting.words
    assert f"`plaudit collect serve --store {out / 'labels.db'}`" in waiting.words
    assert "Then give the same command again" in waiting.words
    assert not (out / "report.html").exists()


def test_a_dry_run_and_the_page_say_who_is_waited_for(place, out, waiting, capsys):
    assert waiting.code == 3
    (line,) = [
        line for line in places.well(config_of(place), out, "--dry-run").out.splitlines() if " rlhf " in line
    ]
    assert "waits for people: 15 of 15 labels are missing in project rlhf" in line
    stage = next(stage for stage in read_pipeline_folder(out).stages if stage.name == "rlhf")
    assert (stage.state, stage.missing.split(" labels")[0]) == ("people", "15 of 15")
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text("utf-8")
    (out / "report.html").unlink()
    assert "waits for people" in page
    assert "rlhf (waits for people)" in page
    assert "below (to do)" in page
    capsys.readouterr()


@pytest.mark.slow
def test_the_same_command_goes_on_to_the_end(place, out, finished):
    assert places.states(finished) == {"rlhf": "ran", "below": "ran", "demos": "kept", "beside": "kept"}
    assert not (out / "stages" / "rlhf" / "waits.json").exists()
    assert "waits.json" not in places.seal(out, "rlhf")["outputs"]
    assert set(places.states(places.well(config_of(place), out)).values()) == {"kept"}


@pytest.mark.slow
def test_labels_that_are_revised_later_leave_a_finished_stage_as_it_is(place, out, finished):
    assert finished.code == 0
    before = places.results(out)
    let_answer(out / "labels.db", "rlhf", lambda shown: {"strength": 1})
    assert set(places.states(places.well(config_of(place), out)).values()) == {"kept"}
    assert places.results(out) == before


@pytest.mark.slow
def test_a_trace_leads_to_the_snapshot_and_the_position_of_the_log(place, out, finished):
    assert finished.code == 0
    rows = out / "stages" / "rlhf" / "run" / "rounds" / "1" / "comparisons.jsonl"
    snapshot = json.loads(rows.with_name("comparisons.snapshot.json").read_text("utf-8"))
    words = " ".join(places.well(config_of(place), out, "--trace", "below").out.split())
    store = out / "labels.db"
    assert (
        f"labels of run/rounds/1/comparisons.jsonl: event {snapshot['seq']} ({snapshot['link'][:12]}) of "
        f"{store}, project rlhf plaudit collect trace {rows} 1 --store {store}"
    ) in words


@pytest.mark.slow
def test_side_by_side_it_waits_and_ends_the_same(place, out, finished):
    assert finished.code == 0
    other = place / "side-by-side"
    for _ in range(2):
        assert places.go(config_of(place), other, "--jobs", 2).code == 3
        assert (other / "stages" / "beside" / "stage.json").exists()
        let_answer(other / "labels.db", "rlhf")
    places.well(config_of(place), other, "--jobs", 2)
    names = ("rlhf", "below", "beside")
    assert {name: places.seal(other, name)["result"] for name in names} == {
        name: places.seal(out, name)["result"] for name in names
    }


def test_a_fault_of_another_stage_is_told_first(place, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": 3}\n', "utf-8")
    went = places.go(config_of(place, "fails", demos={"data": str(bad), "threshold": 0.0}), tmp_path / "out")
    assert went.code == 2
    assert "stage demos (rows): " in went.words
    assert (tmp_path / "out" / "stages" / "rlhf" / "waits.json").exists()


@pytest.mark.slow
def test_other_settings_begin_the_loop_anew_and_find_what_people_said(place, tmp_path):
    out = tmp_path / "out"
    assert places.go(config_of(place, "first"), out).code == 3
    let_answer(out / "labels.db", "rlhf")
    assert places.go(config_of(place, "second", rlhf={"learning_rate": 0.001}), out).code == 3
    assert (out / "stages" / "rlhf" / "run" / "rounds" / "1" / "policy").exists(), "nobody labels it twice"
