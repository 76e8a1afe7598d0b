"""Weights as files: checksums by hand, changes that are put back, and files that are refused."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from plaudit.errors import UserError
from plaudit.serving.weight_files import HeldWeights, WrongWeightsError, checksum, manifest_of, root_of
from plaudit.serving.weights import Handover


def weights(seed: int, dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (300, 700), "b": (5,), "c.0": (2, 3, 4)}
    return {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}


def moved(tensors: dict[str, Tensor], share: float, seed: int = 1) -> dict[str, Tensor]:
    """These, with some of their numbers changed."""
    generator = torch.Generator().manual_seed(seed)
    masks = {name: torch.rand(tensor.shape, generator=generator) < share for name, tensor in tensors.items()}
    return {name: torch.where(masks[name], tensor * 1.5, tensor) for name, tensor in tensors.items()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_checksum_is_the_sum_of_odd_multiples_of_the_bits(dtype: torch.dtype):
    # 297 × 699 numbers: in two bytes they are no whole number of words.
    tensor = weights(0, dtype)["a"][3:, 1:]
    content = tensor.flatten().view(torch.uint8).numpy().tobytes()
    words = [int.from_bytes(content[start : start + 8], "little") for start in range(0, len(content), 8)]
    assert checksum(tensor) == sum((2 * i + 1) * word for i, word in enumerate(words)) % 2**64
    # Two numbers that change places, and one whose sign changes.
    swapped = tensor.clone()
    swapped[0, 0], swapped[0, 1] = tensor[0, 1], tensor[0, 0]
    signed = tensor.clone()
    signed[7, 7] *= -1
    assert len({checksum(one) for one in (tensor, swapped, signed)}) == 3


def test_changes_make_of_the_old_weights_the_new_ones_to_the_bit(tmp_path: Path):
    handover, held = Handover(tmp_path / "w"), HeldWeights()
    now, sizes = weights(0), list[int]()
    delivery, read = handover.write(now, "v"), dict[str, Tensor]()
    for number in range(4):
        delivery = handover.write(now, f"v{number}")
        path, root = delivery.files[-1]
        read = held.read(str(path), root)
        assert {*read} == {*now}
        assert all(torch.equal(read[name], now[name]) for name in now)
        sizes.append(delivery.bytes_written)
        now = moved(now, share=0.02, seed=number)
    # Four bytes for each of two numbers in a hundred, where the whole has two bytes for each.
    assert all(size < 0.06 * sizes[0] for size in sizes[1:])
    late = HeldWeights()
    for path, root in delivery.files:
        read = late.read(str(path), root)
    assert root_of(manifest_of(read)) == delivery.files[-1][1]
    # Where most has changed, the whole is less.
    assert len(handover.write(moved(now, share=0.9), "v9").files) == 1
    assert {path.name for path in (tmp_path / "w").iterdir()} == {"v9.safetensors"}


def test_a_file_that_is_not_what_was_announced_is_refused(tmp_path: Path):
    handover = Handover(tmp_path / "w")
    first = handover.write(weights(0), "v0")
    (whole, root), (change, last) = handover.write(moved(weights(0), share=0.01), "v1").files
    assert first.files == ((whole, root),)
    for path, wanted, message in (
        (tmp_path / "w/v7.safetensors", root, "not there"),
        (whole, last, "other weights than it was announced with"),
        (change, last, "changes of weights that this server does not have"),
    ):
        with pytest.raises(WrongWeightsError, match=message):
            HeldWeights().read(str(path), wanted)
    held = HeldWeights()
    tensors = load_file(whole)
    tensors["b"][0] += 1
    with safe_open(whole, "pt") as file:
        metadata = file.metadata()
    save_file(tensors, whole, metadata=metadata)
    with pytest.raises(WrongWeightsError, match=r"b is not what was announced \(1 tensors\)"):
        held.read(str(whole), root)
    # What is broken is no ground for changes either.
    with pytest.raises(WrongWeightsError, match="does not have"):
        held.read(str(change), last)


def test_a_delivery_with_other_tensors_is_refused(tmp_path: Path):
    handover = Handover(tmp_path / "w")
    handover.write(weights(0), "v0")
    with pytest.raises(UserError, match=r"differ in their tensors from those before: b"):
        handover.write({name: tensor for name, tensor in weights(0).items() if name != "b"}, "v1")


def test_a_folder_without_room_is_said_before_anything_is_written(tmp_path, monkeypatch):
    handover = Handover(tmp_path / "w")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match=r"no room for 0 MiB of weights .* \(--server.folder\)"):
        handover.write(weights(0), "v0")
    assert not list((tmp_path / "w").iterdir())
