"""Confines the process that calls it, for good: limits, no privileges, no files, no network, no others.

Four walls, each of the kernel's own: resource limits; capabilities given away; Landlock, by which only what
is named can be opened; a seccomp filter, by which only what is listed can be asked for (it also covers what
Landlock does not see: modes, owners, other processes, sockets).

What it writes goes to a file system of its own in memory, of the size that is allowed: that limit holds for
files without a name too, be they open, mapped or on their way through a socket, which no count of names and
no limit per file would see. Where the kernel lets it mount none, it can write no file at all.

The filter lists the calls to the kernel that are allowed, by number, and with which arguments; a list of what
is forbidden would miss the calls of tomorrow. No call in it makes a process, a file outside, a connection,
reaches another process, or sends an open file through a socket. A filter sees an argument as two halves, and
only the lower one is looked at: the arguments in question are 32-bit to the kernel too, which drops the upper
half (of the flags of ``clone`` as well, whose upper half only ``clone3`` has).
"""

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTable:
    """A kind of processor, as the kernel counts its calls.

    Example: ``MACHINES["x86_64"].numbers["clone"]`` is 56
    """

    audit: int
    """How a filter is told of this kind."""
    numbers: Mapping[str, int]


GUARDED = ("clone", "fcntl", "ioctl", "kill", "prctl", "prlimit64", "socketpair", "tgkill")
"""Of the allowed calls, those that are allowed with certain arguments only."""

_X86 = """
read 0 write 1 open 2 close 3 stat 4 fstat 5 lstat 6 poll 7 lseek 8 mmap 9 mprotect 10 munmap 11 brk 12
rt_sigaction 13 rt_sigprocmask 14 rt_sigreturn 15 ioctl 16 pread64 17 pwrite64 18 readv 19 writev 20 access 21
pipe 22 select 23 sched_yield 24 mremap 25 msync 26 mincore 27 madvise 28 dup 32 dup2 33 pause 34 nanosleep 35
getitimer 36 alarm 37 setitimer 38 getpid 39 sendfile 40 sendto 44 recvfrom 45
shutdown 48 getsockname 51 getpeername 52 socketpair 53 setsockopt 54 getsockopt 55 clone 56 exit 60 wait4 61
kill 62 uname 63 fcntl 72 flock 73 fsync 74 fdatasync 75 truncate 76 ftruncate 77 getcwd 79 chdir 80 fchdir 81
rename 82 unlink 87 readlink 89 umask 95 gettimeofday 96 getrlimit 97 getrusage 98 sysinfo 99 times 100
getuid 102 getgid 104 geteuid 107 getegid 108 getppid 110 getpgrp 111 getgroups 115 getresuid 118
getresgid 120 getpgid 121 getsid 124 rt_sigpending 127 rt_sigtimedwait 128 rt_sigsuspend 130 sigaltstack 131
statfs 137 fstatfs 138 sched_getparam 143 sched_getscheduler 145 sched_get_priority_max 146
sched_get_priority_min 147 prctl 157 arch_prctl 158 gettid 186 time 201 futex 202 sched_getaffinity 204
epoll_create 213 getdents64 217 set_tid_address 218 restart_syscall 219 clock_gettime 228 clock_getres 229
clock_nanosleep 230 exit_group 231 epoll_wait 232 epoll_ctl 233 tgkill 234 openat 257 newfstatat 262
unlinkat 263 renameat 264 readlinkat 267 faccessat 269 pselect6 270 ppoll 271 set_robust_list 273
epoll_pwait 281 eventfd2 290 epoll_create1 291 dup3 292 pipe2 293 preadv 295 pwritev 296 prlimit64 302
getcpu 309 renameat2 316 getrandom 318 membarrier 324 copy_file_range 326 preadv2 327 pwritev2 328 statx 332
rseq 334 close_range 436 faccessat2 439 epoll_pwait2 441
"""
_ARM = """
getcwd 17 eventfd2 19 epoll_create1 20 epoll_ctl 21 epoll_pwait 22 dup 23 dup3 24 fcntl 25 ioctl 29 flock 32
unlinkat 35 renameat 38 statfs 43 fstatfs 44 truncate 45 ftruncate 46 faccessat 48 chdir 49 fchdir 50
openat 56 close 57 pipe2 59 getdents64 61 lseek 62 read 63 write 64 readv 65 writev 66 pread64 67 pwrite64 68
preadv 69 pwritev 70 sendfile 71 pselect6 72 ppoll 73 readlinkat 78 newfstatat 79 fstat 80 fsync 82
fdatasync 83 exit 93 exit_group 94 set_tid_address 96 futex 98 set_robust_list 99 nanosleep 101 getitimer 102
setitimer 103 clock_gettime 113 clock_getres 114 clock_nanosleep 115 sched_getscheduler 120
sched_getparam 121 sched_getaffinity 123 sched_yield 124 sched_get_priority_max 125
sched_get_priority_min 126 restart_syscall 128 kill 129 tgkill 131 sigaltstack 132 rt_sigsuspend 133
rt_sigaction 134 rt_sigprocmask 135 rt_sigpending 136 rt_sigtimedwait 137 rt_sigreturn 139 getresuid 148
getresgid 150 times 153 getpgid 155 getsid 156 getgroups 158 uname 160 getrlimit 163 getrusage 165 umask 166
prctl 167 getcpu 168 gettimeofday 169 getpid 172 getppid 173 getuid 174 geteuid 175 getgid 176 getegid 177
gettid 178 sysinfo 179 socketpair 199 getsockname 204 getpeername 205 sendto 206 recvfrom 207 setsockopt 208
getsockopt 209 shutdown 210 brk 214 munmap 215 mremap 216 clone 220 mmap 222
mprotect 226 msync 227 mincore 232 madvise 233 wait4 260 prlimit64 261 renameat2 276 getrandom 278
membarrier 283 copy_file_range 285 preadv2 286 pwritev2 287 statx 291 rseq 293 close_range 436 faccessat2 439
epoll_pwait2 441
"""


