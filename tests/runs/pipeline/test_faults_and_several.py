"""What goes wrong is told with the stage, and what was finished stays; rows and rewards of several stages."""

import json
from pathlib import Path

import pytest
import yaml

from plaudit.files import lock
from tests.engine.toy import write_rows
from tests.runs.pipeline.places import go, seal, stages, states, well, write_config

NAMES = ["demos", "sft", "pairs", "reward", "policy"]


@pytest.mark.slow
def test_a_stage_that_fails_leaves_the_finished_ones(place: Path, tmp_path: Path) -> None:
    out, told = tmp_path / "out", stages(place)
    told["pairs"]["threshold"] = 0.0
    bad = place / "bad.jsonl"
    bad.write_text((place / "pairs.jsonl").read_text("utf-8") + '{"prompt": 3}\n', "utf-8")
    told["pairs"]["data"] = str(bad)
    config = write_config(place, told, "fails")
    went = go(config, out)
    assert went.code == 2
    assert "stage pairs (rows): " in went.words
    assert "1 of 17 rows are bad" in went.words
    assert "What is finished is kept, and the same command goes on from here" in went.words
    assert (out / "stages" / "pairs" / "quarantine.jsonl").exists()
    bad.write_text((place / "pairs.jsonl").read_text("utf-8"), "utf-8")
    assert states(well(config, out)) == {**dict.fromkeys(NAMES, "ran"), "demos": "kept", "sft": "kept"}


def test_what_an_algorithm_does_not_read_is_refused_before_anything_runs(place: Path, tmp_path: Path) -> None:
    told = stages(place)
    told["policy"]["lam"] = 0.5
    went = go(write_config(place, told, "unread"), tmp_path / "out")
    assert went.code == 2
    assert "unread.yaml" in went.words or "pipeline.yaml" in went.words
    assert "stage policy: " in went.words
    assert not [*(tmp_path / "out" / "stages").iterdir()]


def test_two_commands_do_not_meet_in_one_folder(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "stages").mkdir(parents=True)
    with lock.hold_lock(out):
        assert "another run is using this folder" in go(write_config(place, stages(place)), out).words


def test_a_folder_of_something_else_is_left_alone(place: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("words", "utf-8")
    assert "is not empty: thesis.txt" in go(write_config(place, stages(place)), tmp_path).words
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_rows_of_several_sources_are_learnt_together(place: Path, tmp_path: Path) -> None:
    out, told = tmp_path / "out", stages(place)
    told["reward"]["data"] = ["$pairs", str(place / "more.jsonl")]
    del told["policy"]
    well(write_config(place, told, "several"), out)
    assert len((out / "stages" / "reward" / "data.jsonl").read_text("utf-8").splitlines()) == 20
    assert set(seal(out, "reward")["inputs"]) == {"model", "data 1", "data 2"}
    settings = yaml.safe_load((out / "stages" / "reward" / "run" / "config.yaml").read_text("utf-8"))
    assert settings["data"].endswith("stages/reward/data.jsonl")


def test_rows_may_have_fields_of_other_names(place: Path, tmp_path: Path) -> None:
    named = write_rows(tmp_path / "named.jsonl", [{"ask": "w7", "chosen": "w8", "rejected": "w9"}])
    told = {"pairs": {"do": "rows", "data": str(named), "columns": ["prompt=ask"]}}
    well(write_config(place, told, "named"), tmp_path / "out")
    assert "--columns prompt=ask" in seal(tmp_path / "out", "pairs")["command"]
    both = {"do": "sft", "model": "$model", "data": [str(named), str(named)], "columns": "prompt=ask"}
    went = go(write_config(place, {"sft": both}, "both"), tmp_path / "both")
    assert "give each file a stage of its own (do: rows, data: FILE, columns" in went.words


@pytest.mark.slow
def test_rewards_can_be_combined_and_moved_with_the_folder(place: Path, tmp_path: Path) -> None:
    out, told = tmp_path / "out", stages(place)
    told["both"] = {
        "do": "combine",
        "how": "gated",
        "members": ["$reward", "$reward2"],
        "gate": 1,
        "below": -0.5,
        "normalise": "$pairs",
    }
    told["reward2"] = {**told["reward"], "seed": 1}
    del told["policy"]
    order = ("demos", "sft", "pairs", "reward", "reward2", "both")
    config = write_config(place, {name: told[name] for name in order}, "combined")
    well(config, out)
    key = seal(out, "both")["key"]
    out.rename(tmp_path / "moved")
    from plaudit.rewards.load import check_reward

    check_reward(tmp_path / "moved" / "stages" / "both")
    facts = json.loads((tmp_path / "moved" / "stages" / "both" / "combined.json").read_text())
    assert len({one["scale"] for one in facts["normal"]}) == 2
    assert seal(tmp_path / "moved", "both")["result"] == key
    assert "gated of reward, reward2" in seal(tmp_path / "moved", "both")["summary"]
    assert set(states(well(config, tmp_path / "moved")).values()) == {"kept"}
