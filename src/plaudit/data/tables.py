"""Rows of tables: CSV, Parquet, Arrow and ``datasets``, a piece at a time; and of lists in Python."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from plaudit.data.fields import RawRow, bad_row, row_from_value, shorten, too_large_row
from plaudit.data.turns import without_nulls
from plaudit.errors import UserError

_BATCH_ROWS = 256


def csv_rows(path: Path, limit: int) -> Iterator[RawRow]:
    """The rows of a CSV file with a header; the row's number is that of the line on which it begins."""
    # The limit of the csv module belongs to the whole process, and its default refuses a long document.
    csv.field_size_limit(max(limit, csv.field_size_limit()))
    # An undecodable byte becomes a surrogate, which `_csv_row` finds again: one bad row ends no file.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        first = re.sub(r'"[^"]*"', "", stream.readline())
        stream.seek(0)
        # Where a comma is the decimal sign, tables are written with semicolons.
        delimiter = "\t" if path.suffix == ".tsv" else max(",;\t", key=first.count)
        reader = csv.reader(stream, strict=True, delimiter=delimiter)
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
    from pyarrow import parquet

    with _damage_reported(path, "Parquet file"):
        file = parquet.ParquetFile(path)
    with file:
        yield from _table_rows(path, file.iter_batches(batch_size=_BATCH_ROWS), limit, "Parquet file")


def arrow_rows(path: Path, limit: int) -> Iterator[RawRow]:
    """The rows of an Arrow file, as a stream (what ``datasets`` caches) or with an index at its end."""
    from pyarrow import ipc, memory_map

    with memory_map(str(path)) as file:
        with _damage_reported(path, "table of Arrow"):
            has_index = file.read(6) == b"ARROW1"
            file.seek(0)
            reader = ipc.open_file(file) if has_index else ipc.open_stream(file)
        batches = map(reader.get_batch, range(reader.num_record_batches)) if has_index else reader
        yield from _table_rows(path, batches, limit, "table of Arrow")


def _table_rows(path: Path, batches: Iterable[Any], limit: int, kind: str) -> Iterator[RawRow]:
    number, left = 0, iter(batches)
    while True:
        with _damage_reported(path, kind):
            batch = next(left, None)
        if batch is None:
            return
        for i in range(batch.num_rows):
            number += 1
            # Row by row, since one bad text would make the conversion of a whole batch fail.
            yield _parquet_row(batch.slice(i, 1), f"{path.name}:{number}", limit)


@contextmanager
def _damage_reported(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except READING_FAULTS as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path}: not a {kind}, or a damaged one ({why}); copy or make it again") from error


READING_FAULTS = (OSError, ValueError, TypeError, LookupError, RuntimeError, ArithmeticError, MemoryError)
"""What pyarrow raises at bytes that are no table: its own errors are kinds of these."""


def object_rows(rows: Iterable[object], name: str, limit: int, *, split: str | None) -> Iterator[RawRow]:
    """The rows of a ``datasets`` object (streaming ones too), or of any iterable of objects."""
    if isinstance(rows, Mapping):
        rows = pick_split(rows, split, name)
    is_table = hasattr(rows, "features")
    for number, given in enumerate(rows, start=1):
        value = given
        # An object that holds itself comes back as it is, and is a bad row.
        with suppress(RecursionError):
            value = with_texts(given)
        row = row_from_value(_unpadded(value) if is_table else value, f"{name}:{number}")
        yield too_large_row(row.origin, limit, row.text) if len(row.text) > limit else row


def with_texts(value: Any) -> Any:
    """A row as Python or a table holds it, with each picture as a text that names it."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, list):
        return [with_texts(item) for item in value]
    if isinstance(value, Mapping) and value.keys() != {"bytes", "path"}:
        return {name: with_texts(item) for name, item in value.items()}
    from plaudit.files.pictures import picture_text

    return picture_text(value) or value


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
        expected = f"{len(header)} cells"
        return bad_row("broken row", origin, expected=expected, found=f"{len(cells)}", text=text)
    for cell in cells:
        # surrogateescape reads the byte 0xNN as U+DCNN.
        escaped = next((letter for letter in cell if "\udc80" <= letter <= "\udcff"), None)
        if escaped is not None:
            found = f"byte 0x{ord(escaped) - 0xDC00:02x}"
            return bad_row("bad UTF-8", origin, expected="text in UTF-8", found=found, text=text)
    return RawRow(origin=origin, value=dict(zip(header, cells, strict=True)), text=text, cells=True)


def _unpadded(value: Any) -> Any:
    """A row without the nulls that a table puts for what the calls and the schemas of others have."""
    if isinstance(value, Mapping):
        padded = ("arguments", "tools")
        return {
            name: without_nulls(item) if name in padded else _unpadded(item) for name, item in value.items()
        }
    return [_unpadded(item) for item in value] if isinstance(value, list) else value


def _parquet_row(table: Any, origin: str, limit: int) -> RawRow:
    if table.nbytes > limit:
        return too_large_row(origin, limit, "")
    try:
        return row_from_value(_unpadded(with_texts(table.to_pylist()[0])), origin)
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x}"
        return bad_row("bad UTF-8", origin, expected="text in UTF-8", found=found)
    except READING_FAULTS as error:
        return bad_row("broken row", origin, expected="values that Python knows", found=shorten(str(error)))


def pick_split(splits: Mapping[Any, Any], split: str | None, name: str) -> Iterable[object]:
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
