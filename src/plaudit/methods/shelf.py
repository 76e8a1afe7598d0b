"""Where the rows of a source lie once they are read: kept for the next run, and on disk where they are many.

    CACHE/plaudit/rows/KEY/   .about.json, records.*, encoded-0-1.*, …

The key is a hash of the file's bytes, of every setting that makes tokens of them, of tokenizer and template,
and of plaudit's own code: whatever changes, the rows are read anew. Only sets without a bad row are kept, so
that what is wrong with the others is told each time.
"""

import inspect
import json
import os
import shutil
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from functools import cache, partial
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import time
from typing import Any

from transformers import PreTrainedTokenizerFast

import plaudit
from plaudit.data.records import RECORD_CLASSES
from plaudit.engine.run_folder import hash_path
from plaudit.errors import UserError
from plaudit.files import atomic, hub
from plaudit.files.stored import LazyRows, RowWriter, UnstorableError, cache_folder, stored_rows
from plaudit.methods.config import RunConfig
from plaudit.tokens.encode import Encoder
from plaudit.tokens.parallel import MANY_ROWS, Place, RowProgress, Workshop, cores, placed_rows
from plaudit.tokens.preferences import ROW_CLASSES

ON_DISK_BYTES = 256 * 2**20
"""From so many bytes of text on, rows stay on disk: as tokens in memory they would take ten times as much."""
CACHE_BYTES = 20 * 2**30
"""What the cache may take; beyond it the sets that were used longest ago go."""
_LEAST_BYTES = 50 * MANY_ROWS
_PACKED = {".parquet": 4, ".gz": 6}
_ABOUT, _NUMBERS, _RECORDS = ".about.json", "numbers", "records"
_UNFINISHED = ".made-"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedRows:
    records: Sequence[Any]
    examples: Sequence[Any]
    notes: tuple[str, ...]
    """What was said of them when they were read."""


@dataclass(slots=True, kw_only=True)
class Shelf:
    """The place of one source's rows while they are read, and afterwards."""

    place: Path | None
    """Where they lie afterwards; None where they are not kept."""
    on_disk: bool
    """Whether they stay on disk, and only what is used is in memory."""
    workshop: Workshop | None
    """What makes tokens of many of them; None where they are few."""

    @property
    def record_files(self) -> Path | None:
        """Where records go while they are read; None: into memory."""
        return self.workshop.folder / _RECORDS if self.workshop and self.on_disk else None

    def cached_rows(self) -> CachedRows | None:
        about = _about(self.place)
        if self.place is None or about is None:
            return None
        made = placed_rows(self.place, [tuple(place) for place in about["places"]], ROW_CLASSES)
        numbers = array("Q", (self.place / _NUMBERS).read_bytes())
        stored = stored_rows(self.place / _RECORDS, RECORD_CLASSES), made.numbered(numbers)
        # The time of its last use: the oldest go first.
        with suppress(OSError):
            os.utime(self.place)
        records, examples = stored if self.on_disk else (tuple(rows) for rows in stored)
        return CachedRows(records=records, examples=examples, notes=tuple(about["notes"]))

    def keep(self, rows: CachedRows, *, sound: bool) -> CachedRows:
        """The rows as they are from now on; where every one of them is sound, for the next time as well."""
        made = self.workshop.made if self.workshop else ()
        if self.workshop and self.place is not None and sound and len(made) == 1:
            # What cannot be kept is read again the next time: no reason to end a run.
            with suppress(UnstorableError, OSError, UserError):
                self._put_away(self.workshop.folder, self.place, rows, *made[0])
        # What lies on disk stays readable when its files are gone: they are mapped.
        return rows if self.on_disk else replace(rows, examples=tuple(rows.examples))

    def _put_away(
        self, folder: Path, place: Path, rows: CachedRows, made: LazyRows[Any], places: Sequence[Place]
    ) -> None:
        if not isinstance(rows.examples, LazyRows) or not rows.examples.is_part_of(made):
            return
        if not self.on_disk:
            with RowWriter(folder / _RECORDS) as writer:
                for record in rows.records:
                    writer.add(record)
        (folder / _NUMBERS).write_bytes(array("Q", rows.examples.numbers).tobytes())
        about = {"places": [list(each) for each in places], "notes": list(rows.notes)}
        atomic.write_json(folder / _ABOUT, {**about, "digest": _digest(folder, about)})
        # Where another rank has come first this fails: there are two of the same, and one goes.
        folder.rename(place)
        _make_room(place.parent)


def _about(place: Path | None) -> Mapping[str, Any] | None:
    """What was written of kept rows; None where there are none, or not every byte is as it was written."""
    if place is None or not place.is_dir():
        return None
    try:
        about = json.loads((place / _ABOUT).read_text("utf-8"))
        whole = about.pop("digest") == _digest(place, about)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        whole, about = False, None
    if not whole:
        shutil.rmtree(place, ignore_errors=True)
    return about if whole else None


