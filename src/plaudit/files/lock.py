"""One run at a time in one folder: a lock that the system takes back however its process ends."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from plaudit.errors import UserError
from plaudit.files import atomic

LOCK_NAME = "lock"
"""The lock's file in a run folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """Who holds the lock.

    Example: ``LockHolder(pid=4711, host="anna-laptop", started="2026-03-01T12:00:00+00:00")``
    """

    pid: int
    """The id of the process that holds the lock."""
    host: str
    """The machine that it runs on."""
    started: str
    """When it took the lock, in UTC."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.started}"


@contextmanager
def hold_lock(folder: Path) -> Iterator[LockHolder | None]:
    """Holds the folder's lock; gives the previous holder if it was killed or failed.

    The lock file stays when the lock is released (deleting it would let two processes each lock their own);
    an empty one says that its last run ended in good order.
    """
    path = folder / LOCK_NAME
    with atomic.disk_errors_explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _acquire(descriptor, path)
        previous = _read_holder(descriptor)
        _write_holder(
            descriptor, path, LockHolder(pid=os.getpid(), host=socket.gethostname(), started=_utc_now())
        )
        try:
            # Until the block ends well the file names this process: after a
            # kill or a crash the next start reads it.
            yield previous
        except UserError:
            # Said in full by the run itself; the next start has nothing to add.
            os.ftruncate(descriptor, 0)
            raise
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path) -> None:
    try:
        # flock and not a file's existence: the kernel lets go when the process dies, however it dies.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(
            f"{path.parent}: another run is using this folder "
            f"({_describe_holder(_read_holder(descriptor))}). "
            "Wait until it ends, stop it, or choose another folder with `--out`."
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        raise UserError(
            f"{path}: this file system cannot lock files ({error.strerror}), so two runs could spoil each "
            "other. Choose a folder on another file system."
        ) from error


def _describe_holder(holder: LockHolder | None) -> str:
    if holder is None:
        return "it is just starting"
    # A forked worker inherits the descriptor and with it the
    # lock, and may outlive the process that is named.
    if holder.host == socket.gethostname() and not _is_alive(holder.pid):
        return f"{holder}; that process has ended, but one that it started still runs and holds the lock"
    return str(holder)


def _is_alive(pid: int) -> bool:
    try:
        # Signal 0 only asks; "not permitted" means that the process lives and belongs to somebody else.
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read_holder(descriptor: int) -> LockHolder | None:
    text = os.pread(descriptor, 4096, 0)
    try:
        return LockHolder(**json.loads(text))
    except (ValueError, TypeError):
        # Empty after a good end; torn when the holder was killed within the one write below.
        return None


def _write_holder(descriptor: int, path: Path, holder: LockHolder) -> None:
    with atomic.disk_errors_explained(path):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(holder)).encode(), 0)


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
