"""The whole state of training in a folder that is complete or absent, and proven before it is used.

    checkpoints/step-00000120/    model.safetensors · optimizer.safetensors · … · state.json · manifest.json
    checkpoints/latest            the newest one's name: a hint for eyes, never trusted

No pickle anywhere: tensors are safetensors (eight bytes of header length, a JSON header padded with spaces,
the raw little-endian data; any safetensors library reads it), everything else exact JSON. The writer takes
one tensor at a time from wherever it lives, so a checkpoint never needs a second copy of the model in memory,
and a full disk is an ``OSError`` like any other. Tied weights are stored once and come back tied; tensors
that overlap in any other way are refused.

The manifest lists each file's size and sha256, and a file is read only when they agree. The manifest's own
hash has one rule for ever: the sha256 of its ``body`` as compact JSON. So a manifest of any later format can
be told from a damaged one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

import plaudit
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """Size and hash that a file of a checkpoint must have."""

    bytes: int
    sha256: str
    """Its content, as 64 hexadecimal digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    step: int
    files: Mapping[str, FileDigest]
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
    """The manifest, when every file that it lists has its size and hash; else `DamagedCheckpointError`."""
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
        aliases, version = body["aliases"], body["written_by"]
        return Manifest(step=body["step"], files=files, aliases=aliases, written_by=version)
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
    is_newer = format_number > CHECKPOINT_FORMAT
    advice = "update plaudit" if is_newer else "resume with the version that wrote it"
    raise UserError(
        f"{folder}: written by plaudit {version} in checkpoint format {format_number}; "
        f"this plaudit reads format {CHECKPOINT_FORMAT}. To go on: {advice}."
    )


def _body_sha256(body: object) -> str:
    return hashlib.sha256(exact_json.dumps(body).encode()).hexdigest()


Tensors = Mapping[str, Mapping[str, Tensor]]
"""Each part's tensors by name."""
TensorShapes = Mapping[str, Mapping[str, tuple[tuple[int, ...], str]]]
"""Each part's names with the shape and type that a tensor must have."""

_STEP_FOLDER = re.compile(r"step-(\d{8,})")
_PART_NAME = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainState:
    """Everything that training needs to go on as if it had never stopped."""

    step: int
    tensors: Tensors
    """The named parts, such as model, optimizer and rng; each becomes ``<part>.safetensors``."""
    facts: Mapping[str, Any]
    """Everything that is not a tensor, as JSON: sampler position, controllers, counters, hashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    path: Path
    bytes: int
    notes: tuple[str, ...]
    """What the user should hear, such as an older checkpoint that could not be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCheckpoint:
    state: TrainState
    path: Path
    notes: tuple[str, ...]
    """What the user should hear, such as a newer checkpoint that is damaged and was passed over."""


def save_checkpoint(
    folder: Path, state: TrainState, *, keep: int = 3, best: int | None = None
) -> SavedCheckpoint:
    """Writes the state to ``folder/step-<n>``, then deletes all but the newest ``keep`` and the ``best``.

    Returns when the disk has it. A fault (full disk, no permission) is a `UserError` and leaves every earlier
    checkpoint as it was. A step that is already there is replaced; steps beyond this one, which an earlier
    run left behind, are deleted, because the run now goes another way.
    """
    _refuse_unstorable(state, keep)
    text = exact_json.dumps({"step": state.step, "facts": state.facts}, indent=1) + "\n"
    target = folder / f"step-{state.step:08d}"
    with atomic.disk_errors_explained(folder):
        # Without those above it: a run folder that somebody removed is missed, not made again.
        folder.mkdir(exist_ok=True)
    size = sum(tensor.nbytes for named in state.tensors.values() for tensor in named.values())
    with atomic.atomic_folder(target, needed=len(text) + size) as partial:
        _write_checkpoint(partial, state, text)
    atomic.write_text(folder / "latest", target.name + "\n")
    notes = prune_checkpoints(folder, keep=keep, best=best, current=state.step)
    size = sum(path.stat().st_size for path in target.iterdir())
    return SavedCheckpoint(path=target, bytes=size, notes=notes)


