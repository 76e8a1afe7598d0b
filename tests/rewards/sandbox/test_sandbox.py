"""The attack suite, first part: what a program tries to read, to change, or to connect to."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plaudit.rewards.sandbox import sandbox as home
from tests.rewards.sandbox.confined import attempted, ran

DENIED = ("PermissionError\n", "OSError\n", "BlockingIOError\n")


def test_a_program_runs_its_output_and_code_are_told_and_sets_have_one_order() -> None:
    result = ran("import sys; print(int(input()) + 1); sys.exit(3)", "41\n")
    assert (result.stop_reason, result.exit_code, result.stdout) == ("", 3, b"42\n")
    wrong = ran("1 / 0")
    assert wrong.exit_code == 1
    assert b"ZeroDivisionError" in wrong.stderr
    code = "print({str(n) for n in range(50)})"
    assert len({ran(code).stdout for _ in range(3)}) == 1


@pytest.mark.parametrize(
    "code",
    [
        "import collections, heapq, itertools, math, random, re, json, functools, string, bisect, decimal",
        "import numbers, dataclasses, typing, datetime, hashlib, statistics, zlib, struct, ctypes, sqlite3",
        "import threading; t = threading.Thread(target=print); t.start(); t.join()",
        "import sys, threading; sys.setrecursionlimit(10**6); threading.stack_size(2**26)\n"
        "def f(n): return 0 if not n else 1 + f(n - 1)\n"
        "t = threading.Thread(target=lambda: print(f(20000))); t.start(); t.join()",
        "import asyncio\nasync def f(): await asyncio.sleep(0.01)\nasyncio.run(f())",
        "from concurrent.futures import ThreadPoolExecutor as P\nlist(P(4).map(print, range(9)))",
        "open('x', 'w').write('a'); assert open('x').read() == 'a'; import os; os.remove('x')",
        "import tempfile; f = tempfile.TemporaryFile(dir='.'); f.write(b'x')",
        "import time, random, uuid, secrets; time.sleep(0.01); uuid.uuid4(); secrets.token_hex()",
        "from zoneinfo import ZoneInfo",
        "assert [*{'a', 'b', 'c'}] == [*{'a', 'b', 'c'}]",
        "import os; os.kill(os.getpid(), 0)",
    ],
)
def test_what_ordinary_programs_do_works(code: str) -> None:
    result = ran(code)
    assert (result.stop_reason, result.exit_code, result.stderr) == ("", 0, b"")


# Nothing outside is read.


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "/etc/shadow", "/proc/self/environ", "/proc/1/environ", "/proc/self/mem"),
        *("/sys", "/tmp", "/", "/dev"),
    ],
)
def test_nothing_outside_is_read(path: str) -> None:
    if not os.path.exists(path):
        pytest.skip(f"there is no {path} here")
    how = f"os.listdir({path!r})" if os.path.isdir(path) else f"open({path!r}, 'rb').read()"
    assert attempted(f"import os; print({how})") in DENIED


def test_neither_the_parents_memory_nor_this_project_are_read(monkeypatch, tmp_path):
    monkeypatch.setenv("PLAUDIT_SECRET", "hunter2")
    assert b"hunter2" not in ran("import os; print(os.environ)").stdout
    for name in ("environ", "mem", "maps", "cmdline", "fd", "root", "cwd/x"):
        assert attempted(f"import os; open(f'/proc/{{os.getppid()}}/{name}')") in DENIED
    (tmp_path / "hidden").write_text("secret")
    assert attempted(f"open({str(tmp_path / 'hidden')!r})") in DENIED
    assert attempted(f"open({str(Path(home.__file__))!r})") in DENIED
    assert attempted("import plaudit.rewards.verifiable.code") in ("ModuleNotFoundError\n", *DENIED)


def test_no_open_file_is_inherited() -> None:
    secret = os.open("/etc/passwd", os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        code = "import os\nfor n in range(3, 64):\n  try: os.fstat(n)\n  except OSError: continue\n  print(n)"
        assert ran(code).stdout == b""
    finally:
        os.close(secret)


# Nothing outside is changed.


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "code",
    [
        "open({path!r}, 'w')",
        "open({path!r}, 'a')",
        "import os; os.truncate({path!r}, 0)",
        "import os; os.open({path!r}, os.O_RDONLY | os.O_TRUNC)",
        "import os; os.remove({path!r})",
        "import os; os.rename({path!r}, {path!r} + 'x')",
        "import os; os.rename({path!r}, 'mine')",
        "import os; os.link({path!r}, 'mine')",
        "import os; os.symlink({path!r}, 'mine')",
        "import os; os.chmod({path!r}, 0o777)",
        "import os; os.chown({path!r}, 1, 1)",
        "import os; os.utime({path!r}, (1, 1))",
        "import os; os.setxattr({path!r}, 'user.x', b'x')",
        "import os; os.mkdir({path!r} + 'd')",
        "import os; os.mkfifo({path!r} + 'f')",
        "import os; os.mknod({path!r} + 'n')",
        "import os; os.chroot('/')",
        "open('/dev/shm/plaudit-x', 'w')",
        "open('/dev/kmsg', 'w')",
        "import sqlite3; sqlite3.connect({path!r} + '.db').execute('create table x (y)')",
    ],
)
def test_nothing_outside_is_changed(tmp_path: Path, code: str) -> None:
    path = tmp_path / "kept"
    path.write_text("kept")
    os.utime(path, (1000, 1000))
    before = path.stat()
    assert attempted(code.format(path=str(path))) in (*DENIED, "FileNotFoundError\n", "OperationalError\n")
    after = path.stat()
    assert path.read_text() == "kept"
    assert [*tmp_path.iterdir()] == [path]
    assert (before.st_mode, before.st_uid, before.st_mtime) == (after.st_mode, after.st_uid, after.st_mtime)


def test_its_own_folder_is_empty_and_gone_afterwards() -> None:
    result = ran("import os; print(os.listdir('.')); open('x', 'w').write('y'); print(os.getcwd())")
    listed, folder = result.stdout.decode().splitlines()
    assert listed == "[]"
    assert not os.path.exists(folder)


@pytest.mark.parametrize(
    "what", ["os.symlink('/etc/passwd', 'x')", "os.link('/etc/passwd', 'x')", "os.mkdir('x')"]
)
def test_the_own_folder_has_plain_files_only(what: str) -> None:
    assert attempted(f"import os; {what}; print(open('x').read())") in DENIED


def test_two_programs_do_not_see_each_other() -> None:
    code = "import os, time; open('mine', 'w'); time.sleep(0.5); print(os.listdir('.'), os.listdir('..'))"
    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(ran, [code, code]):
            assert result.exit_code == 1
            assert b"PermissionError" in result.stderr


# No network.


def test_no_connection_to_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        server.settimeout(0.2)
        assert attempted(f"import socket; socket.create_connection(('127.0.0.1', {port}))") in DENIED
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize(
    "made",
    [
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
        "socket.socket(socket.AF_INET6)",
        "socket.socket(socket.AF_UNIX)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.socket(socket.AF_VSOCK)",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)",
        "socket.gethostbyname('localhost.example')",
    ],
)
def test_no_socket_of_any_kind(made: str) -> None:
    assert attempted(f"import socket; {made}") in (*DENIED, "gaierror\n")
