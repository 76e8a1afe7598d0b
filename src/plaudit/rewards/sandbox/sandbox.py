"""A stranger's Python, confined: fresh processes that can read Python, write one folder, and reach nothing.

Nothing runs where this cannot be had: `Sandbox` refuses on a system without Landlock and seccomp rather than
run unconfined. Processes are watched from outside: what they write, how long they take, and when it is
enough. What a run did is told as it was; what could not be run is a `SandboxError`, which says nothing of the
program.
"""

import contextlib
import json
import os
import platform
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from plaudit.errors import UserError
from plaudit.rewards.sandbox.confine import MACHINES, OLDEST_LANDLOCK, landlock_version, readable_folders
from plaudit.rewards.sandbox.runner import READY

_POLL_SECONDS = 0.05
"""Seconds between checks of what the kernel does not limit: threads."""
_READ_SIZE = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    cpu_seconds: int = 10
    wall_seconds: int | float = 30
    """Seconds by the clock; longer, since other programs run beside it."""
    memory_mb: int = 1024
    file_mb: int = 16
    """Mebibytes of all that it writes to files."""
    entries: int = 100
    open_files: int = 64
    threads: int = 32
    output_kb: int = 1024

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if not getattr(self, name) > 0:
                raise UserError(f"sandbox: {name} is {getattr(self, name)}; give more than 0")
        if self.memory_mb < 64 or self.open_files < 16:
            raise UserError("sandbox: Python itself needs memory_mb of 64 and open_files of 16")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxProcess:
    process: subprocess.Popen[bytes]
    ready: FileIO

    def kill(self) -> None:
        """Kill the process group if it still runs, reap the process, and close its pipes."""
        if self.process.poll() is None:
            # Its number is its own until it is waited for, so the group is still the right one.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        # Reaped here, or its zombie would stay for as long as the trainer runs.
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


class SandboxError(RuntimeError):
    """The sandbox itself failed; this says nothing of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    stop_reason: str
    exit_code: int
    """With which code it ended; negative is the signal."""
    stdout: bytes
    stderr: bytes
    verdict: bytes
    """What an examiner said; a program has no way to this."""


@dataclass(slots=True)
class _PipeReader:
    pipe: FileIO
    max_bytes: int
    content: bytearray = field(default_factory=bytearray)

    def read(self) -> bool:
        """Takes what there is; False at the end."""
        try:
            chunk = os.read(self.pipe.fileno(), _READ_SIZE)
        except BlockingIOError:
            return True
        # One byte above the limit is kept, which tells "too much" from "just enough"; the rest is drained.
        self.content += chunk[: self.max_bytes + 1 - len(self.content)]
        return bool(chunk)


def watch(members: Sequence[SandboxProcess], limits: SandboxLimits, verdict: FileIO | None) -> ProgramResult:
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
    # A wall that fails must never become a reward of 0, from which a policy would learn.
    if any(bytes(reader.content) != READY for reader in readies):
        complaint = b" ".join(bytes(reader.content) for reader in errors).decode(errors="replace").strip()
        raise SandboxError(
            f"{'the program' if verdict is None else 'the examiner'} could not be confined or begun: "
            f"{complaint[-400:] or stop_reason or 'it said nothing'}"
        )
    return ProgramResult(
        stop_reason=stop_reason,
        exit_code=members[0].process.returncode if exit_code is None else exit_code,
        # The last member is the one in which the stranger's code ran.
        stdout=bytes(outputs[-1].content),
        stderr=bytes(errors[-1].content),
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
        # A pidfd in the selector ends the wait early, so a fast program does not cost a whole poll.
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
    # It has ended, but its last words may still lie in the pipes.
    while _drain(selector, 0):
        pass
    is_too_long = any(len(line.content) > line.max_bytes for line in outputs)
    return f"it wrote more than {limits.output_kb} KiB" if is_too_long else ""


def _drain(selector: selectors.BaseSelector, seconds: int | float) -> bool:
    any_read = False
    for key, _ in selector.select(seconds):
        # The pidfd carries no reader: it only wakes.
        if isinstance(key.data, _PipeReader):
            any_read = True
            if not key.data.read():
                selector.unregister(key.fileobj)
    return any_read


def _pipe_reader(pipe: object, max_bytes: int) -> _PipeReader:
    assert isinstance(pipe, FileIO)
    # One empty pipe must hold up neither the reading of the others nor the clock.
    os.set_blocking(pipe.fileno(), False)
    return _PipeReader(pipe, max_bytes)


@contextlib.contextmanager
def _wake_on_exit(selector: selectors.BaseSelector, pid: int) -> Iterator[None]:
    # A pidfd and not SIGCHLD: signals reach the main thread only, and rewards are asked from a pool.
    end = os.pidfd_open(pid)
    try:
        selector.register(end, selectors.EVENT_READ)
        yield
    finally:
        os.close(end)


def _exceeded_limit(member: SandboxProcess, limits: SandboxLimits) -> str:
    """Which limit the process exceeds that the kernel does not enforce; empty if none."""
    try:
        with open(f"/proc/{member.process.pid}/status", "rb") as file:
            status = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
    # It has ended between the poll and this look.
    except (FileNotFoundError, ProcessLookupError):
        return ""
    has_too_many = int(status.get(b"Threads", b"1")) > limits.threads
    return f"it had more than {limits.threads} threads" if has_too_many else ""


_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from plaudit.rewards.sandbox import {role}; del sys.path[0]; {role}.main()"
)
# The path is there for one import alone; the stranger's code must not import plaudit's modules by it.
_SOURCE_ROOT = str(Path(__file__).resolve().parents[3])
# Each tries one wall: Landlock's reading, fork, sockets, signals, Landlock's writing, modes of files.
_PROBE_PROGRAM = """
import os, socket
for attempt in (lambda: open("/etc/passwd"), os.fork, socket.socket, lambda: os.kill(os.getppid(), 0),
                lambda: open("/tmp/plaudit-probe", "w"), lambda: os.chmod(".", 0o700)):
    try:
        attempt()
    except OSError:
        continue
    print("open")
