"""Many rows become tokens on all cores: forked workers take blocks in turn and write what they make to disk.

A block that no worker delivered, whatever became of it, is made here: so a fault shows itself where it can be
caught, and nothing is ever missing.
"""

import json
import mmap
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

from plaudit.files.stored import LazyRows, RowWriter, joined, stored_rows

MANY_ROWS = 2000
"""From so many rows on, all cores work and what they made is kept."""
BLOCK_ROWS = 128
PATIENCE = 120.0
"""Seconds without a single row from any worker after which this process does the rest itself."""

T = TypeVar("T")
Place = tuple[str, int, int]
"""The file of a block, the number of its first row there, and how many rows it has."""
BlockReport = Mapping[str, Any]
"""What is said of a block beside its rows, as JSON."""
EncodeBlock = Callable[[slice], tuple[Sequence[T], BlockReport]]
"""Makes the rows of a block, and what is said of them."""


def cores() -> int:
    """How many processors this process may use, shared with the other ranks of its machine."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, here // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


class RowProgress:
    """How many rows are tokens by now: a line on a terminal, on a log one every ten seconds."""

    def __init__(self, name: str, *, shown: bool) -> None:
        """``name`` is what the line calls the rows."""
        self.total = 0
        self._name = name
        self._shown = shown
        self._on_terminal = sys.stderr.isatty()
        self._started = self._last = monotonic()
        # Shared with forked workers, each of which counts in a place of its own.
        self._counts = memoryview(mmap.mmap(-1, 8 * (1 + cores()))).cast("Q")
        self._own = 0

    def on_row(self) -> None:
        self._counts[self._own] += 1
        if self._own == 0:
            self.show()

    def in_worker(self, number: int) -> None:
        """From now on this process is a worker, with its number from 1."""
        self._own = number

    def show(self) -> None:
        now = monotonic()
        if not self._shown or now - self._last <= (0.5 if self._on_terminal else 10):
            return
        self._last = now
        # Steps of a solution are encoded again to find where they end: no more than all are told.
        line = f"{self._name}: {min(sum(self._counts), self.total):,} of {self.total:,} rows are tokens"
        start, end = ("\r", "") if self._on_terminal else ("", "\n")
        print(f"{start}{line}", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._on_terminal and self._last > self._started:
            print(f"\r{' ' * 79}\r", end="", file=sys.stderr, flush=True)


@dataclass(slots=True, kw_only=True)
class Workshop:
    """Where many rows become tokens, and what they are then."""

    folder: Path
    """Where the rows are written: a folder of its own."""
    classes: Mapping[str, type[Any]]
    workers: int
    progress: RowProgress
    """Counts rows over all processes, and shows how many there are."""
    on_disk: bool = False
    """Whether the rows have to stay on disk, however few they are."""
    made: list[tuple[LazyRows[Any], list[Place]]] = field(default_factory=list)
    """Rows that were made, with their places in the files."""

    def encode(self, count: int, encode: EncodeBlock[T]) -> tuple[Sequence[T], list[BlockReport]]:
        """The rows of all blocks in order, on disk, and what was said of each block."""
        blocks = [slice(start, min(start + BLOCK_ROWS, count)) for start in range(0, count, BLOCK_ROWS)]
        stem = f"encoded-{len(self.made)}"
        parts = [_Part(self.folder / f"{stem}-{number}") for number in range(self.workers + 1)]
        if self.workers > 1:
            self._fork(parts[1:], blocks, encode)
        delivered = {number: part for part in parts[1:] for number in part.delivered()}
        parts[0].write({n: block for n, block in enumerate(blocks) if n not in delivered}, encode)
        delivered |= {number: parts[0] for number in parts[0].delivered()}
        where = [(delivered[n].stem.name, delivered[n].delivered()[n]) for n in range(len(blocks))]
        places = [(name, block["first"], block["rows"]) for name, block in where]
        rows = placed_rows(self.folder, places, self.classes)
        self.made.append((rows, places))
        return rows, [block["report"] for _, block in where]

    def _fork(self, parts: "Sequence[_Part]", blocks: Sequence[slice], encode: EncodeBlock[T]) -> None:
        everyone = dict(enumerate(blocks))
        shares = [{n: everyone[n] for n in range(w, len(blocks), len(parts))} for w in range(len(parts))]
        parent = os.getpid()
        workers: list[int] = []
        try:
            for number, (part, share) in enumerate(zip(parts, shares, strict=True), start=1):
                if pid := _fork_quietly():
                    workers.append(pid)
                else:
                    self.progress.in_worker(number)
                    _work(part, share, encode, parent)
            self._wait(workers, parts)
        finally:
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _wait(self, workers: list[int], parts: "Sequence[_Part]") -> None:
        size, last = -1, monotonic()
        while workers:
            for pid in list(workers):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    workers.remove(pid)
            self.progress.show()
            sleep(0.02)
            if (now := sum(part.size for part in parts)) != size:
                size, last = now, monotonic()
            if monotonic() - last > PATIENCE:
                return


def placed_rows(folder: Path, places: Sequence[Place], classes: Mapping[str, type[Any]]) -> LazyRows[Any]:
    files = {name: stored_rows(folder / name, classes) for name in {name for name, _, _ in places}}
    rows = joined([files[name][first : first + count] for name, first, count in places])
    assert isinstance(rows, LazyRows)
    return rows


def _fork_quietly() -> int:
    with warnings.catch_warnings():
        # Of the threads of torch and tokenizers: a worker computes with neither's.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _work(part: "_Part", share: Mapping[int, slice], encode: EncodeBlock[T], parent: int) -> None:
    status = 1
    try:
        # Ctrl-C is the parent's: it says what is to be done, and ends its workers.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # The threads of the tokenizers stayed behind in the parent.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        part.write(share, encode, parent)
        status = 0
    finally:
        # Not a word of a fault: the parent makes the block again, and tells. No exit handler runs twice.
        os._exit(status)


class _Part:
    """What one process writes: rows, where its blocks begin, and what was said of them."""

    def __init__(self, stem: Path) -> None:
        self.stem = stem
        self._blocks = stem.with_suffix(".blocks")
        self._delivered: dict[int, dict[str, Any]] | None = None

    @property
    def size(self) -> int:
        return self._blocks.stat().st_size if self._blocks.exists() else 0

    def write(self, share: Mapping[int, slice], encode: EncodeBlock[Any], parent: int | None = None) -> None:
        """Make these blocks, each delivered once all of it is written; stop where the parent is gone."""
        if not share:
            return
        first = 0
        with RowWriter(self.stem) as writer, self._blocks.open("w", encoding="ascii") as reports:
            for number, block in share.items():
                if parent is not None and os.getppid() != parent:
                    return
                rows, report = encode(block)
                for row in rows:
                    writer.add(row)
                writer.flush()
                print(
                    json.dumps({"block": number, "first": first, "rows": len(rows), "report": report}),
                    file=reports,
                    flush=True,
                )
                first += len(rows)

    def delivered(self) -> dict[int, dict[str, Any]]:
        """Each block that is whole, by its number."""
        if self._delivered is None:
            lines = self._blocks.read_text("ascii").splitlines(keepends=True) if self._blocks.exists() else []
            blocks = [json.loads(line) for line in lines if line.endswith("\n")]
            self._delivered = {block["block"]: block for block in blocks}
        return self._delivered
