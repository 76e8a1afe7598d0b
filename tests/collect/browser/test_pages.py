"""Every page of the app in a real browser: nothing scrolls sideways, and axe-core finds nothing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from plaudit.collect.adding import set_project
from plaudit.collect.answering import add_note, own_history
from plaudit.collect.app.server import PAGES
from plaudit.collect.people import issue_token, join_project, make_invite, set_standing
from plaudit.collect.progress import project_tasks
from plaudit.collect.sessions import set_password
from tests.collect.browser.seats import WIDTHS, OpenSeat, Seat
from tests.collect.browser.tasks import Office, office

OPEN = ("/enter", "/join/{invite}", "/entered", "/nowhere", "/start/x", "/join/i_gone")


class Busy:
    """An office at work: labels, divided people, notes, an invite, a person in each role."""

    def __init__(self, place: Office) -> None:
        self.place, self.store, desk = place, place.store, place.desk
        self.ada, self.bob = place.person(), place.person("Bob")
        for strength, person in ((-2, self.ada), (2, self.bob), (-2, self.ada), (2, self.bob)):
            lease = desk.answer(person, strength)
            self.store.write(
                add_note, "p", person, lease.assignment, f"n{lease.assignment}", "Both say the same."
            )
        desk.lease(self.ada)
        self.owner = self.store.write(issue_token, "p", "owner", name="Olga").pseudonym
        self.store.write(set_standing, "p", self.bob, "watch", reason="too quick", actor=self.owner)
        self.invite = self.store.write(make_invite, "p", uses=3, actor=self.owner)
        self.task = self.store.read(project_tasks, "p", None, 9, 0)[0]["id"]
        # One account in two projects.
        set_password(self.store, "p", self.ada, "a horse in the rain", actor=self.owner)
        self.store.write(set_project, replace(self.store.project("p"), name="q"), actor=self.owner)
        invite = self.store.write(make_invite, "q", role="owner", actor=self.owner)
        join_project(self.store, invite, "Ada", account=("p", self.ada))
        self.answered = self.store.read(own_history, "p", self.ada, 9)[0]["assignment"]

    def paths(self, prefix: str = "") -> Iterator[str]:
        """The addresses of pages, of what is there."""
        words = {"task": self.task, "person": self.bob, "assignment": self.answered, "invite": self.invite}
        for page in PAGES:
            is_file = page.script or page.path.endswith(".csv")
            if page.method == "GET" and page.scope != "open" and not is_file:
                path = page.path
                for name, word in words.items():
                    path = path.replace(f"{{{name}}}", word)
                if path.startswith("/manage") == bool(prefix):
                    yield path


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Busy]:
    with office(
        tmp_path, "pair", tasks=5, overlap=2, most=2, guidelines="# Be kind\n\n- and *right*"
    ) as place:
        yield Busy(place)


def check_page(seat: Seat, path: str) -> None:
    seat.page.emulate_media(color_scheme="light")
    seat.page.set_viewport_size({"width": WIDTHS["desktop"], "height": 900})
    seat.go(path)
    assert seat.faults_of_access() == [], path
    seat.page.emulate_media(color_scheme="dark")
    for name in ("phone", "small"):
        seat.page.set_viewport_size({"width": WIDTHS[name], "height": 900})
        assert seat.overhang() == 0, (path, name)
    assert seat.faults_of_access() == [], path
    seat.refuse_bad_news()


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "ar"])
def test_pages_of_whoever_labels(busy: Busy, open_seat: OpenSeat, language: str) -> None:
    seat = open_seat(busy.place.url, locale=language).sign_in(busy.store, busy.ada)
    check_page(seat, "/guidelines")
    seat.page.locator("form[action='/guidelines/read'] button").click()
    # One of them is not for Ada, which is a page too.
    for path in (*busy.paths(), "/manage"):
        check_page(seat, path)
    assert seat.go("/label").url.endswith("/label")


@pytest.mark.slow
def test_pages_of_whoever_manages(busy: Busy, open_seat: OpenSeat) -> None:
    seat = open_seat(busy.place.url).sign_in(busy.store, busy.owner)
    for path in busy.paths("/manage"):
        check_page(seat, path)


@pytest.mark.slow
def test_pages_of_whoever_is_not_signed_in(busy: Busy, open_seat: OpenSeat) -> None:
    seat = open_seat(busy.place.url)
    for path in OPEN:
        check_page(seat, path.replace("{invite}", busy.invite))
