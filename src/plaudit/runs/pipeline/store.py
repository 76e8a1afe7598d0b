"""The folder of a pipeline: where everything lies, and what a finished stage has left behind."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from plaudit.engine.run_folder import code_version, hash_file, hash_path
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json
from plaudit.runs.pipeline.kinds import StageKind

MANIFEST_FILE, START_FILE, LOG_FILE = "stage.json", "begun.json", "log.txt"
"""Files of a stage's folder: written when it has ended, when it begins, and while it runs."""
WAIT_FILE = "waits.json"
"""In the folder of a stage that waits for people: what is missing, as `Wait.facts` has it."""
HUB_FILE = "hub.json"
"""In the folder of a pipeline: what its words meant on the hub when it began, commits and all."""
LABELS_FILE = "labels.db"
"""In the folder of a pipeline: the label store of stages that ask people and name none."""
_EXCLUDED_OUTPUTS = ("checkpoints", "lock", "report.html", MANIFEST_FILE, START_FILE, LOG_FILE, WAIT_FILE)
"""What serves a restart or a reader only: it is no part of a result."""
SMALL_FILE_BYTES = 64 * 2**20
"""Files below this size are read each time."""

running_code_version = cache(code_version)
"""The version of the code of this process: package version, commit, changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFolder:
    """The folder of a pipeline: its config, its stages, and results that were set aside.

    Example: ``PipelineFolder(path=Path("runs/valley")).stage("sft")``
    """

    path: Path
    """Where it lies, as an absolute path."""

    @property
    def config(self) -> Path:
        """The pipeline as it runs again from anywhere."""
        return self.path / "pipeline.yaml"

    @property
    def labels(self) -> Path:
        """The label store of stages that ask people and name none; not every pipeline has it."""
        return self.path / LABELS_FILE

    def stage(self, name: str) -> Path:
        """The folder of a stage: ``stages/NAME``."""
        return self.path / "stages" / name

    def set_aside_path(self, name: str, key: str) -> Path:
        """Where the result of a stage with this key lies after something above it has changed."""
        return self.path / "earlier" / f"{name}-{key[:12]}"

    def result(self, name: str, kind: StageKind, result_type: str) -> Path:
        """What a stage gives to one that wants a model, rows or a reward."""
        folder = self.stage(name)
        if not kind.trains:
            return folder / "rows.jsonl" if kind.produces == "rows" else folder
        # An ensemble has its combined.json in the folder of the run, beside its members.
        return folder / "run" if kind.produces == result_type == "reward" else folder / "run" / "model"


def read_hub_names(folder: Path) -> dict[str, str]:
    """The commits of the hub that the pipeline in this folder began with; nothing before it began."""
    path = folder / HUB_FILE
    try:
        return {str(word): str(name) for word, name in exact_json.loads(path.read_bytes()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}); remove it, and names are looked up on the hub anew"
        ) from error


def read_manifest(stage_folder: Path) -> dict[str, Any] | None:
    """The manifest of a finished stage, from its stage.json; None before the stage has ended."""
    path = stage_folder / MANIFEST_FILE
    try:
        return exact_json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}); remove {stage_folder}, and the stage is made anew"
        ) from error


def read_start_file(stage_folder: Path) -> dict[str, Any]:
    try:
        return exact_json.loads((stage_folder / START_FILE).read_bytes())
    except (OSError, ValueError):
        return {}


def output_hashes(stage_folder: Path) -> dict[str, str]:
    files = _output_files(stage_folder)
    return {path.relative_to(stage_folder).as_posix(): hash_file(path) for path in files}


def _output_files(parent: Path) -> Iterator[Path]:
    for path in sorted(parent.iterdir()):
        if path.name not in _EXCLUDED_OUTPUTS and not path.name.startswith("."):
            yield from _output_files(path) if path.is_dir() else (path,)


def result_hash(kind: StageKind, key: str, outputs: Mapping[str, str]) -> str:
    """What the stages below depend on: the content of the result, whatever its figures and times are.
    A combination is a file that names others, so it is known by all that went into it."""
    if kind.name == "combine":
        return key
    results = {name: digest for name, digest in sorted(outputs.items()) if _is_result(name, kind)}
    return hashlib.sha256(exact_json.dumps(results).encode()).hexdigest()


def _is_result(name: str, kind: StageKind) -> bool:
    # Whether a file is what others read, and not what is written about it.
    if not kind.trains:
        return name == "rows.jsonl" or kind.produces == "evaluation"
    parts = set(Path(name).parts)
    is_in_run = name.startswith("run/") and not {"rounds", "pretraining", "parts"} & parts
    return is_in_run and (bool({"model", "adapter"} & parts) or Path(name).name == "combined.json")


def refuse_changed_outputs(
    stage_folder: Path, manifest: Mapping[str, Any], fingerprints: Fingerprints
) -> None:
    for name, digest in manifest["outputs"].items():
        path = stage_folder / name
        if path.exists() and fingerprints.hash_file(path) == digest:
            continue
        fault = "is not as the stage has left it" if path.exists() else "is gone"
        raise UserError(
            f"{path}: this file {fault}, and other stages rest on it. Restore it; or make it anew with "
            f"--from {manifest['name']}; rows of your own come in by a stage with do: rows"
        )


def set_aside(folder: PipelineFolder, name: str, key: str | None = None) -> None:
    """Move away what a stage has left; what had only begun is removed.
    A result of the very same ``key`` is being replaced, so it is not found again under that key."""
    stage_folder, manifest = folder.stage(name), read_manifest(folder.stage(name))
    if manifest is None:
        atomic.remove_path(stage_folder)
        return
    target = folder.set_aside_path(name, manifest["key"])
    target = target.with_name(f"{target.name}-replaced") if manifest["key"] == key else target
    atomic.make_folder(target.parent)
    atomic.remove_path(target)
    stage_folder.rename(target)


def restore_stage(folder: PipelineFolder, name: str, key: str) -> None:
    set_aside(folder, name)
    atomic.make_folder(folder.stage(name).parent)
    folder.set_aside_path(name, key).rename(folder.stage(name))


class Fingerprints:
    """Content hashes of files and folders; those of large files are stored between two commands."""

    def __init__(self, file: Path) -> None:
        """``file`` is where large ones are kept; a torn or missing one costs time, nothing else."""
        self._file = file
        self._hashes: dict[Path, str] = {}
        try:
            self._stored: dict[str, list[object]] = exact_json.loads(file.read_bytes())
        except (OSError, ValueError):
            self._stored = {}

    def hash_of(self, path: Path) -> str:
        """The hash of a file's or a folder's content; of the same path the same in one command."""
        # Resolved, so that two links to one 50 GB folder are hashed once.
        resolved = path.resolve()
        if resolved not in self._hashes:
            self._hashes[resolved] = hash_path(resolved, self.hash_file)
        return self._hashes[resolved]

    def hash_file(self, path: Path) -> str:
        """The hash of a file as it is now; of a large one, if its size and its time are others."""
        stat = path.stat()
        if stat.st_size < SMALL_FILE_BYTES:
            return hash_file(path)
        # Size and time stand for the content of a large file: reading
        # 50 GB at every command would take minutes.
        stamp: list[object] = [stat.st_size, stat.st_mtime_ns]
        entry = self._stored.get(str(path), [])
        if entry[:2] != stamp:
            self._stored[str(path)] = entry = [*stamp, hash_file(path)]
            atomic.make_folder(self._file.parent)
            atomic.write_json(self._file, self._stored)
        return str(entry[2])
