"""A disk that is full, limited, read-only or forbidden: a clear message, and the saved state unharmed."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("save_on_bad_disk.py")
MOUNT = 'mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"'


def small_disk(options: str, folder: Path) -> list[str]:
    """The start of a command with a small disk of its own at the folder, which goes when it ends."""
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", options, str(folder)]


def outcome(fault: str, folder: Path, before: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        [*before, sys.executable, str(SCRIPT), fault, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def can_mount(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs `unshare` to make a small disk")
    done = subprocess.run(
        [*small_disk("size=64k", tmp_path), "true"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"this system does not let a test mount a small disk: {done.stderr.strip()}")


@pytest.mark.usefixtures("can_mount")
def test_a_disk_without_room_for_another_name(tmp_path: Path) -> None:
    found = outcome("no_inodes", tmp_path, small_disk("size=8m,nr_inodes=40", tmp_path))
    assert "the file system has no inode left for another file (" in found["said"]["save"]
    assert "remove files" in found["said"]["save"]
    assert (found["step"], found["unchanged"]) == (1, True)


@pytest.mark.usefixtures("can_mount")
def test_a_disk_that_turned_read_only(tmp_path: Path) -> None:
    found = outcome("read_only", tmp_path, small_disk("size=8m", tmp_path))
    assert "step-00000002: could not be written: the file system is read-only" in found["said"]["save"]
    assert "run/lock: could not be written: the file system is read-only" in found["said"]["open"]
    assert "other: could not be written: the file system is read-only" in found["said"]["new"]
    assert (found["step"], found["unchanged"]) == (1, True)


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        for path in (Path(name), *Path(name).rglob("*")):
            path.chmod(0o755)


def test_a_folder_that_may_not_be_written(open_to_all: Path) -> None:
    found = outcome("forbidden", open_to_all, [])
    assert "step-00000002: could not be written: permission denied" in found["said"]["save"]
    assert "run/lock: could not be written: permission denied" in found["said"]["open"]
    assert "make the folder writable" in found["said"]["new"]
    assert (found["step"], found["unchanged"]) == (1, True)