def _parse_call_table(table: str) -> Mapping[str, int]:
    words = table.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


MACHINES: Mapping[str, CallTable] = {
    "x86_64": CallTable(audit=0xC000003E, numbers=_parse_call_table(_X86)),
    "aarch64": CallTable(audit=0xC00000B7, numbers=_parse_call_table(_ARM)),
}
"""By the kernel's own name of the processor."""
CLONE3 = 435
"""The same on both; told that it does not exist, the C library uses ``clone``, whose flags can be seen."""
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
"""The same on both."""
CAPSET: Mapping[str, int] = {"x86_64": 126, "aarch64": 91}
"""The number of the call that sets capabilities, by machine."""

# Opcodes of linux/bpf_common.h: load a word, jump if equal, at least or any bit set, and, return.
_LOAD, _EQUAL, _AT_LEAST, _BITS, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
# EPERM and ENOSYS, not a kill, for what is not listed: libraries try a call and fall back on an error.
_KILL, _ALLOW, _REFUSE, _MISSING = 0x80000000, 0x7FFF0000, 0x00050001, 0x00050026
# Offsets into seccomp_data: the number stands at 0, the architecture at 4, six 64-bit arguments from 16.
_NUMBER, _ARCHITECTURE = 0, 4
_X32 = 0x40000000
"""Calls of the x32 kind have their own numbers from here on, and go round a filter that forgets them."""

