"""The window that the other tests look through: it hears of all that it should hear of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.labelling.browser.seats import OpenSeat

POLICY = "default-src 'none'; script-src 'self'"


@contextmanager
def serving(body: str, policy: str) -> Iterator[str]:
    """A page of one's own under a policy."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/" else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Security-Policy", policy)
            self.end_headers()
            head = "<!doctype html><html lang=en><title>t</title>"
            self.wfile.write((head + body).encode() if self.path == "/" else b"")

        def log_message(self, format: str, *args: object) -> None:
            """Keep the output of the tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("body", "policy", "says"),
    [
        ("<script>alert(1)</script>", "script-src 'unsafe-inline'", "dialog: alert: 1"),
        ("<script>alert(1)</script>", POLICY, "content policy: script-src-elem refused inline"),
        ("<body onload='alert(1)'>", POLICY, "content policy: script-src-attr refused inline"),
        ("<b style='color: red'>x</b>", POLICY, "console: error"),
        (
            "<img src='https://example.org/x.png'>",
            "img-src *",
            "request that leaves: https://example.org/x.png",
        ),
        ("<script>nowhere()</script>", "script-src 'unsafe-inline'", "script failed: nowhere is not defined"),
        ("<script>console.warn('w')</script>", "script-src 'unsafe-inline'", "console: warning: w"),
        ("<script src='/gone.js'></script>", POLICY, "status 404"),
    ],
)
def test_a_window_hears_of_everything_bad(open_seat: OpenSeat, body: str, policy: str, says: str) -> None:
    with serving(body, policy) as url:
        seat = open_seat(url)
        seat.go("/")
        seat.page.wait_for_load_state("networkidle")
    assert any(says in news for news in seat.bad_news), seat.bad_news
    with pytest.raises(AssertionError):
        seat.refuse_bad_news()
    seat.forgive("")


def test_a_good_page_is_no_news_and_a_bad_one_has_faults_of_access(open_seat: OpenSeat) -> None:
    with serving("<main><h1>Hello</h1></main>", POLICY) as url:
        seat = open_seat(url, width=320)
        assert seat.go("/").status == 200
        assert (seat.faults_of_access(), seat.overhang(), seat.bad_news) == ([], 0, [])
    with serving("<main><h1>Hello</h1><input><pre>" + "x" * 200, POLICY) as url:
        seat = open_seat(url, width=320)
        seat.go("/")
        assert [fault.partition(" ")[0] for fault in seat.faults_of_access()] == ["label"]
        assert seat.overhang() > 100
