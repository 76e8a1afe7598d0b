"""A checkpoint that is damaged in any way is passed over, and the user hears which and why."""

import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st

from plaudit.engine.checkpoint import save
from plaudit.engine.checkpoint.save import TrainState
from plaudit.errors import UserError

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json")


def state(step: int) -> TrainState:
    weight = torch.arange(40.0) + step
    tensors = {
        "model": {"w": weight, "b": weight[:3].clone(), "head": weight},
        "optimizer": {"m": weight.double()},
    }
    return TrainState(step=step, tensors=tensors, facts={"position": 8 * step, "lr": 1 / step})


def shapes_of(tensors: save.Tensors) -> save.TensorShapes:
    return {
        part: {name: (tuple(tensor.shape), str(tensor.dtype)) for name, tensor in named.items()}
        for part, named in tensors.items()
    }


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    for step in (1, 2):
        save.save_checkpoint(folder, state(step))
    return folder


@pytest.mark.slow
@given(name=st.sampled_from(FILES), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(max_examples=300, deadline=None)
def test_a_flipped_bit_is_found_or_harmless(two: Path, name: str, where: float, bit: int) -> None:
    path = two / "step-00000002" / name
    good = path.read_bytes()
    position = int(where * len(good))
    path.write_bytes(good[:position] + bytes([good[position] ^ 1 << bit]) + good[position + 1 :])
    try:
        is_the_newest_or_the_one_before(two)
    finally:
        path.write_bytes(good)


@given(name=st.sampled_from(FILES), length=st.floats(0, 1, exclude_max=True), zeros=st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_torn_file_is_found_or_harmless(two: Path, name: str, length: float, zeros: bool) -> None:
    path = two / "step-00000002" / name
    good = path.read_bytes()
    kept = int(length * len(good))
    path.write_bytes(good[:kept] + (bytes(len(good) - kept) if zeros else b""))
    try:
        is_the_newest_or_the_one_before(two)
    finally:
        path.write_bytes(good)


def is_the_newest_or_the_one_before(folder: Path) -> None:
    loaded = save.load_latest_checkpoint(folder)
    assert loaded is not None
    assert bool(loaded.notes) is not (loaded.state.step == 2)
    assert all(str(folder / "step-00000002") in note for note in loaded.notes)
    wanted = state(loaded.state.step)
    assert loaded.state.facts == wanted.facts
    for part, named in wanted.tensors.items():
        assert set(loaded.state.tensors[part]) == set(named)
        assert all(torch.equal(loaded.state.tensors[part][name], tensor) for name, tensor in named.items())


@pytest.mark.parametrize(
    ("was", "now"),
    [('"head": "w"', '"head": "b"'), ('"step": 2', '"step": 3'), ('"written_by": "0', '"written_by": "1')],
)
def test_an_edited_manifest_is_found(two: Path, tmp_path: Path, was: str, now: str) -> None:
    folder = Path(shutil.copytree(two, tmp_path / "copy"))
    path = folder / "step-00000002" / "manifest.json"
    good = path.read_text()
    assert was in good
    path.write_text(good.replace(was, now))
    loaded = save.load_latest_checkpoint(folder)
    assert loaded is not None
    assert loaded.state.step == 1
    assert loaded.notes[0].endswith("manifest.json has changed since it was written (its sha256 differs)")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(two: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(two, tmp_path / "copy"))
    (folder / "step-00000002" / name).unlink()
    loaded = save.load_latest_checkpoint(folder)
    assert loaded is not None
    assert loaded.state.step == 1
    assert loaded.notes == (f"{folder / 'step-00000002'}: passed over: {name} is missing",)


def test_a_file_that_does_not_belong_is_harmless(two: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(two, tmp_path / "copy"))
    (folder / "step-00000002" / "notes.txt").write_text("mine")
    (folder / "step-latest").mkdir()
    loaded = save.load_latest_checkpoint(folder)
    assert loaded is not None
    assert (loaded.state.step, loaded.notes) == (2, ())


def test_a_renamed_checkpoint_is_not_taken_for_another_step(two: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(two, tmp_path / "copy"))
    (folder / "step-00000002").rename(folder / "step-00000009")
    loaded = save.load_latest_checkpoint(folder)
    assert loaded is not None
    assert loaded.state.step == 1
    assert "holds step 2: it was renamed" in loaded.notes[0]


def test_when_none_is_good_each_is_listed_with_its_fault(two: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(two, tmp_path / "copy"))
    (folder / "step-00000001" / "state.json").unlink()
    (folder / "step-00000002" / "model.safetensors").write_bytes(b"x")
    with pytest.raises(UserError) as caught:
        save.load_latest_checkpoint(folder)
    message = str(caught.value)
    assert "none of the 2 checkpoints can be used" in message
    assert "step-00000001: passed over: state.json is missing" in message
    assert "step-00000002: passed over: model.safetensors has 1 bytes" in message
    with pytest.raises(
        UserError, match=r"step-00000001: the checkpoint cannot be used: state.json is missing"
    ):
        save.load_checkpoint(folder / "step-00000001")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"more": torch.zeros(1)}, "model: more is missing"),
        ({"w": torch.zeros(3)}, r"model: w is \(40,\) torch.float32, expected \(3,\) torch.float32"),
        ({"w": torch.zeros(40).half()}, "model: w is .* expected .* torch.float16"),
        ({"w": None}, "model: w is not expected"),
    ],
)
def test_tensors_of_another_model_are_not_loaded(two, change, message):
    wanted = {**state(2).tensors["model"], **change}
    shapes = shapes_of({"model": {n: t for n, t in wanted.items() if t is not None}})
    with pytest.raises(UserError, match=message):
        save.load_latest_checkpoint(two, expected=shapes)


def test_the_expected_tensors_are_loaded(two: Path) -> None:
    loaded = save.load_latest_checkpoint(two, expected=shapes_of(state(2).tensors))
    assert loaded is not None
    assert (loaded.state.step, loaded.notes) == (2, ())
    with pytest.raises(UserError, match="rng: missing"):
        save.load_latest_checkpoint(two, expected={"rng": {}})
