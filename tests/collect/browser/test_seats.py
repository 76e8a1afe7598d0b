"""The window that the other tests look through: it hears of all that it should hear of."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler

import pytest
from playwright.sync_api import Error

from tests.collect.browser.seats import OpenSeat
from tests.collect.hostile import ELEMENTS, STRANGE_ELEMENTS
from tests.rewards.server import running

POLICY = "default-src 'none'; script-src 'self'"


@contextmanager
def serving(*bodies: str, policy: str = POLICY) -> Iterator[str]:
    """Pages of one's own under a policy, at /0, /1 and so on."""
    pages = {f"/{number}": body for number, body in enumerate(bodies)}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in pages else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Security-Policy", policy)
            self.end_headers()
            head = "<!doctype html><html lang=en><title>t</title>"
            self.wfile.write((head + pages.get(self.path, "")).encode())

    with running(Handler) as url:
        yield url


@pytest.mark.one_in(8)
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
    with serving(body, policy=policy) as url:
        seat = open_seat(url)
        seat.go("/0")
        seat.page.wait_for_load_state("networkidle")
    assert any(says in news for news in seat.bad_news), seat.bad_news
    with pytest.raises(AssertionError):
        seat.refuse_bad_news()
    seat.forgive("")


@pytest.mark.slow
def test_a_good_page_is_no_news_and_a_bad_one_has_faults_of_access(open_seat: OpenSeat) -> None:
    with serving("<main><h1>Hello</h1></main>") as url:
        seat = open_seat(url, width=320)
        assert seat.go("/0").status == 200
        assert (seat.faults_of_access(), seat.overhang(), seat.bad_news) == ([], 0, [])
    with serving("<main><h1>Hello</h1><input><pre>" + "x" * 200) as url:
        seat = open_seat(url, width=320)
        seat.go("/0")
        assert [fault.partition(" ")[0] for fault in seat.faults_of_access()] == ["label"]
        assert seat.overhang() > 100


def test_texts_that_a_page_does_not_escape_are_found(open_seat: OpenSeat) -> None:
    """Otherwise the tests with these texts would prove nothing."""
    missed = list[str]()
    # A tag that is left open is one as soon as something follows.
    with serving(*(f"{text}<p>and so on</p>" for text in ELEMENTS[::3])) as url:
        seat = open_seat(url)
        for number, text in enumerate(ELEMENTS[::3]):
            seat.bad_news.clear()
            # A tab each: some lead theirs away.
            seat.page.close()
            seat.page = seat.context.new_page()
            seat.go(f"/{number}")
            # Where the page has been led away while it is asked, it answers nothing: that is found too.
            with suppress(Error):
                if not seat.page.evaluate(STRANGE_ELEMENTS) and not seat.bad_news:
                    missed.append(text)
        seat.bad_news.clear()
    assert missed == []
