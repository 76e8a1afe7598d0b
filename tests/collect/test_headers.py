"""What every answer carries, whoever gave it, and what cookies are made of."""

import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from plaudit.collect.app.api import PREFIX
from plaudit.collect.app.render import static
from plaudit.collect.app.server import serve_in_background
from plaudit.collect.database import Database
from plaudit.collect.people import make_invite
from tests.collect.desks import Desk, MakeDesk
from tests.collect.visitors import Reply, Visitor

PROXY = "https://labels.example.org"
POLICY = {
    *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'"),
    *("frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"),
}


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    return make_desk()


@pytest.fixture(params=[None, PROXY], ids=["loopback", "proxy"])
def visitor(request: pytest.FixtureRequest, desk: Desk) -> Iterator[Visitor]:
    """Somebody who is signed in, at this machine or through a proxy that passes its own name on."""
    with serve_in_background(desk.store, behind=request.param) as server:
        found = Visitor(server.url, behind=request.param)
        yield found.sign_in(desk.store, desk.people(1)[0])


def answers(visitor: Visitor) -> Iterator[Reply]:
    """One of each kind: pages, redirects, refusals, the API, files."""
    stranger = Visitor(visitor.url, behind=visitor.behind)
    for path in ("/account", "/", "/nowhere", "/entered", static("app.css"), f"{PREFIX}/health", "/manage"):
        yield visitor.get(path)
        yield stranger.get(path)
    yield visitor.send("POST", "/account", b"")
    yield visitor.send("POST", "/account/sessions", b"", {"Origin": "https://elsewhere.example"})
    yield visitor.send("POST", "/account/sessions", b"", {"Host": "elsewhere.example"})
    yield visitor.post("/sign-out", {"form_token": "0"})
    yield visitor.send("POST", f"{PREFIX}/next", b"{", {"Authorization": "Bearer p_x"})
    yield visitor.send("PUT", f"{PREFIX}/nowhere", b"{}")
    yield visitor.send("POST", f"{PREFIX}/join", b"{}")


def fails(*_: object) -> None:
    raise ZeroDivisionError("a fault that nobody foresaw")


def faults(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reply]:
    monkeypatch.setattr(Database, "ask", fails)
    yield visitor.get("/account")
    yield visitor.send("POST", f"{PREFIX}/next", b"{}", {"Authorization": "Bearer p_x"})


def test_every_answer_carries_the_headers(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = set[int]()
    for number, reply in enumerate([*answers(visitor), *faults(visitor, monkeypatch)]):
        statuses.add(reply.status)
        where = (number, reply.status, reply.headers)
        assert {*reply.headers["content-security-policy"].split("; ")} == POLICY, where
        assert reply.headers["x-content-type-options"] == "nosniff", where
        assert reply.headers["referrer-policy"] == "same-origin", where
        assert reply.headers["cross-origin-opener-policy"] == "same-origin", where
        assert reply.headers["cross-origin-resource-policy"] == "same-origin", where
        assert "geolocation=()" in reply.headers["permissions-policy"], where
        is_file = reply.headers.get("content-type", "").startswith("text/css")
        assert ("no-store" in reply.headers["cache-control"]) != is_file, where
        assert ("strict-transport-security" in reply.headers) == (visitor.behind is not None), where
        assert not any(name.startswith("access-control") for name in reply.headers), where
        assert "server" not in reply.headers, where
        if reply.content:
            assert re.match(
                r"(text/(html|css); charset=utf-8|application/json)$", reply.headers["content-type"]
            ), where
        age = re.search(r"max-age=(\d+)", reply.headers.get("strict-transport-security", ""))
        assert age is None or int(age[1]) >= 365 * 24 * 3600
    assert statuses >= {200, 303, 400, 401, 403, 404, 405, 421, 500}


def test_cookies_are_of_this_host_and_no_script_reads_them(visitor: Visitor, desk: Desk) -> None:
    invite = desk.store.write(make_invite, "p", actor="o1")
    guest = Visitor(visitor.url, behind=visitor.behind)
    page = guest.get(f"/join/{invite}")
    entered = guest.send_form(f"/join/{invite}", name="Ada", password="correct horse battery")
    assert entered.status == 303
    guest.get("/account")
    left = guest.send_form("/sign-out")
    lines = [*page.cookies, *entered.cookies, *left.cookies]
    assert len(lines) >= 3
    for line in lines:
        attributes = {word.strip().lower() for word in line.split(";")[1:]}
        assert {"httponly", "samesite=lax", "path=/"} <= attributes, line
        assert not any(word.startswith("domain") for word in attributes), line
        assert ("secure" in attributes) == (visitor.behind is not None), line
        assert line.startswith("__Host-plaudit") == (visitor.behind is not None), line
    secret = guest.cookies | visitor.cookies
    assert not any(value in page.text for value in secret.values())


def test_there_are_no_web_sockets(visitor: Visitor) -> None:
    host = urlsplit(visitor.url).netloc
    with socket.create_connection((urlsplit(visitor.url).hostname or "", visitor.port), timeout=30) as line:
        line.sendall(
            f"GET /account HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        assert not line.recv(4096).startswith(b"HTTP/1.1 101")