print("closed")
"""
_REQUIREMENTS = "Code rewards need Linux 6.2 or newer on x86_64 or aarch64; run them on such a machine"


class Sandbox:
    """Runs programs, each in a process of its own with an empty folder; any number at a time.
    Example: ``Sandbox().run_program("print(2 + 2)", b"").stdout`` is ``b"4\n"``."""

    def __init__(self, limits: SandboxLimits | None = None) -> None:
        self.limits = limits or SandboxLimits()
        refuse_unconfined_machine()

    def run_program(self, code: str, stdin: bytes) -> ProgramResult:
        return _run_program(code, stdin, self.limits)

    def run_tests(self, code: str, tests: tuple[str, ...]) -> ProgramResult:
        """Runs tests of what a program defines, in another process than the program's."""
        with ExitStack() as stack:
            request_pipe, reply_pipe, verdict = _open_pipe(stack), _open_pipe(stack), _open_pipe(stack)
            lines = {"reads": request_pipe[0], "writes": reply_pipe[1]}
            answer = _start_process(stack, "runner", self.limits, {"code": code}, lines, b"")
            lines = {"reads": reply_pipe[0], "writes": request_pipe[1], "verdict": verdict[1]}
            examiner = _start_process(stack, "examiner", self.limits, {"tests": tests}, lines, b"")
            # Held here too, an end would never be seen to close.
            for end in (*request_pipe, *reply_pipe, verdict[1]):
                end.close()
            # The examiner first: its end ends the run, while the answer's process would serve for ever.
            return watch((examiner, answer), self.limits, verdict[0])


