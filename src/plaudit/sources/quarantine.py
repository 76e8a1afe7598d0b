"""Bad rows go into a file of their own, with the reason beside each: nothing is silently dropped."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType

from plaudit.errors import UserError
from plaudit.sources.atomic import AtomicFile
from plaudit.sources.problems import Problem
from plaudit.sources.rows import RawRow


class Quarantine:
    """A JSONL file that appears, whole, when the reading ends and at least one row was bad."""

    def __init__(self, path: Path | None, source: Path | None = None) -> None:
        if path is not None and source is not None and path.resolve() == source.resolve():
            raise UserError(f"{path}: the quarantine file would replace the data; choose another name")
        self.path = path
        self._file: AtomicFile | None = None

    @property
    def used(self) -> Path | None:
        """Where the bad rows are; None when there are none, or nobody asked for the file."""
        return self.path if self._file is not None else None

    def put(self, row: RawRow, problem: Problem) -> None:
        """Set a row aside."""
        if self.path is None:
            return
        if self._file is None:
            self._file = AtomicFile(self.path)
        plain = {
            "origin": problem.origin,
            "kind": problem.kind,
            "field": problem.field,
            "reason": problem.sentence,
            "row": row.text,
        }
        self._file.stream.write(json.dumps(plain).encode("ascii") + b"\n")

    def __enter__(self) -> Quarantine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            # The bad rows are wanted most when the reading itself has failed.
            self._file.__exit__(None, None, None)
