"""One run at a time in one folder, however the last one ended."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from plaudit.engine.run_folder import open_run_folder
from plaudit.errors import UserError
from plaudit.files.lock import LOCK_NAME

SCRIPT = Path(__file__).with_name("hold_run.py")
CONFIG = {"seed": 0}


def holder(folder: Path, end: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), str(folder), end]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_several_processes_exactly_one_gets_the_folder(tmp_path: Path) -> None:
    racers = [holder(tmp_path / "run") for _ in range(6)]
    words = [said(racer) for racer in racers]
    for racer in racers:
        racer.communicate(timeout=30)
    assert words.count("held") == 1
    winner = racers[words.index("held")].pid
    refused = [word for word in words if word != "held"]
    assert all(word.startswith(f"{tmp_path / 'run'}: another run is using this folder (") for word in refused)
    told = [word for word in refused if f"process {winner} on {socket.gethostname()}, started 20" in word]
    assert len(told) + len([word for word in refused if "it is just starting" in word]) == 5


def test_a_killed_holder_lets_go_and_its_death_is_said(tmp_path: Path) -> None:
    dead = holder(tmp_path, "killed")
    assert dead.wait(timeout=30) == -signal.SIGKILL
    said(dead)
    with open_run_folder(tmp_path, config=CONFIG) as run:
        assert f"process {dead.pid} on " in run.notes[0]
        assert "did not end in good order" in run.notes[0]
    with open_run_folder(tmp_path, config=CONFIG) as run:
        assert run.notes == ()
    dead.communicate()


def test_a_child_that_outlives_its_run_is_named_as_the_reason(tmp_path: Path) -> None:
    parent = holder(tmp_path, "orphan")
    assert said(parent) == "held"
    orphan = int(said(parent))
    assert parent.wait(timeout=30) == -signal.SIGKILL
    try:
        with (
            pytest.raises(UserError, match="has ended, but one that it started still runs"),
            open_run_folder(tmp_path, config=CONFIG),
        ):
            pass
    finally:
        os.kill(orphan, signal.SIGKILL)
    parent.communicate()
    with open_run_folder(tmp_path, config=CONFIG) as run:
        assert "did not end in good order" in run.notes[0]


def test_the_same_process_cannot_open_a_folder_twice(tmp_path: Path) -> None:
    with (
        open_run_folder(tmp_path, config=CONFIG),
        pytest.raises(UserError, match=f"process {os.getpid()} on "),
        open_run_folder(tmp_path, config=CONFIG),
    ):
        pass


def test_a_run_that_ends_with_a_message_needs_no_second_one(tmp_path: Path) -> None:
    with pytest.raises(UserError), open_run_folder(tmp_path, config=CONFIG):
        raise UserError("said in full")
    with open_run_folder(tmp_path, config=CONFIG) as run:
        assert run.notes == ()


def test_a_run_that_fails_lets_go(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), open_run_folder(tmp_path, config=CONFIG):
        raise ZeroDivisionError
    with open_run_folder(tmp_path, config=CONFIG) as run:
        assert "did not end in good order" in run.notes[0]


def test_a_lock_file_that_somebody_deletes_lets_no_second_run_in_and_is_put_back(tmp_path: Path) -> None:
    lock = tmp_path / LOCK_NAME
    with open_run_folder(tmp_path, config=CONFIG) as run:
        assert run.verify() == ()
        lock.unlink()
        second = holder(tmp_path)
        assert "another run is using this folder (somebody has deleted the file" in said(second)
        assert run.verify() == (f"{lock}: deleted or replaced while the run was running; put back",)
        assert run.verify() == ()
        third = holder(tmp_path)
        assert f"process {os.getpid()} on {socket.gethostname()}, started 20" in said(third)
        for process in (second, third):
            process.communicate(timeout=30)
    assert lock.read_bytes() == b""
    with open_run_folder(tmp_path, config=CONFIG) as run:
        assert run.notes == ()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_somebody_takes_away_is_missed(tmp_path: Path, replaced: bool) -> None:
    folder = tmp_path / "run"
    with open_run_folder(folder, config=CONFIG) as run:
        folder.rename(tmp_path / "elsewhere")
        if replaced:
            folder.mkdir()
        with pytest.raises(UserError, match="the folder was removed, or another was put in its place"):
            run.verify()
    # The run that was moved lets go of it, and the name is free.
    for name in ("elsewhere", "run"):
        with open_run_folder(tmp_path / name, config=CONFIG) as run:
            assert run.notes == ()
