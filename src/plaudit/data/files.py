"""Rows from a file by its ending, from a folder of ``datasets``, or from an object in Python.

JSON lines and JSON, plain or gzipped, are read a line at a time, and never more than the limit; CSV, Parquet
and ``datasets`` are read a piece at a time.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from plaudit.data.fields import (
    ROW_LIMIT,
    ProblemKind,
    RawRow,
    bad_row,
    describe_value,
    row_from_value,
    shorten,
    too_large_row,
)
from plaudit.data.turns import without_nulls
from plaudit.errors import UserError
from plaudit.files import hub
from plaudit.files.data_sets import (
    ROW_ENDINGS,
    SEVERAL,
    card_front,
    declared_splits,
    holds_rows,
    registered_set,
)
from plaudit.files.exact_json import RepeatedKeyError, object_of_pairs
from plaudit.files.unzipped import open_bytes

# Windows tools begin UTF-8 files with it, and a JSON text may not.
_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1 << 20


def jsonl_rows(path: Path, limit: int) -> Iterator[RawRow]:
    """The rows of a ``.jsonl`` or ``.jsonl.gz`` file; blank lines hold no row."""
    with open_bytes(path) as stream:
        for number, (line, complete) in enumerate(_limited_lines(path, stream, limit), start=1):
            origin = f"{path.name}:{number}"
            if not complete:
                yield too_large_row(origin, limit, line[:200].decode("utf-8", errors="backslashreplace"))
            elif line.strip():
                if number == 1:
                    _refuse_list(path, line.removeprefix(_BOM).strip())
                yield _parse_line(line.removeprefix(_BOM) if number == 1 else line, origin)


def _refuse_list(path: Path, first_line: bytes) -> None:
    """A list of objects is no JSON lines, whatever the name says: every line of it would be a bad row."""
    if first_line == b"[" or re.match(rb"\[\s*\{", first_line):
        plain = path.name.replace(".jsonl", ".json")
        raise UserError(
            f"{path}: this holds a JSON list and is named as JSON lines (an object a line); call it {plain}"
        )


def json_rows(path: Path, limit: int) -> Iterator[RawRow]:
    """The rows of a ``.json`` file: a list, an object that holds one, a single row, or JSON lines."""
    if _is_json_lines(path, limit):
        yield from jsonl_rows(path, limit)
        return
    with open_bytes(path) as stream:
        content = b"".join(iter(lambda: stream.read(_CHUNK_BYTES), b""))
    try:
        document, faulty = _load_with_faults(content.removeprefix(_BOM))
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start + 1} is not UTF-8; a JSON file is read as a whole, so mend it or "
            "write it as JSON lines, where bad rows are put aside one by one"
        ) from error
    except RecursionError as error:
        raise UserError(f"{path}: thousands of brackets in each other; this is no file of rows") from error
    except ValueError as error:
        raise UserError(
            f"{path}: not JSON ({str(error).split(';')[0]}); mend it, or write it as JSON lines, one "
            "object a line"
        ) from error
    for number, value in enumerate(_row_list(document, path), start=1):
        origin = f"{path.name}:{number}"
        fault = _fault_in(value) if faulty else None
        if fault is not None:
            text = json.dumps(value, ensure_ascii=False, default=lambda _: None)
            yield bad_row(fault.kind, origin, expected=fault.expected, found=fault.found, text=text)
            continue
        row = row_from_value(value, origin)
        yield too_large_row(origin, limit, row.text) if len(row.text) > limit else row


def _parse_line(line: bytes, origin: str) -> RawRow:
    """One line of JSON as a row.

    >>> _parse_line(b'{"a": 1}', "a.jsonl:1").value
    {'a': 1}
    >>> _parse_line(b'{"a": 1', "a.jsonl:1").problem.kind
    'broken row'
    """
    line = line.rstrip(b"\r\n")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return bad_row(
            "bad UTF-8",
            origin,
            expected="text in UTF-8",
            found=f"byte 0x{line[error.start]:02x} at position {error.start + 1}",
            text=line.decode("utf-8", errors="backslashreplace"),
        )
    if "\0" in text:
        return bad_row("NUL", origin, expected="text without NUL", found="a NUL byte", text=text)
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=object_of_pairs)
    except (ValueError, RecursionError) as error:
        kind, expected, found = _json_problem(error, text)
        return bad_row(kind, origin, expected=expected, found=found, text=text)
    return row_from_value(value, origin, text)


def _json_problem(error: Exception, text: str) -> tuple[ProblemKind, str, str]:
    """Kind, expected and found of a line that is not JSON."""
    match error:
        case RecursionError():
            return "broken row", "a JSON object", "thousands of brackets"
        case json.JSONDecodeError():
            return "broken row", "a JSON object", f"{error.msg} at position {error.pos + 1}: {shorten(text)}"
        case RepeatedKeyError():
            return "repeated key", _ONCE, str(error)
        case _NonFiniteError():
            return "non-finite number", "finite numbers", str(error)
        case _:
            # Integers of more than 4,300 digits; behind the semicolon stands Python's advice.
            return "broken row", "finite numbers", str(error).split(";")[0]


_ONCE = "each key once"


class _NonFiniteError(ValueError):
    """JSON has no NaN and no infinity, though some writers do."""


def _refuse_constant(constant: str) -> object:
    raise _NonFiniteError(constant)


class _JsonFault:
    """What stands in a row of a file that was read as a whole, in the place of what JSON should not have."""

    def __init__(self, kind: ProblemKind, expected: str, found: str) -> None:
        self.kind: ProblemKind = kind
        self.expected, self.found = expected, found


def _load_with_faults(content: bytes) -> tuple[Any, bool]:
    """A document, and whether any fault stands in it: one bad row is no reason to refuse all others."""
    faults: list[_JsonFault] = []

    def constant(word: str) -> _JsonFault:
        faults.append(_JsonFault("non-finite number", "finite numbers", word))
        return faults[-1]

    def object_or_fault(pairs: Sequence[tuple[str, Any]]) -> Any:
        try:
            return object_of_pairs(pairs)
        except RepeatedKeyError as error:
            faults.append(_JsonFault("repeated key", _ONCE, str(error)))
            return faults[-1]

    document = json.loads(content, parse_constant=constant, object_pairs_hook=object_or_fault)
    return document, bool(faults)


def _fault_in(value: object) -> _JsonFault | None:
    """The first fault of a value, however deep it lies."""
    left = [value]
    while left:
        match value := left.pop():
            case _JsonFault():
                return value
            case dict():
                left += value.values()
            case list():
                left += value
            case _:
                pass
    return None


_MOST_BLANK = 1_000_000


def _limited_lines(path: Path, stream: BufferedIOBase, limit: int) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether all of it is there; of a line beyond the limit only the beginning is."""
    # One byte beyond the limit tells a line that is too long from one that just fits.
    blank = 0
    while line := stream.readline(limit + 1):
        blank = blank + 1 if line.isspace() else 0
        if blank > _MOST_BLANK:
            raise UserError(f"{path}: {_MOST_BLANK:,} blank lines in a row; this is no file of rows")
        complete = len(line) <= limit or line.endswith(b"\n")
        yield line, complete
        # The rest of it is read away in pieces and never held.
        while not complete and not line.endswith(b"\n") and line:
            line = stream.readline(_CHUNK_BYTES)


