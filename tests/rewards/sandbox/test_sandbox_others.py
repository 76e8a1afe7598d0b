"""The attack suite, second part: other processes, and the kernel itself."""

import os
import platform
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.rewards.sandbox.confined import attempted, ran

DENIED = ("PermissionError\n", "OSError\n", "BlockingIOError\n")


# No other process.


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "made",
    [
        "os.fork()",
        "os.forkpty()",
        "os.system('true') and 1/0",
        "subprocess.run(['/bin/true'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "os.execv('/bin/true', ['true'])",
        "os.kill(os.getppid(), 9)",
        "os.kill(os.getppid(), 0)",
        "os.kill(1, 0)",
        "os.kill(-1, 9)",
        "os.kill(0, 9)",
        "os.killpg(os.getpgid(os.getppid()), 9)",
        "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
        "os.setsid()",
        "os.nice(-5)",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "os.sched_setaffinity(os.getppid(), {0})",
        "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (1, 1))",
        "resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000))",
        "fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getppid())",
        "fcntl.ioctl(0, 0x5412, b'x')",
        "multiprocessing.Process(target=print).start()",
        "multiprocessing.shared_memory.SharedMemory(create=True, size=1000)",
        "os.memfd_create('x')",
        "os.setuid(65534)",
        "os.pidfd_open(os.getppid())",
    ],
)
def test_no_other_process_is_made_or_reached(made):
    # A shell that could not be begun is told by a status, which makes this expression fail.
    modules = "import os, subprocess, signal, resource, fcntl, multiprocessing.shared_memory"
    found = attempted(f"{modules}\n{made}")
    assert found in (*DENIED, "ValueError\n", "ZeroDivisionError\n", "AttributeError\n")


CALL = """
import ctypes
print(ctypes.CDLL(None, use_errno=True).syscall({}), ctypes.get_errno())
"""
CALLS = {
    "x86_64": {
        "ptrace": (101, 16, 1),
        "process_vm_readv": (310, 1, 0, 0, 0, 0, 0),
        "process_vm_writev": (311, 1, 0, 0, 0, 0, 0),
        "unshare": (272, 0x10000000),
        "setns": (308, 0, 0),
        "mount": (165, 0, 0, 0, 0, 0),
        "umount2": (166, 0, 0),
        "pivot_root": (155, 0, 0),
        "bpf": (321, 0, 0, 0),
        "keyctl": (250, 0, 0),
        "add_key": (248, 0, 0, 0, 0, 0),
        "kexec_load": (246, 0, 0, 0, 0),
        "reboot": (169, 0, 0, 0, 0),
        "io_uring_setup": (425, 1, 0),
        "perf_event_open": (298, 0, 0, 0, 0, 0),
        "userfaultfd": (323, 0),
        "shmget": (29, 0, 4096, 0o1600),
        "semget": (64, 0, 1, 0o1600),
        "msgget": (68, 0, 0o1600),
        "mq_open": (240, 0, 0, 0, 0),
        "init_module": (175, 0, 0, 0),
        "swapon": (167, 0, 0),
        "sethostname": (170, 0, 0),
        "settimeofday": (164, 0, 0),
        "open_by_handle_at": (304, 0, 0, 0),
        "personality": (135, 0x0040000),
        "vfork": (58,),
        "fork": (57,),
        "execve": (59, 0, 0, 0),
        "execveat": (322, 0, 0, 0, 0, 0),
        "connect": (42, 0, 0, 0),
        "seccomp": (317, 0, 0, 0),
        "landlock_create_ruleset": (444, 0, 0, 1),
        "prctl, another death signal": (157, 1, 0, 0, 0, 0),
        "clone of a process": (56, 17, 0, 0, 0, 0),
        "clone of a thread in a new namespace": (56, 0x10000 | 0x800 | 0x100 | 0x10000000, 0, 0, 0, 0),
        "x32 getpid": (0x40000000 | 39,),
        "a call of tomorrow": (1000,),
        "memfd_secret": (447, 0),
        "chmod": (90, 0, 0),
        "fchmodat2": (452, -100, 0, 0, 0),
    }
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", sorted(CALLS["x86_64"]))
def test_the_kernel_is_not_asked_for_what_is_not_listed(name):
    if platform.machine() != "x86_64":
        pytest.skip("these numbers are those of x86_64")
    arguments = ", ".join(f"ctypes.c_long({one})" for one in CALLS["x86_64"][name])
    assert ran(CALL.format(arguments)).stdout == b"-1 1\n"


def test_clone3_does_not_exist():
    assert ran(CALL.format("435, 0, 0")).stdout == b"-1 38\n"


def test_a_32_bit_call_ends_the_program():
    if platform.machine() != "x86_64":
        pytest.skip("int 0x80 is of x86_64")
    # mov eax, 20 (getpid of 32 bits); int 0x80; ret
    code = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("b814000000cd80c3"))
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
"""
    result = ran(code)
    assert result.stdout == b""
    assert result.exit_code in (-signal.SIGSYS, -signal.SIGSEGV)


def test_the_superusers_powers_are_gone():
    code = """
import ctypes, struct
c = ctypes.CDLL(None, use_errno=True)
print(c.prctl(38, 1, 0, 0, 0))
print(open('/proc/self/status').read())
"""
    assert ran(code).exit_code == 1
    if os.geteuid() != 0:
        pytest.skip("only the superuser has powers to lose")
    # Seen from outside while it runs.
    found: list[str] = []

    def look() -> None:
        deadline = time.monotonic() + 5
        while not found and time.monotonic() < deadline:
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    if b"plaudit.rewards.sandbox" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        status = Path(f"/proc/{pid}/status").read_text()
                        if "Seccomp:\t2" in status:
                            found.append(status)
                except OSError:
                    continue
            time.sleep(0.02)

    watcher = threading.Thread(target=look)
    watcher.start()
    ran("import time; time.sleep(1)")
    watcher.join()
    assert "CapEff:\t0000000000000000" in found[0]
    assert "CapBnd:\t0000000000000000" in found[0]
    assert "NoNewPrivs:\t1" in found[0]
