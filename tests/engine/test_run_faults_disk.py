"""A disk that fills up, a limit on files, a folder that cannot be written: said, and nothing is lost."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.toy import Toy
from tests.engine.toy_command import outcome, plaudit, sft

ROOT = Path(__file__).resolve().parents[2]
MOUNT = 'mount -t tmpfs -o size=2m tmpfs "$1" && shift && exec "$@"'
OPTIONS = ("--save-every", 1000, "--evaluate-every", 1000, "--sample.rows", 0)


def with_small_disk(folder: Path) -> list[str]:
    """The start of a command that has two megabytes at the folder, gone when it ends."""
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", str(folder)]


@pytest.mark.slow
def test_a_full_disk_and_then_room_again(toy: Toy, tmp_path: Path) -> None:
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    probe = subprocess.run([*with_small_disk(disk), "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"this system does not let a test mount a small disk: {probe.stderr.strip()}")
    script = [sys.executable, "-m", "tests.engine.run_on_small_disk", toy.model.parent, disk, kept]
    done = subprocess.run(
        [*with_small_disk(disk), *map(str, script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    start, checkpoint, weights, tokenizer = said["full"]
    assert f"{disk}/run/lock: could not be written: the disk is full (" in start
    assert f"{disk}/run/checkpoints/step-00000010: could not be written: the disk is full (" in checkpoint
    assert "bytes are needed, " in checkpoint
    assert "bytes are free). What was there before is unharmed." in checkpoint
    assert f"{disk}/run/model: could not be written: the disk is full (" in weights
    assert f"{disk}/run/model: could not be written: the disk is full (" in tokenizer
    assert all("To go on: free some space, or choose a folder" in one for one in said["full"])
    assert said["codes"] == [2, 2, 2, 2, 0]
    assert said["half_written"] == []
    assert plaudit(*sft(toy, tmp_path / "whole", *OPTIONS)).code == 0
    assert outcome(kept) == outcome(tmp_path / "whole")


def test_a_limit_on_the_size_of_files(toy: Toy, tmp_path: Path) -> None:
    """Root may write anywhere; a limit holds for everybody. The optimiser's state is the largest file."""
    command = sft(toy, tmp_path / "run", *OPTIONS)
    limited = plaudit(*command, largest_file=150_000)
    assert limited.code == 2
    assert "step-00000010: could not be written: the file would be larger than is allowed" in limited.err
    assert "To go on: raise the limit (`ulimit -f`)." in limited.err
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
    assert plaudit(*command).code == 0
    assert plaudit(*sft(toy, tmp_path / "whole", *OPTIONS)).code == 0
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


@pytest.mark.slow
def test_a_folder_that_may_not_be_written(toy: Toy, tmp_path: Path) -> None:
    """A folder in place of a file stops root too."""
    command = sft(toy, tmp_path / "run", "--steps", 1, "--sample.rows", 0)
    assert plaudit(*command).code == 0
    shutil.rmtree(tmp_path / "run" / "model")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    (tmp_path / "run" / "metrics.jsonl").mkdir()
    done = plaudit(*command)
    assert done.code == 2
    assert "metrics.jsonl: could not be written: a folder of this name is in the way" in done.err
