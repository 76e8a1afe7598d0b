"""Rows on disk: one JSON object a line, read by number, so that no more of them are in memory than are used.

    ROWS/rows-0.jsonl      {"is": "Example", "prompt": [1, 5], …}
    ROWS/rows-0.lines      where each line begins, 8 bytes each
    ROWS/rows-0.prompts    of rows that have prompts, 8 bytes of each prompt's hash

A row is a frozen dataclass of texts, numbers, tuples and other such dataclasses; what comes back is equal to
what was put away. Nothing but the classes that a reader names is ever made of a file.
"""

from __future__ import annotations

import json
import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload
from weakref import finalize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
U = TypeVar("U")
_CLASS, _BITS, _PLAIN = "is", "bits", "json"
PromptsOf = Callable[[Sequence[int]], "NDArray[np.uint64] | None"]


def cache_folder() -> Path:
    """Where plaudit keeps what it can make again: ``$XDG_CACHE_HOME/plaudit``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "plaudit"


class LazyRows(Sequence[T], Generic[T]):
    """Rows that are made when they are asked for; a part of them, or a view of each, costs no more.

    >>> squares = LazyRows(lambda number: number**2, range(5))
    >>> list(squares[2:]), list(squares.select([4, 0])), list(squares.map(str))[1]
    ([4, 9, 16], [16, 0], '1')
    """

    def __init__(
        self, fetch: Callable[[int], T], numbers: Sequence[int], prompts: PromptsOf | None = None
    ) -> None:
        self._fetch = fetch
        self.numbers = numbers
        self._prompts = prompts

    def __len__(self) -> int:
        return len(self.numbers)

    def is_part_of(self, other: Sequence[object]) -> bool:
        return isinstance(other, LazyRows) and other._fetch is self._fetch

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> LazyRows[T]: ...
    def __getitem__(self, index: int | slice) -> T | LazyRows[T]:
        if isinstance(index, slice):
            return self.numbered(self.numbers[index])
        return self._fetch(self.numbers[index])

    def select(self, indices: Iterable[int]) -> LazyRows[T]:
        return self.numbered(array("Q", (self.numbers[index] for index in indices)))

    def numbered(self, numbers: Sequence[int]) -> LazyRows[T]:
        return LazyRows(self._fetch, numbers, self._prompts)

    def prompts(self) -> NDArray[np.uint64] | None:
        """Eight bytes of the hash of each row's prompt, without reading rows; None where nobody kept them."""
        return None if self._prompts is None else self._prompts(self.numbers)

    def map(self, make: Callable[[T], U]) -> LazyRows[U]:
        fetch = self._fetch
        return LazyRows(lambda number: make(fetch(number)), self.numbers)


def selected(rows: Sequence[T], indices: Iterable[int]) -> Sequence[T]:
    """The rows at these places: a tuple, or a part of rows on disk."""
    return rows.select(indices) if isinstance(rows, LazyRows) else tuple(rows[index] for index in indices)


def filtered(rows: Sequence[T], keep: Callable[[T], bool]) -> Sequence[T]:
    indices = array("Q", (index for index, row in enumerate(rows) if keep(row)))
    return rows if len(indices) == len(rows) else selected(rows, indices)


def mapped(rows: Sequence[T], make: Callable[[T], U]) -> Sequence[U]:
    return rows.map(make) if isinstance(rows, LazyRows) else tuple(make(row) for row in rows)


def joined(parts: Sequence[Sequence[T]]) -> Sequence[T]:
    if len(parts) == 1:
        return parts[0]
    if not any(isinstance(part, LazyRows) for part in parts):
        return tuple(row for part in parts for row in part)
    ends = list(accumulate(len(part) for part in parts))

    def fetch(number: int) -> T:
        part = bisect_right(ends, number)
        return parts[part][number - (ends[part - 1] if part else 0)]

    def prompts(numbers: Sequence[int]) -> NDArray[np.uint64] | None:
        import numpy as np

        each = [part.prompts() if isinstance(part, LazyRows) else None for part in parts]
        every = [part for part in each if part is not None]
        return np.concatenate(every)[np.asarray(numbers)] if len(every) == len(parts) else None

    return LazyRows(fetch, range(ends[-1]), prompts)


class UnstorableError(Exception):
    """A row holds what no JSON can: a picture's tensor, a number of another kind."""


