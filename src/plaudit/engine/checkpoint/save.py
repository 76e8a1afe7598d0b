"""The whole state of training in a folder that is complete or absent, and proven before it is used.

    checkpoints/step-00000120/    model.safetensors · optimizer.safetensors · … · state.json · manifest.json
    checkpoints/latest            the newest one's name: a hint for eyes, never trusted

Where weights are divided over ranks, each writes and hashes its own rows (model-00001-of-00004.safetensors …)
and each reads back the rows that it has then, whoever wrote them.

No pickle anywhere: tensors are safetensors, everything else exact JSON. The writer takes one tensor at a time
from wherever it lives, so a checkpoint never needs a second copy of the model in memory, and a full disk is
an ``OSError`` like any other. Tied weights are stored once; tensors that overlap in any other way are
refused.

The manifest lists each file's size and sha256, and a file is read only when they agree. The manifest's own
hash has one rule for ever: the sha256 of its ``body`` as compact JSON. So a manifest of any later format can
be told from a damaged one.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import plaudit
from plaudit.engine.checkpoint.tensors import (
    StoredPart,
    find_tied_tensors,
    refuse_unstorable,
    sha256_of,
    write_tensors,
)
from plaudit.engine.distributed import Ranks, single_process
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json

CHECKPOINT_FORMATS = {"whole": 1, "divided": 2}
"""The formats that this version writes and reads; a new one where a reader would have to change."""
MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """Size and hash that a file of a checkpoint must have."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    step: int
    files: Mapping[str, FileDigest]
    aliases: Mapping[str, Mapping[str, str]]
    """For each part, the names that share another name's tensor (tied weights), stored once."""
    written_by: str
    pieces: Mapping[str, int] = field(default_factory=dict[str, int])
    """For each part that is divided by rows, into how many files."""

    def files_of(self, part: str) -> list[str]:
        """The files of a part, that with the first rows first."""
        count = self.pieces.get(part, 1)
        return [part_file(part, piece, count) for piece in range(count)]


def part_file(part: str, piece: int, count: int) -> str:
    """The file of one piece of a part.

    >>> part_file("model", 0, 1), part_file("model", 1, 4)
    ('model.safetensors', 'model-00002-of-00004.safetensors')
    """
    return f"{part}.safetensors" if count == 1 else f"{part}-{piece + 1:05d}-of-{count:05d}.safetensors"


class DamagedCheckpointError(Exception):
    """A checkpoint that is not what its manifest promises; says which file and why."""


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes ``manifest.json`` into the folder, which the caller makes durable."""
    kind = "divided" if manifest.pieces else "whole"
    body = {"format": CHECKPOINT_FORMATS[kind], **asdict(manifest)}
    if kind == "whole":
        # As checkpoints were before any was divided, which older versions read.
        del body["pieces"]
    text = exact_json.dumps({"body": body, "sha256": _body_sha256(body)}, indent=2)
    (folder / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")


def read_verified_manifest(folder: Path, *, share: slice = slice(None)) -> Manifest:
    """The manifest, when every file that it lists has its size and hash; else `DamagedCheckpointError`.
    ``share``: which of the files are looked at here."""
    manifest = _read_manifest(folder)
    for name, digest in [*manifest.files.items()][share]:
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
        more = {name: body[name] for name in ("step", "aliases", "written_by")}
        return Manifest(files=files, pieces=body.get("pieces", {}), **more)
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpointError(f"{MANIFEST_NAME} is not one that plaudit writes: {error!r}") from error


def _refuse_other_formats(folder: Path, body: object) -> None:
    format_number = body.get("format") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(format_number, int):
        raise DamagedCheckpointError(f"{MANIFEST_NAME} is not one that plaudit writes: it names no format")
    formats = CHECKPOINT_FORMATS.values()
    if format_number in formats:
        return
    version = body.get("written_by", "of an unknown version")
    # Not damage, so no falling back: going on from an older checkpoint would throw good steps away.
    is_newer = format_number > max(formats)
    advice = "update plaudit" if is_newer else "resume with the version that wrote it"
    raise UserError(
        f"{folder}: written by plaudit {version} in checkpoint format {format_number}; "
        f"this plaudit reads formats {min(formats)} to {max(formats)}. To go on: {advice}."
    )


def _body_sha256(body: object) -> str:
    return hashlib.sha256(exact_json.dumps(body).encode()).hexdigest()


Tensors = Mapping[str, Mapping[str, Tensor]]
TensorShapes = Mapping[str, Mapping[str, tuple[tuple[int, ...], str]]]
"""Each part's names with the shape and type that a tensor must have."""

