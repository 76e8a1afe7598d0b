"""Rows from a file by its ending, from a folder of ``datasets``, or from an object in Python.

JSON lines and JSON, plain or gzipped, are read a line at a time, and never more than the limit; CSV, Parquet
and ``datasets`` are read a piece at a time.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from plaudit.data.fields import (
    ROW_LIMIT,
    RawRow,
    bad_row,
    describe_value,
    parse_line,
    row_from_value,
    too_large_row,
)
from plaudit.errors import UserError
from plaudit.files import hub
from plaudit.files.data_sets import SEVERAL

# Windows tools begin UTF-8 files with it, and a JSON text may not.
_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1 << 20


def jsonl_rows(path: Path, limit: int) -> Iterator[RawRow]:
    """The rows of a ``.jsonl`` or ``.jsonl.gz`` file; blank lines hold no row."""
    with open_bytes(path) as stream:
        for number, (line, complete) in enumerate(_limited_lines(stream, limit), start=1):
            origin = f"{path.name}:{number}"
            if not complete:
                yield too_large_row(origin, limit, line[:200].decode("utf-8", errors="backslashreplace"))
            elif line.strip():
                yield parse_line(line.removeprefix(_BOM) if number == 1 else line, origin)


def json_rows(path: Path, limit: int) -> Iterator[RawRow]:
    """The rows of a ``.json`` file: a list, an object that holds one, a single row, or JSON lines."""
    if _is_json_lines(path, limit):
        yield from jsonl_rows(path, limit)
        return
    with open_bytes(path) as stream:
        content = stream.read()
    try:
        document = json.loads(content.removeprefix(_BOM))
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start + 1} is not UTF-8; a JSON file is read as a whole, so mend it or "
            "write it as JSON lines, where bad rows are put aside one by one"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: not JSON ({error}); mend it, or write it as JSON lines, one object a line"
        ) from error
    for number, value in enumerate(_row_list(document, path), start=1):
        row = row_from_value(value, f"{path.name}:{number}")
        yield too_large_row(row.origin, limit, row.text) if len(row.text) > limit else row


@contextmanager
def open_bytes(path: Path) -> Iterator[BufferedIOBase]:
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


def _limited_lines(stream: BufferedIOBase, limit: int) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether all of it is there; of a line beyond the limit only the beginning is."""
    # One byte beyond the limit tells a line that is too long from one that just fits.
    while line := stream.readline(limit + 1):
        complete = len(line) <= limit or line.endswith(b"\n")
        yield line, complete
        # The rest of it is read away in pieces and never held.
        while not complete and not line.endswith(b"\n") and line:
            line = stream.readline(_CHUNK_BYTES)


def _is_json_lines(path: Path, limit: int) -> bool:
    """Whether the first line is an object and another follows: many ``.json`` files are JSON lines."""
    with open_bytes(path) as stream:
        lines = (line for line, _ in _limited_lines(stream, limit) if line.strip())
        first, second = next(lines, b""), next(lines, b"")
    row = parse_line(first.removeprefix(_BOM), path.name)
    return row.problem is None and bool(second)


def _row_list(document: object, path: Path) -> list[object]:
    if isinstance(document, list):
        return document
    if isinstance(document, dict):
        lists = [name for name, value in document.items() if _is_row_list(value)]
        if len(lists) > 1:
            raise UserError(
                f"{path}: the JSON object has {len(lists)} lists of objects ({', '.join(lists)}); "
                "put the rows into one list"
            )
        return document[lists[0]] if lists else [document]
    raise UserError(f"{path}: expected a list of rows, found {describe_value(document)}")


def _is_row_list(value: object) -> bool:
    """Whether a value is a list of rows: of objects, and not of a conversation's messages."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return False
    return bool(value) and not all({"role", "content"} <= set(item) for item in value)


_BATCH_ROWS = 256


def csv_rows(path: Path, limit: int) -> Iterator[RawRow]:
    """The rows of a CSV file with a header; the row's number is that of the line on which it begins."""
    # The limit of the csv module belongs to the whole process, and its default refuses a long document.
    csv.field_size_limit(max(limit, csv.field_size_limit()))
    # The bytes are opened for the check of UTF-16 alone. An undecodable byte becomes a surrogate, which
    # `_csv_row` finds again: one bad row does not end the file.
    with open_bytes(path), path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        reader = csv.reader(stream, strict=True, delimiter="\t" if path.suffix == ".tsv" else ",")
        header = _csv_header(reader, path)
        while True:
            origin = f"{path.name}:{reader.line_num + 1}"
            try:
                cells = next(reader, None)
            except csv.Error as error:
                kind = "row too large" if "field limit" in str(error) else "broken row"
                yield bad_row(kind, origin, expected="a row of CSV", found=str(error))
                continue
            if cells is None:
                return
            if cells:
                yield _csv_row(header, cells, origin, limit)


def parquet_rows(path: Path, limit: int) -> Iterator[RawRow]:
    """The rows of a Parquet file, a few hundred at a time."""
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{path}: not a Parquet file, or a damaged one ({error})") from error
    number = 0
    with file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            for i in range(batch.num_rows):
                number += 1
                # Row by row, since one bad text would make the conversion of a whole batch fail.
                yield _parquet_row(batch.slice(i, 1), f"{path.name}:{number}", limit)


