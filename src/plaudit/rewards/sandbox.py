"""A stranger's Python, confined: fresh processes that can read Python, write one folder, and reach nothing.

Nothing runs where this cannot be had: `Sandbox` refuses on a system without Landlock and seccomp rather than
run unconfined. What a run did is told as it was; what could not be run is a `SandboxError`, which says
nothing of the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from plaudit.errors import UserError
from plaudit.rewards.inside.guard import OLDEST_LANDLOCK, landlock_version, readable_folders
from plaudit.rewards.inside.start import READY
from plaudit.rewards.inside.syscalls import MACHINES
from plaudit.rewards.watching import Limits, Member, Watched, watch

_BEGIN = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from plaudit.rewards.inside import {role}; del sys.path[0]; {role}.main()"
)
_HOME = str(Path(__file__).resolve().parents[2])
_PROBE = """
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
_OTHERWISE = "Code rewards need Linux 6.2 or newer on x86_64 or aarch64; run them on such a machine"


class SandboxError(RuntimeError):
    """The sandbox itself failed; this says nothing of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a run.

    Example: ``Ran(ending="", code=0, output=b"4\\n", errors=b"", verdict=b"")``
    """

    ending: str
    """Why it was stopped; empty where it ended by itself."""
    code: int
    """With which code it ended; negative is the signal."""
    output: bytes
    """What the program wrote."""
    errors: bytes
    """What it complained of."""
    verdict: bytes
    """What an examiner said; a program has no way to this."""


class Sandbox:
    """Runs programs, each in a process of its own with an empty folder; any number at a time.

    Example: ``Sandbox().program("print(2 + 2)", b"").output`` is ``b"4\\n"``
    """

    def __init__(self, limits: Limits | None = None) -> None:
        """Refuse where a stranger's code could not be confined."""
        self.limits = limits or Limits()
        refuse_open_machine()

    def program(self, code: str, given: bytes) -> Ran:
        """Runs a program with this on its standard input."""
        return _program(code, given, self.limits)

    def examined(self, code: str, tests: tuple[str, ...]) -> Ran:
        """Runs tests of what a program defines, in another process than the program's."""
        with ExitStack() as stack:
            asks, hears, verdict = _pipe(stack), _pipe(stack), _pipe(stack)
            lines = {"reads": asks[0], "writes": hears[1]}
            answer = _start(stack, "answer", self.limits, {"code": code}, lines, b"")
            lines = {"reads": hears[0], "writes": asks[1], "verdict": verdict[1]}
            examiner = _start(stack, "examiner", self.limits, {"tests": tests}, lines, b"")
            # Held here too, an end would never be seen to close.
            for end in (*asks, *hears, verdict[1]):
                end.close()
            watched = watch((examiner, answer), self.limits, verdict[0])
        return _ran(watched, "the examiner")


def refuse_open_machine() -> None:
    """Complain about a machine on which a stranger's code cannot be confined."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise UserError(
            f"a program cannot be confined on {sys.platform} ({platform.machine()}), so none is run. "
            f"{_OTHERWISE}"
        )
    version = landlock_version()
    if version < OLDEST_LANDLOCK:
        has = (
            f"Landlock {version}"
            if version
            else "no Landlock (it may be switched off: lsm=landlock,… at boot)"
        )
        raise UserError(
            f"a program cannot be confined here, so none is run: the kernel {platform.release()} has {has}, "
            f"and version {OLDEST_LANDLOCK} is needed. {_OTHERWISE}"
        )
    _probe()


@cache
def _probe() -> None:
    """Try it once: what ought to be refused is refused."""
    try:
        ran = _program(_PROBE, b"", Limits())
    except SandboxError as error:
        raise UserError(
            f"a program cannot be confined here, so none is run: {error}. {_OTHERWISE}"
        ) from error
    if ran.output.split() != [b"closed"]:
        said = ran.errors.decode(errors="replace")[-300:] or ran.ending or f"it ended with {ran.code}"
        raise UserError(
            f"a program that was confined could still do what it must not, so none is run: {said}. "
            f"{_OTHERWISE}"
        )


def _program(code: str, given: bytes, limits: Limits) -> Ran:
    with ExitStack() as stack:
        member = _start(stack, "answer", limits, {"code": code}, {}, given)
        watched = watch((member,), limits, None)
    return _ran(watched, "the program")


def _ran(watched: Watched, who: str) -> Ran:
    if any(ready != READY for ready in watched.ready):
        said = b" ".join(watched.errors).decode(errors="replace").strip()[-400:]
        raise SandboxError(
            f"{who} could not be confined or begun: {said or watched.ending or 'it said nothing'}"
        )
    return Ran(
        ending=watched.ending,
        code=watched.code,
        output=watched.output[-1],
        errors=watched.errors[-1],
        verdict=watched.verdict,
    )


def _start(
    stack: ExitStack,
    role: str,
    limits: Limits,
    told: Mapping[str, Any],
    lines: Mapping[str, FileIO],
    given: bytes,
) -> Member:
    """A process that is about to confine itself; it is killed at the latest when the stack is left."""
    folder = stack.enter_context(_folder())
    ready = _pipe(stack)
    ends = {"ready": ready[1], **lines}
    whole = {**told, **_walls(limits, folder), **{name: end.fileno() for name, end in ends.items()}}
    setup = stack.enter_context(_file(json.dumps(whole).encode()))
    stdin = stack.enter_context(_file(given))
    kept = [end.fileno() for end in (setup, *ends.values())]
    try:
        process = subprocess.Popen(
            [*_python(), _BEGIN.format(role=role), _HOME, str(setup.fileno())],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=kept,
            cwd=folder,
            # Sets have one order in all runs; nothing else of this process's environment is to be seen.
            env={"PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"a process could not be started: {error}") from error
    member = Member(process=process, ready=ready[0], folder=folder)
    stack.callback(member.end)
    ready[1].close()
    return member


def _walls(limits: Limits, folder: str) -> Mapping[str, Any]:
    """What the process confines itself to."""
    return {
        "folder": folder,
        "readable": readable_folders(),
        "cpu": limits.cpu_seconds,
        "memory": limits.memory_mb * 2**20,
        "file": limits.file_mb * 2**20,
        "files": limits.open_files,
    }


def _python() -> tuple[str, ...]:
    """The interpreter itself, without packages, without the present folder, and writing nothing."""
    return (getattr(sys, "_base_executable", sys.executable), "-s", "-S", "-P", "-B", "-X", "utf8", "-c")


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    try:
        with tempfile.TemporaryDirectory(prefix="plaudit-", ignore_cleanup_errors=True) as folder:
            yield folder
    except OSError as error:
        raise SandboxError(f"no temporary folder: {error}") from error


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[BinaryIO]:
    """A file without a name, at its beginning: unlike a pipe it takes any amount at once."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file


def _pipe(stack: ExitStack) -> tuple[FileIO, FileIO]:
    reads, writes = os.pipe()
    return stack.enter_context(FileIO(reads, "rb")), stack.enter_context(FileIO(writes, "wb"))
