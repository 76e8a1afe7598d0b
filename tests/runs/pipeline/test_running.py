"""Stages are kept, run again when something above them changed, and told; results are the stage's own."""

import json
from pathlib import Path

import pytest
import torch

from plaudit.engine.run_folder import hash_path
from plaudit.runs.pipeline.read import read_pipeline
from tests.runs.pipeline.places import go, results, seal, stages, states, well, write_config

NAMES = ["demos", "sft", "pairs", "reward", "policy"]


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    """A pipeline that has been run; who changes it puts it back."""
    out = place / "whole"
    well(write_config(place, stages(place)), out)
    return out


@pytest.mark.slow
def test_every_stage_leaves_its_results_and_tells_of_itself(place, whole):
    for name in NAMES:
        told = seal(whole, name)
        here = whole / "stages" / name
        assert told["outputs"] == {path: hash_path(here / path) for path in told["outputs"]}
        assert told["seconds"] > 0
        assert told["began"] <= told["ended"]
        assert told["summary"]
        assert set(told["code"]) == {"plaudit", "commit", "changed"}
    assert seal(whole, "sft")["needs"] == ["demos"]
    assert seal(whole, "sft")["inputs"]["data"] == {"from": "demos", "hash": seal(whole, "demos")["result"]}
    model = seal(whole, "sft")["inputs"]["model"]
    assert model == {"path": str(place / "model"), "hash": hash_path(place / "model")}
    assert seal(whole, "policy")["needs"] == ["sft", "reward"]
    assert seal(whole, "sft")["settings"]["steps"] == 3
    assert "run/model/model.safetensors" in seal(whole, "policy")["outputs"]
    assert {look["verdict"] for look in seal(whole, "sft")["checks"]} <= {"pass", "not applicable"}
    assert {"name", "finding", "mend"} <= set(seal(whole, "sft")["checks"][0])
    assert seal(whole, "reward")["checks"] == []
    assert seal(whole, "reward")["command"].startswith("plaudit train reward --config /")
    summary = json.loads((whole / "summary.json").read_text("utf-8"))
    assert [stage["name"] for stage in summary["stages"] if stage["finished"]] == NAMES
    assert (summary["table"], summary["sentence"]) == ([], "")


def test_the_same_command_keeps_everything_as_its_config_does_from_anywhere(
    place, whole, tmp_path, monkeypatch
):
    before = {path: path.stat().st_mtime_ns for path in (whole / "stages").rglob("*") if path.is_file()}
    assert states(well(write_config(place, stages(place)), whole)) == dict.fromkeys(NAMES, "kept")
    monkeypatch.chdir(tmp_path)
    assert states(well(whole / "pipeline.yaml", whole)) == dict.fromkeys(NAMES, "kept")
    after = {path: path.stat().st_mtime_ns for path in (whole / "stages").rglob("*") if path.is_file()}
    assert after == before


def test_only_what_is_below_a_change_runs_again_and_going_back_costs_nothing(place, tmp_path):
    out, told = tmp_path / "out", stages(place)
    well(write_config(place, told, "first"), out)
    first = results(out)
    told["reward"]["learning_rate"] = 0.01
    changed = write_config(place, told, "second")
    assert "runs: learning_rate: 0.003 → 0.01" in well(changed, out, "--dry-run").out
    assert states(well(changed, out)) == {
        **dict.fromkeys(["demos", "sft", "pairs"], "kept"),
        **dict.fromkeys(["reward", "policy"], "ran"),
    }
    assert results(out) != first
    back = well(write_config(place, stages(place), "first"), out)
    assert states(back)["reward"] == states(back)["policy"] == "taken back"
    assert results(out) == first


@pytest.mark.slow
def test_an_equal_result_ends_what_runs_again(place, tmp_path):
    out, told = tmp_path / "out", stages(place)
    well(write_config(place, told, "first"), out)
    told["pairs"]["threshold"] = 0.5
    ran = states(well(write_config(place, told, "second"), out))
    assert ran == {**dict.fromkeys(NAMES, "kept"), "pairs": "ran"}