def load_latest_checkpoint(folder: Path, *, expected: TensorShapes | None = None) -> LoadedCheckpoint | None:
    """The newest checkpoint that is whole and holds the ``expected`` tensors; None when there is none at all.

    Passing over a newer one is said in ``notes``. When there are checkpoints and none is good: `UserError`.
    """
    checkpoints = list_checkpoints(folder)
    notes: list[str] = []
    for path in reversed(checkpoints):
        try:
            state = _load_verified(path, expected)
        except (DamagedCheckpointError, OSError) as error:
            notes.append(f"{path}: passed over: {error}")
        else:
            notes += _dangling_latest_note(folder, checkpoints)
            return LoadedCheckpoint(state=state, path=path, notes=tuple(notes))
    if not checkpoints:
        return None
    raise UserError(
        f"{folder}: none of the {len(checkpoints)} checkpoints can be used:\n"
        + "".join(f"  {note}\n" for note in notes)
        + "To go on: restore one of these folders from a copy, or start another run with `--out` elsewhere."
    )


def load_checkpoint(path: Path, *, expected: TensorShapes | None = None) -> TrainState:
    """One checkpoint, proven; `UserError` says what is wrong with it."""
    try:
        return _load_verified(path, expected)
    except (DamagedCheckpointError, OSError) as error:
        raise UserError(f"{path}: the checkpoint cannot be used: {error}. Choose another one.") from error


