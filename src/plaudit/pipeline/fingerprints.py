"""The content of files and folders by its hash; what is large is read again only when it looks changed."""

from __future__ import annotations

from pathlib import Path

from plaudit.training import durable, exact_json
from plaudit.training.lineage import hash_file, hash_path

SMALL = 64 * 2**20
"""Files below this size are read each time."""


class Fingerprints:
    """Hashes of paths, with the large ones kept in a file between two commands."""

    def __init__(self, file: Path) -> None:
        """``file`` is where large ones are kept; a torn or missing one costs time, nothing else."""
        self._file = file
        self._once: dict[Path, str] = {}
        try:
            self._known: dict[str, list[object]] = exact_json.loads(file.read_bytes())
        except (OSError, ValueError):
            self._known = {}

    def of(self, path: Path) -> str:
        """The hash of a file's or a folder's content; of the same path the same in one command."""
        whole = path.resolve()
        if whole not in self._once:
            self._once[whole] = hash_path(whole, self._of_file)
        return self._once[whole]

    def _of_file(self, path: Path) -> str:
        found = path.stat()
        if found.st_size < SMALL:
            return hash_file(path)
        stamp: list[object] = [found.st_size, found.st_mtime_ns]
        known = self._known.get(str(path), [])
        if known[:2] != stamp:
            self._known[str(path)] = known = [*stamp, hash_file(path)]
            durable.make_folder(self._file.parent)
            durable.write_json(self._file, self._known)
        return str(known[2])