def to_json(value: object) -> object:
    """A row as JSON holds it.

    >>> to_json((True, False)), to_json((3, 4))
    ({'bits': '10'}, [3, 4])
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        # By the first one: tokens and masks are long, and each is of one kind.
        if items and type(items[0]) is bool:
            return {_BITS: "".join("1" if item else "0" for item in items)}
        return list(items) if items and type(items[0]) is int else [to_json(item) for item in items]
    if isinstance(value, Mapping):
        return {_PLAIN: value}
    if is_dataclass(value) and not isinstance(value, type):
        filled = (name for name, default in _defaults(type(value)) if getattr(value, name) != default)
        return {_CLASS: type(value).__name__, **{name: to_json(getattr(value, name)) for name in filled}}
    raise UnstorableError(f"{type(value).__name__} cannot be put away")


@cache
def _defaults(kind: type[Any]) -> list[tuple[str, object]]:
    return [
        (part.name, part.default if part.default_factory is MISSING else part.default_factory())
        for part in fields(kind)
        if part.init
    ]


def from_json(value: Any, classes: Mapping[str, type[Any]]) -> Any:
    """What `to_json` was given; only these classes are made."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if items and type(items[0]) is int:
            return tuple(items)
        return tuple(from_json(item, classes) for item in items)
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        if _BITS in found:
            return tuple(bit == "1" for bit in found[_BITS])
        if _PLAIN in found:
            return found[_PLAIN]
        kind = classes[found[_CLASS]]
        return kind(**{name: from_json(item, classes) for name, item in found.items() if name != _CLASS})
    return value


class RowWriter:
    """Rows behind each other into one file.
    Example: ``with RowWriter(folder / "rows-0") as writer: writer.add(Example(...))``."""

    def __init__(self, stem: Path) -> None:
        """``stem`` without an ending: of the lines, and of where each begins."""
        self._lines = stem.with_suffix(".jsonl").open("wb")
        self._starts = stem.with_suffix(".lines").open("wb")
        self._prompts = stem.with_suffix(".prompts").open("wb")
        self._end = 0

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for file in (self._lines, self._starts, self._prompts):
            file.close()

    def add(self, row: object) -> None:
        try:
            line = json.dumps(to_json(row), separators=(",", ":")).encode() + b"\n"
        except TypeError as error:
            raise UnstorableError(str(error)) from error
        self._starts.write(self._end.to_bytes(8, "little"))
        self._lines.write(line)
        self._prompts.write(bytes.fromhex(getattr(row, "prompt_id", "")[:16]))
        self._end += len(line)

    def flush(self) -> None:
        for file in (self._lines, self._starts, self._prompts):
            file.flush()


def stored_rows(stem: Path, classes: Mapping[str, type[Any]]) -> LazyRows[Any]:
    """The rows of a file that a `RowWriter` wrote."""
    # Only now: whoever reads rows without keeping them does not wait for it.
    import numpy as np

    # Of a writer that was killed the last one may be a piece.
    starts = np.fromfile(stem.with_suffix(".lines"), dtype="<u8").astype(np.uint64)
    prompts = np.fromfile(stem.with_suffix(".prompts"), dtype="<u8").astype(np.uint64)
    # Read and not mapped: what was read of a mapped file counts as this process's memory.
    file = os.open(stem.with_suffix(".jsonl"), os.O_RDONLY | os.O_CLOEXEC)
    ends = np.append(starts[1:], np.uint64(os.fstat(file).st_size))

    def fetch(number: int) -> Any:
        begin = int(starts[number])
        # By place and without a common position: forked workers read the same file.
        return from_json(json.loads(os.pread(file, int(ends[number]) - begin, begin)), classes)

    # It stays open, though its name may go, for as long as anybody can ask for a row.
    finalize(fetch, os.close, file)

    def prompts_of(numbers: Sequence[int]) -> NDArray[np.uint64]:
        return prompts[np.asarray(numbers)]

    return LazyRows(fetch, range(len(starts)), prompts_of if len(prompts) == len(starts) > 0 else None)


class RowKeeper(Generic[T]):
    """Rows as they come: in memory, or in files of this name.

    >>> with RowKeeper(None, {}) as rows:
    ...     rows.extend([3, 4])
    >>> rows.result()
    (3, 4)
    """

    def __init__(self, stem: Path | None, classes: Mapping[str, type[Any]]) -> None:
        """``stem`` without an ending; None: memory. ``classes`` are what the rows are made of."""
        self._stem = stem
        self._classes = classes
        self._in_memory: list[T] = []
        self._writer = None if stem is None else RowWriter(stem)

    def __enter__(self) -> RowKeeper[T]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def extend(self, rows: Iterable[T]) -> None:
        if self._writer is None:
            self._in_memory.extend(rows)
            return
        for row in rows:
            self._writer.add(row)

    def result(self) -> Sequence[T]:
        return tuple(self._in_memory) if self._stem is None else stored_rows(self._stem, self._classes)
