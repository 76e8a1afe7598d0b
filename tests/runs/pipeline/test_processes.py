"""Stages in several processes come to what they come to in one, on this machine and under torchrun."""

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.engine.distributed.launch import run
from tests.engine.toy_command import Command
from tests.runs.pipeline.places import results, stages, well, write_config

LENGTH = "length:1-6"


def row_stages(place: Path) -> dict[str, dict[str, Any]]:
    """What draws, judges and scores rows, by a model that is there already."""
    prompts, model = str(place / "prompts.jsonl"), str(place / "model")
    return {
        "judged": {"do": "judge", "prompts": prompts, "model": model, "by": LENGTH, "device": "cpu"},
        "figures": {
            **{"do": "evaluate", "policies": [model, "written"], "prompts": str(place / "pairs.jsonl")},
            **{"answers": 3, "gold": LENGTH, "judge": [LENGTH], "device": "cpu", "max_tokens": 16},
        },
    }


def nearly(value: Any) -> Any:
    """The same with every figure to six digits: another batch rounds otherwise."""
    if isinstance(value, dict):
        return {name: nearly(part) for name, part in value.items() if name != "seconds"}
    if isinstance(value, list):
        return [nearly(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def figures(out: Path) -> list[Any]:
    found = [out / "stages" / name for name in ("judged/rows.jsonl", "figures/answers.jsonl")]
    rows = [json.loads(line) for path in found for line in path.read_text("utf-8").splitlines()]
    return nearly([json.loads((out / "stages/figures/policies.json").read_text("utf-8")), *rows])


def test_rows_are_drawn_judged_and_scored_in_parts_to_the_same_figures(place, tmp_path):
    config = write_config(place, row_stages(place))
    well(config, tmp_path / "one", "--jobs", 1)
    well(config, tmp_path / "two", "--processes", 2)
    assert figures(tmp_path / "two") == figures(tmp_path / "one")
    told = json.loads((tmp_path / "one/stages/figures/policies.json").read_text("utf-8"))
    assert len(told["contests"]) == 1
    assert told["policies"][0]["entropy"] is not None


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    told = stages(place)
    for settings in told.values():
        if "steps" in settings or "rounds" in settings:
            settings["save_every"] = 1
    told["sft"]["steps"] = 40
    # The policy is judged on one process alone, whatever the others have.
    told["policy"]["processes"] = 1
    return write_config(place, told, name="trained")


@pytest.fixture(scope="module")
def undisturbed(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    well(trained, out, "--processes", 2)
    return results(out)


def ranks_of(stage: str) -> list[int]:
    """The processes that carry out a stage, by the log that they write."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(os.readlink(fd).endswith(f"stages/{stage}/log.txt") for fd in folder.iterdir()):
                found.append(int(folder.parent.name))
    return found


def steps(out: Path) -> list[str]:
    path = out / "stages/sft/run/metrics.jsonl"
    return path.read_text("utf-8").splitlines() if path.exists() else []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="ranks are found in /proc")
def test_a_killed_rank_is_told_and_the_same_command_goes_on_to_the_same_bits(trained, undisturbed, tmp_path):
    out = tmp_path / "out"
    again = ["run", trained, "--out", out, "--processes", 2]
    running = Command(again)
    running.until(lambda: len(steps(out)) > 2)
    os.kill(max(ranks_of("sft")), signal.SIGKILL)
    done = running.wait()
    assert done.code == 2
    assert "stage sft (rank" in done.err
    assert "ended with -9" in done.err
    running = Command(again)
    running.until(lambda: len(steps(out)) > 6)
    running.send(signal.SIGTERM)
    assert running.wait().code in (0, 128 + signal.SIGTERM)
    well(trained, out, "--processes", 2)
    assert results(out) == undisturbed


@pytest.mark.slow
def test_under_torchrun_the_first_process_leads_and_faults_are_the_last_line(trained, undisturbed, tmp_path):
    out = tmp_path / "out"
    words = ["-m", "plaudit", "run", trained, "--out", out]
    failed = run(*words, "--set", "sft.max_length=1", cwd=tmp_path)
    assert failed.code == 1, failed.err
    assert "plaudit: stage sft" in failed.err.rpartition("ChildFailedError")[2]
    assert failed.err.rstrip().endswith("the same command goes on from here")
    done = run(*words, cwd=tmp_path)
    assert done.code == 0, done.err
    assert results(out) == undisturbed
