"""The attack suite, third part: time, memory, disk, threads; nothing stays behind."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plaudit.rewards.sandbox import sandbox as home
from plaudit.rewards.sandbox.sandbox import SandboxLimits
from tests.rewards.sandbox.confined import SHORT, attempted, ran, sandbox

# Nothing lasts, nothing grows.


def _left() -> list[str]:
    told = subprocess.run(["ps", "-eo", "pid,ppid,stat,args"], capture_output=True, text=True, check=True)
    mine = [line for line in told.stdout.splitlines() if "plaudit.rewards.sandbox" in line]
    return [line for line in mine if line.split()[1] in (str(os.getpid()), "1")]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("while True: pass", ""),
        ("import time\nwhile True: time.sleep(1)", "longer than"),
        (
            "import signal, time\nfor n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n"
            "  except (OSError, ValueError): pass\nwhile True: time.sleep(1)",
            "longer than",
        ),
        ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", ""),
        ("import sys, time, os\nos.close(0); os.close(1); os.close(2)\ntime.sleep(60)", "longer than"),
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()", "longer than"),
        ("import atexit, time\natexit.register(time.sleep, 60)", "longer than"),
        ("class X:\n  def __del__(self):\n    while True: pass\nx = X()", ""),
    ],
)
def test_what_does_not_end_is_ended(code: str, why: str) -> None:
    begun = time.perf_counter()
    result = ran(code, limits=SandboxLimits(cpu_seconds=1, wall_seconds=2.5, memory_mb=256))
    assert why in result.stop_reason
    assert result.stop_reason or result.exit_code < 0
    assert time.perf_counter() - begun < 10
    assert _left() == []


def test_a_fork_bomb_has_nothing_to_throw() -> None:
    code = """
import os
for n in range(1000):
    for make in (os.fork, os.forkpty, lambda: os.posix_spawn("/bin/sh", ["sh"], {})):
        try:
            make()
        except OSError:
            continue
        print("made")
print("none")
"""
    assert ran(code).stdout == b"none\n"


def test_a_bomb_of_threads_is_ended() -> None:
    code = """
import threading, time
threading.stack_size(32768)
while True:
    try:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except (RuntimeError, MemoryError):
        time.sleep(0.1)
"""
    begun = time.perf_counter()
    assert "threads" in ran(code).stop_reason
    assert time.perf_counter() - begun < 5
    assert _left() == []


@pytest.mark.parametrize(
    "code",
    [
        "x = bytearray(10**9)",
        "x = []\nwhile True: x.append(bytearray(10**6))",
        "x = 'a' * 10**10",
        "import mmap; mmap.mmap(-1, 2**30)",
        "import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p\n"
        "assert not c.malloc(2**30); 1/0",
    ],
)
def test_memory_is_bounded(code: str) -> None:
    result = ran(code)
    assert result.exit_code != 0
    assert any(word in result.stderr for word in (b"MemoryError", b"Cannot allocate", b"ZeroDivisionError"))


@pytest.mark.parametrize("to", [1, 2])
def test_a_giant_output_is_ended(to: int) -> None:
    begun = time.perf_counter()
    result = ran(f"import os\nwhile True: os.write({to}, b'x' * 65536)")
    assert "wrote more than 64 KiB" in result.stop_reason
    assert len(result.stdout) + len(result.stderr) < 200_000
    assert time.perf_counter() - begun < 5


def test_a_quick_giant_output_is_seen_too() -> None:
    assert "wrote more than" in ran("print('x' * 70000)").stop_reason


def written(code: str, limits: SandboxLimits = SHORT) -> int:
    """Mebibytes that a program has on the disk at once, by its own ``put``, until it is refused."""
    start = """
import os, mmap, socket, array
total, kept = 0, []
def put(file):
    global total
    for _ in range(16):
        file.write(bytes(2 ** 20))
        total += 1
