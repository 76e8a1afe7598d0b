"""Watching confined processes from outside: what they write, how long they take, and when it is enough."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import FileIO

from plaudit.errors import UserError

_LOOK = 0.05
"""Seconds between looks at what the kernel does not limit: threads, and the files of the folder."""
_PIECE = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use.

    Example: ``Limits(cpu_seconds=10, wall_seconds=30, memory_mb=1024)``
    """

    cpu_seconds: int = 10
    """Seconds of computing."""
    wall_seconds: int | float = 30
    """Seconds by the clock; longer, since other programs run beside it."""
    memory_mb: int = 1024
    """Mebibytes of address space."""
    file_mb: int = 16
    """Mebibytes of one file, and of all files of its folder together."""
    entries: int = 100
    """Files in its folder."""
    open_files: int = 64
    """Open files."""
    threads: int = 32
    """Threads, the first one counted."""
    output_kb: int = 1024
    """Kibibytes of what it writes, to each of its two outputs."""

    def __post_init__(self) -> None:
        """Refuse what nothing could run in."""
        for name in self.__dataclass_fields__:
            if not getattr(self, name) > 0:
                raise UserError(f"sandbox: {name} is {getattr(self, name)}; give more than 0")
        if self.memory_mb < 64 or self.open_files < 16:
            raise UserError("sandbox: Python itself needs memory_mb of 64 and open_files of 16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One of the processes of a run.

    Example: ``Member(process=process, ready=reader, folder="/tmp/plaudit-x")``
    """

    process: subprocess.Popen[bytes]
    """It leads a group of its own."""
    ready: FileIO
    """Where it says that it is confined."""
    folder: str
    """Its own folder."""

    def end(self) -> None:
        """Kill what is left of it, and bury it: neither a process nor a zombie stays."""
        if self.process.poll() is None:
            # Its number is its own until it is waited for, so the group is still the right one.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What was seen of a run; of each member in their order.

    Example: ``Watched(ending="", code=0, output=(b"4\\n",), errors=(b"",), ready=(b"ready",), verdict=b"")``
    """

    ending: str
    """Why it was stopped; empty where the first member ended by itself."""
    code: int
    """With which code the first member ended."""
    output: tuple[bytes, ...]
    """What each wrote."""
    errors: tuple[bytes, ...]
    """What each complained of."""
    ready: tuple[bytes, ...]
    """What each said once it was confined."""
    verdict: bytes
    """What came by the line of the verdict."""


@dataclass(slots=True)
class _Line:
    """A pipe and what came of it."""

    pipe: FileIO
    most: int
    content: bytearray = field(default_factory=bytearray)

    def read(self) -> bool:
        """Takes what there is; False at the end."""
        try:
            piece = os.read(self.pipe.fileno(), _PIECE)
        except BlockingIOError:
            return True
        self.content += piece[: self.most + 1 - len(self.content)]
        return bool(piece)


def watch(members: Sequence[Member], limits: Limits, verdict: FileIO | None) -> Watched:
    """Wait for the first member to end, or for something to be enough; then all of them are ended."""
    most = limits.output_kb * 1024
    outputs = [_line(member.process.stdout, most) for member in members]
    errors = [_line(member.process.stderr, most) for member in members]
    readies = [_line(member.ready, 100) for member in members]
    verdicts = [] if verdict is None else [_line(verdict, 10_000)]
    lines = [*outputs, *errors, *readies, *verdicts]
    with selectors.DefaultSelector() as selector:
        for line in lines:
            selector.register(line.pipe, selectors.EVENT_READ, line)
        with _ended_signal(selector, members[0].process.pid):
            ending = _until_the_end(selector, members, limits, [*outputs, *errors])
    code = members[0].process.poll()
    for member in members:
        member.end()
    return Watched(
        ending=ending,
        code=members[0].process.returncode if code is None else code,
        output=tuple(bytes(line.content) for line in outputs),
        errors=tuple(bytes(line.content) for line in errors),
        ready=tuple(bytes(line.content) for line in readies),
        verdict=b"".join(bytes(line.content) for line in verdicts),
    )


def _until_the_end(
    selector: selectors.BaseSelector, members: Sequence[Member], limits: Limits, outputs: Sequence[_Line]
) -> str:
    begun = looked = time.monotonic()
    while members[0].process.poll() is None:
        _drain(selector, _LOOK)
        now = time.monotonic()
        if now - begun > limits.wall_seconds:
            return f"it took longer than {limits.wall_seconds:g} seconds"
        if any(len(line.content) > line.most for line in outputs):
            return f"it wrote more than {limits.output_kb} KiB"
        if now - looked >= _LOOK:
            looked = now
            for found in filter(None, (_too_much(member, limits) for member in members)):
                return found
    while _drain(selector, 0):
        pass
    over = any(len(line.content) > line.most for line in outputs)
    return f"it wrote more than {limits.output_kb} KiB" if over else ""


def _drain(selector: selectors.BaseSelector, seconds: int | float) -> bool:
    """Take what came, waiting for so long; whether a pipe had anything."""
    came = False
    for key, _ in selector.select(seconds):
        if isinstance(key.data, _Line):
            came = True
            if not key.data.read():
                selector.unregister(key.fileobj)
    return came


def _line(pipe: object, most: int) -> _Line:
    assert isinstance(pipe, FileIO)
    os.set_blocking(pipe.fileno(), False)
    return _Line(pipe, most)


@contextlib.contextmanager
def _ended_signal(selector: selectors.BaseSelector, pid: int) -> Iterator[None]:
    """While this lasts the selector wakes when the process ends."""
    end = os.pidfd_open(pid)
    try:
        selector.register(end, selectors.EVENT_READ)
        yield
    finally:
        os.close(end)


def _too_much(member: Member, limits: Limits) -> str:
    """What the kernel does not limit, and is beyond its limit."""
    try:
        with open(f"/proc/{member.process.pid}/status", "rb") as file:
            said = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
    except (FileNotFoundError, ProcessLookupError):
        return ""
    if int(said.get(b"Threads", b"1")) > limits.threads:
        return f"it had more than {limits.threads} threads"
    total = 0
    with os.scandir(member.folder) as entries:
        for count, entry in enumerate(entries, 1):
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_size
            if count > limits.entries:
                return f"it had more than {limits.entries} files"
    return f"its files had more than {limits.file_mb} MiB" if total > limits.file_mb * 2**20 else ""
