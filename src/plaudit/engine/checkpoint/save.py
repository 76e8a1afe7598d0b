"""The whole state of training in a folder that is complete or absent, and proven before it is used.

    checkpoints/step-00000120/    model.safetensors · optimizer.safetensors · … · state.json · manifest.json
    checkpoints/latest            the newest one's name: a hint for eyes, never trusted

No pickle anywhere: tensors are safetensors, everything else exact JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

import plaudit
from plaudit.engine.checkpoint import format
from plaudit.engine.checkpoint.format import DamagedCheckpointError, FileDigest, Manifest
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json

Tensors = Mapping[str, Mapping[str, Tensor]]
"""Each part's tensors by name."""
TensorShapes = Mapping[str, Mapping[str, tuple[tuple[int, ...], str]]]
"""Each part's names with the shape and type that a tensor must have."""

_STEP_FOLDER = re.compile(r"step-(\d{8,})")
_PART_NAME = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainState:
    """Everything that training needs to go on as if it had never stopped.

    Example: ``TrainState(step=120, tensors={"model": model.state_dict()}, facts={"position": 960})``
    """

    step: int
    """How many steps are done."""
    tensors: Tensors
    """The named parts, such as model, optimizer and rng; each becomes ``<part>.safetensors``."""
    facts: Mapping[str, Any]
    """Everything that is not a tensor, as JSON: sampler position, controllers, counters, hashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint that is on the disk.

    Example: ``SavedCheckpoint(path=Path("checkpoints/step-00000120"), bytes=540_000_000, notes=())``
    """

    path: Path
    """Its folder."""
    bytes: int
    """Its size."""
    notes: tuple[str, ...]
    """What the user should hear, such as an older checkpoint that could not be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCheckpoint:
    """A checkpoint that was proven whole.

    Example: ``LoadedCheckpoint(state=TrainState(...), path=Path("checkpoints/step-00000100"),
        notes=("step-…: …",))``
    """

    state: TrainState
    """What was saved, bit for bit."""
    path: Path
    """The folder that it came from."""
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
    target = folder / _step_folder_name(state.step)
    atomic.make_folder(folder)
    with atomic.atomic_folder(target, needed=len(text) + _total_bytes(state.tensors)) as partial:
        _write_checkpoint(partial, state, text)
    atomic.write_text(folder / "latest", target.name + "\n")
    notes = prune_checkpoints(folder, keep=keep, best=best, current=state.step)
    return SavedCheckpoint(
        path=target, bytes=sum(path.stat().st_size for path in target.iterdir()), notes=notes
    )


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
            return LoadedCheckpoint(
                state=state, path=path, notes=(*notes, *_dangling_latest_note(folder, checkpoints))
            )
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
            notes.append(
                f"{path}: deleted; the run went on from an earlier checkpoint and is now at {newest}"
            )
    return tuple(notes)


def shapes_of(tensors: Tensors) -> TensorShapes:
    """What `check` compares: each part's names with shape and dtype."""
    return {
        part: {name: (tuple(tensor.shape), str(tensor.dtype)) for name, tensor in named.items()}
        for part, named in tensors.items()
    }


def shape_mismatches(tensors: Tensors, expected: TensorShapes) -> tuple[str, ...]:
    """How the tensors differ from what is expected; parts that ``expected`` does not name are not looked at.

    >>> import torch
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
        aliases_by_part[part] = format.find_tied_tensors(part, tensors)
        unshared = {name: tensor for name, tensor in tensors.items() if name not in aliases_by_part[part]}
        hashes[f"{part}.safetensors"] = format.write_tensors(partial / f"{part}.safetensors", unshared)
    (partial / "state.json").write_text(text, encoding="utf-8")
    hashes["state.json"] = format.sha256_of(partial / "state.json")
    files = {
        name: FileDigest(bytes=(partial / name).stat().st_size, sha256=sha256)
        for name, sha256 in hashes.items()
    }
    version = plaudit.__version__
    format.write_manifest(
        partial, Manifest(step=state.step, files=files, aliases=aliases_by_part, written_by=version)
    )


def _load_verified(path: Path, expected: TensorShapes | None) -> TrainState:
    verified = format.read_verified_manifest(path)
    if _step_of(path) != verified.step:
        raise DamagedCheckpointError(f"the folder holds step {verified.step}: it was renamed")
    tensors: dict[str, dict[str, Tensor]] = {}
    for part, shared in verified.aliases.items():
        tensors[part] = format.read_tensors(path / f"{part}.safetensors")
        tensors[part] |= {name: tensors[part][source] for name, source in shared.items()}
    if problems := shape_mismatches(tensors, expected or {}):
        shown_problems = "; ".join(problems[:5]) + (
            "" if len(problems) <= 5 else f"; and {len(problems) - 5} more"
        )
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
            format.refuse_unstorable(f"{part}: {name}", tensor)


def _newest_intact_step(checkpoints: Mapping[int, Path]) -> int | None:
    for step, path in sorted(checkpoints.items(), reverse=True):
        try:
            format.read_verified_manifest(path)
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


def _total_bytes(tensors: Tensors) -> int:
    return sum(tensor.nbytes for named in tensors.values() for tensor in named.values())


def _step_folder_name(step: int) -> str:
    return f"step-{step:08d}"


def _step_of(path: Path) -> int:
    match = _STEP_FOLDER.fullmatch(path.name.removeprefix(".").removesuffix(".replaced"))
    if match is None:
        raise UserError(f"{path}: not a checkpoint: its name is not step-<number>. Choose a folder that is.")
    return int(match[1])