def list_checkpoints(folder: Path) -> tuple[Path, ...]:
    """The checkpoints' folders, oldest first; whether they are whole is not looked at."""
    by_step: dict[int, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        # While a checkpoint is being replaced its old self has this second name; names with a dot sort first.
        name = path.name.removeprefix(".").removesuffix(".replaced")
        if (match := _STEP_FOLDER.fullmatch(name)) and path.is_dir():
            by_step[int(match[1])] = path
    return tuple(path for _, path in sorted(by_step.items()))


def prune_checkpoints(
    folder: Path, *, keep: int, best: int | None = None, current: int | None = None
) -> tuple[str, ...]:
    """Deletes all but the newest ``keep`` good checkpoints and the ``best``; says what the user should hear.

    ``current`` is a step known to be whole (just saved); without it the newest whole one is looked for, and
    when there is none, nothing is deleted. Checkpoints newer than it go: the run does not continue them.
    """
    checkpoints = {_step_of(path): path for path in list_checkpoints(folder)}
    newest = current if current is not None else _newest_intact_step(checkpoints)
    if newest is None:
        return (f"{folder}: no checkpoint is whole, so none was deleted",) if checkpoints else ()
    wanted_steps = {*[step for step in checkpoints if step <= newest][-keep:], newest, best}
    notes: list[str] = []
    if best is not None and best not in checkpoints:
        notes.append(f"{folder}: the best step, {best}, has no checkpoint")
    for step, path in checkpoints.items():
        if step not in wanted_steps:
            notes += atomic.remove_path(path)
        if step > newest and step not in wanted_steps:
            notes.append(f"{path}: deleted; the run went on from an earlier checkpoint, now at {newest}")
    return tuple(notes)


def shapes_of(tensors: Tensors) -> TensorShapes:
    """What `check` compares: each part's names with shape and dtype."""
    return {
        part: {name: (tuple(tensor.shape), str(tensor.dtype)) for name, tensor in named.items()}
        for part, named in tensors.items()
    }


def shape_mismatches(tensors: Tensors, expected: TensorShapes) -> tuple[str, ...]:
    """How the tensors differ from what is expected; parts that ``expected`` does not name are not looked at.

    >>> shape_mismatches({"model": {"w": torch.zeros(2)}}, {"model": {"w": ((3,), "torch.float32")}})
    ('model: w is (2,) torch.float32, expected (3,) torch.float32',)
    """
    problems: list[str] = []
    present_shapes = shapes_of(tensors)
    for part, expected_part in expected.items():
        if part not in present_shapes:
            problems.append(f"{part}: missing")
            continue
        present = present_shapes[part]
        problems += [f"{part}: {name} is missing" for name in expected_part if name not in present]
        problems += [f"{part}: {name} is not expected" for name in present if name not in expected_part]
        problems += [
            f"{part}: {name} is {present[name][0]} {present[name][1]}, expected {shape} {dtype}"
            for name, (shape, dtype) in expected_part.items()
            if name in present and present[name] != (shape, dtype)
        ]
    return tuple(problems)


def _write_checkpoint(partial: Path, state: TrainState, text: str) -> None:
    hashes: dict[str, str] = {}
    aliases_by_part: dict[str, dict[str, str]] = {}
    for part, tensors in state.tensors.items():
        aliases_by_part[part] = find_tied_tensors(part, tensors)
        unshared = {name: tensor for name, tensor in tensors.items() if name not in aliases_by_part[part]}
        hashes[f"{part}.safetensors"] = write_tensors(partial / f"{part}.safetensors", unshared)
    (partial / "state.json").write_text(text, encoding="utf-8")
    hashes["state.json"] = sha256_of(partial / "state.json")
    files = {
        name: FileDigest(bytes=(partial / name).stat().st_size, sha256=sha256)
        for name, sha256 in hashes.items()
    }
    version = plaudit.__version__
    manifest = Manifest(step=state.step, files=files, aliases=aliases_by_part, written_by=version)
    write_manifest(partial, manifest)


def _load_verified(path: Path, expected: TensorShapes | None) -> TrainState:
    verified = read_verified_manifest(path)
    if _step_of(path) != verified.step:
        raise DamagedCheckpointError(f"the folder holds step {verified.step}: it was renamed")
    tensors: dict[str, dict[str, Tensor]] = {}
    for part, shared in verified.aliases.items():
        tensors[part] = read_tensors(path / f"{part}.safetensors")
        tensors[part] |= {name: tensors[part][source] for name, source in shared.items()}
    if problems := shape_mismatches(tensors, expected or {}):
        more = "" if len(problems) <= 5 else f"; and {len(problems) - 5} more"
        shown_problems = "; ".join(problems[:5]) + more
        raise DamagedCheckpointError(f"its tensors are not those of this run: {shown_problems}")
    facts = exact_json.loads((path / "state.json").read_bytes())["facts"]
    return TrainState(step=verified.step, tensors=tensors, facts=facts)


def _refuse_unstorable(state: TrainState, keep: int) -> None:
    if keep < 1:
        raise ValueError(f"keep is {keep}; at least one checkpoint must be kept")
    if state.step < 0:
        raise ValueError(f"the step is {state.step}; it counts from 0")
    for part, tensors in state.tensors.items():
        if not _PART_NAME.fullmatch(part):
            raise ValueError(f"{part!r} cannot name a file: use small letters, digits, '-', '_' and '.'")
        for name, tensor in tensors.items():
            refuse_unstorable(f"{part}: {name}", tensor)


def _newest_intact_step(checkpoints: Mapping[int, Path]) -> int | None:
    for step, path in sorted(checkpoints.items(), reverse=True):
        try:
            read_verified_manifest(path)
        except (DamagedCheckpointError, OSError):
            continue
        return step
    return None


def _dangling_latest_note(folder: Path, checkpoints: tuple[Path, ...]) -> tuple[str, ...]:
    hint = folder / "latest"
    name = hint.read_text(encoding="utf-8", errors="replace").strip() if hint.is_file() else ""
    if not name or folder / name in checkpoints:
        return ()
    return (f"{hint}: names {name!r}, which is not there",)


def _step_of(path: Path) -> int:
    match = _STEP_FOLDER.fullmatch(path.name.removeprefix(".").removesuffix(".replaced"))
    if match is None:
        raise UserError(f"{path}: not a checkpoint: its name is not step-<number>. Choose a folder that is.")
    return int(match[1])
