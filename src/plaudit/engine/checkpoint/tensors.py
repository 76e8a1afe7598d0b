"""Tensors in safetensors files: written one at a time, read by name or by rows.

Eight bytes of header length, a JSON header padded with spaces, the raw little-endian data: any safetensors
library reads it. Nothing is mapped into memory: of a mapped file whatever was read counts as memory, and one
that is cut short ends the process.
"""

import hashlib
import json
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor


def find_tied_tensors(part: str, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """For each name that is the very same tensor as an earlier name: that earlier name.
    ``ValueError`` when two tensors share some of their memory without being the same: stored apart, they
    would come back untied, and a run that relied on the sharing would go on differently.

    >>> weight = torch.zeros(3, 2)
    >>> find_tied_tensors("model", {"embed": weight, "head": weight})
    {'head': 'embed'}
    """
    first: dict[Hashable, str] = {}
    aliases: dict[str, str] = {}
    for name, tensor in tensors.items():
        if not tensor.numel():
            continue
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if key in first:
            aliases[name] = first[key]
        else:
            first[key] = name
    _refuse_overlaps(part, {name: tensors[name] for name in first.values()})
    return aliases


def _refuse_overlaps(part: str, tensors: Mapping[str, Tensor]) -> None:
    spans = sorted((str(tensor.device), *_memory_span(tensor), name) for name, tensor in tensors.items())
    for (device, _, end, name), (other_device, begin, _, other) in pairwise(spans):
        if device == other_device and begin < end:
            raise ValueError(
                f"{part}: {name} and {other} share memory without being the same tensor; "
                "pass `.clone()` of one of them, or one tensor under both names"
            )


def _memory_span(tensor: Tensor) -> tuple[int, int]:
    last_offset = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last_offset + 1) * tensor.element_size()


_DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_DTYPES = {name: dtype for dtype, name in _DTYPE_NAMES.items()}


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Writes the file, forced to the disk, and returns its sha256."""
    # Widest elements first: each tensor then starts at a multiple of its element size, as the format asks.
    ordered = dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])))
    header = safetensors_header(ordered)
    digest = hashlib.sha256(header)
    with open(path, "xb") as file:
        file.write(header)
        for tensor in ordered.values():
            data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def refuse_unstorable(name: str, tensor: Tensor) -> None:
    """Raises ``ValueError`` unless the tensor is a plain dense one of a type that the format knows."""
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        raise ValueError(f"{name} is a {type(tensor).__name__}; gather it into a plain tensor before saving")
    if tensor.is_meta or tensor.layout != torch.strided:
        raise ValueError(f"{name} has no dense values ({tensor.device}, {tensor.layout}); it cannot be saved")
    if tensor.dtype not in _DTYPE_NAMES:
        raise ValueError(f"{name} is {tensor.dtype}, which safetensors does not hold")


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def safetensors_header(tensors: Mapping[str, Tensor]) -> bytes:
    """The safetensors header of these tensors; it needs their shapes alone."""
    entries: dict[str, object] = {}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


class _Piece(NamedTuple):
    """Some rows of a tensor, or all of it, and where in which file they stand."""

    path: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int


class StoredPart(Mapping[str, Tensor]):
    """The tensors of one part of a checkpoint, each read when it is asked for.
    One that is in several files is divided by rows: the first file has the first ones."""

    def __init__(self, files: Sequence[Path], aliases: Mapping[str, str]) -> None:
        """``aliases``: names that stand for another one's tensor."""
        self._pieces: dict[str, list[_Piece]] = {}
        for path in files:
            for name, piece in _read_header(path):
                self._pieces.setdefault(name, []).append(piece)
        self._pieces |= {name: self._pieces[source] for name, source in aliases.items()}

    def __getitem__(self, name: str) -> Tensor:
        shape, dtype = self.kind(name)
        if shape:
            return self.rows(name, 0, shape[0])
        tensor = torch.empty((), dtype=dtype)
        _read_into(tensor, self._pieces[name][0])
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)

    def kind(self, name: str) -> tuple[tuple[int, ...], torch.dtype]:
        """The shape of the whole tensor, and its type."""
        first, *more = self._pieces[name]
        rows = (sum(piece.shape[0] for piece in (first, *more)),) if first.shape else ()
        return (*rows, *first.shape[1:]), first.dtype

    def rows(self, name: str, begin: int, end: int) -> Tensor:
        """These rows alone, out of the files that have them."""
        first, above = self._pieces[name][0], 0
        tensor = torch.empty((end - begin, *first.shape[1:]), dtype=first.dtype)
        for piece in self._pieces[name]:
            low, high = max(begin, above), min(end, above + piece.shape[0])
            if low < high:
                _read_into(tensor[low - begin : high - begin], piece, low - above)
            above += piece.shape[0]
        return tensor


def stored_kind(tensors: Mapping[str, Tensor], name: str) -> tuple[tuple[int, ...], torch.dtype]:
    """Shape and type of one of the tensors, which is not read for that."""
    if isinstance(tensors, StoredPart):
        return tensors.kind(name)
    return tensors[name].shape, tensors[name].dtype


def _read_header(path: Path) -> Iterator[tuple[str, _Piece]]:
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    for name, entry in header.items():
        if name != "__metadata__":
            begin = 8 + size + entry["data_offsets"][0]
            yield name, _Piece(path, _DTYPES[entry["dtype"]], tuple(entry["shape"]), begin)


def _read_into(tensor: Tensor, piece: _Piece, row: int = 0) -> None:
    with open(piece.path, "rb") as file:
        file.seek(piece.offset + row * prod(piece.shape[1:]) * piece.dtype.itemsize)
        if file.readinto(tensor.reshape(-1).view(torch.uint8).numpy().data) < tensor.nbytes:
            raise OSError(f"{piece.path} was cut short while it was read")
