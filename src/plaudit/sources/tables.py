"""Rows from CSV, Parquet and ``datasets``, a piece at a time."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.sources.jsonl import opened
from plaudit.sources.rows import RawRow, bad_row, row_of, too_large

_BATCH = 256


def csv_rows(path: Path, limit: int) -> Iterator[RawRow]:
    """The rows of a CSV file with a header; the row's number is that of the line on which it begins."""
    # The limit of the csv module belongs to the whole process, and its default refuses a long document.
    csv.field_size_limit(max(limit, csv.field_size_limit()))
    with opened(path), path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        reader = csv.reader(stream, strict=True, delimiter="\t" if path.suffix == ".tsv" else ",")
        header = _header(reader, path)
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
    pyarrow = _need("pyarrow", path)
    parquet = _need("pyarrow.parquet", path)
    try:
        file = parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{path}: not a Parquet file, or a damaged one ({error})") from error
    number = 0
    with file:
        for batch in file.iter_batches(batch_size=_BATCH):
            for i in range(batch.num_rows):
                number += 1
                yield _parquet_row(batch.slice(i, 1), f"{path.name}:{number}", limit)


def folder_rows(path: Path, limit: int, split: str | None) -> Iterator[RawRow]:
    """The rows of a folder that ``datasets`` saved."""
    datasets = _need("datasets", path)
    try:
        found = datasets.load_from_disk(str(path))
    except FileNotFoundError as error:
        inside = ", ".join(sorted(child.name for child in path.iterdir())[:5]) or "nothing"
        raise UserError(
            f"{path}: a folder, but not one that datasets saved (it holds {inside}); name a file in it"
        ) from error
    if isinstance(found, dict):
        found = _split_of(found, split, str(path))
    yield from object_rows(found, path.name, limit, split=None)


def object_rows(rows: Iterable[object], name: str, limit: int, *, split: str | None) -> Iterator[RawRow]:
    """The rows of a ``datasets`` object (streaming ones too), or of any iterable of objects."""
    if isinstance(rows, Mapping):
        rows = _split_of(rows, split, name)
    for number, value in enumerate(rows, start=1):
        row = row_of(value, f"{name}:{number}")
        yield too_large(row.origin, limit, row.text) if len(row.text) > limit else row


def _header(reader: Iterator[list[str]], path: Path) -> list[str]:
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise UserError(f"{path}: the header is not CSV ({error})") from error
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise UserError(
            f"{path}: the header names {', '.join(sorted(twice))!r} more than once; rename one column"
        )
    return header


def _csv_row(header: list[str], cells: list[str], origin: str, limit: int) -> RawRow:
    text = json.dumps(cells, ensure_ascii=False).encode("utf-8", errors="backslashreplace").decode("utf-8")
    if len(text) > limit:
        return too_large(origin, limit, text)
    if len(cells) != len(header):
        return bad_row(
            "broken row", origin, expected=f"{len(header)} cells", found=f"{len(cells)}", text=text
        )
    for cell in cells:
        escaped = next((letter for letter in cell if "\udc80" <= letter <= "\udcff"), None)
        if escaped is not None:
            found = f"byte 0x{ord(escaped) - 0xDC00:02x}"
            return bad_row("bad UTF-8", origin, expected="text in UTF-8", found=found, text=text)
    return RawRow(origin=origin, value=dict(zip(header, cells, strict=True)), text=text, cells=True)


def _parquet_row(one: Any, origin: str, limit: int) -> RawRow:
    if one.nbytes > limit:
        return too_large(origin, limit, "")
    try:
        return row_of(one.to_pylist()[0], origin)
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x}"
        return bad_row("bad UTF-8", origin, expected="text in UTF-8", found=found)


def _split_of(splits: Mapping[Any, Any], split: str | None, name: str) -> Iterable[object]:
    known = ", ".join(map(str, splits))
    if split is None and len(splits) == 1:
        return next(iter(splits.values()))
    if split is None:
        raise UserError(
            f"{name}: several splits ({known}); say which: split=…, or name the folder of one split"
        )
    if split not in splits:
        raise UserError(f"{name}: no split {split!r}; it has {known}")
    return splits[split]


def _need(module: str, path: Path) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f'{path}: reading it needs {error.name}; install it with: pip install "plaudit[data]"'
        ) from error
