"""Rows from JSON lines and JSON, plain or gzipped: a line at a time, and never more than the limit."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

from plaudit.errors import UserError
from plaudit.sources.problems import shown
from plaudit.sources.rows import RawRow, parsed, row_of, too_large

_BOM = b"\xef\xbb\xbf"
_PIECE = 1 << 20


def jsonl_rows(path: Path, limit: int) -> Iterator[RawRow]:
    """The rows of a ``.jsonl`` or ``.jsonl.gz`` file; blank lines hold no row."""
    with opened(path) as stream:
        for number, (line, whole) in enumerate(_lines(stream, limit), start=1):
            origin = f"{path.name}:{number}"
            if not whole:
                yield too_large(origin, limit, line[:200].decode("utf-8", errors="backslashreplace"))
            elif line.strip():
                yield parsed(line.removeprefix(_BOM) if number == 1 else line, origin)


def json_rows(path: Path, limit: int) -> Iterator[RawRow]:
    """The rows of a ``.json`` file: a list, an object that holds one, a single row, or JSON lines."""
    if _is_lines(path, limit):
        yield from jsonl_rows(path, limit)
        return
    with opened(path) as stream:
        content = stream.read()
    try:
        whole = json.loads(content.removeprefix(_BOM))
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start + 1} is not UTF-8; a JSON file is read as a whole, so mend it or "
            "write it as JSON lines, where bad rows are put aside one by one"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: not JSON ({error}); mend it, or write it as JSON lines, one object a line"
        ) from error
    for number, value in enumerate(_list_in(whole, path), start=1):
        row = row_of(value, f"{path.name}:{number}")
        yield too_large(row.origin, limit, row.text) if len(row.text) > limit else row


@contextmanager
def opened(path: Path) -> Iterator[BufferedIOBase]:
    """The file's bytes, unzipped where its name ends in ``.gz``; UTF-16 and damage are said as such."""
    with path.open("rb") as raw:
        if raw.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise UserError(f"{path}: the file is in UTF-16; save it as UTF-8")
        raw.seek(0)
        if path.suffix.lower() != ".gz":
            yield raw
            return
        try:
            with gzip.GzipFile(fileobj=raw) as unzipped:
                yield unzipped
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(
                f"{path}: the compressed file is damaged ({error}); copy or make it again"
            ) from error


def _lines(stream: BufferedIOBase, limit: int) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether all of it is there; of a line beyond the limit only the beginning is."""
    while line := stream.readline(limit + 1):
        whole = len(line) <= limit or line.endswith(b"\n")
        yield line, whole
        while not whole and not line.endswith(b"\n") and line:
            line = stream.readline(_PIECE)


def _is_lines(path: Path, limit: int) -> bool:
    """Whether the first line is an object and another follows: many ``.json`` files are JSON lines."""
    with opened(path) as stream:
        lines = (line for line, _ in _lines(stream, limit) if line.strip())
        first, second = next(lines, b""), next(lines, b"")
    row = parsed(first.removeprefix(_BOM), path.name)
    return row.problem is None and bool(second)


def _list_in(whole: object, path: Path) -> list[object]:
    if isinstance(whole, list):
        return whole
    if isinstance(whole, dict):
        lists = [name for name, value in whole.items() if _of_rows(value)]
        if len(lists) > 1:
            raise UserError(
                f"{path}: the JSON object has {len(lists)} lists of objects ({', '.join(lists)}); "
                "put the rows into one list"
            )
        return whole[lists[0]] if lists else [whole]
    raise UserError(f"{path}: expected a list of rows, found {shown(whole)}")


def _of_rows(value: object) -> bool:
    """Whether a value is a list of rows: of objects, and not of a conversation's messages."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return False
    return bool(value) and not all({"role", "content"} <= set(item) for item in value)
