"""What the scripts of a task's page add: keys, drafts, repeated sends, drag, answers as they come."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from plaudit.collect.adding import set_project
from plaudit.collect.sessions import end_sessions
from tests.collect.browser.seats import OpenSeat, Seat
from tests.collect.browser.tasks import Office, office
from tests.rewards.server import running

OFFLINE = ("ERR_INTERNET_DISCONNECTED", "ERR_FAILED")


@contextmanager
def at_work(
    folder: Path, open_seat: OpenSeat, kind: str = "pair", **settings: Any
) -> Iterator[tuple[Office, Seat]]:
    options = {name: settings.pop(name) for name in ("locale",) if name in settings}
    with office(folder, kind, tasks=4, **settings) as place:
        seat = open_seat(place.url, **options).sign_in(place.store, place.person())
        seat.go("/label")
        yield place, seat


def chosen(page: Page) -> Any:
    return page.evaluate("document.querySelector('input[name=strength]:checked')?.value ?? null")


def numbers(page: Page) -> list[list[str]]:
    """The answers from top to bottom, each with its number."""
    return page.evaluate(
        "() => [...document.querySelectorAll('.answer')]"
        ".map((card) => [card.dataset.place, card.querySelector('select').value])"
    )


@pytest.mark.slow
def test_keys_choose_and_move_and_are_off_while_somebody_types(tmp_path, open_seat):
    with at_work(tmp_path, open_seat) as (place, seat):
        page = seat.page
        page.keyboard.press("ArrowLeft")
        assert chosen(page) == "-1"
        page.keyboard.press("6")
        assert chosen(page) == "2"
        page.keyboard.press("n")
        page.keyboard.type("so 1? u g d")
        expect(page.locator("#note textarea")).to_have_value("so 1? u g d")
        assert chosen(page) == "2"
        assert not page.locator("dialog[open]").count()
        page.evaluate("document.activeElement.blur()")
        for key in ("Control+1", "Alt+1", "Meta+1"):
            page.keyboard.press(key)
        assert chosen(page) == "2"
        page.keyboard.press("s")
        expect(page.locator("#skip button").first).to_be_focused()
        assert place.labels() == []


def test_arrows_follow_the_eye_from_right_to_left(tmp_path, open_seat):
    with at_work(tmp_path, open_seat, locale="ar") as (_, seat):
        seat.page.keyboard.press("ArrowLeft")
        assert chosen(seat.page) == "1"


@pytest.mark.slow
def test_keys_can_be_switched_off(tmp_path, open_seat):
    with at_work(tmp_path, open_seat) as (_, seat):
        seat.page.keyboard.press("?")
        expect(seat.page.locator("#keys")).to_be_visible()
        assert seat.faults_of_access() == []
        seat.page.locator("#keys-on").uncheck()
        seat.page.keyboard.press("Escape")
        seat.page.keyboard.press("1")
        assert chosen(seat.page) is None


@pytest.mark.slow
def test_guidelines_and_differences_are_one_key_away(tmp_path, open_seat):
    with office(tmp_path, "pair", guidelines="Be *kind*.") as place:
        seat = open_seat(place.url).sign_in(place.store, place.person())
        seat.go("/label")
        with seat.page.expect_navigation(url="**/label"):
            seat.page.locator("form[action='/guidelines/read'] button").click()
        seat.page.keyboard.press("3")
        seat.page.keyboard.press("g")
        expect(seat.page.locator("#guide em")).to_have_text("kind")
        seat.page.keyboard.press("Escape")
        seat.page.keyboard.press("d")
        expect(seat.page.locator("mark").first).to_be_visible()
        assert chosen(seat.page) == "-1"


@pytest.mark.slow
def test_a_send_without_a_connection_is_repeated_until_it_arrives_once(tmp_path, open_seat):
    with at_work(tmp_path, open_seat) as (place, seat):
        seat.page.keyboard.press("2")
        seat.context.set_offline(True)
        seat.page.locator("#send").click()
        expect(seat.page.locator("#sending")).to_contain_text("Trying again by itself")
        assert place.labels() == []
        with seat.page.expect_navigation(url="**/label?after=*", timeout=20_000):
            seat.context.set_offline(False)
        assert place.labels() == [{"strength": -2}]
        seat.forgive(*OFFLINE)


@pytest.mark.slow
def test_a_reply_that_was_lost_is_no_second_answer(tmp_path, open_seat):
    with at_work(tmp_path, open_seat) as (place, seat):
        lost = list[str]()

        def lose(route: Any) -> None:
            if route.request.method == "POST" and not lost:
                # It arrives and is taken; what is lost is the way back.
                lost.append(route.request.url)
                route.fetch(max_redirects=0)
                route.abort()
            else:
                route.continue_()

        seat.page.route("**/label", lose)
        seat.page.keyboard.press("2")
        with seat.page.expect_navigation(url="**/label?after=*", timeout=20_000):
            seat.page.locator("#send").click()
        assert lost
        assert place.labels() == [{"strength": -2}]
        seat.forgive(*OFFLINE)


def test_a_double_click_sends_once_and_never_the_next_task(tmp_path, open_seat):
    with at_work(tmp_path, open_seat) as (place, seat):
        seat.page.keyboard.press("2")
        with seat.page.expect_navigation(url="**/label?after=*"):
            seat.page.locator("#send").dblclick()
        assert len(place.labels()) == 1


@pytest.mark.slow
def test_what_was_typed_is_there_after_a_closed_window(tmp_path, open_seat):
    with at_work(tmp_path, open_seat) as (_, seat):
        seat.context.set_offline(True)
        seat.page.keyboard.press("7")
        seat.page.locator("details.why summary").click()
        seat.page.locator("textarea[name=why]").fill("A long thought")
        seat.page.close()
        seat.page = seat.context.new_page()
        seat.context.set_offline(False)
        seat.go("/label")
        assert chosen(seat.page) == "3"
        expect(seat.page.locator("textarea[name=why]")).to_have_value("A long thought")
        expect(seat.page.locator("textarea[name=why]")).to_be_visible()
        seat.forgive(*OFFLINE)


@pytest.mark.slow
def test_a_draft_goes_to_the_server_by_itself(tmp_path, open_seat):
    with at_work(tmp_path, open_seat) as (place, seat):
        seat.page.keyboard.press("7")
        expect(seat.page.locator("#saved")).to_have_text("Saved")
        # Somewhere else, in a browser that knows nothing of it.
        other = open_seat(place.url).sign_in(place.store, "a1")
        other.go("/label")
        assert chosen(other.page) == "3"


@pytest.mark.slow
def test_a_session_that_ends_while_somebody_types_loses_nothing(tmp_path, open_seat):
    with at_work(tmp_path, open_seat) as (place, seat):
        place.store.write(end_sessions, "p", "a1")
        seat.page.keyboard.press("7")
        expect(seat.page.locator("#sending")).to_contain_text("You are signed out")
        seat.page.locator("details.why summary").click()
        seat.page.locator("textarea[name=why]").fill("Typed after the end")
        seat.page.keyboard.press("Control+Enter")
        expect(seat.page).to_have_title("You are signed out · plaudit")
        assert place.labels() == []
        # Signed in again in another tab, the page that shows the words can be sent.
        seat.sign_in(place.store, "a1")
        resend = seat.page.locator("form:has(input[name=key]) button.main")
        for url in ("**/label", "**/label?after=*"):
            with seat.page.expect_navigation(url=url):
                resend.click()
        assert place.labels() == [{"strength": 3, "why": "Typed after the end"}]


@pytest.mark.slow
def test_time_in_sight_is_counted_and_sent(tmp_path, open_seat):
    with at_work(tmp_path, open_seat) as (place, seat):
        expect(seat.page.locator("input[name=seconds]")).to_have_value("2")
        seat.page.keyboard.press("2")
        with seat.page.expect_navigation(url="**/label?after=*"):
            seat.page.keyboard.press("Enter")
        (event,) = [event for event in place.store.events() if event.kind == "answered"]
        assert event.body is not None
        assert event.body["seconds"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize("by", ["mouse", "touch"])
def test_a_ranking_is_dragged(tmp_path, open_seat, by):
    with office(tmp_path, "rank") as place:
        seat = open_seat(place.url, has_touch=by == "touch").sign_in(place.store, place.person())
        seat.go("/label")
        drag(seat, by, 2, 0)
        assert numbers(seat.page) == [["2", "1"], ["0", ""], ["1", ""]]
        drag(seat, by, 2, 1)
        assert numbers(seat.page) == [["2", "1"], ["1", "2"], ["0", ""]]
        with seat.page.expect_navigation(url="**/label?after=*"):
            seat.page.locator("#send").click()
        assert place.labels() == [{"groups": [[2], [1]]}]


def drag(seat: Seat, by: str, card: int, over: int) -> None:
    """Pull the heading of one card to the top of another."""
    handle = seat.page.locator(".answer h2").nth(card)
    handle.scroll_into_view_if_needed()
    start, end = handle.bounding_box(), seat.page.locator(".answer").nth(over).bounding_box()
    assert start is not None
    assert end is not None
    x, y, rise = start["x"] + 20, start["y"] + 10, (end["y"] + 15 - start["y"] - 10) / 20
    if by == "mouse":
        seat.page.mouse.move(x, y)
        seat.page.mouse.down()
        seat.page.mouse.move(x, y + 20 * rise, steps=20)
        seat.page.mouse.up()
        return
    session = seat.context.new_cdp_session(seat.page)
    for step in range(21):
        points = [{"x": x, "y": y + step * rise}]
        kind = "touchMove" if step else "touchStart"
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


@pytest.mark.slow
def test_a_ranking_by_keys_has_ties_and_leaves_out(tmp_path, open_seat):
    with at_work(tmp_path, open_seat, "rank") as (place, seat):
        for card, key in (("0", "2"), ("1", "1"), ("2", "2")):
            seat.page.locator(f".answer[data-place='{card}']").focus()
            seat.page.keyboard.press(key)
        assert numbers(seat.page) == [["1", "1"], ["0", "2"], ["2", "2"]]
        expect(seat.page.locator("#rank-said")).to_contain_text("Answer C is now at place 2")
        seat.page.locator(".answer[data-place='2']").focus()
        seat.page.keyboard.press("0")
        with seat.page.expect_navigation(url="**/label?after=*"):
            seat.page.keyboard.press("Control+Enter")
        assert place.labels() == [{"groups": [[1], [0]]}]


@contextmanager
def uneven() -> Iterator[tuple[str, threading.Event]]:
    """A server that streams: the answer to the first question at once, to the second when it is let go."""
    go, lock, count = threading.Event(), threading.Lock(), list[int]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                count.append(1)
                number = len(count)
            self.send_response(200)
            self.end_headers()
            for words in ("One ", "two ", f"{number}."):
                if number == 2 and words == "two ":
                    go.wait(20)
                event = {"choices": [{"delta": {"content": words}, "finish_reason": None}]}
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

    with running(Handler) as url:
        try:
            yield f"{url}/v1#m", go
        finally:
            go.set()


@pytest.mark.slow
def test_two_answers_are_shown_at_the_pace_of_the_slower(tmp_path, open_seat):
    with uneven() as (address, go), office(tmp_path, "talk") as place:
        place.store.write(set_project, replace(place.store.project("p"), talks_to=address), actor="o1")
        seat = open_seat(place.url).sign_in(place.store, place.person())
        seat.go("/label")
        seat.page.locator("#message").fill("Hello")
        seat.page.locator("#say").click()
        live = seat.page.locator("#live .text")
        expect(live.nth(0)).to_have_text("One")
        expect(live.nth(1)).to_have_text("One")
        expect(seat.page.locator("#say")).to_be_disabled()
        go.set()
        expect(seat.page.locator("#newest .answer")).to_have_count(2)
        assert {"One two 1.", "One two 2."} == {
            *(words.strip() for words in seat.page.locator("#newest .text").all_inner_texts())
        }
