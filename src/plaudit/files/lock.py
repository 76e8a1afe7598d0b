"""One run at a time in one folder: a lock that the system takes back however its process ends.

Both the folder itself and a file in it are locked. The file names the holder; the folder keeps a second run
out also where somebody deleted the file.
"""

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
_CANNOT_LOCK = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    pid: int
    host: str
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.started}"


class HeldLock:
    """The lock of a folder, while a process holds it.
    Example: ``with hold_lock(Path("runs/first")) as held: held.verify()``."""

    previous: LockHolder | None
    """The previous holder, where it was killed or failed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        with atomic.disk_errors_explained(self._path):
            self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._file = -1
        try:
            self._file = _open_locked(self._path)
            self.previous = _read_holder(self._file)
            try:
                fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise _in_use(self._path, "somebody has deleted the file that names it") from error
            except OSError as error:
                # Network file systems may lock only what is open for writing, which no folder can be.
                if error.errno not in (*_CANNOT_LOCK, errno.EBADF, errno.EISDIR, errno.EINVAL):
                    raise
            self._write_holder()
        except BaseException:
            self.close()
            raise

    def verify(self) -> tuple[str, ...]:
        """Raise where the folder is no longer the one that was locked; put back a lock file that is gone."""
        folder = self._path.parent
        if not _is_at(self._folder, folder):
            raise UserError(
                f"{folder}: the folder was removed, or another was put in its place, while the run was "
                "running; nothing more can be kept there. To go on: put it back, and the same command goes "
                "on from its newest checkpoint; or start again."
            )
        if _is_at(self._file, self._path):
            return ()
        # Nobody else holds it: the folder is locked. Where a file system locks files alone, this finds the
        # run that took the deleted file's place, before both have written here.
        file = _open_locked(self._path)
        os.close(self._file)
        self._file = file
        self._write_holder()
        return (f"{self._path}: deleted or replaced while the run was running; put back",)

    def mark_ended_well(self) -> None:
        """An empty file says to the next start that there is nothing to tell."""
        os.ftruncate(self._file, 0)

    def close(self) -> None:
        # The folder first: whoever gets the file must find it free.
        os.close(self._folder)
        if self._file >= 0:
            os.close(self._file)

    def _write_holder(self) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        holder = LockHolder(pid=os.getpid(), host=socket.gethostname(), started=now)
        with atomic.disk_errors_explained(self._path):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(asdict(holder)).encode(), 0)


@contextmanager
def hold_lock(folder: Path) -> Iterator[HeldLock]:
    """Holds the folder's lock. The lock file stays when the lock is released (deleting it would let two
    processes each lock their own); an empty one says that its last run ended in good order."""
    held = HeldLock(folder)
    try:
        try:
            # Until the block ends well the file names this process: the start after a crash reads it.
            yield held
        except UserError:
            # Said in full by the run itself; the next start has nothing to add.
            held.mark_ended_well()
            raise
        except Exception:
            # Nothing is swallowed; where the folder is gone, that is why it failed, whatever it was.
            held.verify()
            raise
        held.mark_ended_well()
    finally:
        held.close()


def _is_at(descriptor: int, path: Path) -> bool:
    return path.exists() and os.path.samestat(os.fstat(descriptor), path.stat())


def _open_locked(path: Path) -> int:
    with atomic.disk_errors_explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _acquire(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _acquire(descriptor: int, path: Path) -> None:
    try:
        # flock and not a file's existence: the kernel lets go when the process dies, however it dies.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _in_use(path, _describe_holder(_read_holder(descriptor))) from error
    except OSError as error:
        if error.errno not in _CANNOT_LOCK:
            raise
        raise UserError(
            f"{path}: this file system cannot lock files ({error.strerror}), so two runs could spoil each "
            "other. Choose a folder on another file system."
        ) from error


def _in_use(path: Path, by: str) -> UserError:
    return UserError(
        f"{path.parent}: another run is using this folder ({by}). "
        "Wait until it ends, stop it, or choose another folder with `--out`."
    )


def _describe_holder(holder: LockHolder | None) -> str:
    if holder is None:
        return "it is just starting"
    # A forked worker inherits the descriptor and with it the lock, and may outlive the process that is named.
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
