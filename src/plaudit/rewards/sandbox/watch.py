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

_POLL_SECONDS = 0.05
"""Seconds between checks of what the kernel does not limit: threads, and the files of the folder."""
_READ_SIZE = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What one program may use.

    Example: ``SandboxLimits(cpu_seconds=10, wall_seconds=30, memory_mb=1024)``
    """

    cpu_seconds: int = 10
    """Seconds of CPU time."""
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
class SandboxProcess:
    """One of the processes of a run.

    Example: ``SandboxProcess(process=process, ready=reader, folder="/tmp/plaudit-x")``
    """

    process: subprocess.Popen[bytes]
    """The process, leader of a process group of its own."""
    ready: FileIO
    """Where it says that it is confined."""
    folder: str
    """Its working folder."""

    def kill(self) -> None:
        """Kill the process group if it still runs, reap the process, and close its pipes."""
        if self.process.poll() is None:
            # Its number is its own until it is waited for, so the group is still the right one.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchResult:
    """What was seen of a run; of each member in their order.

    Example: ``WatchResult(stop_reason="", exit_code=0, stdout=(b"4\\n",),
        stderr=(b"",), ready=(b"ready",), verdict=b"")``
    """

    stop_reason: str
    """Why it was stopped; empty where the first member ended by itself."""
    exit_code: int
    """With which code the first member ended."""
    stdout: tuple[bytes, ...]
    """The standard output of each process."""
    stderr: tuple[bytes, ...]
    """The standard error of each process."""
    ready: tuple[bytes, ...]
    """What each said once it was confined."""
    verdict: bytes
    """What the examiner wrote to its verdict pipe."""


@dataclass(slots=True)
class _PipeReader:
    """A pipe and what was read from it so far."""

    pipe: FileIO
    max_bytes: int
    content: bytearray = field(default_factory=bytearray)

    def read(self) -> bool:
        """Takes what there is; False at the end."""
        try:
            chunk = os.read(self.pipe.fileno(), _READ_SIZE)
        except BlockingIOError:
            return True
        self.content += chunk[: self.max_bytes + 1 - len(self.content)]
        return bool(chunk)


def watch(members: Sequence[SandboxProcess], limits: SandboxLimits, verdict: FileIO | None) -> WatchResult:
    """Wait for the first member to end, or for something to be enough; then all of them are ended."""
    max_bytes = limits.output_kb * 1024
    outputs = [_pipe_reader(member.process.stdout, max_bytes) for member in members]
    errors = [_pipe_reader(member.process.stderr, max_bytes) for member in members]
    readies = [_pipe_reader(member.ready, 100) for member in members]
    verdicts = [] if verdict is None else [_pipe_reader(verdict, 10_000)]
    readers = [*outputs, *errors, *readies, *verdicts]
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader.pipe, selectors.EVENT_READ, reader)
        with _wake_on_exit(selector, members[0].process.pid):
            stop_reason = _wait_for_end(selector, members, limits, [*outputs, *errors])
    exit_code = members[0].process.poll()
    for member in members:
        member.kill()
    return WatchResult(
        stop_reason=stop_reason,
        exit_code=members[0].process.returncode if exit_code is None else exit_code,
        stdout=tuple(bytes(reader.content) for reader in outputs),
        stderr=tuple(bytes(reader.content) for reader in errors),
        ready=tuple(bytes(reader.content) for reader in readies),
        verdict=b"".join(bytes(reader.content) for reader in verdicts),
    )


def _wait_for_end(
    selector: selectors.BaseSelector,
    members: Sequence[SandboxProcess],
    limits: SandboxLimits,
    outputs: Sequence[_PipeReader],
) -> str:
    started = last_check = time.monotonic()
    while members[0].process.poll() is None:
        _drain(selector, _POLL_SECONDS)
        now = time.monotonic()
        if now - started > limits.wall_seconds:
            return f"it took longer than {limits.wall_seconds:g} seconds"
        if any(len(line.content) > line.max_bytes for line in outputs):
            return f"it wrote more than {limits.output_kb} KiB"
        if now - last_check >= _POLL_SECONDS:
            last_check = now
            for reason in filter(None, (_exceeded_limit(member, limits) for member in members)):
                return reason
    while _drain(selector, 0):
        pass
    is_too_long = any(len(line.content) > line.max_bytes for line in outputs)
    return f"it wrote more than {limits.output_kb} KiB" if is_too_long else ""


def _drain(selector: selectors.BaseSelector, seconds: int | float) -> bool:
    """Take what came, waiting for so long; whether a pipe had anything."""
    any_read = False
    for key, _ in selector.select(seconds):
        if isinstance(key.data, _PipeReader):
            any_read = True
            if not key.data.read():
                selector.unregister(key.fileobj)
    return any_read


def _pipe_reader(pipe: object, max_bytes: int) -> _PipeReader:
    assert isinstance(pipe, FileIO)
    os.set_blocking(pipe.fileno(), False)
    return _PipeReader(pipe, max_bytes)


@contextlib.contextmanager
def _wake_on_exit(selector: selectors.BaseSelector, pid: int) -> Iterator[None]:
    """While this lasts the selector wakes when the process ends."""
    end = os.pidfd_open(pid)
    try:
        selector.register(end, selectors.EVENT_READ)
        yield
    finally:
        os.close(end)


def _exceeded_limit(member: SandboxProcess, limits: SandboxLimits) -> str:
    """Which limit the process exceeds among those that the kernel does not enforce; empty if none."""
    try:
        with open(f"/proc/{member.process.pid}/status", "rb") as file:
            status = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
    except (FileNotFoundError, ProcessLookupError):
        return ""
    if int(status.get(b"Threads", b"1")) > limits.threads:
        return f"it had more than {limits.threads} threads"
    total = 0
    with os.scandir(member.folder) as entries:
        for count, entry in enumerate(entries, 1):
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_size
            if count > limits.entries:
                return f"it had more than {limits.entries} files"
    return f"its files had more than {limits.file_mb} MiB" if total > limits.file_mb * 2**20 else ""
