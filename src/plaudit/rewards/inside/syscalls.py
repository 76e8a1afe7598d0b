"""The calls to the kernel that confined code may make, by number; whatever is not here is refused.

It is a list of what is allowed, since a list of what is forbidden misses the calls of tomorrow. No call here
makes a process, a file outside, a connection, or reaches another process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A kind of processor, as the kernel counts its calls.

    Example: ``MACHINES["x86_64"].numbers["clone"]`` is 56
    """

    audit: int
    """How a filter is told of this kind."""
    numbers: Mapping[str, int]
    """The number of each allowed call."""


GUARDED = ("clone", "fcntl", "ioctl", "kill", "prctl", "prlimit64", "socketpair", "tgkill")
"""Of the allowed calls, those that are allowed with certain arguments only."""

_X86 = """
read 0 write 1 open 2 close 3 stat 4 fstat 5 lstat 6 poll 7 lseek 8 mmap 9 mprotect 10 munmap 11 brk 12
rt_sigaction 13 rt_sigprocmask 14 rt_sigreturn 15 ioctl 16 pread64 17 pwrite64 18 readv 19 writev 20 access 21
pipe 22 select 23 sched_yield 24 mremap 25 msync 26 mincore 27 madvise 28 dup 32 dup2 33 pause 34 nanosleep 35
getitimer 36 alarm 37 setitimer 38 getpid 39 sendfile 40 sendto 44 recvfrom 45 sendmsg 46 recvmsg 47
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
getsockopt 209 shutdown 210 sendmsg 211 recvmsg 212 brk 214 munmap 215 mremap 216 clone 220 mmap 222
mprotect 226 msync 227 mincore 232 madvise 233 wait4 260 prlimit64 261 renameat2 276 getrandom 278
membarrier 283 copy_file_range 285 preadv2 286 pwritev2 287 statx 291 rseq 293 close_range 436 faccessat2 439
epoll_pwait2 441
"""


def _numbers(table: str) -> Mapping[str, int]:
    words = table.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(audit=0xC000003E, numbers=_numbers(_X86)),
    "aarch64": Machine(audit=0xC00000B7, numbers=_numbers(_ARM)),
}
"""By the kernel's own name of the processor."""
CLONE3 = 435
"""The same on both; told that it does not exist, the C library uses ``clone``, whose flags can be seen."""
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
"""The same on both."""
CAPSET: Mapping[str, int] = {"x86_64": 126, "aarch64": 91}
"""Gives privileges away."""