def test_settings_that_change_no_result_change_no_key(place, whole):
    told = stages(place)
    told["sft"] |= {"save_every": 2, "sinks": [], "memory.tokens_at_once": 512}
    assert states(well(write_config(place, told), whole)) == dict.fromkeys(NAMES, "kept")
    write_config(place, stages(place))


@pytest.mark.slow
def test_a_file_that_changes_outside_runs_what_reads_it(place, tmp_path):
    out, own = tmp_path / "out", tmp_path / "own.jsonl"
    own.write_bytes((place / "demos.jsonl").read_bytes())
    told = {name: one for name, one in stages(place).items() if name in ("demos", "sft")}
    told["demos"]["data"] = str(own)
    config = write_config(place, told, "outside")
    well(config, out)
    own.write_text("".join(own.read_text("utf-8").splitlines(keepends=True)[:8]), "utf-8")
    assert "data has another content" in well(config, out, "--dry-run").out
    assert states(well(config, out)) == {"demos": "ran", "sft": "ran"}


@pytest.mark.parametrize(
    "name", ["demos/rows.jsonl", "sft/run/model/model.safetensors", "reward/run/metrics.jsonl"]
)
def test_a_result_that_was_changed_by_hand_is_refused(place, whole, name):
    path = whole / "stages" / name
    kept = path.read_bytes()
    path.write_bytes(kept[:-2] + b"\n\n")
    went = go(place / "toy.yaml", whole)
    path.write_bytes(kept)
    assert went.code == 2
    assert f"{path}: this file is not as the stage has left it" in went.words
    assert f"--from {name.split('/', maxsplit=1)[0]}" in went.words


@pytest.mark.slow
def test_a_result_that_is_gone_is_made_anew_by_from_and_everything_by_fresh(place, tmp_path):
    out = tmp_path / "out"
    told = {name: one for name, one in stages(place).items() if name in ("demos", "sft")}
    config = write_config(place, told, "gone")
    well(config, out)
    before = results(out)
    (out / "stages" / "demos" / "rows.jsonl").unlink()
    assert "this file is gone" in go(config, out).words
    assert states(well(config, out, "--from", "demos")) == {"demos": "ran", "sft": "ran"}
    assert results(out) == before
    assert states(well(config, out)) == {"demos": "kept", "sft": "kept"}
    assert states(well(config, out, "--fresh")) == {"demos": "ran", "sft": "ran"}
    assert results(out) == before


@pytest.mark.slow
def test_from_runs_a_stage_and_all_below_it(place, whole):
    before = results(whole)
    ran = states(well(place / "toy.yaml", whole, "--from", "reward"))
    assert ran == {**dict.fromkeys(["demos", "sft", "pairs"], "kept"), "reward": "ran", "policy": "ran"}
    assert results(whole) == before


@pytest.mark.slow
def test_only_runs_on_what_is_there(place, tmp_path):
    out, config = tmp_path / "out", write_config(place, stages(place))
    assert "demos is needed and not finished" in go(config, out, "--only", "sft").words
    assert states(well(config, out, "--only", "demos", "sft")) == {"demos": "ran", "sft": "ran"}
    assert not (out / "stages" / "pairs").exists()
    went = well(config, out, "--only", "sft", "--set", "demos.n=3")
    assert "demos is taken as it is, though it is not up to date (n: None → 3)" in went.words


def test_a_stage_that_is_no_part_of_it_any_more_is_set_aside(place, tmp_path):
    out, told = (
        tmp_path / "out",
        {name: one for name, one in stages(place).items() if name in ("demos", "pairs")},
    )
    well(write_config(place, told, "two"), out)
    key = seal(out, "pairs")["key"]
    del told["pairs"]
    well(write_config(place, told, "two"), out)
    assert [path.name for path in (out / "stages").iterdir()] == ["demos"]
    assert (out / "earlier" / f"pairs-{key[:12]}" / "rows.jsonl").exists()


def test_a_result_can_be_traced_to_files_and_commands(place, whole):
    told = well(place / "toy.yaml", whole, "--trace", "policy").out
    for name in NAMES:
        assert f"{name} (" in told
    assert f"model: {place / 'model'}, {hash_path(place / 'model')[:12]}" in told
    assert "plaudit train reinforce --config" in told
    assert "sft: see above" in told
    assert (
        "there is no such stage; did you mean policy?"
        in go(place / "toy.yaml", whole, "--trace", "polcy").words
    )


