"""Weights as files that a server reads: whole, or as what has changed since the last ones.

It needs torch and safetensors alone, so that it also runs in the Python of a vLLM server, where plaudit's own
libraries need not be.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PIECE = 2**22
"""Words that are summed at once."""


class WrongWeightsError(Exception):
    """A file of weights is not what it says, or not what is wanted."""


@dataclass(frozen=True)
class TensorFacts:
    """What a tensor is known by. Example: ``TensorFacts.of(torch.ones(2, 3)).shape``."""

    dtype: str
    shape: tuple[int, ...]
    checksum: int

    @classmethod
    def of(cls, tensor: Tensor) -> TensorFacts:
        return cls(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), checksum(tensor))


Manifest = Mapping[str, TensorFacts]
"""The facts of every tensor of a model, by its name in a Hugging Face folder."""


def checksum(tensor: Tensor) -> int:
    """Σ (2i + 1) · x_i mod 2⁶⁴ over the words of eight bytes: any number that changes alone changes it.

    >>> checksum(torch.tensor([1, 2, 3]))
    22
    """
    word_bytes = tensor.detach().contiguous().flatten().view(torch.uint8)
    if rest := word_bytes.numel() % 8:
        word_bytes = torch.cat([word_bytes, word_bytes.new_zeros(8 - rest)])
    words = word_bytes.view(torch.int64)
    total = 0
    for start in range(0, words.numel(), _PIECE):
        piece = words[start : start + _PIECE]
        odd = torch.arange(start, start + piece.numel(), device=piece.device).mul_(2).add_(1)
        # int64 wraps around, which is what mod 2⁶⁴ means.
        total += int((piece * odd).sum())
    return total % 2**64


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().flatten().view(_INTEGERS[tensor.element_size()])


def manifest_of(tensors: Mapping[str, Tensor]) -> dict[str, TensorFacts]:
    return {name: TensorFacts.of(tensor) for name, tensor in tensors.items()}


def root_of(manifest: Manifest) -> str:
    """One hash of all names, types, shapes and checksums."""
    return blake2b(_manifest_json(manifest).encode(), digest_size=16).hexdigest()


def _manifest_json(manifest: Manifest) -> str:
    return json.dumps({name: asdict(facts) for name, facts in sorted(manifest.items())})


def changes(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The numbers of ``new`` whose bits differ from ``old``, with the gaps between their places."""
    changed: dict[str, Tensor] = {}
    for name, tensor in new.items():
        place_M = (_bits(tensor) != _bits(old[name])).nonzero()[:, 0]
        if place_M.numel():
            gap_M = torch.diff(place_M, prepend=place_M.new_zeros(1))
            # Where one number in fifty has changed, two bytes hold every gap.
            narrow = torch.uint16 if int(gap_M.max()) < 2**16 else torch.int64
            changed[f"{name} gaps"] = gap_M.to(narrow)
            changed[f"{name} values"] = tensor.flatten()[place_M].contiguous()
    return changed


def add_changes(held: Mapping[str, Tensor], changed: Mapping[str, Tensor]) -> None:
    for key, gap_M in changed.items():
        name, _, kind = key.rpartition(" ")
        if kind == "gaps":
            held[name].view(-1)[gap_M.long().cumsum(0)] = changed[f"{name} values"]


def write_weights(
    path: Path, tensors: Mapping[str, Tensor], manifest: Manifest, *, behind: str | None = None
) -> int:
    """Write a file that a server can read at once or not at all; its bytes.
    ``behind``: the root of the weights that ``tensors`` are changes of; None where they are whole."""
    partial = path.with_suffix(".partial")
    facts = {"manifest": _manifest_json(manifest), "behind": behind or ""}
    save_file(dict(tensors), partial, metadata=facts)
    partial.replace(path)
    return path.stat().st_size


class HeldWeights:
    """What a server has been sent, as files name it; changes are added to it."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._root = ""

    def read(self, path: str, root: str) -> dict[str, Tensor]:
        """All weights once the file is read, each compared with its checksum."""
        if not os.path.exists(path):
            raise WrongWeightsError(f"{path} is not there: trainer and server need one folder for weights")
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
        manifest = {
            name: TensorFacts(facts["dtype"], tuple(facts["shape"]), facts["checksum"])
            for name, facts in json.loads(metadata["manifest"]).items()
        }
        if root_of(manifest) != root:
            raise WrongWeightsError(f"{path} holds other weights than it was announced with")
        read = load_file(path)
        if behind := metadata["behind"]:
            if behind != self._root:
                raise WrongWeightsError(f"{path} holds changes of weights that this server does not have")
            add_changes(self._tensors, read)
        else:
            self._tensors = read
        # Unset until the checksums agree: what is broken is no ground to add changes to.
        self._root = ""
        _compare(path, manifest, manifest_of(self._tensors))
        self._root = root
        return self._tensors


def _compare(path: str, announced: Manifest, read: Manifest) -> None:
    if missing := sorted({*announced} ^ {*read}):
        raise WrongWeightsError(f"{path}: {missing[0]} is announced or there, and not both")
    if broken := [name for name, facts in announced.items() if read[name] != facts]:
        raise WrongWeightsError(f"{path}: {broken[0]} is not what was announced ({len(broken)} tensors)")