_Key = tuple[str, str]
"""A part's name, and that of a tensor in it."""
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
    pieces: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """For each part of which this rank has only some rows: which piece that is, and of how many."""


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
    folder: Path, state: TrainState, *, keep: int = 3, best: int | None = None, ranks: Ranks | None = None
) -> SavedCheckpoint:
    """Writes the state to ``folder/step-<n>``, then deletes all but the newest ``keep`` and the ``best``.

    Returns when the disk has it. A fault (full disk, no permission) is a `UserError` and leaves every earlier
    checkpoint as it was. A step that is already there is replaced; steps beyond this one, which an earlier
    run left behind, are deleted, because the run now goes another way. All ``ranks`` come, each with the
    parts or pieces that it writes; the first one brings the facts.
    """
    ranks = single_process() if ranks is None else ranks
    _refuse_unstorable(state, keep)
    text = exact_json.dumps({"step": state.step, "facts": state.facts}, indent=1) + "\n"
    target = folder / f"step-{state.step:08d}"
    size = sum(tensor.nbytes for named in state.tensors.values() for tensor in named.values())
    needed = len(text) + int(sum(row[0] for row in ranks.all_gather([float(size)])))
    notes, total = (), 0
    with ExitStack() as stack:
        partial: list[str] = []
        if ranks.is_first:
            with atomic.disk_errors_explained(folder):
                # Without those above it: a run folder that somebody removed is missed, not made again.
                folder.mkdir(exist_ok=True)
            partial = [stack.enter_context(atomic.atomic_folder(target, needed=needed)).name]
        [name] = ranks.all_gather_strings(partial)
        manifest = _write_parts(
            folder / name, state, ranks, atomic.disk_errors_explained(target, needed=needed)
        )
        if ranks.is_first:
            _write_facts(folder / name, text, manifest)
    if ranks.is_first:
        atomic.write_text(folder / "latest", target.name + "\n")
        notes = prune_checkpoints(folder, keep=keep, best=best, current=state.step)
        total = sum(path.stat().st_size for path in target.iterdir())
    # Nobody is done before the first one is.
    total = int(ranks.all_gather([float(total)])[0][0])
    return SavedCheckpoint(path=target, bytes=total, notes=notes)


