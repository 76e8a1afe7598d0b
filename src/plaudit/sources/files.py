"""Where rows come from: a file by its ending, a folder of ``datasets``, or an object from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from plaudit.errors import UserError
from plaudit.sources.jsonl import json_rows, jsonl_rows
from plaudit.sources.rows import ROW_LIMIT, RawRow
from plaudit.sources.tables import csv_rows, folder_rows, object_rows, parquet_rows

Source = str | Path | Iterable[object]
"""A path, a ``datasets`` object, or any iterable of dicts."""

ENDINGS: Mapping[str, Callable[[Path, int], Iterator[RawRow]]] = {
    ".jsonl": jsonl_rows,
    ".jsonl.gz": jsonl_rows,
    ".json": json_rows,
    ".json.gz": json_rows,
    ".csv": csv_rows,
    ".tsv": csv_rows,
    ".parquet": parquet_rows,
}
"""The files that can be read."""


def raw_rows(source: Source, *, split: str | None = None, limit: int = ROW_LIMIT) -> Iterator[RawRow]:
    """The rows of a source, one at a time; what cannot be read is a row with a problem.

    >>> [row.origin for row in raw_rows([{"prompt": "Hi"}, {"prompt": "Ho"}])]
    ['rows:1', 'rows:2']
    """
    if not isinstance(source, str | Path):
        return object_rows(source, name_of(source), limit, split=split)
    path = Path(source)
    if not path.exists():
        raise UserError(f"{path}: no such file{_nearest(path)}")
    if not os.access(path, os.R_OK):
        raise UserError(f"{path}: may not be read by this user; change its permissions")
    if path.is_dir():
        return folder_rows(path, limit, split)
    if split is not None:
        raise UserError(f"{path}: a single file has no splits; leave out split={split!r}")
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty")
    return ENDINGS[ending(path)](path, limit)


def name_of(source: Source) -> str:
    """What a source is called in messages and origins."""
    if isinstance(source, str | Path):
        return Path(source).name
    return "dataset" if hasattr(source, "features") else "rows"


def ending(path: Path, known: Iterable[str] = ENDINGS) -> str:
    """The ending of a file's name, when it is one of the known ones.

    >>> ending(Path("pairs.v2.jsonl.gz"))
    '.jsonl.gz'
    """
    name = path.name.lower()
    fitting = [end for end in known if name.endswith(end)]
    if fitting:
        return max(fitting, key=len)
    own = "".join(path.suffixes[-2:] if path.suffix == ".gz" else path.suffixes[-1:])
    near = get_close_matches(own.lower(), known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(
        f"{path}: cannot tell rows by the ending {own!r}{hint} Known endings: {', '.join(known)}."
    )


def _nearest(path: Path) -> str:
    """The name of a neighbour that is spelled almost the same."""
    if not path.parent.is_dir():
        return f", and no folder {path.parent}"
    near = get_close_matches(path.name, [child.name for child in path.parent.iterdir()], n=1, cutoff=0.6)
    return f"; did you mean {path.parent / near[0]}?" if near else ""
