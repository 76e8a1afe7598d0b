"""A file that is there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from plaudit.errors import UserError


class AtomicFile:
    """Bytes that go to a temporary name beside the path, and to the path itself when all went well.

    As a context it keeps the file on a normal end and leaves nothing behind on an error; a full disk or a
    read-only folder is said as such.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            self.stream = self._temporary.open("wb")
        except OSError as error:
            raise self._unwritable(error) from error

    def keep(self) -> None:
        """Make the file appear under its own name, on the disk for good."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        self._temporary.replace(self.path)

    def drop(self) -> None:
        """Leave nothing behind."""
        self._temporary.unlink(missing_ok=True)
        try:
            self.stream.close()
        except OSError as error:
            raise self._unwritable(error) from error

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.keep()
        except OSError as fault:
            self.drop()
            raise self._unwritable(fault) from fault
        if isinstance(error, OSError):
            self.drop()
            raise self._unwritable(error) from error
        if error is not None:
            self.drop()

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(
            f"{self.path}: cannot be written ({error.strerror}); choose another place or make room"
        )
