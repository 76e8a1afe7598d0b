"""Every kind of task in a real browser: by mouse, by keyboard alone, without JavaScript, at every width."""

from typing import Any

import pytest
from playwright.sync_api import expect

from plaudit.collect.kinds import KINDS
from plaudit.collect.progress import store_faults
from tests.collect.browser.seats import WIDTHS, OpenSeat, Seat
from tests.collect.browser.tasks import (
    ANSWER_BY_KEYS,
    CONVERSATIONS,
    LABELS,
    Office,
    fill_by_mouse,
    office,
    send_by_mouse,
    talk_by_mouse,
)


def check_label(place: Office, person: str) -> None:
    """The one label of the log is what was to be said, by whoever said it."""
    (event,) = [event for event in place.store.events() if event.kind == "answered"]
    assert event.actor == person
    assert event.body is not None
    label: dict[str, Any] = dict(event.body["label"])
    turns, messages = label.pop("turns", []), label.pop("messages", [])
    assert label == LABELS[place.kind]
    if place.kind == "talk":
        assert [(turn["message"], turn["strength"]) for turn in turns] == [("Hello", 2), ("And then?", -1)]
    if place.kind == "attack":
        assert [message["content"] for message in messages[::2]] == ["Hello", "And then?"]
    assert place.store.read(store_faults) == []


def at_work(place: Office, open_seat: OpenSeat, **options: Any) -> tuple[Seat, str]:
    person = place.person()
    seat = open_seat(place.url, **options).sign_in(place.store, person)
    assert seat.go("/label").status == 200
    return seat, person


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_is_answered_by_mouse_on_a_phone(tmp_path, open_seat, kind):
    with office(tmp_path, kind) as place:
        seat, person = at_work(place, open_seat, width=WIDTHS["phone"], has_touch=True)
        shown = place.lease(person).shown
        if kind in CONVERSATIONS:
            talk_by_mouse(seat.page, kind)
        fill_by_mouse(seat.page, shown, LABELS[kind])
        with seat.page.expect_navigation(url="**/label?after=*"):
            send_by_mouse(seat.page)
        check_label(place, person)
        seat.refuse_bad_news()


@pytest.mark.one_in(9)
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_is_answered_by_keyboard_alone(tmp_path, open_seat, kind):
    with office(tmp_path, kind) as place:
        seat, person = at_work(place, open_seat)
        with seat.page.expect_navigation(url="**/label?after=*"):
            ANSWER_BY_KEYS[kind](seat.page)
        check_label(place, person)
        seat.refuse_bad_news()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_is_answered_without_javascript(tmp_path, open_seat, kind):
    with office(tmp_path, kind) as place:
        seat, person = at_work(place, open_seat, java_script_enabled=False)
        shown = place.lease(person).shown
        if kind in CONVERSATIONS:
            talk_by_mouse(seat.page, kind)
        fill_by_mouse(seat.page, shown, LABELS[kind])
        send_by_mouse(seat.page)
        expect(seat.page).to_have_url(f"{place.url}/label?after={seat.page.url.rpartition('=')[2]}")
        check_label(place, person)
        assert not any(url.endswith(".js") for url in seat.asked_for)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_fits_every_width_light_and_dark_from_left_and_right(tmp_path, open_seat, kind):
    """No scrolling sideways at 320 pixels, and axe-core finds nothing."""
    with office(tmp_path, kind) as place:
        person = place.person()
        for language in ("en", "ar"):
            seat = open_seat(place.url, locale=language).sign_in(place.store, person)
            seat.go("/label")
            assert seat.page.locator("html").get_attribute("dir") == ("rtl" if language == "ar" else "ltr")
            if kind in CONVERSATIONS and language == "en":
                talk_by_mouse(seat.page, kind)
            for scheme in ("light", "dark"):
                seat.page.emulate_media(color_scheme=scheme)
                for width in WIDTHS.values():
                    seat.page.set_viewport_size({"width": width, "height": 900})
                    assert seat.overhang() == 0, (language, scheme, width)
                assert seat.faults_of_access() == [], (language, scheme)
            seat.refuse_bad_news()