def folder_rows(path: Path, limit: int, split: str | None) -> Iterator[RawRow]:
    """The rows of a folder that ``datasets`` saved, or of files of one kind in it, in the order of names."""
    shards = _shards(path)
    if shards:
        if split is not None:
            raise UserError(f"{path}: a folder of files has no splits; leave out split={split!r}")
        for shard in shards:
            yield from raw_rows(shard, limit=limit)
        return
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise UserError(f'{path}: reading it needs datasets: pip install "plaudit[data]"') from error
    try:
        dataset = datasets.load_from_disk(str(path))
    except FileNotFoundError as error:
        children = ", ".join(sorted(child.name for child in path.iterdir())[:5]) or "nothing"
        raise UserError(
            f"{path}: a folder, but not one that datasets saved, and not files of rows of one kind (it holds "
            f"{children}); name a file in it"
        ) from error
    if isinstance(dataset, dict):
        dataset = _pick_split(dataset, split, str(path))
    yield from object_rows(dataset, path.name, limit, split=None)


def _shards(folder: Path) -> list[Path]:
    """The files of a folder that holds files of rows of one kind and nothing else; none of any other."""
    files = sorted(child for child in folder.iterdir() if not child.name.startswith("."))
    return files if any(all(file.name.lower().endswith(end) for file in files) for end in READERS) else []


def object_rows(rows: Iterable[object], name: str, limit: int, *, split: str | None) -> Iterator[RawRow]:
    """The rows of a ``datasets`` object (streaming ones too), or of any iterable of objects."""
    if isinstance(rows, Mapping):
        rows = _pick_split(rows, split, name)
    for number, value in enumerate(rows, start=1):
        row = row_from_value(value, f"{name}:{number}")
        yield too_large_row(row.origin, limit, row.text) if len(row.text) > limit else row


def _csv_header(reader: Iterator[list[str]], path: Path) -> list[str]:
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise UserError(f"{path}: the header is not CSV ({error})") from error
    repeated = {name for name in header if header.count(name) > 1}
    if repeated:
        raise UserError(
            f"{path}: the header names {', '.join(sorted(repeated))!r} more than once; rename one column"
        )
    return header


def _csv_row(header: list[str], cells: list[str], origin: str, limit: int) -> RawRow:
    text = json.dumps(cells, ensure_ascii=False).encode("utf-8", errors="backslashreplace").decode("utf-8")
    if len(text) > limit:
        return too_large_row(origin, limit, text)
    if len(cells) != len(header):
        return bad_row(
            "broken row", origin, expected=f"{len(header)} cells", found=f"{len(cells)}", text=text
        )
    for cell in cells:
        # surrogateescape reads the byte 0xNN as U+DCNN.
        escaped = next((letter for letter in cell if "\udc80" <= letter <= "\udcff"), None)
        if escaped is not None:
            found = f"byte 0x{ord(escaped) - 0xDC00:02x}"
            return bad_row("bad UTF-8", origin, expected="text in UTF-8", found=found, text=text)
    return RawRow(origin=origin, value=dict(zip(header, cells, strict=True)), text=text, cells=True)


def _parquet_row(table: Any, origin: str, limit: int) -> RawRow:
    if table.nbytes > limit:
        return too_large_row(origin, limit, "")
    try:
        return row_from_value(table.to_pylist()[0], origin)
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x}"
        return bad_row("bad UTF-8", origin, expected="text in UTF-8", found=found)


def _pick_split(splits: Mapping[Any, Any], split: str | None, name: str) -> Iterable[object]:
    split_names = ", ".join(map(str, splits))
    if split is None and len(splits) == 1:
        return next(iter(splits.values()))
    if split is None:
        raise UserError(
            f"{name}: several splits ({split_names}); say which: split=…, or name the folder of one split"
        )
    if split not in splits:
        raise UserError(f"{name}: no split {split!r}; it has {split_names}")
    return splits[split]


Source = str | Path | Iterable[object]
"""A path, a ``datasets`` object, or any iterable of dicts."""

READERS: Mapping[str, Callable[[Path, int], Iterator[RawRow]]] = {
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
        return object_rows(source, source_name(source), limit, split=split)
    path = hub.local_path(source, "dataset", split=split)
    # The split of such a folder was chosen when it was made.
    split = None if hub.name_on_hub(path) else split
    if not path.exists():
        if SEVERAL in str(path):
            raise UserError(f"{path}: several sources are taken by training alone, in --data and --prompts")
        raise UserError(f"{path}: no such file{_near_path_hint(path)}")
    if not os.access(path, os.R_OK):
        raise UserError(f"{path}: may not be read by this user; change its permissions")
    if path.is_dir():
        return folder_rows(path, limit, split)
    if split is not None:
        raise UserError(f"{path}: a single file has no splits; leave out split={split!r}")
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty")
    return READERS[file_ending(path)](path, limit)


def source_name(source: Source) -> str:
    """What a source is called in messages and origins."""
    if isinstance(source, str | Path):
        return hub.short_name(source) or Path(source).name
    return "dataset" if hasattr(source, "features") else "rows"


def file_ending(path: Path, endings: Iterable[str] = READERS) -> str:
    """The ending of a file's name, when it is one of the known ones.

    >>> file_ending(Path("pairs.v2.jsonl.gz"))
    '.jsonl.gz'
    """
    name = path.name.lower()
    matches = [end for end in endings if name.endswith(end)]
    if matches:
        return max(matches, key=len)
    suffix = "".join(path.suffixes[-2:] if path.suffix == ".gz" else path.suffixes[-1:])
    near = get_close_matches(suffix.lower(), endings, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(
        f"{path}: cannot tell rows by the ending {suffix!r}{hint} Known endings: {', '.join(endings)}."
    )


def _near_path_hint(path: Path) -> str:
    """The name of a neighbour that is spelled almost the same."""
    if not path.parent.is_dir():
        return f", and no folder {path.parent}"
    near = get_close_matches(path.name, [child.name for child in path.parent.iterdir()], n=1, cutoff=0.6)
    return f"; did you mean {path.parent / near[0]}?" if near else ""