_THREAD_FLAGS = 0x10000 | 0x800 | 0x100
"""A clone with all of these makes a thread, not a process: same group, same signals, same memory."""
_NAMESPACES = 0x7E020080
"""No clone makes a new namespace."""
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032)
"""Duplicates, flags and locks; not who is sent a signal, nor leases."""
# TIOCSTI (0x5412) above all is missing: it types into the terminal that the run was started from.
_IOCTL = (0x5401, 0x5413, 0x5421, 0x541B, 0x5450, 0x5451)
"""Is it a terminal, its size, blocking, bytes waiting, inherited or not."""
_PRCTL = (15, 16)
"""The prctl options that a confined process may use: to set and read a thread's name."""

# prlimit64 with pid 0 is about itself; any other pid would be another process of the same user.
_ALLOWED = {"fcntl": (1, _FCNTL), "ioctl": (1, _IOCTL), "prctl": (0, _PRCTL), "prlimit64": (0, (0,))}
"""Which argument of a call has to be one of which; the others are looked at below."""

FilterInstruction = tuple[int, int, int, int]
"""Code, how far to jump if so, if not, and a number."""


def seccomp_program(machine: CallTable, pid: int) -> bytes:
    steps: list[FilterInstruction] = [
        # The architecture first: 32-bit calls on x86_64 have other numbers, which would pass a 64-bit list.
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, machine.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
        *_for_call(CLONE3, [(_RETURN, 0, 0, _MISSING)]),
    ]
    for name in GUARDED:
        steps += _for_call(machine.numbers[name], _guarded_call(name, pid))
    for name, number in machine.numbers.items():
        if name not in GUARDED:
            steps += _for_call(number, [(_RETURN, 0, 0, _ALLOW)])
    steps.append((_RETURN, 0, 0, _REFUSE))
    # struct sock_filter; a jump of more than 255 instructions does not fit the B, and pack raises.
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def _for_call(number: int, instructions: Sequence[FilterInstruction]) -> list[FilterInstruction]:
    """Do this for the call of that number; each guard ends with a verdict, so nothing comes back."""
    return [(_EQUAL, 0, len(instructions), number), *instructions]


def _guarded_call(name: str, pid: int) -> list[FilterInstruction]:
    if name in _ALLOWED:
        return _allow_values(*_ALLOWED[name])
    if name == "clone":
        return [
            (_LOAD, 0, 0, _low_half_offset(0)),
            (_BITS, 3, 0, _NAMESPACES),
            (_AND, 0, 0, _THREAD_FLAGS),
            (_EQUAL, 0, 1, _THREAD_FLAGS),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE),
        ]
    # kill and tgkill: its own number alone, as 0 and -1 would reach the group or all the user's processes.
    return _allow_stream_pair() if name == "socketpair" else _allow_values(0, (pid,))


