"""The bytes of a file, unzipped as they are read, and never more than somebody could have written."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase, BufferedReader, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.errors import UserError

if TYPE_CHECKING:
    import pyarrow

_CHUNK_BYTES = 1 << 20
_UNZIPPED_ANYWAY, _MOST_RATIO = 16 << 20, 200
"""Bytes that are unzipped whatever the file's size, and how often its size may be."""


@contextmanager
def open_bytes(path: Path) -> Iterator[BufferedIOBase]:
    """The bytes of a file, unzipped by its ending; UTF-16 and damage are said as such."""
    with path.open("rb") as raw:
        if raw.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise UserError(f"{path}: the file is in UTF-16; save it as UTF-8")
        raw.seek(0)
        if path.suffix.lower() not in (".gz", ".zst"):
            yield raw
            return
        try:
            with _unzipping(path, raw) as stream:
                # Lines are found by the buffer; the bound is looked at once for each of its fillings.
                yield BufferedReader(_Bounded(path, stream), _CHUNK_BYTES)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(
                f"{path}: the compressed file is damaged ({error}); copy or make it again"
            ) from error


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
