"""What is saved comes back bit for bit; what could not is refused when it is saved."""

import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from plaudit.engine.checkpoint import save
from plaudit.engine.checkpoint.save import TrainState
from plaudit.errors import UserError
from plaudit.files import exact_json

FLOATS = [0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, math.pi * 1e-300]
DTYPES = [
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def state(step: int = 1, **parts: dict[str, torch.Tensor]) -> TrainState:
    return TrainState(step=step, tensors=parts or {"model": {"w": torch.full((2,), float(step))}}, facts={})


def saved_and_loaded(folder: Path, what: TrainState) -> TrainState:
    save.save_checkpoint(folder, what)
    loaded = save.load_latest_checkpoint(folder)
    assert loaded is not None
    assert loaded.notes == ()
    return loaded.state


def steps(folder: Path) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in save.list_checkpoints(folder)]


def test_tensors_of_every_type_come_back_bit_for_bit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    named = {str(dtype): (torch.randn(5, 3) * 9).to(dtype) for dtype in DTYPES}
    named |= {"scalar": torch.tensor(math.pi), "empty": torch.zeros(0, 4), "nan": torch.tensor([math.nan])}
    named |= {
        "transposed": torch.randn(3, 5).t(),
        "strided": torch.randn(8)[::2],
        "wide": torch.ones(1).expand(4),
    }
    back = saved_and_loaded(tmp_path, state(model=named, optimizer={})).tensors
    assert list(back) == ["model", "optimizer"]
    assert back["optimizer"] == {}
    assert set(back["model"]) == set(named)
    for name, tensor in named.items():
        assert back["model"][name].dtype == tensor.dtype
        assert back["model"][name].shape == tensor.shape
        bits = tensor.contiguous().reshape(-1).view(torch.uint8)
        assert torch.equal(back["model"][name].reshape(-1).view(torch.uint8), bits)


def test_facts_come_back_bit_for_bit(tmp_path: Path) -> None:
    facts = {
        "floats": FLOATS,
        "none": None,
        "flag": True,
        "count": 2**200,
        "text": "a\n\u2028\ud800é",
        "deep": {"": []},
    }
    facts |= {"special": {"inf": math.inf, "minus": -math.inf, "nan": math.nan}}
    back = saved_and_loaded(tmp_path, TrainState(step=3, tensors={}, facts=facts)).facts
    assert math.isnan(back["special"].pop("nan"))
    assert back["special"] == {"inf": math.inf, "minus": -math.inf}
    assert [value.hex() for value in back["floats"]] == [value.hex() for value in FLOATS]
    assert {name: back[name] for name in ("none", "flag", "count", "text", "deep")} == {
        name: facts[name] for name in ("none", "flag", "count", "text", "deep")
    }


def test_the_files_are_plain_safetensors_and_strict_json(tmp_path: Path) -> None:
    weight_23 = torch.randn(2, 3)
    saved = save.save_checkpoint(tmp_path, state(5, model={"w": weight_23}))
    assert sorted(path.name for path in saved.path.iterdir()) == [
        "manifest.json",
        "model.safetensors",
        "state.json",
    ]
    assert torch.equal(load_file(saved.path / "model.safetensors")["w"], weight_23)
    assert saved.bytes == sum(path.stat().st_size for path in saved.path.iterdir())
    assert (tmp_path / "latest").read_text() == "step-00000005\n"
    assert exact_json.loads((saved.path / "state.json").read_text()) == {"step": 5, "facts": {}}


def test_a_tensor_whose_file_is_cut_short_is_no_tensor_of_what_happened_to_be_in_memory(tmp_path):
    back = saved_and_loaded(tmp_path, state(model={"w": torch.ones(100_000)}))
    (path,) = save.list_checkpoints(tmp_path)
    (path / "model.safetensors").write_bytes(b"")
    with pytest.raises(OSError, match=r"model\.safetensors was cut short"):
        back.tensors["model"]["w"]


def test_tied_weights_are_stored_once_and_come_back_under_both_names(tmp_path: Path) -> None:
    weight = torch.randn(4, 2)
    back = saved_and_loaded(tmp_path, state(model={"embed": weight, "head": weight, "alike": weight.clone()}))
    (path,) = save.list_checkpoints(tmp_path)
    assert set(load_file(path / "model.safetensors")) == {"embed", "alike"}
    assert all(torch.equal(tensor, weight) for tensor in back.tensors["model"].values())
    assert len(back.tensors["model"]) == 3


