"""A damaged checkpoint is passed over, said, and the run still ends with the same bits."""

import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.engine.toy import Toy
from tests.engine.toy_command import Command, Outcome, finish, outcome, plaudit, sft


@pytest.fixture(scope="module")
def whole(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    out = tmp_path_factory.mktemp("whole")
    assert plaudit(*sft(toy, out)).code == 0
    return outcome(out)


@pytest.fixture(scope="module")
def killed(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("killed") / "run"
    newest = out / "checkpoints" / "step-00000006"
    Command(sft(toy, out)).kill_when(newest.exists)
    assert newest.exists()
    return out


def torn(folder: Path) -> None:
    with open(folder / "optimizer.safetensors", "r+b") as file:
        file.truncate(1000)


def test_a_damaged_newest_checkpoint_is_passed_over(toy, whole, killed, tmp_path):
    """Whatever the damage is: see the tests of checkpoints."""
    out = tmp_path / "run"
    shutil.copytree(killed, out)
    newest = sorted((out / "checkpoints").glob("step-*"))[-1]
    torn(newest)
    done = plaudit(*sft(toy, out))
    assert done.code == 0
    assert f"{newest}: passed over: " in done.err
    assert outcome(out) == whole


def test_when_all_are_damaged_each_is_named_and_nothing_starts(toy, killed, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(killed, out)
    folders = sorted((out / "checkpoints").glob("step-*"))
    for folder in folders:
        torn(folder)
    metrics = (out / "metrics.jsonl").read_bytes()
    done = plaudit(*sft(toy, out))
    assert done.code == 2
    assert f"checkpoints: none of the {len(folders)} checkpoints can be used:" in done.err
    assert all(str(folder) in done.err for folder in folders)
    assert "To go on: restore one of these folders from a copy, or start another run" in done.err
    assert (out / "metrics.jsonl").read_bytes() == metrics


@pytest.mark.slow
def test_a_best_checkpoint_that_is_damaged_is_named(toy: Toy, tmp_path: Path) -> None:
    command = sft(toy, tmp_path, "--keep.best-is", "highest")
    assert plaudit(*command).code == 0
    torn(tmp_path / "checkpoints" / "step-00000003")
    done = plaudit(*command, "--keep.use-best")
    assert done.code == 2
    assert "step-00000003: the checkpoint cannot be used: optimizer.safetensors" in done.err
    assert "with --no-keep.use-best" in done.err
    assert plaudit(*command).code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "harm"),
    [("metrics.jsonl", "changed"), ("samples.jsonl", "shortened"), ("notes.jsonl", "removed")],
)
def test_a_record_changed_since_the_checkpoint_stops_the_run(toy, whole, killed, tmp_path, name, harm):
    out = tmp_path / "run"
    shutil.copytree(killed, out)
    path = out / name
    before = path.read_bytes()
    first, _, rest = before.partition(b"\n")
    if harm == "removed":
        path.unlink()
    else:
        path.write_bytes(rest if harm == "shortened" else first[:-1] + b', "more": 1}\n' + rest)
    done = plaudit(*sft(toy, out))
    assert done.code == 2
    assert "Traceback" not in done.err
    where = {"changed": f"{path}:1: this line, of step ", "removed": f"{path}: the file is gone, and "}
    assert where.get(harm, f"{path}") in done.err
    assert "To go on: restore the file, or leave an empty one in its place" in done.err
    path.write_bytes(before)
    assert plaudit(*sft(toy, out)).code == 0
    assert outcome(out) == whole


@pytest.mark.slow
def test_a_folder_that_is_removed_while_the_run_runs_is_said_and_not_made_again(toy, tmp_path):
    out = tmp_path / "run"
    running = Command(sft(toy, out, "--steps", 5000, "--evaluate-every", 5000, "--sample.rows", 0))
    running.until((out / "checkpoints" / "latest").exists)
    out.rename(tmp_path / "elsewhere")
    done = running.wait()
    assert done.code == 2, done.err
    assert f"plaudit: {out}: the folder was removed, or another was put in its place, while the" in done.err
    assert "Traceback" not in done.err
    assert not out.exists()


@pytest.mark.slow
def test_a_lock_that_is_deleted_while_the_run_runs_is_put_back_and_keeps_a_second_run_out(toy, tmp_path):
    out = tmp_path / "run"
    command = sft(toy, out, "--steps", 5000, "--evaluate-every", 5000, "--sample.rows", 0)
    running = Command(command)
    running.until((out / "checkpoints" / "latest").exists)
    (out / "lock").unlink()
    second = plaudit(*command)
    running.until_said("lock: deleted or replaced while the run was running; put back")
    running.send(signal.SIGTERM)
    assert second.code == 2
    assert "another run is using this folder (" in second.err
    assert running.wait().code == 143


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--lora.rank", 2)], ids=["whole", "lora"])
def test_a_bfloat16_model_comes_back_as_one_with_the_same_bits(toy, tmp_path, options):
    base = AutoModelForCausalLM.from_pretrained(toy.model, dtype=torch.bfloat16)
    shutil.copytree(toy.model, tmp_path / "base")
    base.save_pretrained(tmp_path / "base")
    mine, out = replace(toy, model=tmp_path / "base"), tmp_path / "run"
    undisturbed = finish(*sft(mine, tmp_path / "whole", *options))
    Command(sft(mine, out, *options)).kill_when((out / "checkpoints" / "step-00000006").exists)
    assert plaudit(*sft(mine, out, *options)).code == 0
    assert outcome(out) == outcome(tmp_path / "whole")
    assert f"the result is written in bfloat16, as {mine.model} is" in undisturbed.err
    kinds = {tensor.dtype for tensor in load_file(out / "model" / "model.safetensors").values()}
    assert kinds == {torch.bfloat16}
    kept = load_file(sorted((out / "checkpoints").glob("step-*"))[-1] / "model.safetensors")
    assert {tensor.dtype for tensor in kept.values()} == {torch.float32}
    assert AutoModelForCausalLM.from_pretrained(out / "model", dtype="auto").dtype == torch.bfloat16


@pytest.mark.slow
def test_a_run_folder_can_be_moved(toy: Toy, whole: Outcome, killed: Path, tmp_path: Path) -> None:
    shutil.copytree(killed, tmp_path / "elsewhere")
    done = plaudit(*sft(toy, tmp_path / "elsewhere"))
    assert done.code == 0
    assert "config.yaml: changed for the rest of the run: out: " in done.err
    assert outcome(tmp_path / "elsewhere") == whole
