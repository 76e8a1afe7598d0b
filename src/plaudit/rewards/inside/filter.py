"""A seccomp filter in the kernel's own small language: which calls pass, and with which arguments.

Sixty-four-bit arguments are looked at by halves; what has anything in an upper half that should be empty is
refused.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from plaudit.rewards.inside.syscalls import CLONE3, GUARDED, Machine

_LOAD, _EQUAL, _AT_LEAST, _BITS, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_KILL, _ALLOW, _REFUSE, _MISSING = 0x80000000, 0x7FFF0000, 0x00050001, 0x00050026
_NUMBER, _ARCHITECTURE = 0, 4
_X32 = 0x40000000
"""Calls of the x32 kind have their own numbers from here on, and go round a filter that forgets them."""

_THREAD_FLAGS = 0x10000 | 0x800 | 0x100
"""A clone with all of these makes a thread, not a process: same group, same signals, same memory."""
_NAMESPACES = 0x7E020080
"""No clone makes a new namespace."""
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032)
"""Duplicates, flags and locks; not who is sent a signal, nor leases."""
_IOCTL = (0x5401, 0x5413, 0x5421, 0x541B, 0x5450, 0x5451)
"""Is it a terminal, its size, blocking, bytes waiting, inherited or not."""
_PRCTL = (15, 16)
"""A thread's name."""

_ALLOWED = {"fcntl": (1, _FCNTL), "ioctl": (1, _IOCTL), "prctl": (0, _PRCTL), "prlimit64": (0, (0,))}
"""Which argument of a call has to be one of which; the others are looked at below."""

Step = tuple[int, int, int, int]
"""Code, how far to jump if so, if not, and a number."""


def program(machine: Machine, pid: int) -> bytes:
    """The filter for the process of this number."""
    steps: list[Step] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, machine.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
        *_on(CLONE3, [(_RETURN, 0, 0, _MISSING)]),
    ]
    for name in GUARDED:
        steps += _on(machine.numbers[name], _guard(name, pid))
    for name, number in machine.numbers.items():
        if name not in GUARDED:
            steps += _on(number, [(_RETURN, 0, 0, _ALLOW)])
    steps.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def _on(number: int, then: Sequence[Step]) -> list[Step]:
    """Do this for the call of that number; each guard ends with a verdict, so nothing comes back."""
    return [(_EQUAL, 0, len(then), number), *then]


def _guard(name: str, pid: int) -> list[Step]:
    if name in _ALLOWED:
        return _one_of(*_ALLOWED[name])
    if name == "clone":
        return _clone()
    return _stream_pair() if name == "socketpair" else _one_of(0, (pid,))


def _one_of(argument: int, values: Sequence[int]) -> list[Step]:
    """Allowed where the lower half of the argument is one of these; the kernel reads no more of it here."""
    steps: list[Step] = [(_LOAD, 0, 0, _low(argument))]
    for place, value in enumerate(values):
        steps.append((_EQUAL, len(values) - place, 0, value))
    return [*steps, (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]


def _clone() -> list[Step]:
    """Threads only."""
    return [
        (_LOAD, 0, 0, _low(0)),
        (_BITS, 3, 0, _NAMESPACES),
        (_AND, 0, 0, _THREAD_FLAGS),
        (_EQUAL, 0, 1, _THREAD_FLAGS),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]


def _stream_pair() -> list[Step]:
    """Two ends of one stream, as event loops use; a pair of datagrams could write to any named socket."""
    return [
        (_LOAD, 0, 0, _low(0)),
        (_EQUAL, 0, 4, 1),
        (_LOAD, 0, 0, _low(1)),
        (_AND, 0, 0, 0xF),
        (_EQUAL, 0, 1, 1),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]


def _low(argument: int) -> int:
    """Where the lower half of an argument stands; both kinds of machine keep it first."""
    return 16 + 8 * argument
