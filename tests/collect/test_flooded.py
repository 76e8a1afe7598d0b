"""One stranger with many sockets, or with one that never ends, keeps nobody else from the app."""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from select import select
from urllib.parse import urlencode, urlsplit

import pytest

from plaudit.collect.app import safety, server as serving
from plaudit.collect.app.api import PREFIX
from plaudit.collect.app.pages import form_token
from plaudit.collect.app.render import static
from plaudit.collect.app.safety import MOST_OF_A_STRANGER
from plaudit.collect.app.server import serve_in_background
from plaudit.collect.passwords import GATE
from plaudit.collect.store import open_store
from tests.collect.desks import Desk

HEALTH = f"GET {PREFIX}/health HTTP/1.1\r\nHost: {{host}}\r\n\r\n"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    desk = Desk(tmp_path_factory.mktemp("flooded") / "labels.db")
    with (
        pytest.MonkeyPatch.context() as patch,
        closing(desk.store),
        serve_in_background(desk.store) as server,
    ):
        patch.setattr(serving, "PATIENCE", 0.05)
        yield urlsplit(server.url).netloc


def dial(host: str) -> socket.socket:
    name, port = host.split(":")
    return socket.create_connection((name, int(port)), timeout=10)


def is_healthy(line: socket.socket, host: str) -> bool:
    line.sendall(HEALTH.format(host=host).encode())
    answer = b""
    while not answer.endswith(b"}"):
        answer += line.recv(4096)
    return answer.startswith(b"HTTP/1.1 200 OK")


def drip(line: socket.socket, *, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        line.sendall(b"x")
        time.sleep(0.02)


POST = f"POST {PREFIX}/join HTTP/1.1\r\nHost: {{host}}\r\nContent-Length: 60000\r\n\r\n{{{{"


@pytest.mark.parametrize("said", ["G", HEALTH + "G", POST], ids=("head", "second-head", "body"))
def test_a_sender_of_a_byte_now_and_then_is_hung_up_on(host, said):
    with dial(host) as line, dial(host) as person:
        assert is_healthy(person, host)
        line.sendall(said.format(host=host).encode())
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            drip(line, seconds=3)
        # Whoever thinks between two requests is not.
        assert is_healthy(person, host)


def test_a_reader_of_nothing_is_hung_up_on(host):
    asked = 1_500
    with closing(socket.socket()) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", int(host.rpartition(":")[2])))
        line.settimeout(10)
        line.sendall(f"GET {static('app.css')} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() * asked)
        time.sleep(0.5)
        received = bytearray()
        with suppress(ConnectionResetError):
            while part := line.recv(1_000_000):
                received += part
    assert 0 < received.count(b"HTTP/1.1 200 OK") < asked


def test_a_strangers_body_is_read_up_to_a_limit_and_no_further(host):
    """Of the open addresses, and of those whose token or session is of nobody."""
    refused = {"/api/v1/join": 413, "/api/v1/submit": 401, "/api/v1/tasks": 401, "/label": 413}
    for path, status in refused.items():
        with dial(host) as line:
            # None of it follows: whoever waits for it waits for ever.
            head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer p_x\r\n"
            line.sendall(f"{head}Content-Length: {8 * MOST_OF_A_STRANGER + 1}\r\n\r\n".encode())
            assert line.recv(12) == f"HTTP/1.1 {status}".encode(), path


def test_a_flood_of_sign_ins_is_bounded_and_keeps_nothing_else_waiting(host, monkeypatch):
    monkeypatch.setattr(safety, "MOST_WAITING", 3)
    guest, lane = "g" * 24, 8
    form = urlencode({"form_token": form_token(guest), "project": "p", "name": "Ada", "password": "x"})
    said = (
        f"POST /enter HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
        f"Cookie: plaudit-{host.rpartition(':')[2]}-guest={guest}\r\n"
        f"Content-Length: {len(form)}\r\n\r\n{form}"
    )
    with ExitStack() as lines, dial(host) as person:
        senders = [lines.enter_context(dial(host)) for _ in range(lane + 3 + 2)]
        # As a hash that takes long.
        with GATE:
            for sender in senders:
                sender.sendall(said.encode())
            assert is_healthy(person, host)
            assert select(senders, [], [], 10)[0]
        found = [sender.recv(12) for sender in senders]
    assert found.count(b"HTTP/1.1 503") == 2
    # Ten failures are looked at, and the eleventh is one too many.
    assert found.count(b"HTTP/1.1 403") == 10


@contextmanager
def started(folder: Path, files: int) -> Iterator[tuple[str, Path]]:
    """The app as its command serves it, where so many files may be open; gives its host and its output."""
    open_store(folder / "labels.db", create=True).close()
    said = folder / "said.txt"
    serve = f'ulimit -n {files}; exec "$0" -m plaudit collect serve --store labels.db --port 0'
    with said.open("w") as out:
        server = subprocess.Popen(["sh", "-c", serve, sys.executable], cwd=folder, stdout=out, stderr=out)
    try:
        while (found := re.search("at http://(\\S+)", said.read_text())) is None:
            assert server.poll() is None, said.read_text()
            time.sleep(0.1)
        yield found[1], said
    finally:
        server.terminate()
        server.wait()


@pytest.mark.slow
# Half of 50 files are less than the app itself holds and what is taken in one go: there taking pauses.
@pytest.mark.parametrize(("files", "pauses"), [(300, False), (50, True)])
def test_more_idle_sockets_than_there_may_be_files_keep_nobody_out(tmp_path, files, pauses):
    with started(tmp_path, files) as (host, said), ExitStack() as lines:
        for _ in range(files + 50):
            lines.enter_context(dial(host))
        time.sleep(3)
        with dial(host) as person:
            assert is_healthy(person, host)
        assert ("raise `ulimit -n`" in said.read_text()) is pauses
        assert len(said.read_text().splitlines()) < 5
