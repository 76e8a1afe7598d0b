"""A process that is SIGKILLed at any point of a save leaves a complete checkpoint: the old one or the new."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from plaudit.engine.checkpoint import save
from plaudit.engine.checkpoint.save import TrainState

SCRIPT = Path(__file__).with_name("kill_during_save.py")


@pytest.fixture(scope="module")
def killed_savers() -> dict[str, list[dict[str, Any]]]:
    # A kill loses what the process holds, not what the system holds: a folder in memory shows the same.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        done = subprocess.run(
            [sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False, timeout=200
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "old", "new"), [("first", None, 0), ("next", 0, 1), ("again", 0, 1)])
def test_a_kill_before_any_call_of_a_save_leaves_the_old_state_or_the_new(killed_savers, scenario, old, new):
    *killed, completed = killed_savers[scenario]
    assert completed["call"] is None
    assert completed["state"] == new
    assert {"open", "write", "fsync", "rename", "mkdir", "replace"} <= {case["call"] for case in killed}
    assert all(case["complete"] for case in killed)
    states = [case["state"] for case in killed]
    turn = states.index(new)
    assert 10 < turn < len(states)
    assert states == [old] * turn + [new] * (len(states) - turn)
    assert all(case["state_at_once"] == case["state"] for case in killed)
    assert all(case["leftovers"] == [] and case["notes"] == [] for case in killed)
    assert all(case["goes_on"] for case in killed)


@pytest.mark.slow
def test_a_saver_killed_at_random_moments_goes_on_from_whole_checkpoints_only(killed_savers):
    cases = killed_savers["any"]
    steps = [case["step"] for case in cases]
    assert all(case["complete"] for case in cases)
    assert steps == sorted(steps)
    assert steps[-1] > 10


def test_every_file_is_on_the_disk_before_the_checkpoint_takes_its_name(tmp_path, monkeypatch):
    calls: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.rename

    def seen_fsync(descriptor: int) -> None:
        calls.append(("fsync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def seen_rename(source: Path, target: Path) -> None:
        calls.append(("rename", f"{source.name} {target.name}"))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "rename", seen_rename)
    tensors = {"model": {"w": torch.ones(3)}, "optimizer": {"m": torch.zeros(3)}}
    saved = save.save_checkpoint(tmp_path / "checkpoints", TrainState(step=7, tensors=tensors, facts={}))
    (turn,) = [i for i, (call, _) in enumerate(calls) if call == "rename"]
    partial, final = calls[turn][1].split(" ")
    before = {name for call, name in calls[:turn] if call == "fsync"}
    assert final == saved.path.name
    assert before >= {path.name for path in saved.path.iterdir()} | {partial}
    assert calls[turn + 1] == ("fsync", "checkpoints")
