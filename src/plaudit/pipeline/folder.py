"""The folder of a pipeline: where everything lies, and what a finished stage has left behind."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.pipeline.fingerprints import SMALL
from plaudit.pipeline.kinds import Kind
from plaudit.training import durable, exact_json
from plaudit.training.lineage import code_facts, hash_file

SEAL, BEGUN, LOG = "stage.json", "begun.json", "log.txt"
"""Files of a stage's folder: written when it has ended, when it begins, and while it runs."""
_PASSING = ("checkpoints", "lock", "report.html", SEAL, BEGUN, LOG)
_RESULTS = ("model", "adapter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Where a pipeline lies.

    Example: ``Folder(path=Path("runs/valley")).stage("sft")``
    """

    path: Path
    """Its folder, absolute."""

    @property
    def config(self) -> Path:
        """The pipeline as it runs again from anywhere."""
        return self.path / "pipeline.yaml"

    @property
    def summary(self) -> Path:
        """What came of it, in short."""
        return self.path / "summary.json"

    @property
    def earlier(self) -> Path:
        """Stages that were set aside because something above them changed."""
        return self.path / "earlier"

    def stage(self, name: str) -> Path:
        """The folder of a stage."""
        return self.path / "stages" / name

    def aside(self, name: str, key: str) -> Path:
        """Where the result of a stage with this key lies when it is set aside."""
        return self.earlier / f"{name}-{key[:12]}"

    def result(self, name: str, kind: Kind, wanted: str) -> Path:
        """What a stage gives to one that wants a model, rows or a reward."""
        here = self.stage(name)
        if kind.gives == "rows":
            return here / "rows.jsonl"
        if not kind.trains:
            return here
        return here / "run" if kind.gives == "reward" and wanted == "reward" else here / "run" / "model"


def read_seal(here: Path) -> dict[str, Any] | None:
    """What a finished stage has written of itself; None when it has not ended."""
    path = here / SEAL
    try:
        return exact_json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}); remove {here}, and the stage is made anew"
        ) from error


@cache
def code_now() -> Mapping[str, Any]:
    """The code of this process."""
    return code_facts()


def read_begun(here: Path) -> dict[str, Any]:
    """What a stage has written when it began; nothing where that was torn or is not there."""
    try:
        return exact_json.loads((here / BEGUN).read_bytes())
    except (OSError, ValueError):
        return {}


def outputs_of(here: Path) -> dict[str, str]:
    """Every file that a stage has made, with the sha256 of its content; what only serves a restart is not."""
    return {path.relative_to(here).as_posix(): hash_file(path) for path in _made(here)}


def stamps_of(here: Path, outputs: Mapping[str, str]) -> dict[str, list[int]]:
    """Size and time of the files that are too large to be read each time."""
    sizes = {name: (here / name).stat() for name in outputs}
    return {name: [one.st_size, one.st_mtime_ns] for name, one in sizes.items() if one.st_size >= SMALL}


def result_hash(kind: Kind, key: str, outputs: Mapping[str, str]) -> str:
    """What the stages below depend on: the content of the result, whatever its figures and times are.

    A combination is a file that names others, so it is known by all that went into it.
    """
    if kind.name == "combine":
        return key
    results = {name: digest for name, digest in outputs.items() if _is_result(name, kind)}
    return hashlib.sha256(exact_json.dumps(dict(sorted(results.items()))).encode()).hexdigest()


def refuse_changed(here: Path, seal: Mapping[str, Any]) -> None:
    """Complain about results that are not as the stage has left them."""
    for name, digest in seal["outputs"].items():
        path = here / name
        if not path.exists():
            what = "is gone"
        elif _is_as_left(path, digest, seal.get("stamps", {}).get(name)):
            continue
        else:
            what = "is not as the stage has left it"
        raise UserError(
            f"{path}: this file {what}, and other stages rest on it. Restore it; or make it anew with "
            f"--from {seal['name']}; rows of your own come in by a stage with do: rows"
        )


def set_aside(folder: Folder, name: str, key: str | None = None) -> None:
    """Move away what a stage has left; what had only begun is removed.

    A result of the very same ``key`` is being replaced, so it is not found again under that key.
    """
    here = folder.stage(name)
    seal = read_seal(here) if here.exists() else None
    if here.exists() and seal is None:
        durable.remove(here)
    if seal is not None:
        target = folder.aside(name, seal["key"])
        target = target.with_name(f"{target.name}-replaced") if seal["key"] == key else target
        durable.make_folder(folder.earlier)
        if target.exists():
            durable.remove(target)
        here.rename(target)


def take_back(folder: Folder, name: str, key: str) -> None:
    """Put a result that was set aside back in its place."""
    set_aside(folder, name)
    durable.make_folder(folder.stage(name).parent)
    folder.aside(name, key).rename(folder.stage(name))


def _is_as_left(path: Path, digest: str, stamp: list[int] | None) -> bool:
    found = path.stat()
    if stamp is not None and stamp == [found.st_size, found.st_mtime_ns]:
        return True
    return hash_file(path) == digest


def _is_result(name: str, kind: Kind) -> bool:
    """Whether a file is what others read, and not what is written about it."""
    parts = Path(name).parts
    if not kind.trains:
        return name == "rows.jsonl" or kind.gives == "evaluation"
    own = parts[0] == "run" and not {"rounds", "pretraining", "parts"} & set(parts)
    return own and (bool(set(_RESULTS) & set(parts)) or parts[-1] == "combined.json")


def _made(here: Path) -> Iterator[Path]:
    for path in sorted(here.iterdir()):
        if path.name in _PASSING or path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _made(path)
        else:
            yield path
