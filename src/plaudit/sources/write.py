"""Records to a file, in plaudit's own layout or TRL's; what a layout cannot say is counted and said."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from plaudit.errors import UserError
from plaudit.records.dicts import as_dict, kind_of
from plaudit.records.feedback import Record
from plaudit.sources.atomic import AtomicFile
from plaudit.sources.files import ending
from plaudit.sources.trl_rows import Said, trl_rows

WRITTEN_ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
"""The files that can be written."""

WRITTEN_LAYOUTS: Mapping[str, Callable[[Record, int], Said]] = {
    "plaudit": lambda record, number: Said(rows=(as_dict(record),)),
    "trl": trl_rows,
}
"""The layouts that can be written: a record and its number to rows."""

_Row = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file that has been written.

    Example: ``Written(path=Path("out.jsonl"), rows=12, lost={"ties left out": 1})``
    """

    path: Path
    """The file."""
    rows: int
    """How many rows it has."""
    lost: Mapping[str, int]
    """What the layout could not say, and how often."""


def write_records(records: Iterable[Record], path: str | Path, *, layout: str = "plaudit") -> Written:
    """Write records to JSON lines or Parquet, by the ending; the file appears whole or not at all."""
    path = Path(path)
    check_target(path)
    if layout not in WRITTEN_LAYOUTS:
        raise UserError(f"unknown layout {layout!r}: rows are written as {' or '.join(WRITTEN_LAYOUTS)}")
    lost: Counter[str] = Counter()
    count: Counter[str] = Counter()
    records = _of_one_kind(records, path) if layout == "trl" else records
    with AtomicFile(path) as file:
        rows = _rows(records, WRITTEN_LAYOUTS[layout], lost, count)
        if path.suffix.lower() == ".parquet":
            _write_parquet(rows, file)
        else:
            _write_lines(rows, file, zipped=path.suffix.lower() == ".gz")
        if not count["rows"]:
            why = "; ".join(f"{times} {reason}" for reason, times in lost.items()) or "no record was given"
            raise UserError(f"{path}: nothing to write ({why})")
    return Written(path=path, rows=count["rows"], lost=lost)


def check_target(path: Path) -> None:
    """Complain, before any work is done, about a place to which rows cannot be written."""
    ending(path, WRITTEN_ENDINGS)
    if not path.parent.is_dir():
        raise UserError(f"{path}: no such folder as {path.parent}; make it first")
    if path.is_dir():
        raise UserError(f"{path}: a folder; name a file in it")


def _rows(
    records: Iterable[Record],
    rows_of: Callable[[Record, int], Said],
    lost: Counter[str],
    count: Counter[str],
) -> Iterator[_Row]:
    for number, record in enumerate(records, start=1):
        said = rows_of(record, number)
        lost.update(said.lost)
        count["rows"] += len(said.rows)
        yield from said.rows


def _of_one_kind(records: Iterable[Record], path: Path) -> Iterator[Record]:
    """TRL's rows have one schema a file."""
    first: str | None = None
    for record in records:
        first = first or kind_of(record)
        if kind_of(record) != first:
            raise UserError(
                f"{path}: a TRL file has rows of one kind, and the records are {first}s and "
                f"{kind_of(record)}s; write them to plaudit's layout, or one kind at a time"
            )
        yield record


def _write_lines(rows: Iterable[_Row], file: AtomicFile, *, zipped: bool) -> None:
    if not zipped:
        file.stream.writelines(map(_line, rows))
        return
    packer = zlib.compressobj(wbits=31)
    file.stream.writelines(packer.compress(_line(row)) for row in rows)
    file.stream.write(packer.flush())


def _line(row: _Row) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
    except (ValueError, TypeError) as error:
        raise UserError(f"{row.get('origin', 'a record')}: cannot be written as JSON ({error})") from error


def _write_parquet(rows: Iterable[_Row], file: AtomicFile) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise UserError(f'{file.path}: writing it needs pyarrow: pip install "plaudit[data]"') from error
    held = [_table_row(row) for row in rows]
    names = list(dict.fromkeys(name for row in held for name in row))
    try:
        table = pyarrow.table({name: [row.get(name) for row in held] for name in names})
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise UserError(
            f"{file.path}: a Parquet column has one type, and these rows mix several "
            f"(texts with conversations, say); write .jsonl instead ({error})"
        ) from error
    pyarrow.parquet.write_table(table, file.stream)


def _table_row(row: _Row) -> _Row:
    """Metadata differs from row to row, so in a table it is the text of its JSON."""
    if "metadata" not in row:
        return row
    return {**row, "metadata": json.dumps(row["metadata"], ensure_ascii=False)}