class CheckpointWriter:
    """Saves the checkpoints of a run, one after the other; in the background if it is told to.
    There the run goes on as soon as a copy of the state is made; memory holds one such copy, of what this
    rank writes. A fault is raised by the next call."""

    def __init__(self, ranks: Ranks, *, background: bool) -> None:
        self._ranks = ranks.with_separate_group() if background else ranks
        self._thread = ThreadPoolExecutor(1, "checkpoint") if background else None
        self._pending: Future[SavedCheckpoint] | None = None
        self._copies: dict[_Key, Tensor] = {}
        self._room: Future[None] | None = None

    def make_room(self, state: Callable[[], TrainState]) -> None:
        """Have the memory for copies made while the run goes on, once; it would take longer than copying."""
        if self._thread is not None and self._room is None:
            parts = state().tensors.items()
            wanted = {
                (part, name): (t.shape, t.dtype, t.is_cuda) for part, ts in parts for name, t in ts.items()
            }
            self._room = self._thread.submit(self._copies.update, _zeros(wanted))

    def save(self, folder: Path, state: TrainState, *, keep: int, best: int | None) -> tuple[str, ...]:
        """Save it, or begin to; what the user should hear of this one or the one before."""
        if self._thread is None:
            return save_checkpoint(folder, state, keep=keep, best=best, ranks=self._ranks).notes
        notes = self.finish()
        if self._room is not None:
            self._room.result()
        settings: Any = {"keep": keep, "best": best, "ranks": self._ranks}
        self._pending = self._thread.submit(save_checkpoint, folder, self._copied(state), **settings)
        return notes

    def finish(self, *, wait: bool = True) -> tuple[str, ...]:
        """The notes of a save that has ended, or is waited for; raises what it failed with."""
        if self._pending is None or not (wait or self._pending.done()):
            return ()
        pending, self._pending = self._pending, None
        return pending.result().notes

    def close(self) -> None:
        """Wait for the thread, whatever came of it, and let go of the copies."""
        if self._thread is not None:
            self._thread.shutdown()
        self._copies.clear()

    def _copied(self, state: TrainState) -> TrainState:
        copied: dict[str, dict[str, Tensor]] = {}
        for part, tensors in state.tensors.items():
            aliases = find_tied_tensors(part, tensors)
            copies = {name: self._copy((part, name), t) for name, t in tensors.items() if name not in aliases}
            copied[part] = copies | {name: copies[source] for name, source in aliases.items()}
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return replace(state, tensors=copied)

    def _copy(self, key: _Key, tensor: Tensor) -> Tensor:
        copy = self._copies.get(key)
        if copy is None or copy.shape != tensor.shape or copy.dtype != tensor.dtype:
            [(_, copy)] = _zeros({key: (tensor.shape, tensor.dtype, tensor.is_cuda)})
            self._copies[key] = copy
        return copy.copy_(tensor.detach(), non_blocking=True)


def _zeros(wanted: Mapping[_Key, tuple[torch.Size, torch.dtype, bool]]) -> Iterator[tuple[_Key, Tensor]]:
    for key, (shape, dtype, pinned) in wanted.items():
        # Filled, for memory that nobody has touched is only promised.
        yield key, torch.empty(shape, dtype=dtype, pin_memory=pinned).fill_(0)


def load_latest_checkpoint(
    folder: Path, *, expected: TensorShapes | None = None, ranks: Ranks | None = None
) -> LoadedCheckpoint | None:
    """The newest checkpoint that is whole and holds the ``expected`` tensors; None when there is none at all.
    Passing over a newer one is said in ``notes``. When there are checkpoints and none is good: `UserError`.
    All ``ranks`` come, and each looks at some of the files. Tensors are read when they are asked for."""
    ranks = single_process() if ranks is None else ranks
    # On a network file system another rank might not see the newest one yet: the first one's word counts.
    names = ranks.all_gather_strings([path.name for path in list_checkpoints(folder)] * ranks.is_first)
    notes: list[str] = []
    for path in (folder / name for name in reversed(names)):
        try:
            state = _load_verified(path, expected, ranks)
        except DamagedCheckpointError as error:
            notes.append(f"{path}: passed over: {error}")
        else:
            notes += _dangling_latest_note(folder, names) if ranks.is_first else ()
            return LoadedCheckpoint(state=state, path=path, notes=tuple(notes))
    if not names:
        return None
    raise UserError(
        f"{folder}: none of the {len(names)} checkpoints can be used:\n"
        + "".join(f"  {note}\n" for note in notes)
        + "To go on: restore one of these folders from a copy, or start another run with `--out` elsewhere."
    )


