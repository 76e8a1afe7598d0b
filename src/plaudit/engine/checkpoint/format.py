"""The files of a checkpoint: named tensors as safetensors, tied weights stored once, and a hashed manifest.

The writer takes one tensor at a time from wherever it lives, so a checkpoint never needs a second copy of
the model in memory, and a full disk is an ``OSError`` like any other. The format is safetensors: eight bytes
of header length, a JSON header padded with spaces, the raw little-endian data; any safetensors library reads
it. Tensors are hashed while they are written and read only when the hash agrees. Tied weights come back
tied; tensors that overlap in any other way are refused.

The manifest lists each file's size and sha256. Its own hash has one rule for ever: the sha256 of its ``body``
as compact JSON. So a manifest of any later format can be told from a damaged one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from plaudit.errors import UserError
from plaudit.files import exact_json


def find_tied_tensors(part: str, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """For each name that is the very same tensor as an earlier name: that earlier name.

    ``ValueError`` when two tensors share some of their memory without being the same: stored apart, they
    would come back untied, and a run that relied on the sharing would go on differently.

    >>> import torch
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


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Writes the file and returns its sha256; the caller makes it durable (`durable.folder` does)."""
    # Widest elements first: each tensor then starts at a multiple of its element size, as the format asks.
    ordered = dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])))
    header = safetensors_header(ordered)
    digest = hashlib.sha256(header)
    with open(path, "xb") as file:
        file.write(header)
        for tensor in ordered.values():
            data = _raw_bytes(tensor)
            digest.update(data)
            file.write(data)
    return digest.hexdigest()


def read_tensors(path: Path) -> dict[str, Tensor]:
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
    if tensor.dtype not in _DTYPE_NAMES:
        raise ValueError(f"{name} is {tensor.dtype}, which safetensors does not hold")


def sha256_of(path: Path) -> str:
    """The file's sha256, read in pieces."""
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


def _raw_bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


CHECKPOINT_FORMAT = 1
"""The checkpoint format that this version writes and reads; raised when a reader would have to change."""
MANIFEST_NAME = "manifest.json"
"""The manifest's file in a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """Size and hash that a file of a checkpoint must have.

    Example: ``FileDigest(bytes=1024, sha256="9f86d081…")``
    """

    bytes: int
    """Its size."""
    sha256: str
    """Its content, as 64 hexadecimal digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint consists of.

    Example: ``Manifest(step=120, files={"state.json": FileDigest(...)}, aliases={}, written_by="0.1.0")``
    """

    step: int
    """After how many steps it was saved."""
    files: Mapping[str, FileDigest]
    """Every file of the folder but the manifest."""
    aliases: Mapping[str, Mapping[str, str]]
    """For each part, the names that share another name's tensor (tied weights), stored once."""
    written_by: str
    """The version of plaudit that wrote it."""


class DamagedCheckpointError(Exception):
    """A checkpoint that is not what its manifest promises; says which file and why."""


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes ``manifest.json`` into the folder, which the caller makes durable."""
    body = {"format": CHECKPOINT_FORMAT, **asdict(manifest)}
    text = exact_json.dumps({"body": body, "sha256": _body_sha256(body)}, indent=2)
    (folder / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")


def read_verified_manifest(folder: Path) -> Manifest:
    """The manifest, when every file that it lists has its size and hash; `DamagedError` otherwise."""
    manifest = _read_manifest(folder)
    for name, digest in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise DamagedCheckpointError(f"{name} is missing")
        if (size := path.stat().st_size) != digest.bytes:
            raise DamagedCheckpointError(f"{name} has {size:,} bytes, {digest.bytes:,} were written")
        if sha256_of(path) != digest.sha256:
            raise DamagedCheckpointError(f"{name} has changed since it was written (its sha256 differs)")
    return manifest


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST_NAME
    if not path.is_file():
        raise DamagedCheckpointError(f"{MANIFEST_NAME} is missing")
    try:
        content = exact_json.loads(path.read_bytes())
        body, expected_sha256 = content["body"], content["sha256"]
        intact = _body_sha256(body) == expected_sha256
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpointError(f"{MANIFEST_NAME} cannot be read: {error}") from error
    if not intact:
        raise DamagedCheckpointError(f"{MANIFEST_NAME} has changed since it was written (its sha256 differs)")
    _refuse_other_formats(folder, body)
    try:
        files = {name: FileDigest(**digest) for name, digest in body["files"].items()}
        return Manifest(
            step=body["step"], files=files, aliases=body["aliases"], written_by=body["written_by"]
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpointError(f"{MANIFEST_NAME} is not one that plaudit writes: {error!r}") from error


def _refuse_other_formats(folder: Path, body: object) -> None:
    format_number = body.get("format") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(format_number, int):
        raise DamagedCheckpointError(f"{MANIFEST_NAME} is not one that plaudit writes: it names no format")
    if format_number == CHECKPOINT_FORMAT:
        return
    version = body.get("written_by", "of an unknown version")
    # Not damage, so no falling back: going on from an older checkpoint would throw good steps away.
    advice = (
        "update plaudit" if format_number > CHECKPOINT_FORMAT else "resume with the version that wrote it"
    )
    raise UserError(
        f"{folder}: written by plaudit {version} in checkpoint format {format_number}; "
        f"this plaudit reads format {CHECKPOINT_FORMAT}. To go on: {advice}."
    )


def _body_sha256(body: object) -> str:
    return hashlib.sha256(exact_json.dumps(body).encode()).hexdigest()