try:
"""
    indented = "\n".join("    " + line for line in code.strip().splitlines())
    end = "except OSError as error:\n    print(total, error)\nelse:\n    print('all')"
    result = ran(f"{start}{indented}\n{end}", limits=limits)
    assert result.stdout, result
    return int(result.stdout.split()[0])


ROOM = SandboxLimits(cpu_seconds=5, wall_seconds=10, memory_mb=256, file_mb=16, output_kb=64)


@pytest.mark.parametrize(
    "code",
    [
        "for n in range(1000): put(open(f'{n}', 'wb', 0))",
        # Open, and without a name.
        "for n in range(1000):\n    kept.append(open('x', 'wb', 0))\n    os.unlink('x')\n    put(kept[-1])",
        "for n in range(1000):\n    kept.append(os.fdopen(os.open('.', os.O_TMPFILE | os.O_RDWR), 'wb', 0))\n"
        "    put(kept[-1])",
        # Mapped, closed, and without a name.
        "for n in range(1000):\n    file = open('x', 'w+b', 0)\n    os.unlink('x')\n    file.write(b'x')\n"
        "    kept.append(mmap.mmap(file.fileno(), 1))\n    put(file)\n    file.close()",
        # On their way through a socket that nobody reads.
        "ends = socket.socketpair()\nfor n in range(1000):\n    file = open('x', 'wb', 0)\n"
        "    os.unlink('x')\n    put(file)\n    which = array.array('i', [file.fileno()])\n"
        "    ends[0].sendmsg([b'x'], [(1, 1, which)])\n    file.close()",
    ],
)
def test_all_that_is_written_stays_within_the_limit_however_it_is_held(code: str) -> None:
    assert written(code, ROOM) <= 16


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("f = open('x', 'wb', 0)\nfor _ in range(100): f.write(bytes(2**20))", "OSError"),
        ("import os; os.truncate(open('x', 'w').name, 2**40)", "OSError"),
        # What it is given to read is no disk, and an open file is not sent.
        ("import os; os.write(0, b'x')", "OSError"),
        ("import os; os.ftruncate(0, 2 ** 20)", "OSError"),
        (
            "import socket as s, os\na, b = s.socketpair()\ns.send_fds(a, [b'x'], [os.dup(0)])",
            "PermissionError",
        ),
        ("import os\nx = [os.dup(0) for _ in range(100)]", "OSError"),
        ("for n in range(101): open(str(n), 'w').close()", "OSError"),
        ("for n in range(100): open(str(n), 'w').close()", "DONE"),
    ],
)
def test_files_are_bounded_in_size_and_number(code: str, says: str) -> None:
    assert attempted(code) == f"{says}\n"


def test_where_no_room_of_its_own_can_be_had_a_program_writes_no_file(tmp_path: Path) -> None:
    sandbox()
    code = (
        "from plaudit.rewards.sandbox.sandbox import Sandbox\n"
        "print(Sandbox().run_program('print(open(\"x\", \"w\"))', b'').stderr.decode()[-200:])\n"
        "print(Sandbox().run_program('print(2 + 2)', b'').stdout)"
    )
    refused = "echo 0 > /proc/sys/user/max_user_namespaces && exec "
    environment = {**os.environ, "PYTHONPATH": str(Path(home.__file__).parents[3]), "TMPDIR": str(tmp_path)}
    told = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", f'{refused} "$0" -c "$1"', sys.executable, code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in told.stderr or "max_user_namespaces" in told.stderr:
        pytest.skip(f"no user namespace here to try it in: {told.stderr}")
    assert "PermissionError" in told.stdout, told
    assert "b'4\\n'" in told.stdout


def test_deep_recursion_and_a_crash_are_the_programs_fault_alone() -> None:
    result = ran("import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()")
    assert result.exit_code != 0 or result.stop_reason
    assert ran("import ctypes; ctypes.string_at(0)").exit_code == -signal.SIGSEGV
    assert ran("import os; os.abort()").exit_code == -signal.SIGABRT
    assert ran("import os, signal; os.kill(os.getpid(), signal.SIGKILL)").exit_code == -signal.SIGKILL


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = len(os.listdir("/proc/self/fd"))
    for code in ("print(1)", "while True: pass", "import os; os.close(1); open('x', 'w'); 1/0"):
        ran(code, limits=SandboxLimits(cpu_seconds=1, wall_seconds=2, memory_mb=256))
    assert [*tmp_path.iterdir()] == []
    assert len(os.listdir("/proc/self/fd")) == files
    assert _left() == []


def test_when_plaudit_is_killed_the_program_dies_too(tmp_path: Path) -> None:
    sandbox()
    code = (
        "from plaudit.rewards.sandbox.sandbox import Sandbox\n"
        "from plaudit.rewards.sandbox.sandbox import SandboxLimits\n"
        "s = Sandbox(SandboxLimits(cpu_seconds=60, wall_seconds=60))\nprint('begun', flush=True)\n"
        "s.run_program('import time; time.sleep(50.4321)', b'')"
    )
    source = str(Path(home.__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": source, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + 10
        while not (children.exists() and children.read_text().split()) and time.monotonic() < deadline:
            time.sleep(0.02)
        [child] = children.read_text().split()
        time.sleep(0.3)
        process.kill()
        process.wait()
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{child}") and time.monotonic() < deadline:
        time.sleep(0.02)
    alive = os.path.exists(f"/proc/{child}") and "State:\tZ" not in Path(f"/proc/{child}/status").read_text()
    assert not alive


def test_many_at_once_each_with_its_own_end() -> None:
    codes = [f"print({n})" if n % 3 else "import os; os._exit(7)" for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(ran, codes))
    for n, result in enumerate(results):
        assert (result.exit_code, result.stdout) == ((0, f"{n}\n".encode()) if n % 3 else (7, b""))
