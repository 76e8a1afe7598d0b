"""Writes that are whole or absent, whatever ends the process in between.

The bytes go to a temporary sibling, are forced to the disk (fsync), and only then take the final name in one
step (rename); the folder that holds the name is forced to the disk last. A fault leaves the previous state as
it was and removes what was half written; after a kill, `clear_leftovers` does so at the next start.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plaudit.errors import UserError
from plaudit.training import exact_json

_PARTIAL = re.compile(r"\..+\.[0-9a-f]{8}\.partial")
_SPOKEN = re.compile(r"\(os error (\d+)\)")
_REPLACED = re.compile(r"\.(.+)\.replaced")

_ADVICE = {
    errno.ENOSPC: ("the disk is full", "free some space, or choose a folder on another disk"),
    errno.EDQUOT: ("your disk quota is used up", "free some space, or choose a folder on another disk"),
    errno.EFBIG: ("the file would be larger than is allowed", "raise the limit (`ulimit -f`)"),
    errno.EROFS: ("the file system is read-only", "choose a folder that can be written"),
    errno.EACCES: ("permission denied", "make the folder writable for you, or choose another"),
    errno.EPERM: ("the operation is not permitted", "make the folder writable for you, or choose another"),
    errno.ENOTDIR: ("a part of this path is a file, not a folder", "choose another folder"),
    errno.EISDIR: ("a folder of this name is in the way", "move it away, or choose another folder"),
    errno.EEXIST: ("a file of this name is in the way", "move it away, or choose another folder"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
    errno.EIO: ("the disk reported an error", "check the disk, or choose a folder on another one"),
}


def write_text(path: Path, text: str) -> None:
    """Replaces the file by the text, in UTF-8: a reader sees the old content or the new, never a mixture."""
    data = text.encode()
    partial = _partial_of(path)
    with plain_words(path, needed=len(data)), _removed_on_failure(partial):
        with open(partial, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)


def write_json(path: Path, value: object) -> None:
    """Replaces the file by the value as exact, indented JSON."""
    write_text(path, exact_json.dumps(value, indent=2) + "\n")


def make_folder(path: Path) -> None:
    """Makes the folder and those above it where they are missing, and forces their names to the disk."""
    with plain_words(path):
        missing = [level for level in (path, *path.parents) if not level.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for level in missing:
            sync_folder(level.parent)


@contextmanager
def folder(target: Path, *, needed: int | None = None) -> Iterator[Path]:
    """A temporary folder to fill; it becomes ``target``, whole, when the block ends without a fault.

    A ``target`` that exists is replaced: it keeps a second name (`replaced_name`) until the new one is in
    place, so one of the two is there at every moment. ``needed`` (bytes) makes a full disk's message better.
    """
    partial = _partial_of(target)
    with plain_words(target, needed=needed), _removed_on_failure(partial):
        partial.mkdir()
        yield partial
        _sync_tree(partial)
        _put_in_place(partial, target)


def clear_leftovers(parent: Path) -> tuple[str, ...]:
    """Removes what a killed process left half written in this folder; says what it did.

    Only for the holder of the run's lock: what looks left over may be another process's work in progress.
    """
    notes: list[str] = []
    for path in sorted(parent.iterdir()):
        if _PARTIAL.fullmatch(path.name):
            notes += remove(path) or (f"{path}: left half written by a run that was killed; removed",)
        elif (match := _REPLACED.fullmatch(path.name)) and not (original := parent / match[1]).exists():
            with plain_words(original):
                os.rename(path, original)
                sync_folder(parent)
            notes.append(f"{original}: put back; a run was killed while it was being replaced")
        elif match:
            notes += remove(path)
    return tuple(notes)


def remove(path: Path) -> tuple[str, ...]:
    """Deletes a file or folder; a failure is returned as words, since nothing depends on the deletion.

    The path first takes a temporary name, so a kill half-way never leaves a torn folder under a good name.
    """
    doomed = path
    try:
        if not _PARTIAL.fullmatch(path.name):
            doomed = _partial_of(path)
            os.rename(path, doomed)
        if doomed.is_dir() and not doomed.is_symlink():
            shutil.rmtree(doomed)
        else:
            doomed.unlink()
    except OSError as error:
        return (f"{path}: could not be removed ({error.strerror or error}); it does no harm but takes space",)
    return ()


def replaced_name(target: Path) -> Path:
    """The second name of ``target`` while a new one takes its place."""
    return target.with_name(f".{target.name}.replaced")


@contextmanager
def plain_words(path: Path, *, needed: int | None = None) -> Iterator[None]:
    """Turns the faults of a disk under ``path`` into a `UserError`; other faults pass through as they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in _ADVICE or _is_elsewhere(error.filename, path):
            raise
        raise UserError(_explanation(error.errno, path, needed)) from error
    except Exception as error:
        # The writers of safetensors and tokenizers give the system's error number in their words only.
        spoken = _SPOKEN.search(str(error))
        if spoken is None or int(spoken[1]) not in _ADVICE or isinstance(error, UserError):
            raise
        raise UserError(_explanation(int(spoken[1]), path, needed)) from error


def sync_folder(path: Path) -> None:
    """Forces a folder's list of names to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder and say so with these two; they order renames
        # themselves, and a run there should not be impossible.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _is_elsewhere(filename: object, path: Path) -> bool:
    if not isinstance(filename, str):
        return False
    return not (Path(filename).is_relative_to(path.parent) or path.is_relative_to(filename))


def _explanation(code: int, path: Path, needed: int | None) -> str:
    what, advice = _ADVICE[code]
    room = f" ({_room(path, needed)})" if code in (errno.ENOSPC, errno.EDQUOT) else ""
    return (
        f"{path}: could not be written: {what}{room}. What was there before is unharmed. To go on: {advice}."
    )


def _room(path: Path, needed: int | None) -> str:
    existing = next(parent for parent in path.absolute().parents if parent.exists())
    status = os.statvfs(existing)
    free = f"{status.f_bavail * status.f_frsize:,} bytes are free"
    if status.f_files and not status.f_favail:
        free += ", but no further file can be made: the file system has no inode left"
    return free if needed is None else f"{needed:,} bytes are needed, {free}"


def _partial_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


@contextmanager
def _removed_on_failure(partial: Path) -> Iterator[None]:
    done = False
    try:
        yield
        done = True
    finally:
        if not done:
            # The fault itself is on its way to the user; what cannot be removed now goes at the next start.
            with suppress(FileNotFoundError, PermissionError):
                shutil.rmtree(partial) if partial.is_dir() else partial.unlink()


def _sync_tree(top: Path) -> None:
    for parent, _, names in os.walk(top, topdown=False):
        for name in names:
            with open(Path(parent, name), "rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(parent))


def _put_in_place(partial: Path, target: Path) -> None:
    aside = replaced_name(target) if target.exists() else None
    if aside is not None:
        if aside.exists():
            shutil.rmtree(aside)
        os.rename(target, aside)
    os.rename(partial, target)
    sync_folder(target.parent)
    if aside is not None:
        # The new folder is safe already: what cannot be removed now is removed, and said, at the next start.
        remove(aside)