def _is_json_lines(path: Path, limit: int) -> bool:
    """Whether the first line is an object and another follows: many ``.json`` files are JSON lines."""
    with open_bytes(path) as stream:
        lines = (line for line, _ in _limited_lines(path, stream, limit) if line.strip())
        first, second = next(lines, b""), next(lines, b"")
    row = _parse_line(first.removeprefix(_BOM), path.name)
    # A fault within a line that is one all the same.
    is_line = row.problem is None or row.problem.kind in ("repeated key", "non-finite number")
    return is_line and bool(second)


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
    """The rows of a Parquet file, a few hundred at a time."""
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
    except _READING_FAULTS as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path}: not a {kind}, or a damaged one ({why}); copy or make it again") from error


_READING_FAULTS = (OSError, ValueError, TypeError, LookupError, RuntimeError, ArithmeticError, MemoryError)
"""What pyarrow raises at bytes that are no table: its own errors are kinds of these."""


def folder_rows(path: Path, limit: int, split: str | None) -> Iterator[RawRow]:
    """The rows of a folder that ``datasets`` saved, or of one split of a cloned repository of rows."""
    if hub.name_on_hub(path) is not None:
        # What of the hub lies here was chosen by its name: all of it is meant, in order.
        splits: Mapping[str, Sequence[Path]] = {"": _shards(path)}
    else:
        splits = _repository_splits(path)
    if splits:
        shards: Any = _pick_split(splits, split, str(path))
        for shard in shards:
            _refuse_pointer(shard)
            yield from raw_rows(shard, limit=limit)
        return
    if not any((path / name).exists() for name in _SAVED_BY_DATASETS):
        children = ", ".join(sorted(child.name for child in path.iterdir())[:5]) or "nothing"
        raise UserError(
            f"{path}: a folder, but not one that datasets saved, and no file of rows lies in it (it holds "
            f"{children}); rows are {', '.join(ROW_ENDINGS)}"
        )
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise UserError(f'{path}: reading it needs datasets: pip install "plaudit[data]"') from error
    try:
        dataset = datasets.load_from_disk(str(path))
    except _READING_FAULTS as error:
        why = " ".join(str(error).split())
        raise UserError(f"{path}: a damaged folder of datasets ({why}); save it again") from error
    if isinstance(dataset, dict):
        dataset = _pick_split(dataset, split, str(path))
    yield from object_rows(dataset, path.name, limit, split=None)