def _digest(place: Path, about: Mapping[str, Any]) -> str:
    """Of all that lies there, and of what is said of it in a file that does not count for its dot."""
    return blake2b(f"{hash_path(place)} {json.dumps(about)}".encode(), digest_size=20).hexdigest()


@contextmanager
def open_shelf(
    path: Path, config: RunConfig, encoder: Encoder, recipe: Callable[..., object], progress: RowProgress
) -> Iterator[Shelf]:
    source = hub.local_path(path, "dataset", split=config.rows.split)
    size = sum(file.stat().st_size * _PACKED.get(file.suffix.lower(), 1) for file in _files_of(source))
    always = config.rows.on_disk == "always"
    on_disk = always or (config.rows.on_disk == "auto" and size > ON_DISK_BYTES)
    if encoder.read_extras is not None or not (on_disk or size > _LEAST_BYTES):
        yield Shelf(place=None, on_disk=False, workshop=None)
        return
    root = cache_folder() / "rows"
    decides = (recipe, config.format, config.max_length, config.read_options)
    place = _place(root, path, source, encoder, decides) if config.rows.cached else None
    folder = _new_folder(root)
    workers = cores() if hasattr(os, "fork") and sys.platform != "darwin" else 1
    try:
        with atomic.disk_errors_explained(root):
            workshop = Workshop(
                folder=folder, classes=ROW_CLASSES, workers=workers, progress=progress, on_disk=on_disk
            )
            yield Shelf(place=place, on_disk=on_disk, workshop=workshop)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _new_folder(root: Path) -> Path:
    try:
        root.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=root))
    except OSError:
        # A home that cannot be written to is no reason not to train.
        return Path(tempfile.mkdtemp(prefix="plaudit-rows-"))


def _files_of(source: Path) -> list[Path]:
    if source.is_dir():
        return sorted(file for file in source.rglob("*") if file.is_file())
    return [source] if source.is_file() else []


class _UnnamedError(Exception):
    """Something that decides what rows become has no name that says all of it."""


def _place(root: Path, path: Path, source: Path, encoder: Encoder, decides: Sequence[object]) -> Path | None:
    """The folder of a source's rows, by all that decides what they become; None where that has no name."""
    state = blake2b(digest_size=20)
    try:
        for part in _names((replace(encoder, on_row=None, workshop=None), *decides)):
            state.update(f"{part}\n".encode("utf-8", "backslashreplace"))
    except _UnnamedError:
        return None
    template = encoder.template or ""
    if "strftime_now" in template:
        # The template writes the date.
        state.update(datetime.now().astimezone().date().isoformat().encode())
    state.update(_code_digest())
    # By its path too: origins and notes say it.
    state.update(f"{path} {hash_path(source)}".encode())
    return root / state.hexdigest()


def _names(value: object) -> Iterator[str]:
    if value is None or isinstance(value, str | int | float | bool | Path):
        yield f"{type(value).__name__} {value!r}"
        return
    name, parts = _anatomy(value)
    yield f"{name} of {len(parts)}"
    for part in parts:
        yield from _names(part)


def _anatomy(value: Any) -> tuple[str, Sequence[object]]:
    kind = type(value).__qualname__
    if isinstance(value, partial):
        return kind, (value.func, value.args, value.keywords)
    if isinstance(value, PreTrainedTokenizerFast):
        return kind, (value.backend_tokenizer.to_str(), value.special_tokens_map)
    if is_dataclass(value):
        return kind, [part for item in fields(value) for part in (item.name, getattr(value, item.name))]
    if isinstance(value, Mapping):
        return kind, list(value.items())
    if isinstance(value, frozenset | tuple | list):
        return kind, sorted(map(str, value)) if isinstance(value, frozenset) else value
    if inspect.isfunction(value) and value.__module__.startswith("plaudit."):
        # What it does stands in plaudit's own code, which counts as a whole.
        function = inspect.unwrap(value)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        return f"{function.__module__}.{function.__qualname__}", cells
    raise _UnnamedError


@cache
def _code_digest() -> bytes:
    """Of plaudit's own code and of the libraries that make tokens."""
    state = blake2b(digest_size=20)
    for file in sorted(Path(plaudit.__file__).parent.rglob("*.py")):
        state.update(file.read_bytes())
    for library in ("transformers", "tokenizers", "jinja2", "pyarrow"):
        with suppress(PackageNotFoundError):
            state.update(f"{library} {version(library)}".encode())
    return state.digest()


def _make_room(root: Path) -> None:
    """Drop the sets that were used longest ago beyond the cache's size, and what killed runs left."""
    day_ago = time() - 86400
    for unfinished in root.glob(f"{_UNFINISHED}*"):
        if unfinished.stat().st_mtime < day_ago:
            shutil.rmtree(unfinished, ignore_errors=True)
    total = 0
    for place in sorted(root.glob("[0-9a-f]*"), key=lambda place: -place.stat().st_mtime):
        total += sum(file.stat().st_size for file in _files_of(place))
        if total > CACHE_BYTES:
            shutil.rmtree(place, ignore_errors=True)
