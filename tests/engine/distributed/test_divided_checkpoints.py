"""Checkpoints that each rank writes its own part of: the same bits on any other number of ranks."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import TCPStore

from plaudit.engine.checkpoint import save
from tests.engine.distributed.checkpoints_on_ranks import main
from tests.engine.distributed.runs import environment_of, join, run_all
from tests.engine.distributed.test_same_numbers import command, lines
from tests.engine.kill_during_save import same
from tests.engine.toy import make_toy
from tests.engine.toy_command import warm_server


def on_ranks(count: int, work: str, folder: Path, **settings: Any) -> list[dict[str, Any]]:
    """What each rank has to say; those that were killed say nothing."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = [
        warm_server().Process(
            target=main, args=(environment_of(store, rank, count, folder), work, folder, settings)
        )
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    join(processes)
    files = [folder.parent / f"said.rank{rank}.json" for rank in range(count)]
    said = [json.loads(file.read_text()) for file in files if file.exists()]
    for file in files:
        file.unlink(missing_ok=True)
    if "victim" not in settings:
        assert [process.exitcode for process in processes] == [0] * count
    return said


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("divided") / "checkpoints"
    folder.mkdir()
    on_ranks(4, "train_and_save", folder)
    return folder


def test_four_ranks_write_what_two_and_one_read_to_the_bit(four: Path, tmp_path: Path) -> None:
    files = {path.name for path in (four / "step-00000003").iterdir()}
    pieces = {f"{part}-0000{n}-of-00004.safetensors" for part in ("model", "optimizer") for n in (1, 2, 3, 4)}
    assert files >= pieces | {"chance.safetensors", "state.json", "manifest.json"}
    rows = [load_file(four / "step-00000003" / name).get("blocks.0.weight") for name in sorted(pieces)[:4]]
    assert [None if part is None else len(part) for part in rows] == [2, 2, 1, None]
    shutil.copytree(four, tmp_path / "4")
    for ranks, folder, to in ((2, "4", "2"), (1, "2", "1"), (2, "1", "again")):
        said = on_ranks(ranks, "load_and_save", tmp_path / folder, to=to)
        assert [(one["step"], one["notes"], one["same"]) for one in said] == [(3, [], True)] * ranks
    assert {path.name for path in (tmp_path / "1" / "step-00000003").iterdir()} == {
        *("model.safetensors", "optimizer.safetensors", "average.safetensors", "chance.safetensors"),
        *("state.json", "manifest.json"),
    }


@pytest.mark.parametrize(
    ("file", "what", "words"),
    [
        ("model-00003-of-00004", "flipped", "has changed since it was written (its sha256 differs)"),
        ("optimizer-00002-of-00004", "missing", "is missing"),
        ("average-00001-of-00004", "of step 2", "has changed since it was written (its sha256 differs)"),
    ],
)
def test_a_shard_that_is_damaged_is_named_by_all_ranks(four, tmp_path, file, what, words):
    folder = Path(shutil.copytree(four, tmp_path / "copy"))
    path = folder / "step-00000003" / f"{file}.safetensors"
    if what == "flipped":
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif what == "missing":
        path.unlink()
    else:
        shutil.copy(folder / "step-00000002" / path.name, path)
    said = on_ranks(2, "load_only", folder)
    assert [one["step"] for one in said] == [2, 2]
    assert said[0]["notes"] == said[1]["notes"]
    [note] = said[0]["notes"]
    assert note.startswith(f"{folder / 'step-00000003'}: passed over: ")
    assert note.endswith(f"{path.name} {words}")


def test_a_flipped_byte_is_found_in_every_file(four: Path, tmp_path: Path) -> None:
    newest = Path(shutil.copytree(four, tmp_path / "copy")) / "step-00000003"
    for path in sorted(newest.iterdir()):
        content = path.read_bytes()
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        loaded = save.load_latest_checkpoint(newest.parent)
        assert loaded is not None
        assert (loaded.state.step, f"passed over: {path.name} " in loaded.notes[0]) == (2, True)
        path.write_bytes(content)


def test_where_one_rank_cannot_write_all_of_them_say_so(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    said = on_ranks(2, "save_beyond_a_limit", folder)
    assert said[0] == said[1]
    assert said[0]["step"] == 2
    assert "step-00000002: could not be written: the file would be larger than is allowed" in said[0]["said"]
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["step-00000001"]


def test_groups_that_hold_copies_write_each_row_once(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    on_ranks(4, "train_and_save", folder, shard_ranks=2)
    names = sorted(path.name for path in (folder / "step-00000003").glob("model*"))
    assert names == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for settings in ({"shard_ranks": 2}, {}):
        said = on_ranks(4, "load_and_save", folder, to="other", **settings)
        assert [one["same"] for one in said] == [True] * 4


@pytest.mark.slow
def test_two_groups_of_two_that_hold_copies_learn_what_one_process_learns(tmp_path: Path) -> None:
    toys = {"llama": make_toy(tmp_path / "toy")}
    more = ("--shard", "--shard-ranks", "2")
    plans = {1: command(toys, tmp_path / "one", "plain"), 4: command(toys, tmp_path / "four", "plain", *more)}
    for ranks, plan in plans.items():
        assert all(said.code == 0 for said in run_all({"run": plan}, tmp_path, ranks=ranks)["run"])
    one, four = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("one", "four"))
    for name, weight in one.items():
        torch.testing.assert_close(four[name], weight, rtol=1e-9, atol=1e-11)
    for found, expected in zip(lines(tmp_path / "four"), lines(tmp_path / "one"), strict=True):
        assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-9)
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-9)
    bad = command(toys, tmp_path / "three", "plain", "--shard", "--shard-ranks", "3")
    first, *others = run_all({"run": bad}, tmp_path, ranks=4)["run"]
    assert (first.code, [said.err for said in others]) == (2, [""] * 3)
    assert first.err.endswith("--shard-ranks 3 does not divide the 4 processes of this run\n")


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_killed_before_any_fsync_leaves_the_old_checkpoint_or_the_new(tmp_path, victim):
    calm = tmp_path / "calm"
    calm.mkdir()
    on_ranks(2, "save_and_die", calm, victim=victim, fatal=0)
    expected = {path.name: save.load_checkpoint(path) for path in save.list_checkpoints(calm)}
    assert list(expected) == ["step-00000001", "step-00000002"]
    steps: list[int] = []
    for fatal in range(1, 100):
        folder = tmp_path / f"{fatal}"
        folder.mkdir()
        survivors = on_ranks(2, "save_and_die", folder, victim=victim, fatal=fatal)
        loaded = save.load_latest_checkpoint(folder)
        assert loaded is not None
        assert same(loaded.state, expected[loaded.path.name])
        steps.append(loaded.state.step)
        if len(survivors) == 2:
            break
    assert steps == sorted(steps)
    assert steps[-1] == 2
    assert len(steps) > 3