def test_parts_of_one_buffer_that_do_not_overlap_are_saved_apart(tmp_path: Path) -> None:
    flat = torch.arange(6.0)
    back = saved_and_loaded(tmp_path, state(optimizer={"a": flat[:2], "b": flat[2:]}))
    assert back.tensors["optimizer"]["b"].tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("tensors", "facts", "message"),
    [
        ({"model": {"a": (whole := torch.zeros(4)), "b": whole[1:]}}, {}, "model: a and b share memory"),
        ({"model": {"a": torch.zeros(2, device="meta")}}, {}, "model: a has no dense values"),
        ({"model": {"a": torch.zeros(2).to_sparse()}}, {}, "model: a has no dense values"),
        ({"model": {"a": torch.zeros(2, dtype=torch.complex64)}}, {}, "model: a is torch.complex64"),
        ({"../model": {"a": torch.zeros(2)}}, {}, "cannot name a file"),
        ({}, {"order": (1, 2)}, r"\['order'\] is a tuple"),
        ({}, {"by_row": {3: 1}}, "the key 3 must be a string"),
        ({}, {"loss": [torch.tensor(1.0)]}, r"\['loss'\]\[0\] is a Tensor"),
        ({}, {"clash": {"$float": "nan"}}, "must be a string other than"),
    ],
)
def test_what_would_not_come_back_is_refused(tmp_path, tensors, facts, message):
    with pytest.raises(ValueError, match=message):
        save.save_checkpoint(tmp_path, TrainState(step=1, tensors=tensors, facts=facts))
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_load_is_none_and_not_a_fault(tmp_path: Path) -> None:
    assert save.load_latest_checkpoint(tmp_path / "absent") is None
    assert save.load_latest_checkpoint(tmp_path) is None


def test_the_newest_are_kept_and_the_best(tmp_path: Path) -> None:
    for step in range(1, 8):
        save.save_checkpoint(tmp_path, state(step), keep=2, best=min(step, 3))
    assert steps(tmp_path) == [3, 6, 7]


def test_a_best_step_without_a_checkpoint_is_said(tmp_path: Path) -> None:
    saved = save.save_checkpoint(tmp_path, state(4), best=2)
    assert saved.notes == (f"{tmp_path}: the best step, 2, has no checkpoint",)


def test_pruning_never_deletes_the_only_whole_checkpoint(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save.save_checkpoint(tmp_path, state(step))
    for step in (2, 3):
        (tmp_path / f"step-{step:08d}" / "model.safetensors").write_bytes(b"torn")
    save.prune_checkpoints(tmp_path, keep=1)
    assert 1 in steps(tmp_path)
    (tmp_path / "step-00000001" / "state.json").unlink()
    assert "no checkpoint is whole" in save.prune_checkpoints(tmp_path, keep=1)[0]
    assert 1 in steps(tmp_path)


def test_going_on_from_an_earlier_step_deletes_the_abandoned_later_ones(tmp_path: Path) -> None:
    for step in (10, 20, 25):
        save.save_checkpoint(tmp_path, state(step))
    (tmp_path / "step-00000025" / "manifest.json").write_text("{")
    saved = save.save_checkpoint(tmp_path, state(22))
    assert steps(tmp_path) == [10, 20, 22]
    assert "step-00000025: deleted; the run went on from an earlier checkpoint" in saved.notes[0]


def test_a_delete_that_fails_is_said_and_does_not_stop_the_run(tmp_path, monkeypatch):
    save.save_checkpoint(tmp_path, state(1), keep=1)

    def fails(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", fails)
    saved = save.save_checkpoint(tmp_path, state(2), keep=1)
    assert "step-00000001: could not be removed (Permission denied)" in saved.notes[0]
    assert steps(tmp_path) == [2]


def test_a_vanished_latest_is_said(tmp_path: Path) -> None:
    for step in (1, 2):
        save.save_checkpoint(tmp_path, state(step))
    shutil.rmtree(tmp_path / "step-00000002")
    loaded = save.load_latest_checkpoint(tmp_path)
    assert loaded is not None
    assert loaded.state.step == 1
    assert loaded.notes == (f"{tmp_path / 'latest'}: names 'step-00000002', which is not there",)


@pytest.mark.parametrize(("written", "advice"), [(3, "update plaudit"), (0, "the version that wrote it")])
def test_another_format_is_named_and_not_fallen_back_from(tmp_path, monkeypatch, written, advice):
    save.save_checkpoint(tmp_path, state(1))
    with monkeypatch.context() as later:
        later.setitem(save.CHECKPOINT_FORMATS, "whole", written)
        save.save_checkpoint(tmp_path, state(2))
    with pytest.raises(UserError, match=rf"step-00000002: .*format {written}; .*{advice}"):
        save.load_latest_checkpoint(tmp_path)


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep is 0"):
        save.save_checkpoint(tmp_path, state(1), keep=0)
    with pytest.raises(ValueError, match="the step is -1"):
        save.save_checkpoint(tmp_path, state(-1))
    with pytest.raises(UserError, match=r"its name is not step-<number>"):
        save.load_checkpoint(save.save_checkpoint(tmp_path, state(1)).path.rename(tmp_path / "mine"))
