"""Writes that are whole or absent, whatever ends the process in between.

The bytes go to a temporary sibling, are forced to the disk (fsync), and only then take the final name in one
step (rename); the folder that holds the name is forced to the disk last. A fault leaves the previous state as
it was and removes what was half written; after a kill, `remove_leftovers` does so at the next start.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plaudit.errors import UserError
from plaudit.files import exact_json


class AtomicFile:
    """Bytes that go to a temporary name beside the path, and to the path itself when all went well.
    As a context it keeps the file on a normal end and leaves nothing behind on an error; a full disk or a
    read-only folder is said as such. Without ``sync`` nothing waits for the disk, and a power cut may leave
    an empty file: for what can be made again. ``needed`` (bytes) makes a full disk's message better."""

    def __init__(self, path: Path, *, sync: bool = True, needed: int | None = None) -> None:
        self.path, self._sync, self._needed = path, sync, needed
        with disk_errors_explained(path, needed=needed):
            self._temporary, descriptor = _locked_partial(path)
        self.stream = os.fdopen(descriptor, "wb")

    def commit(self) -> None:
        """Give the file its own name, forced to the disk; called when all bytes are in it."""
        self.stream.flush()
        # Before the rename: after a power cut the name could else point to bytes that were never written.
        if self._sync:
            os.fsync(self.stream.fileno())
        self._temporary.replace(self.path)
        self.stream.close()
        if self._sync:
            sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove the temporary file; called when the writing failed."""
        # Unlinked before it is closed: closing may fail on a full disk, and the file has to go all the same.
        self._temporary.unlink(missing_ok=True)
        with disk_errors_explained(self.path, needed=self._needed):
            self.stream.close()

    def __enter__(self) -> "AtomicFile":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with disk_errors_explained(self.path, needed=self._needed):
            try:
                if error is not None:
                    raise error
                self.commit()
            except BaseException:
                self.discard()
                raise


_PARTIAL_NAME = re.compile(r"\..+\.[0-9a-f]{8}\.partial")
_NO_INODES = "remove files that nobody needs, of any size, or choose a folder on another disk"
_OS_ERROR_NUMBER = re.compile(r"\(os error (\d+)\)")
_REPLACED_NAME = re.compile(r"\.(.+)\.replaced")

_ERROR_ADVICE = {
    errno.ENOSPC: ("the disk is full", "free some space, or choose a folder on another disk"),
    errno.EDQUOT: ("your disk quota is used up", "free some space, or choose a folder on another disk"),
    errno.EFBIG: ("the file would be larger than is allowed", "raise the limit (`ulimit -f`)"),
    errno.ENOENT: ("there is no such file or folder", "look whether it was removed, or choose another"),
    errno.EROFS: ("the file system is read-only", "choose a folder that can be written"),
    errno.EACCES: ("permission denied", "make the folder writable for you, or choose another"),
    errno.EPERM: ("the operation is not permitted", "make the folder writable for you, or choose another"),
    errno.ENOTDIR: ("a part of this path is a file, not a folder", "choose another folder"),
    errno.EISDIR: ("a folder of this name is in the way", "move it away, or choose another folder"),
    errno.EEXIST: ("a file of this name is in the way", "move it away, or choose another folder"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
    errno.ELOOP: ("links lead round in a circle", "choose another folder"),
    errno.EIO: ("the disk reported an error", "check the disk, or choose a folder on another one"),
}


def write_text(path: Path, text: str) -> None:
    """Replaces the file by the text, in UTF-8: a reader sees the old content or the new, never a mixture."""
    data = text.encode()
    with AtomicFile(path, needed=len(data)) as file:
        file.stream.write(data)


def write_json(path: Path, value: object) -> None:
    """Replaces the file by the value as exact, indented JSON."""
    write_text(path, exact_json.dumps(value, indent=2) + "\n")


def make_folder(path: Path) -> None:
    with disk_errors_explained(path):
        # Asked before they are made: only a new folder's name is missing from its parent on the disk.
        missing = [level for level in (path, *path.parents) if not level.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for level in missing:
            sync_folder(level.parent)


@contextmanager
def atomic_folder(target: Path, *, needed: int | None = None) -> Iterator[Path]:
    """A temporary folder to fill; it becomes ``target``, whole, when the block ends without a fault.
    A ``target`` that exists is replaced: it keeps a second name (`replaced_name`) until the new one is in
    place, so one of the two is there at every moment. ``needed`` (bytes) makes a full disk's message
    better."""
    with disk_errors_explained(target, needed=needed):
        partial, descriptor = _locked_partial(target, folder=True)
        try:
            yield partial
            _sync_tree(partial)
            _swap_into_place(partial, target)
        except BaseException:
            # The fault itself is on its way to the user; what cannot be removed now goes at the next start.
            with suppress(FileNotFoundError, PermissionError):
                shutil.rmtree(partial)
            raise
        finally:
            os.close(descriptor)


def remove_leftovers(parent: Path) -> tuple[str, ...]:
    """Removes what a killed process left half written in this folder; says what it did.
    Only for the holder of the run's lock: what looks left over may be another process's work in progress."""
    notes: list[str] = []
    for path in sorted(parent.iterdir()):
        if _PARTIAL_NAME.fullmatch(path.name):
            notes += remove_path(path) or (f"{path}: left half written by a run that was killed; removed",)
        # Killed between the two renames of `_swap_into_place`: the old content is whole and gets its name.
        elif (match := _REPLACED_NAME.fullmatch(path.name)) and not (original := parent / match[1]).exists():
            with disk_errors_explained(original):
                os.rename(path, original)
                sync_folder(parent)
            notes.append(f"{original}: put back; a run was killed while it was being replaced")
        elif match:
            notes += remove_path(path)
    return tuple(notes)


def remove_path(path: Path) -> tuple[str, ...]:
    """Deletes a file or folder; a failure is returned as words, since nothing depends on the deletion.
    The path first takes a temporary name, so a kill half-way never leaves a torn folder under a good name."""
    temporary = path
    try:
        if not _PARTIAL_NAME.fullmatch(path.name):
            temporary = _partial_path(path)
            os.rename(path, temporary)
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary)
        else:
            temporary.unlink()
    except OSError as error:
        return (f"{path}: could not be removed ({error.strerror or error}); it does no harm but takes space",)
    return ()


def replaced_name(target: Path) -> Path:
    """The second name of ``target`` while a new one takes its place."""
    return target.with_name(f".{target.name}.replaced")


@contextmanager
def disk_errors_explained(path: Path, *, needed: int | None = None) -> Iterator[None]:
    """Within the block, disk errors under ``path`` become a `UserError` with advice; others pass through."""
    try:
        yield
    except OSError as error:
        if error.errno not in _ERROR_ADVICE or _is_unrelated_path(error.filename, path):
            raise
        raise UserError(_disk_error_message(error.errno, path, needed)) from error
    except Exception as error:
        # The writers of safetensors and tokenizers give the system's error number in their words only.
        match = _OS_ERROR_NUMBER.search(str(error))
        if match is None or int(match[1]) not in _ERROR_ADVICE or isinstance(error, UserError):
            raise
        raise UserError(_disk_error_message(int(match[1]), path, needed)) from error


def explain_disk_error(error: OSError | RuntimeError) -> str | None:
    """What the system says against a path, in words and with advice; None where it is of no known kind.

    >>> explain_disk_error(OSError(errno.EROFS, "", "/proc/x"))
    '/proc/x: the file system is read-only. To go on: choose a folder that can be written.'
    """
    if isinstance(error, RuntimeError):
        # How `Path.resolve` says ELOOP before Python 3.13.
        _, is_loop, name = str(error).partition("Symlink loop from ")
        code, name = (errno.ELOOP if is_loop else None), name.strip("'")
    else:
        code, name = error.errno, str(error.filename or "")
    if code not in _ERROR_ADVICE or not name:
        return None
    problem, advice = _ERROR_ADVICE[code]
    if code in (errno.EACCES, errno.EPERM):
        # Whether it was to be read or written nobody says.
        advice = "change its permissions, or choose another"
    shown = name if len(name) <= 200 else f"{name[:200]}…"
    return f"{shown}: {problem}. To go on: {advice}."


def sync_folder(path: Path) -> None:
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


def _is_unrelated_path(filename: object, path: Path) -> bool:
    if not isinstance(filename, str):
        return False
    return not (Path(filename).is_relative_to(path.parent) or path.is_relative_to(filename))


def _disk_error_message(code: int, path: Path, needed: int | None) -> str:
    problem, advice = _ERROR_ADVICE[code]
    room = ""
    if code in (errno.ENOSPC, errno.EDQUOT):
        # The folder that could not be made has no file system of its own: the nearest one above it is asked.
        status = os.statvfs(next(parent for parent in path.absolute().parents if parent.exists()))
        # f_bavail and not f_bfree: a part of the free blocks is kept for root.
        free = f"{status.f_bavail * status.f_frsize:,} bytes are free"
        room = f" ({free})" if needed is None else f" ({needed:,} bytes are needed, {free})"
        if status.f_files and not status.f_favail:
            problem, advice = "the file system has no inode left for another file", _NO_INODES
    return (
        f"{path}: could not be written: {problem}{room}. What was there before is unharmed. To go on: "
        f"{advice}."
    )


def _locked_partial(path: Path, *, folder: bool = False) -> tuple[Path, int]:
    """A new file or folder beside the path, and its descriptor, locked while its writer lives."""
    # What writers of the same path left that are dead is removed.
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.partial")
    for entry in [*os.scandir(path.parent)]:
        if name.fullmatch(entry.name):
            _remove_abandoned(Path(entry))
    while True:
        partial = _partial_path(path)
        if folder:
            # Without parents: a mistyped path should fail here and not grow a tree.
            partial.mkdir()
        # Exclusive: should eight random digits ever repeat, two writers must not share a file.
        flags = os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(partial, flags, 0o666)
        except FileNotFoundError:
            # As below: a new folder was taken for an abandoned one.
            if folder:
                continue
            raise
        # Some network file systems have no locks; what is left over there stays.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Before it was locked another writer may have taken it for an abandoned one.
        if partial.exists():
            return partial, descriptor
        os.close(descriptor)


def _remove_abandoned(partial: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_path(partial)
        finally:
            os.close(descriptor)


def _partial_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


def _sync_tree(top: Path) -> None:
    # From the bottom up: a folder's list of names is forced out after what it names.
    for parent, _, names in os.walk(top, topdown=False):
        for name in names:
            # Written by libraries that do not sync; fsync of a descriptor that only reads flushes it as well.
            with open(Path(parent, name), "rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(parent))


def _swap_into_place(partial: Path, target: Path) -> None:
    replaced = replaced_name(target) if target.exists() else None
    if replaced is not None:
        if replaced.exists():
            shutil.rmtree(replaced)
        # rename() does not replace a folder that holds anything, so the old one steps aside first.
        os.rename(target, replaced)
    os.rename(partial, target)
    sync_folder(target.parent)
    if replaced is not None:
        # The new folder is safe already: what cannot be removed now is removed, and said, at the next start.
        remove_path(replaced)


def make_output_folder(out: Path) -> None:
    """Makes the folder for results, or raises `UserError` before any model is loaded."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: no folder can be made there ({error.strerror})") from error
