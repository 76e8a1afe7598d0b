"""Named tensors as a safetensors file, written and hashed in one pass, read only when the hash agrees.

The writer takes one tensor at a time from wherever it lives, so a checkpoint never needs a second copy of
the model in memory, and a full disk is an ``OSError`` like any other. The format is safetensors: eight bytes
of header length, a JSON header padded with spaces, the raw little-endian data; any safetensors library reads
it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

_DTYPES = {
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


def write(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Writes the file and returns its sha256; the caller makes it durable (`durable.folder` does)."""
    # Widest elements first: each tensor then starts at a multiple of its element size, as the format asks.
    ordered = dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])))
    header = header_of(ordered)
    digest = hashlib.sha256(header)
    with open(path, "xb") as file:
        file.write(header)
        for tensor in ordered.values():
            data = _bytes_of(tensor)
            digest.update(data)
            file.write(data)
    return digest.hexdigest()


def read(path: Path) -> dict[str, Tensor]:
    """The tensors, copied into memory, of a file whose hash the caller has compared.

    The copy matters: the library maps the file, and a mapped file that is replaced or cut short later
    changes the tensors or ends the process.
    """
    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def refuse_unstorable(name: str, tensor: Tensor) -> None:
    """Raises ``ValueError`` unless the tensor is a plain dense one of a type that the format knows."""
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        raise ValueError(f"{name} is a {type(tensor).__name__}; gather it into a plain tensor before saving")
    if tensor.is_meta or tensor.layout != torch.strided:
        raise ValueError(f"{name} has no dense values ({tensor.device}, {tensor.layout}); it cannot be saved")
    if tensor.dtype not in _DTYPES:
        raise ValueError(f"{name} is {tensor.dtype}, which safetensors does not hold")


def sha256_of(path: Path) -> str:
    """The file's sha256, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def header_of(tensors: Mapping[str, Tensor]) -> bytes:
    """What stands before the numbers; it needs their shapes alone."""
    entries: dict[str, object] = {}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes_of(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
