"""Coming in and going out by the pages: invites, sign-ins, links that work once, and what is refused."""

import re
from pathlib import Path

import pytest

from plaudit.collect.app.server import make_app, site_of
from plaudit.collect.people import make_invite
from plaudit.collect.progress import project_people
from tests.collect import desks
from tests.collect.offices import Forms


def browser_of(desk: desks.Desk) -> Forms:
    return Forms(make_app(desk.store, site_of(8080)), raise_server_exceptions=False)


@pytest.fixture
def desk(make_desk: desks.MakeDesk) -> desks.Desk:
    return make_desk()


def joined(desk: desks.Desk, name: str = "Ada", role: str = "annotator") -> Forms:
    invite = desk.store.write(make_invite, "p", role=role, actor="o1")
    browser = browser_of(desk)
    page = browser.get(f"/join/{invite}")
    key = re.search(r'name="key" value="([^"]+)"', page.text)
    assert key
    found = browser.post(f"/join/{invite}", name=name, password="correct horse battery", key=key[1])
    assert found.status_code == 200 or found.url.path in ("/label", "/manage"), found.text
    return browser


def test_a_join_that_is_sent_twice_lets_in_the_same_person(desk: desks.Desk) -> None:
    invite, browser = desk.store.write(make_invite, "p", actor="o1"), browser_of(desk)
    page = browser.get(f"/join/{invite}")
    key = re.search(r'name="key" value="([^"]+)"', page.text)
    assert key
    guest, token = dict(browser.client.cookies), browser.token
    for _ in range(2):
        # Both clicks are of the page before: its cookie and its token.
        browser.client.cookies.clear()
        browser.client.cookies.update(guest)
        browser.token = token
        found = browser.post(f"/join/{invite}", name="Ada", password="correct horse battery", key=key[1])
        assert (found.status_code, found.url.path) == (200, "/label")
    assert len(desk.store.read(project_people, "p")) == 1
    browser.client.cookies.clear()
    assert browser.get(f"/join/{invite}").status_code == 403


def test_a_browser_that_keeps_no_cookie_is_told(desk: desks.Desk) -> None:
    browser = joined(desk)
    browser.client.cookies.clear()
    found = browser.get("/entered?next=/label")
    assert (found.status_code, "cookie" in found.text) == (400, True)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "onward",
    ["//elsewhere.example", "///elsewhere.example", "https://elsewhere.example", "/\\elsewhere", "x"],
)
def test_no_link_leads_out_of_the_app(desk: desks.Desk, onward: str) -> None:
    browser = joined(desk)
    found = browser.client.get("/entered", params={"next": onward}, follow_redirects=False)
    assert found.headers["location"] == "/"


def test_a_page_without_its_database_says_to_come_again(tmp_path: Path) -> None:
    where = tmp_path / "gone.db"
    desk = desks.Desk(where)
    browser = joined(desk)
    desk.store.close()
    where.write_bytes(b"no database " * 1000)
    found = browser.get("/account")
    assert found.status_code == 503, found.text
    assert "not acknowledged" in found.text
    desk.store.close()


def test_a_language_is_chosen_and_kept(desk: desks.Desk) -> None:
    browser = browser_of(desk)
    assert 'lang="de"' in browser.get("/enter", "fr, de-AT;q=0.7").text
    found = browser.post("/language", language="ar", next="/enter")
    assert ('dir="rtl"' in found.text, found.url.path) == (True, "/enter")
    assert 'dir="rtl"' in browser.get("/enter", "de").text
    assert browser.post("/language", language="xx", next="/enter").status_code == 422
