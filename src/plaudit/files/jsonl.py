"""A file of JSON lines that only grows: metrics and samples, one line a step.

A line reaches the operating system in one write, so a killed process loses none that it reported; `sync`
forces them to the disk, which a trainer does before each checkpoint: then no line of a saved step is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from plaudit.errors import UserError
from plaudit.files import atomic, exact_json

JsonlRecord = Mapping[str, Any]
"""One line of JSON, as a mapping."""


class JsonlFile:
    """An open file of JSON lines.

    Example: ``JsonlFile(run.metrics, keep=lambda record: record["step"] <= 120)`` on a resume at step 120.
    """

    notes: tuple[str, ...]
    """What opening the file had to drop, in words."""

    def __init__(self, path: Path, *, keep: Callable[[JsonlRecord], bool] | None = None) -> None:
        """Opens the file to append; ``keep`` and a torn last line are treated as in `truncate_after`."""
        self._path = path
        with atomic.disk_errors_explained(path):
            # A bare descriptor: Python's buffer would hold lines back
            # that a killed process has already reported.
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            # A new file's name has to reach the disk too, or its
            # synced lines have no place after a power cut.
            atomic.sync_folder(path.parent)
            self.notes = truncate_after(path, keep or _keep_all)
        # Ctrl-C as well: the descriptor is owned by nobody yet.
        except BaseException:
            self.close()
            raise

    def append(self, record: JsonlRecord, *, sync_now: bool = False) -> None:
        """Adds one line; ``sync_now`` waits until the disk has it."""
        data = exact_json.dumps(record).encode() + b"\n"
        # Where to cut back to: half a line would be read as torn, with a good one glued to it.
        size_before = os.fstat(self._descriptor).st_size
        with atomic.disk_errors_explained(self._path, needed=len(data)):
            try:
                bytes_out = os.write(self._descriptor, data)
                # write() may take a part only, as near a full disk or a quota.
                while bytes_out < len(data):
                    bytes_out += os.write(self._descriptor, data[bytes_out:])
            except BaseException:
                os.ftruncate(self._descriptor, size_before)
                raise
        if sync_now:
            self.sync()

    def sync(self) -> None:
        """Waits until the disk has every line."""
        with atomic.disk_errors_explained(self._path):
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Closes the file; the lines stay."""
        os.close(self._descriptor)

    def __enter__(self) -> JsonlFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def truncate_after(path: Path, keep: Callable[[JsonlRecord], bool]) -> tuple[str, ...]:
    """Cuts the file before the first line that ``keep`` refuses; a torn last line goes too. Says what went.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     lines = Path(parent, "m.jsonl")
    ...     _ = lines.write_text('{"step": 1}\\n{"step": 2}\\n')
    ...     _ = truncate_after(lines, lambda record: record["step"] < 2)
    ...     lines.read_text()
    '{"step": 1}\\n'
    """
    end, whole, notes = 0, True, list[str]()
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            record = _parse_line(line)
            if record is None:
                whole = False
                notes.append(
                    f"{path}:{number}: the line is torn (the run was killed while writing it); dropped"
                )
            # Only the last line can be torn by a kill; a bad one with good ones behind it was edited.
            elif not whole:
                raise UserError(
                    f"{path}:{number - 1}: not a line of JSON, though good lines follow: something other "
                    "than plaudit changed the file. Repair or delete that line and start again."
                )
            elif not keep(record):
                notes.append(f"{path}: lines from {number} on belong to steps that will run again; dropped")
                break
            else:
                end += len(line)
    if notes:
        _truncate(path, end)
    return tuple(notes)


def _keep_all(record: JsonlRecord) -> bool:
    return True


def _parse_line(line: bytes) -> JsonlRecord | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record = exact_json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, Mapping) else None


def _truncate(path: Path, end: int) -> None:
    with atomic.disk_errors_explained(path), open(path, "r+b") as file:
        file.truncate(end)
        os.fsync(file.fileno())
