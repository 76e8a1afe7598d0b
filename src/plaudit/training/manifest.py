"""The list of what belongs to a checkpoint: each file's size and sha256, and the manifest's own.

The manifest's own hash has one rule for ever: the sha256 of its ``body`` as compact JSON. So a manifest of
any later format can be told from a damaged one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from plaudit.errors import UserError
from plaudit.training import exact_json
from plaudit.training.tensor_file import sha256_of

FORMAT = 1
"""The checkpoint format that this version writes and reads; raised when a reader would have to change."""
NAME = "manifest.json"
"""The manifest's file in a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What a file must be.

    Example: ``FileFacts(bytes=1024, sha256="9f86d081…")``
    """

    bytes: int
    """Its size."""
    sha256: str
    """Its content, as 64 hexadecimal digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint consists of.

    Example: ``Manifest(step=120, files={"state.json": FileFacts(...)}, aliases={}, written_by="0.1.0")``
    """

    step: int
    """After how many steps it was saved."""
    files: Mapping[str, FileFacts]
    """Every file of the folder but the manifest."""
    aliases: Mapping[str, Mapping[str, str]]
    """For each part, the names that share another name's tensor (tied weights), stored once."""
    written_by: str
    """The version of plaudit that wrote it."""


class DamagedError(Exception):
    """A checkpoint that is not what its manifest promises; says which file and why."""


def write(folder: Path, manifest: Manifest) -> None:
    """Writes ``manifest.json`` into the folder, which the caller makes durable."""
    body = {"format": FORMAT, **asdict(manifest)}
    text = exact_json.dumps({"body": body, "sha256": _hash(body)}, indent=2)
    (folder / NAME).write_text(text + "\n", encoding="utf-8")


def read_and_verify(folder: Path) -> Manifest:
    """The manifest, when every file that it lists has its size and hash; `DamagedError` otherwise."""
    manifest = _read(folder)
    for name, facts in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"{name} is missing")
        if (size := path.stat().st_size) != facts.bytes:
            raise DamagedError(f"{name} has {size:,} bytes, {facts.bytes:,} were written")
        if sha256_of(path) != facts.sha256:
            raise DamagedError(f"{name} has changed since it was written (its sha256 differs)")
    return manifest


def _read(folder: Path) -> Manifest:
    path = folder / NAME
    if not path.is_file():
        raise DamagedError(f"{NAME} is missing")
    try:
        content = exact_json.loads(path.read_bytes())
        body, promised = content["body"], content["sha256"]
        intact = _hash(body) == promised
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{NAME} cannot be read: {error}") from error
    if not intact:
        raise DamagedError(f"{NAME} has changed since it was written (its sha256 differs)")
    _refuse_other_formats(folder, body)
    try:
        files = {name: FileFacts(**facts) for name, facts in body["files"].items()}
        return Manifest(
            step=body["step"], files=files, aliases=body["aliases"], written_by=body["written_by"]
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{NAME} is not one that plaudit writes: {error!r}") from error


def _refuse_other_formats(folder: Path, body: object) -> None:
    written = body.get("format") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(written, int):
        raise DamagedError(f"{NAME} is not one that plaudit writes: it names no format")
    if written == FORMAT:
        return
    version = body.get("written_by", "of an unknown version")
    # Not damage, so no falling back: going on from an older checkpoint would throw good steps away.
    advice = "update plaudit" if written > FORMAT else "resume with the version that wrote it"
    raise UserError(
        f"{folder}: written by plaudit {version} in checkpoint format {written}; "
        f"this plaudit reads format {FORMAT}. To go on: {advice}."
    )


def _hash(body: object) -> str:
    return hashlib.sha256(exact_json.dumps(body).encode()).hexdigest()