def refuse_unconfined_machine() -> None:
    """Complain about a machine on which a stranger's code cannot be confined."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise UserError(
            f"a program cannot be confined on {sys.platform} ({platform.machine()}), so none is run. "
            f"{_REQUIREMENTS}"
        )
    version = landlock_version()
    if version < OLDEST_LANDLOCK:
        has = "no Landlock (it may be switched off: lsm=landlock,… at boot)"
        if version:
            has = f"Landlock {version}"
        raise UserError(
            f"a program cannot be confined here, so none is run: the kernel {platform.release()} has {has}, "
            f"and version {OLDEST_LANDLOCK} is needed. {_REQUIREMENTS}"
        )
    _probe_confinement()


@cache
def _probe_confinement() -> None:
    """Run a program that tries what must be refused; an error where anything succeeds. Once a process."""
    try:
        result = _run_program(_PROBE_PROGRAM, b"", SandboxLimits())
    except SandboxError as error:
        raise UserError(
            f"a program cannot be confined here, so none is run: {error}. {_REQUIREMENTS}"
        ) from error
    if result.stdout.split() != [b"closed"]:
        explanation = (
            result.stderr.decode(errors="replace")[-300:]
            or result.stop_reason
            or f"it ended with {result.exit_code}"
        )
        raise UserError(
            f"a program that was confined could still do what it must not, so none is run: {explanation}. "
            f"{_REQUIREMENTS}"
        )


def _run_program(code: str, stdin: bytes, limits: SandboxLimits) -> ProgramResult:
    with ExitStack() as stack:
        return watch((_start_process(stack, "runner", limits, {"code": code}, {}, stdin),), limits, None)


def _start_process(
    stack: ExitStack,
    role: str,
    limits: SandboxLimits,
    instructions: Mapping[str, Any],
    pipes: Mapping[str, FileIO],
    stdin_content: bytes,
) -> SandboxProcess:
    """A process that is about to confine itself; it is killed at the latest when the stack is left."""
    folder = stack.enter_context(_temporary_folder())
    ready = _open_pipe(stack)
    ends = {"ready": ready[1], **pipes}
    settings = {
        **instructions,
        **_confinement_settings(limits, folder),
        **{name: end.fileno() for name, end in ends.items()},
    }
    setup = stack.enter_context(_anonymous_file(json.dumps(settings).encode()))
    stdin = stack.enter_context(_anonymous_file(stdin_content))
    descriptors = [end.fileno() for end in (setup, *ends.values())]
    try:
        process = subprocess.Popen(
            [*_python_command(), _BOOTSTRAP.format(role=role), _SOURCE_ROOT, str(setup.fileno())],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=descriptors,
            cwd=folder,
            # Sets have one order in all runs; nothing else of this process's environment is to be seen.
            env={"PYTHONHASHSEED": "0"},
            # A session of its own: killpg hits nobody else, and Ctrl-C at the trainer's terminal stays there.
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"a process could not be started: {error}") from error
    member = SandboxProcess(process=process, ready=ready[0])
    # Pushed after the folder and so run before it: nothing writes there any more when it is removed.
    stack.callback(member.kill)
    ready[1].close()
    return member


def _confinement_settings(limits: SandboxLimits, folder: str) -> Mapping[str, Any]:
    return {
        "folder": folder,
        "readable": readable_folders(),
        "cpu": limits.cpu_seconds,
        "memory": limits.memory_mb * 2**20,
        "disk": limits.file_mb * 2**20,
        "entries": limits.entries,
        "files": limits.open_files,
    }


def _python_command() -> tuple[str, ...]:
    """The interpreter itself, without packages, without the present folder, and writing nothing."""
    # Not -I, which would make Python ignore the PYTHONHASHSEED that keeps the order of sets.
    return (getattr(sys, "_base_executable", sys.executable), "-s", "-S", "-P", "-B", "-X", "utf8", "-c")


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
    try:
        with tempfile.TemporaryDirectory(prefix="plaudit-", ignore_cleanup_errors=True) as folder:
            yield folder
    except OSError as error:
        raise SandboxError(f"no temporary folder: {error}") from error


@contextlib.contextmanager
def _anonymous_file(content: bytes) -> Iterator[BinaryIO]:
    """A file without a name, to be read: unlike a pipe it takes any amount at once."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        # Opened once more to read only: what a program is given must be no disk for it to fill.
        with open(f"/proc/self/fd/{file.fileno()}", "rb") as reader:
            yield reader


def _open_pipe(stack: ExitStack) -> tuple[FileIO, FileIO]:
    # Not inherited unless named (pass_fds): the verdict's end never reaches the answer's process.
    reads, writes = os.pipe()
    return stack.enter_context(FileIO(reads, "rb")), stack.enter_context(FileIO(writes, "wb"))