def _allow_values(argument: int, values: Sequence[int]) -> list[FilterInstruction]:
    """Allowed where the lower half of the argument is one of these; the kernel reads no more of it here."""
    steps: list[FilterInstruction] = [(_LOAD, 0, 0, _low_half_offset(argument))]
    for place, value in enumerate(values):
        # A jump counts from the next instruction: over the values left and the refusal, to the allowance.
        steps.append((_EQUAL, len(values) - place, 0, value))
    return [*steps, (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]


def _allow_stream_pair() -> list[FilterInstruction]:
    """Two ends of one stream, as event loops use; a pair of datagrams could write to any named socket."""
    return [
        (_LOAD, 0, 0, _low_half_offset(0)),
        # AF_UNIX and SOCK_STREAM are both 1; SOCK_NONBLOCK and SOCK_CLOEXEC stand above the type's four bits.
        (_EQUAL, 0, 4, 1),
        (_LOAD, 0, 0, _low_half_offset(1)),
        (_AND, 0, 0, 0xF),
        (_EQUAL, 0, 1, 1),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]


def _low_half_offset(argument: int) -> int:
    """Where the lower half of an argument stands; both kinds of machine keep it first."""
    return 16 + 8 * argument


OLDEST_LANDLOCK = 3
"""Older ones let a file be emptied that cannot be written (before Linux 6.2)."""

_SET_DEATH_SIGNAL, _SET_SECCOMP, _DROP_BOUND, _NO_NEW_PRIVILEGES = 1, 22, 24, 38
# Landlock's EXECUTE (bit 0) is in none of these: a shared library is mapped, which is no execution.
_READ_RIGHTS = 1 << 2 | 1 << 3
_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000
_MOUNT_FLAGS = 2 | 4 | 8
_OWN_FOLDER_RIGHTS = _READ_RIGHTS | 1 << 1 | 1 << 5 | 1 << 8 | 1 << 14
"""In the own folder: read, write, remove, make and empty plain files. No folders, links, sockets, devices."""
_FILE_RIGHTS = 1 << 1 | 1 << 2 | 1 << 14
_CAPABILITIES_V3 = 0x20080522


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    folder: str
    """Its own folder, where plain files may be written; it is the present folder too."""
    readable: tuple[str, ...]
    """Folders and files that may be read; those that do not exist are passed over."""
    cpu: int
    memory: int
    disk: int
    """Bytes of all that it writes to files."""
    entries: int
    files: int


def confine(confinement: Confinement) -> None:
    """Apply all restrictions; raises OSError where one does not hold. They cannot be lifted again."""
    libc = ctypes.CDLL(None, use_errno=True)
    # First, or a parent killed during set-up leaves it running. The signal comes when the THREAD that
    # started it ends, which is why that thread itself waits in `watch` until all is over.
    _check_result(libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "die with the parent")
    can_write = _mount_own_folder(libc, confinement)
    os.chdir(confinement.folder)
    os.umask(0o077)
    _apply_resource_limits(confinement)
    # Without it the kernel refuses Landlock and seccomp to whoever is not root.
    _check_result(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no new privileges")
    _drop_privileges(libc)
    _apply_landlock(libc, confinement, _OWN_FOLDER_RIGHTS if can_write else _READ_RIGHTS)
    # Last, since the filter also forbids capset and the Landlock calls that the other walls are made of.
    steps = seccomp_program(MACHINES[os.uname().machine], os.getpid())
    # `code` has to outlive the call: the struct below holds only its address.
    code = ctypes.create_string_buffer(steps, len(steps))
    # Native alignment, as sock_fprog has a gap between its 16-bit count and the pointer.
    filter_struct = struct.pack("@HP", len(steps) // 8, ctypes.addressof(code))
    # Filters hold for the calling thread and those that it starts; there is no other thread yet.
    _check_result(libc.prctl(_SET_SECCOMP, 2, ctypes.c_char_p(filter_struct), 0, 0), "the filter of calls")


def landlock_version() -> int:
    """Which Landlock the kernel has; 0 is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    # No attributes and flag 1 ask for the version; -1, where it is missing or switched off, becomes 0.
    return max(0, libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


def _mount_own_folder(libc: ctypes.CDLL, confinement: Confinement) -> bool:
    """Put a small file system of its own into the folder; False where this system allows none."""
    user, group = os.getuid(), os.getgid()
    # To mount takes a namespace of mounts, and that one of users, in which anybody may do it.
    if libc.unshare(_NEW_USER | _NEW_MOUNTS):
        return False
    # Without a name for its user in the new namespace it could not own a file there.
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with contextlib.suppress(OSError), open(f"/proc/self/{name}", "w") as file:
            file.write(content)
    # The folder itself is an entry too.
    size = f"size={confinement.disk},nr_inodes={confinement.entries + 1},mode=700"
    return not libc.mount(b"plaudit", os.fsencode(confinement.folder), b"tmpfs", _MOUNT_FLAGS, size.encode())


def _apply_resource_limits(confinement: Confinement) -> None:
    # No limit on processes: it would count all those of the user. The filter lets none be made at all, and
    # whoever started this one counts its threads.
    # Memory is limited as address space, since Linux pays no heed to RLIMIT_RSS.
    for what, soft_limit in (
        (resource.RLIMIT_CPU, confinement.cpu),
        (resource.RLIMIT_AS, confinement.memory),
        (resource.RLIMIT_FSIZE, confinement.disk),
        (resource.RLIMIT_NOFILE, confinement.files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        # Above the present hard limit only root may go, and a job under a scheduler may well have one.
        limit = soft_limit if hard == resource.RLIM_INFINITY else min(soft_limit, hard)
        # Soft and hard alike: it can neither be raised nor, for CPU time, outlived by catching SIGXCPU.
        resource.setrlimit(what, (limit, limit))


def _drop_privileges(libc: ctypes.CDLL) -> None:
    """Drop every capability; without effect for a process that is not root's."""
    # Up to the first number that the kernel does not know; at once (EPERM) where it is not root's. Before
    # capset, since dropping from the bound set itself needs a capability (CAP_SETPCAP).
    for capability in range(64):
        if libc.prctl(_DROP_BOUND, capability, 0, 0, 0):
            break
    # Of itself (0). The zeros are effective, permitted and inherited sets, in two halves of 32 bits.
    header = struct.pack("<Ii", _CAPABILITIES_V3, 0)
    _kernel_call(libc, CAPSET[os.uname().machine], "give privileges away", header, bytes(24))


def _apply_landlock(libc: ctypes.CDLL, confinement: Confinement, own_rights: int) -> None:
    version = landlock_version()
    if version < OLDEST_LANDLOCK:
        raise OSError(f"Landlock {version} is too old")
    # All rights are handled, so that what no rule grants is denied; bit 15, ioctl of devices, is new in 5.
    handled = (1 << (16 if version >= 5 else 15)) - 1
    # From 4 on it knows of TCP, from 6 on of signals and abstract sockets: nothing of it is allowed.
    # Cut to what the version knows: a longer structure with bits set is refused (E2BIG).
    attributes = struct.pack("<QQQ", handled, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _kernel_call(libc, LANDLOCK_CREATE, "a Landlock rule set", attributes, len(attributes), 0)
    for path in confinement.readable:
        _allow_path(libc, rules, path, _READ_RIGHTS)
    _allow_path(libc, rules, confinement.folder, own_rights)
    _allow_path(libc, rules, "/dev/null", _READ_RIGHTS | 1 << 1)
    _kernel_call(libc, LANDLOCK_RESTRICT, "Landlock", rules, 0)
    os.close(rules)


def _allow_path(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    if not os.path.exists(path):
        return
    # O_PATH names a file without opening it, so no right to read is needed; links are followed (/lib is one).
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    # A right of folders in the rule of a plain file makes the kernel refuse the rule (EINVAL).
    allowed = rights if os.path.isdir(path) else rights & _FILE_RIGHTS
    _kernel_call(
        libc, LANDLOCK_ADD, f"the rule for {path}", rules, 1, struct.pack("<Qi", allowed, descriptor), 0
    )
    os.close(descriptor)


def _kernel_call(libc: ctypes.CDLL, number: int, what: str, *arguments: int | bytes) -> int:
    # syscall() is variadic: a bare int would be passed as 32 bits, with anything in the upper half.
    c_arguments = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_size_t(a) for a in arguments]
    return _check_result(libc.syscall(ctypes.c_long(number), *c_arguments), what)


def _check_result(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def readable_folders() -> Sequence[str]:
    """What a Python program needs to read: its installation, the libraries of the system, time zones."""
    # Of the base installation, not the virtual environment: its packages and the project stay out of reach.
    installation = [
        os.path.join(prefix, lib)
        for prefix in (sys.base_prefix, sys.base_exec_prefix)
        for lib in ("lib", "lib64")
    ]
    shared = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo"]
    return (*dict.fromkeys([*installation, *shared, "/dev/urandom", "/dev/random", "/dev/zero"]),)
