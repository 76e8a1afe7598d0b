"""Rows from a file by its ending, from a folder of ``datasets``, or from an object in Python.

JSON lines and JSON, plain or compressed, are read a line at a time, and never more than the limit nor than
somebody could have written; `plaudit.data.tables` reads what is a table.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from io import BufferedIOBase, BufferedReader, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.data import fields
from plaudit.data.tables import READING_FAULTS, arrow_rows, csv_rows, object_rows, parquet_rows, pick_split
from plaudit.errors import UserError
from plaudit.files import data_sets, hub
from plaudit.files.exact_json import RepeatedKeyError, object_of_pairs
from plaudit.files.model_folder import refuse_special_file

if TYPE_CHECKING:
    import pyarrow

# Windows tools begin UTF-8 files with it, and a JSON text may not.
_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1 << 20


def jsonl_rows(path: Path, limit: int) -> Iterator[fields.RawRow]:
    """The rows of a ``.jsonl`` or ``.jsonl.gz`` file; blank lines hold no row."""
    with _open_bytes(path) as stream:
        for number, (line, complete) in enumerate(_limited_lines(path, stream, limit), start=1):
            origin = f"{path.name}:{number}"
            if not complete:
                yield fields.too_large_row(
                    origin, limit, line[:200].decode("utf-8", errors="backslashreplace")
                )
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


def json_rows(path: Path, limit: int) -> Iterator[fields.RawRow]:
    """The rows of a ``.json`` file: a list, an object that holds one, a single row, or JSON lines."""
    if _is_json_lines(path, limit):
        yield from jsonl_rows(path, limit)
        return
    with _open_bytes(path) as stream:
        content = b"".join(iter(lambda: stream.read(_CHUNK_BYTES), b""))
    try:
        document, faults = _load_with_faults(content.removeprefix(_BOM))
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
        if faults and (fault := _fault_in(value)) is not None:
            yield _faulty_row(fault, origin, json.dumps(value, ensure_ascii=False, default=lambda _: None))
            continue
        row = fields.row_from_value(value, origin)
        yield fields.too_large_row(origin, limit, row.text) if len(row.text) > limit else row


def _parse_line(line: bytes, origin: str) -> fields.RawRow:
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
        return fields.bad_row(
            "bad UTF-8",
            origin,
            expected="text in UTF-8",
            found=f"byte 0x{line[error.start]:02x} at position {error.start + 1}",
            text=line.decode("utf-8", errors="backslashreplace"),
        )
    if "\0" in text:
        return fields.bad_row("NUL", origin, expected="text without NUL", found="a NUL byte", text=text)
    try:
        value, faults = _load_with_faults(text)
    except json.JSONDecodeError as error:
        found = f"{error.msg} at position {error.pos + 1}: {fields.shorten(text)}"
        return fields.bad_row("broken row", origin, expected="a JSON object", found=found, text=text)
    except RecursionError:
        found = "thousands of brackets"
        return fields.bad_row("broken row", origin, expected="a JSON object", found=found, text=text)
    except ValueError as error:
        # Integers of more than 4,300 digits; behind the semicolon stands Python's advice.
        found = str(error).split(";")[0]
        return fields.bad_row("broken row", origin, expected="finite numbers", found=found, text=text)
    return _faulty_row(faults[0], origin, text) if faults else fields.row_from_value(value, origin, text)


def _faulty_row(fault: fields.BadRowError, origin: str, text: str) -> fields.RawRow:
    return fields.RawRow(origin=origin, problem=fault.problem_at(origin), text=text)


def _load_with_faults(content: bytes | str) -> tuple[Any, list[fields.BadRowError]]:
    """A document with each fault in its place, and all of them: one bad row does not refuse the rest."""
    # JSON has no NaN and no infinity, though some writers do, and each key once.
    faults: list[fields.BadRowError] = []

    def constant(word: str) -> fields.BadRowError:
        faults.append(fields.BadRowError("non-finite number", "", expected="finite numbers", found=word))
        return faults[-1]

    def object_or_fault(pairs: Sequence[tuple[str, Any]]) -> Any:
        try:
            return object_of_pairs(pairs)
        except RepeatedKeyError as error:
            faults.append(fields.BadRowError("repeated key", "", expected="each key once", found=str(error)))
            return faults[-1]

    return json.loads(content, parse_constant=constant, object_pairs_hook=object_or_fault), faults


def _fault_in(value: object) -> fields.BadRowError | None:
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, fields.BadRowError):
            return value
        if isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
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
    with _open_bytes(path) as stream:
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
    raise UserError(f"{path}: expected a list of rows, found {fields.describe_value(document)}")


def _is_row_list(value: object) -> bool:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return False
    return bool(value) and not all({"role", "content"} <= set(item) for item in value)


def folder_rows(path: Path, limit: int, split: str | None) -> Iterator[fields.RawRow]:
    if hub.name_on_hub(path) is not None:
        # What of the hub lies here was chosen by its name: all of it is meant, in order.
        splits: Mapping[str, Sequence[Path]] = {
            "": sorted(child for child in path.iterdir() if not child.name.startswith("."))
        }
    else:
        splits = _repository_splits(path)
    if splits:
        shards: Any = pick_split(splits, split, str(path))
        for shard in shards:
            _refuse_pointer(shard)
            yield from raw_rows(shard, limit=limit)
        return
    if not any((path / name).exists() for name in _SAVED_BY_DATASETS):
        children = ", ".join(sorted(child.name for child in path.iterdir())[:5]) or "nothing"
        raise UserError(
            f"{path}: a folder, but not one that datasets saved, and no file of rows lies in it (it holds "
            f"{children}); rows are {', '.join(data_sets.ROW_ENDINGS)}"
        )
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise UserError(f'{path}: reading it needs datasets: pip install "plaudit[data]"') from error
    try:
        dataset = datasets.load_from_disk(str(path))
    except READING_FAULTS as error:
        why = " ".join(str(error).split())
        raise UserError(f"{path}: a damaged folder of datasets ({why}); save it again") from error
    if isinstance(dataset, dict):
        dataset = pick_split(dataset, split, str(path))
    yield from object_rows(dataset, path.name, limit, split=None)


_SHARD = re.compile(r"(?P<split>.+?)(-\d+)?-of-\d+")
_SAVED_BY_DATASETS = ("state.json", "dataset_dict.json")


def _repository_splits(folder: Path) -> Mapping[str, Sequence[Path]]:
    """The files of each split of a clone: what its README.md names, else what the files' names say."""
    if any((folder / name).exists() for name in _SAVED_BY_DATASETS):
        return {}
    names = [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*")) if file.is_file()]
    card = data_sets.card_front(folder / "README.md", folder) if "README.md" in names else {}
    if card.get("configs"):
        word = hub.HubWord(kind="dataset", repo=str(folder), revision="main")
        splits = data_sets.declared_splits(word, names, card)
    else:
        splits = _named_splits(name for name in names if data_sets.holds_rows(name))
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


_UNZIPPED_ANYWAY, _MOST_RATIO = 16 << 20, 200
"""Bytes that are unzipped whatever the file's size, and how often its size may be."""


@contextmanager
def _open_bytes(path: Path) -> Iterator[BufferedIOBase]:
    with path.open("rb") as raw:
        if path.suffix.lower() not in (".gz", ".zst"):
            yield raw
            return
        try:
            with _unzipping(path, raw) as stream:
                # Lines are found by the buffer; the bound is looked at once for each of its fillings.
                yield BufferedReader(_Bounded(path, stream), _CHUNK_BYTES)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{path}: the compressed file is damaged ({error}); make it again") from error


def _unzipping(path: Path, raw: BufferedReader) -> gzip.GzipFile | pyarrow.NativeFile:
    if path.suffix.lower() == ".gz":
        return gzip.GzipFile(fileobj=raw)
    import pyarrow

    if not pyarrow.Codec.is_available("zstd"):
        raise UserError(f"{path}: this pyarrow knows no zstd; unzip the file first: zstd -d {path.name}")
    return pyarrow.CompressedInputStream(pyarrow.PythonFile(raw), "zstd")


class _Bounded(RawIOBase):
    """A compressed file that may not unzip to what nobody wrote: a bomb is a thousand times its size."""

    def __init__(self, path: Path, stream: gzip.GzipFile | pyarrow.NativeFile) -> None:
        self._path, self._stream, self._so_far = path, stream, 0
        self._most = max(_UNZIPPED_ANYWAY, _MOST_RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        try:
            data = self._stream.read(len(view))
        except OSError as error:
            raise EOFError(str(error)) from error
        self._so_far += len(data)
        if self._so_far > self._most:
            raise UserError(
                f"{self._path}: it unzips to more than {self._most >> 20:,} MiB, {_MOST_RATIO} times its own "
                "size, as no rows do; if it is right, unzip it first"
            )
        view[: len(data)] = data
        return len(data)


Source = str | Path | Iterable[object]

_READERS = {
    "jsonl": jsonl_rows,
    "json": json_rows,
    "csv": csv_rows,
    "tsv": csv_rows,
    "parquet": parquet_rows,
    "arrow": arrow_rows,
}
READERS: Mapping[str, Callable[[Path, int], Iterator[fields.RawRow]]] = {
    ending: _READERS[ending.split(".")[1]] for ending in data_sets.ROW_ENDINGS
}


def raw_rows(
    source: Source, *, split: str | None = None, limit: int = fields.ROW_LIMIT
) -> Iterator[fields.RawRow]:
    """The rows of a source, one at a time; what cannot be read is a row with a problem.

    >>> [row.origin for row in raw_rows([{"prompt": "Hi"}, {"prompt": "Ho"}])]
    ['rows:1', 'rows:2']
    """
    if not isinstance(source, str | Path):
        return object_rows(source, source_name(source), limit, split=split)
    path = hub.local_path(source, "dataset", split=split)
    # The split of such a folder was chosen when it was made.
    split = None if hub.name_on_hub(path) else split
    if (registered := data_sets.registered_set(path, split)) is not None:
        path, split = registered[0], None
    _refuse_no_file(path)
    if not os.access(path, os.R_OK):
        raise UserError(f"{path}: may not be read by this user; change its permissions")
    refuse_special_file(path)
    if path.is_dir():
        return folder_rows(path, limit, split)
    if split is not None:
        raise UserError(f"{path}: a single file has no splits; leave out split={split!r}")
    with path.open("rb") as stream:
        begin = stream.read(2)
    if not begin:
        raise UserError(f"{path}: the file is empty")
    if begin in (b"\xff\xfe", b"\xfe\xff"):
        raise UserError(f"{path}: the file is in UTF-16; save it as UTF-8")
    return READERS[file_ending(path)](path, limit)


def _refuse_no_file(path: Path) -> None:
    try:
        there = path.exists()
    except OSError as error:
        raise UserError(f"{str(path)[:80]}…: no name of a file ({error.strerror})") from error
    if not there:
        if data_sets.SEVERAL in str(path):
            raise UserError(f"{path}: several sources are taken by training alone, in --data and --prompts")
        raise UserError(f"{path}: no such file{_near_path_hint(path)}")


def source_name(source: Source) -> str:
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
    hint = f"; did you mean {near[0]}?" if near else "."
    endings_text = f"Known endings: {', '.join(endings)}."
    raise UserError(f"{path}: cannot tell rows by the ending {suffix!r}{hint} {endings_text}")


def _near_path_hint(path: Path) -> str:
    if path.is_symlink():
        return ", only a link to what is not there"
    if not path.parent.is_dir():
        return f", and no folder {path.parent}"
    near = get_close_matches(path.name, [child.name for child in path.parent.iterdir()], n=1, cutoff=0.6)
    return f"; did you mean {path.parent / near[0]}?" if near else ""