def load_checkpoint(path: Path, *, ranks: Ranks | None = None) -> TrainState:
    """One checkpoint, proven; `UserError` says what is wrong with it."""
    try:
        return _load_verified(path, None, single_process() if ranks is None else ranks)
    except DamagedCheckpointError as error:
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
    when there is none, nothing is deleted. Checkpoints newer than it go: the run does not continue them."""
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


def shape_mismatches(parts: Mapping[str, StoredPart], expected: TensorShapes) -> tuple[str, ...]:
    """How the tensors differ from what is expected, in the parts that ``expected`` names."""
    problems: list[str] = []
    for part, expected_part in expected.items():
        if part not in parts:
            problems.append(f"{part}: missing")
            continue
        kinds = {name: parts[part].kind(name) for name in parts[part]}
        present = {name: (shape, str(dtype)) for name, (shape, dtype) in kinds.items()}
        problems += [f"{part}: {name} is missing" for name in expected_part if name not in present]
        problems += [f"{part}: {name} is not expected" for name in present if name not in expected_part]
        problems += [
            f"{part}: {name} is {present[name][0]} {present[name][1]}, expected {shape} {dtype}"
            for name, (shape, dtype) in expected_part.items()
            if name in present and present[name] != (shape, dtype)
        ]
    return tuple(problems)


def _write_parts(
    partial: Path, state: TrainState, ranks: Ranks, errors_explained: AbstractContextManager[None]
) -> Manifest:
    files: dict[str, Mapping[str, Any]] = {}
    aliases: dict[str, Mapping[str, str]] = {}
    fault: Exception | None = None
    try:
        with errors_explained:
            for part, tensors in state.tensors.items():
                aliases[part] = find_tied_tensors(part, tensors)
                unshared = {name: tensor for name, tensor in tensors.items() if name not in aliases[part]}
                path = partial / part_file(part, *state.pieces.get(part, (0, 1)))
                sha256 = write_tensors(path, unshared)
                files[path.name] = {"bytes": path.stat().st_size, "sha256": sha256}
    except (UserError, OSError) as error:
        fault = error
    # All ranks hear of it and say the same; if one fell silent, the others would wait for it.
    faults = ranks.all_gather_strings([] if fault is None else [str(fault)])
    if faults:
        raise fault if isinstance(fault, OSError) else UserError(faults[0])
    pieces = {part: count for part, (_, count) in state.pieces.items()}
    for text in ranks.all_gather_strings([exact_json.dumps(files)]):
        files |= exact_json.loads(text)
    digests = {name: FileDigest(**digest) for name, digest in sorted(files.items())}
    version = plaudit.__version__
    return Manifest(step=state.step, files=digests, aliases=aliases, written_by=version, pieces=pieces)


def _write_facts(partial: Path, text: str, manifest: Manifest) -> None:
    path = partial / "state.json"
    path.write_text(text, encoding="utf-8")
    digest = FileDigest(bytes=path.stat().st_size, sha256=sha256_of(path))
    write_manifest(partial, replace(manifest, files={**manifest.files, path.name: digest}))


def _load_verified(path: Path, expected: TensorShapes | None, ranks: Ranks) -> TrainState:
    verified, problems = None, list[str]()
    try:
        verified = read_verified_manifest(path, share=slice(ranks.rank, None, ranks.world_size))
    except (DamagedCheckpointError, OSError) as error:
        where = f"rank {ranks.rank}: " if ranks.rank else ""
        problems.append(f"{where}{error}")
    if problems := ranks.all_gather_strings(problems):
        raise DamagedCheckpointError(problems[0])
    assert verified is not None, "or this rank had a problem"
    if _step_of(path) != verified.step:
        raise DamagedCheckpointError(f"the folder holds step {verified.step}: it was renamed")
    tensors = {
        part: StoredPart([path / name for name in verified.files_of(part)], aliases)
        for part, aliases in verified.aliases.items()
    }
    if mismatches := shape_mismatches(tensors, expected or {}):
        more = "" if len(mismatches) <= 5 else f"; and {len(mismatches) - 5} more"
        raise DamagedCheckpointError(
            f"its tensors are not those of this run: {'; '.join(mismatches[:5])}{more}"
        )
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


def _dangling_latest_note(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    hint = folder / "latest"
    name = hint.read_text(encoding="utf-8", errors="replace").strip() if hint.is_file() else ""
    return () if not name or name in names else (f"{hint}: names {name!r}, which is not there",)


def _step_of(path: Path) -> int:
    match = _STEP_FOLDER.fullmatch(path.name.removeprefix(".").removesuffix(".replaced"))
    if match is None:
        raise UserError(f"{path}: not a checkpoint: its name is not step-<number>. Choose a folder that is.")
    return int(match[1])
