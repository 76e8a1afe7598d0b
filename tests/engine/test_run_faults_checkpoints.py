"""A damaged checkpoint is passed over, said, and the run still ends with the same bits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.toy import Toy, make_toy
from tests.engine.toy_command import Command, Outcome, outcome, plaudit, sft


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def whole(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    out = tmp_path_factory.mktemp("whole")
    assert plaudit(*sft(toy, out)).code == 0
    return outcome(out)


@pytest.fixture(scope="module")
def killed(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed when it had the checkpoints of steps 4 and 6."""
    out = tmp_path_factory.mktemp("killed") / "run"
    newest = out / "checkpoints" / "step-00000006"
    Command(sft(toy, out)).kill_when(newest.exists)
    assert newest.exists()
    return out


def torn(folder: Path) -> None:
    with open(folder / "optimizer.safetensors", "r+b") as file:
        file.truncate(1000)


def flipped(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "model.safetensors").write_bytes(data)


def incomplete(folder: Path) -> None:
    (folder / "chance.safetensors").unlink()


def without_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def changed(folder: Path) -> None:
    text = (folder / "state.json").read_text("utf-8")
    (folder / "state.json").write_text(text.replace('"step": 6', '"step": 5'), "utf-8")


def emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.write_bytes(b"")


@pytest.mark.parametrize("damage", [torn, flipped, incomplete, without_manifest, changed, emptied])
def test_a_damaged_newest_checkpoint_is_passed_over(
    toy: Toy, whole: Outcome, killed: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(killed, out)
    newest = sorted((out / "checkpoints").glob("step-*"))[-1]
    damage(newest)

    done = plaudit(*sft(toy, out))

    assert done.code == 0
    assert f"{newest}: passed over: " in done.err
    assert outcome(out) == whole


def test_when_all_are_damaged_each_is_named_and_nothing_starts(
    toy: Toy, killed: Path, tmp_path: Path
) -> None:
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


def test_a_best_checkpoint_that_is_damaged_is_named(toy: Toy, tmp_path: Path) -> None:
    command = sft(toy, tmp_path, "--keep.best-is", "highest")
    assert plaudit(*command).code == 0
    torn(tmp_path / "checkpoints" / "step-00000003")

    done = plaudit(*command, "--keep.use-best")
    assert done.code == 2
    assert "step-00000003: the checkpoint cannot be used: optimizer.safetensors" in done.err
    assert "without --keep.use-best" in done.err
    assert plaudit(*command).code == 0


def test_a_run_folder_can_be_moved(toy: Toy, whole: Outcome, killed: Path, tmp_path: Path) -> None:
    shutil.copytree(killed, tmp_path / "elsewhere")

    done = plaudit(*sft(toy, tmp_path / "elsewhere"))

    assert done.code == 0
    assert "config.yaml: changed for the rest of the run: out: " in done.err
    assert outcome(tmp_path / "elsewhere") == whole
