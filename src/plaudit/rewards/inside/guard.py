"""Confines the process that calls it, for good: limits, no privileges, no files, no network, no others.

Four walls, each of the kernel's own: resource limits; capabilities given away; Landlock, by which only what
is named can be opened; a seccomp filter, by which only what is listed can be asked for (it also covers what
Landlock does not see: modes, owners, other processes, sockets).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from plaudit.rewards.inside.filter import program
from plaudit.rewards.inside.syscalls import (
    CAPSET,
    LANDLOCK_ADD,
    LANDLOCK_CREATE,
    LANDLOCK_RESTRICT,
    MACHINES,
)

OLDEST_LANDLOCK = 3
"""Older ones let a file be emptied that cannot be written (before Linux 6.2)."""

_SET_DEATH_SIGNAL, _SET_SECCOMP, _DROP_BOUND, _NO_NEW_PRIVILEGES = 1, 22, 24, 38
_READ = 1 << 2 | 1 << 3
_OWN = _READ | 1 << 1 | 1 << 5 | 1 << 8 | 1 << 14
"""In the own folder: read, write, remove, make and empty plain files. No folders, links, sockets, devices."""
_FILE_ONLY = 1 << 1 | 1 << 2 | 1 << 14
_CAPABILITIES_V3 = 0x20080522


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """How far confined code may go.

    Example: ``Walls(folder="/tmp/x", readable=("/usr/lib",), cpu=10, memory=2**30, file=2**24, files=64)``
    """

    folder: str
    """Its own folder, where plain files may be written; it is the present folder too."""
    readable: tuple[str, ...]
    """Folders and files that may be read; those that do not exist are passed over."""
    cpu: int
    """Seconds of computing."""
    memory: int
    """Bytes of address space."""
    file: int
    """Bytes of one file."""
    files: int
    """Open files."""


def confine(walls: Walls) -> None:
    """Put up the walls; raises OSError where one does not hold. There is no way back."""
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "die with the parent")
    os.chdir(walls.folder)
    os.umask(0o077)
    _limit(walls)
    _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no new privileges")
    _give_away_privileges(libc)
    _fence(libc, walls)
    _filter(libc)


def landlock_version() -> int:
    """Which Landlock the kernel has; 0 is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


def _limit(walls: Walls) -> None:
    # No limit on processes: it would count all those of the user. The filter lets none be made at all, and
    # whoever started this one counts its threads.
    for what, most in (
        (resource.RLIMIT_CPU, walls.cpu),
        (resource.RLIMIT_AS, walls.memory),
        (resource.RLIMIT_FSIZE, walls.file),
        (resource.RLIMIT_NOFILE, walls.files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        fitting = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (fitting, fitting))


def _give_away_privileges(libc: ctypes.CDLL) -> None:
    """Of the superuser only the name is left; nobody else has anything to give."""
    for capability in range(64):
        if libc.prctl(_DROP_BOUND, capability, 0, 0, 0):
            break
    header = struct.pack("<Ii", _CAPABILITIES_V3, 0)
    _call(libc, CAPSET[os.uname().machine], "give privileges away", header, bytes(24))


def _fence(libc: ctypes.CDLL, walls: Walls) -> None:
    version = landlock_version()
    if version < OLDEST_LANDLOCK:
        raise OSError(f"Landlock {version} is too old")
    handled = (1 << (16 if version >= 5 else 15)) - 1
    # From 4 on it knows of TCP, from 6 on of signals and abstract sockets: nothing of it is allowed.
    facts = struct.pack("<QQQ", handled, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _call(libc, LANDLOCK_CREATE, "a Landlock rule set", facts, len(facts), 0)
    for path in walls.readable:
        _allow(libc, rules, path, _READ)
    _allow(libc, rules, walls.folder, _OWN)
    _allow(libc, rules, "/dev/null", _READ | 1 << 1)
    _call(libc, LANDLOCK_RESTRICT, "Landlock", rules, 0)
    os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    if not os.path.exists(path):
        return
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    mine = rights if os.path.isdir(path) else rights & _FILE_ONLY
    _call(libc, LANDLOCK_ADD, f"the rule for {path}", rules, 1, struct.pack("<Qi", mine, place), 0)
    os.close(place)


def _filter(libc: ctypes.CDLL) -> None:
    steps = program(MACHINES[os.uname().machine], os.getpid())
    code = ctypes.create_string_buffer(steps, len(steps))
    whole = struct.pack("@HP", len(steps) // 8, ctypes.addressof(code))
    _checked(libc.prctl(_SET_SECCOMP, 2, ctypes.c_char_p(whole), 0, 0), "the filter of calls")


def _call(libc: ctypes.CDLL, number: int, what: str, *arguments: int | bytes) -> int:
    given = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_size_t(a) for a in arguments]
    return _checked(libc.syscall(ctypes.c_long(number), *given), what)


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def readable_folders() -> Sequence[str]:
    """What a Python program needs to read: its installation, the libraries of the system, time zones."""
    own = [
        os.path.join(prefix, lib)
        for prefix in (sys.base_prefix, sys.base_exec_prefix)
        for lib in ("lib", "lib64")
    ]
    shared = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo"]
    return (*dict.fromkeys([*own, *shared, "/dev/urandom", "/dev/random", "/dev/zero"]),)