def test_a_dry_run_tells_arithmetic_and_price_and_makes_nothing(place, whole, tmp_path):
    told = well(place / "toy.yaml", whole, "--dry-run", "--from", "reward").out
    assert "1  demos" in told
    assert "kept" in told
    assert "runs: --from reward" in told
    assert "= 2 optimiser steps" in told
    assert "it fits: " in told
    assert "2 of 5 stages to run, about 0:0" in told
    new = tmp_path / "new"
    assert "5 of 5 stages to run" in well(place / "toy.yaml", new, "--dry-run").out
    assert not new.exists()


def test_a_dry_run_counts_the_rows_of_several_sources_and_leaves_nothing_behind(place, tmp_path):
    told = stages(place)
    told = {"pairs": told["pairs"], "more": {**told["pairs"], "data": str(place / "more.jsonl")}}
    told["reward"] = {**stages(place)["reward"], "model": str(place / "model"), "data": ["$pairs", "$more"]}
    config, out = write_config(place, told, "several"), tmp_path / "out"
    well(config, out, "--only", "pairs", "more")
    assert "19 rows are learnt from, 1 is held out" in well(config, out, "--dry-run").words
    assert not (out / "stages" / "reward").exists()


@pytest.mark.slow
def test_a_device_is_named_once_for_all_stages(place, tmp_path, monkeypatch):
    """A GPU seems to be there, and whatever looked for a device of its own would take it and fail."""
    told = stages(place)
    for stage in told.values():
        stage.pop("device", None)
    told["own"] = {"do": "world-rows", "make": "comparisons", "model": "world", "n": 2}
    both = {"members": ["$reward", "$reward"], "normalise": "$pairs"}
    told["both"] = {"do": "combine", "how": "mean", **both}
    told["policy"] = told.pop("policy") | {"reward": "$both", "judge.by": "$reward", "held_out": 0.2}
    told["judged"] = {"do": "judge-reward", "models": ["$both"], "data": "$pairs", "bootstrap": 2}
    drawn = {"prompts": str(place / "prompts.jsonl"), "n": 4, "max-tokens": 4, "bootstrap": 2}
    told["compared"] = {"do": "evaluate", "policies": ["$sft", "$policy"], "judge": "$reward", **drawn}
    config, out = write_config(place, told, "anywhere"), tmp_path / "out"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    # Asked by Adam where torch was built for CUDA, and here nobody drives a GPU.
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    well(config, out, "--device", "cpu")
    for name in told:
        assert seal(out, name)["settings"].get("device", "cpu") == "cpu"
    # A result is kept wherever it was made.
    assert set(states(well(config, out, "--device", "cuda")).values()) == {"kept"}


def test_a_stage_may_name_a_device_of_its_own(place):
    told = stages(place)
    told["sft"]["device"] = "cuda:1"
    for name in ("reward", "policy"):
        del told[name]["device"]
    config = write_config(place, told, "own-device", device="cuda")
    found = {stage.name: stage.config({}).device for stage in read_pipeline(config).stages[1::2]}
    assert found == {"sft": "cuda:1", "reward": "cuda"}
    found = {stage.name: stage.config({}) for stage in read_pipeline(config, device="cpu").stages}
    assert (found["sft"].device, found["reward"].device, found["policy"].device) == ("cuda:1", "cpu", "cpu")


def test_a_device_that_is_none_is_refused_before_anything_runs(place, tmp_path):
    config, out = write_config(place, stages(place)), tmp_path / "out"
    assert "device 'gpu': use auto, cpu, cuda" in go(config, out, "--device", "gpu").words
    told = stages(place)
    told["policy"]["device"] = "gpu"
    went = go(write_config(place, told, "gpu"), out)
    assert "stage policy: device 'gpu': use auto, cpu, cuda" in went.words
    assert not (out / "stages" / "demos").exists()
    write_config(place, stages(place))


def test_processes_that_nothing_joins_are_refused(place, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    went = go(place / "toy.yaml", tmp_path / "out")
    assert went.code == 2
    assert "start them with torchrun, or unset WORLD_SIZE" in went.words