_SHARD = re.compile(r"(?P<split>.+?)(-\d+)?-of-\d+")
_SAVED_BY_DATASETS = ("state.json", "dataset_dict.json")


def _repository_splits(folder: Path) -> Mapping[str, Sequence[Path]]:
    """The files of each split of a clone: what its README.md names, else what the files' names say."""
    if any((folder / name).exists() for name in _SAVED_BY_DATASETS):
        return {}
    names = [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*")) if file.is_file()]
    card = card_front(folder / "README.md", folder) if "README.md" in names else {}
    if card.get("configs"):
        word = hub.HubWord(kind="dataset", repo=str(folder), revision="main")
        splits = declared_splits(word, names, card)
    else:
        splits = _named_splits(name for name in names if holds_rows(name))
    return {split: [folder / name for name in found] for split, found in splits.items()}


def _named_splits(names: Iterable[str]) -> dict[str, list[str]]:
    """Splits by their files' names: ``data/train-00000-of-00002.parquet`` belongs to train."""
    splits: dict[str, list[str]] = {}
    for name in names:
        *folders, file = name.split("/")
        stem = file[: -len(next(end for end in READERS if file.lower().endswith(end)))]
        numbered = _SHARD.fullmatch(stem)
        # A folder other than data/ is a configuration, of which a repository may have several.
        parts = [part for part in folders if part != "data"]
        splits.setdefault("/".join([*parts, numbered["split"] if numbered else stem]), []).append(name)
    return splits


def _refuse_pointer(path: Path) -> None:
    with path.open("rb") as stream:
        if stream.read(40).startswith(b"version https://git-lfs"):
            raise UserError(f"{path}: only a pointer to the file was cloned; fetch it with: git lfs pull")


def _shards(folder: Path) -> list[Path]:
    return sorted(child for child in folder.iterdir() if not child.name.startswith("."))


def object_rows(rows: Iterable[object], name: str, limit: int, *, split: str | None) -> Iterator[RawRow]:
    """The rows of a ``datasets`` object (streaming ones too), or of any iterable of objects."""
    if isinstance(rows, Mapping):
        rows = _pick_split(rows, split, name)
    is_table = hasattr(rows, "features")
    for number, value in enumerate(rows, start=1):
        row = row_from_value(_unpadded(value) if is_table else value, f"{name}:{number}")
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
        return row_from_value(_unpadded(table.to_pylist()[0]), origin)
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x}"
        return bad_row("bad UTF-8", origin, expected="text in UTF-8", found=found)
    except _READING_FAULTS as error:
        return bad_row("broken row", origin, expected="values that Python knows", found=shorten(str(error)))


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

READERS: Mapping[str, Callable[[Path, int], Iterator[RawRow]]] = {
    ".jsonl": jsonl_rows,
    ".jsonl.gz": jsonl_rows,
    ".json": json_rows,
    ".jsonl.zst": jsonl_rows,
    ".json.gz": json_rows,
    ".json.zst": json_rows,
    ".csv": csv_rows,
    ".tsv": csv_rows,
    ".parquet": parquet_rows,
    ".arrow": arrow_rows,
}


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
    if (registered := registered_set(path, split)) is not None:
        path, split = registered[0], None
    _refuse_no_file(path)
    if not os.access(path, os.R_OK):
        raise UserError(f"{path}: may not be read by this user; change its permissions")
    if path.is_dir():
        return folder_rows(path, limit, split)
    if split is not None:
        raise UserError(f"{path}: a single file has no splits; leave out split={split!r}")
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty")
    return READERS[file_ending(path)](path, limit)


def _refuse_no_file(path: Path) -> None:
    try:
        there = path.exists()
    except OSError as error:
        raise UserError(f"{str(path)[:80]}…: no name of a file ({error.strerror})") from error
    if not there:
        if SEVERAL in str(path):
            raise UserError(f"{path}: several sources are taken by training alone, in --data and --prompts")
        raise UserError(f"{path}: no such file{_near_path_hint(path)}")


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
    if path.is_symlink():
        return ", only a link to what is not there"
    if not path.parent.is_dir():
        return f", and no folder {path.parent}"
    near = get_close_matches(path.name, [child.name for child in path.parent.iterdir()], n=1, cutoff=0.6)
    return f"; did you mean {path.parent / near[0]}?" if near else ""
