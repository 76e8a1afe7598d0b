"""Coming in and going out by the pages: invites, sign-ins, links that work once, and what is refused."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from plaudit.collect.adding import add_tasks, set_project
from plaudit.collect.app.server import make_app, site_of
from plaudit.collect.people import join_project, make_invite, revoke, set_standing
from plaudit.collect.privacy import erase_person
from plaudit.collect.progress import project_people
from plaudit.collect.refusals import NotYoursError, TooOftenError
from plaudit.collect.sessions import change_password, set_password, sign_in
from tests.collect.desks import Desk, pair_body
from tests.collect.offices import Forms

WORD, NEW = "a horse in the rain", "another horse in the snow"


def browser_of(desk: Desk) -> Forms:
    return Forms(make_app(desk.store, site_of(8080)), raise_server_exceptions=False)


def joined(desk: Desk) -> Forms:
    """The browser of Ada, who has just come into project p."""
    invite, browser = desk.store.write(make_invite, "p", actor="o1"), browser_of(desk)
    (key,) = re.findall(r'name="key" value="([^"]+)"', browser.get(f"/join/{invite}").text)
    assert browser.post(f"/join/{invite}", name="Ada", password=WORD, key=key).url.path == "/label"
    return browser


def test_a_join_that_is_sent_twice_lets_in_the_same_person_with_the_later_password(desk: Desk) -> None:
    invite, browser = desk.store.write(make_invite, "p", actor="o1"), browser_of(desk)
    (key,) = re.findall(r'name="key" value="([^"]+)"', browser.get(f"/join/{invite}").text)
    guest, token = dict(browser.client.cookies), browser.token
    for word in (WORD, NEW):
        # Both clicks are of the page before: its cookie and its token.
        browser.client.cookies.clear()
        browser.client.cookies.update(guest)
        browser.token = token
        found = browser.post(f"/join/{invite}", name="Ada", password=word, key=key)
        assert (found.status_code, found.url.path) == (200, "/label")
    assert sign_in(desk.store, "p", "Ada", word).identity.pseudonym == "a1"
    assert len(desk.store.read(project_people, "p")) == 1
    browser.client.cookies.clear()
    assert browser.get(f"/join/{invite}").status_code == 403


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "onward",
    ["//elsewhere.example", "///elsewhere.example", "https://elsewhere.example", "/\\elsewhere", "x"],
)
def test_no_link_leads_out_of_the_app(desk: Desk, onward: str) -> None:
    browser = joined(desk)
    found = browser.client.get("/entered", params={"next": onward}, follow_redirects=False)
    assert found.headers["location"] == "/"


def test_a_page_without_its_database_says_to_come_again(tmp_path: Path) -> None:
    where = tmp_path / "gone.db"
    desk = Desk(where)
    browser = joined(desk)
    desk.store.close()
    where.write_bytes(b"no database " * 1000)
    found = browser.get("/account")
    assert found.status_code == 503, found.text
    assert "not acknowledged" in found.text
    desk.store.close()


def test_a_language_is_chosen_and_kept(desk: Desk) -> None:
    browser = browser_of(desk)
    assert 'lang="de"' in browser.get("/enter", "fr, de-AT;q=0.7").text
    found = browser.post("/language", language="ar", next="/enter")
    assert ('dir="rtl"' in found.text, found.url.path) == (True, "/enter")
    assert 'dir="rtl"' in browser.get("/enter", "de").text
    assert browser.post("/language", language="xx", next="/enter").status_code == 422


# One account in several projects.


def member(desk: Desk, project: str, name: str = "Ada", **given: object) -> None:
    """Somebody in another project, by a password or by the account of Ada."""
    secret = desk.store.write(make_invite, project, actor="o1")
    join_project(desk.store, secret, name, **(given or {"password": WORD}))


@pytest.fixture
def town(desk):
    """Projects p, q and r."""
    for name in ("q", "r"):
        desk.store.write(set_project, replace(desk.store.project("p"), name=name), actor="o1")
        desk.store.write(add_tasks, name, [pair_body(70 + n) for n in range(3)], actor="o1")
    return desk


def entered(desk: Desk, project: str, word: str) -> Forms:
    browser = browser_of(desk)
    browser.get("/enter")
    wrong = browser.post("/enter", project=project, name="Ada", password="not this one", next="/account")
    assert ("wrong" in wrong.text, 'name="next" value="/account"' in wrong.text) == (True, True)
    browser.post("/enter", project=project, name="  ADA ", password=word, next="/")
    return browser


def listed(browser: Forms) -> dict[str, str]:
    """What the list says of each project, without its elements."""
    cards = re.findall(r'<li class="card">(.*?)</li>', browser.get("/projects").text, re.DOTALL)
    texts = [" ".join(re.sub(r"<[^>]*>", " ", card).split()) for card in cards]
    return {text.partition(" ")[0]: text.partition(" ")[2] for text in texts}


@pytest.mark.parametrize(
    ("role", "says"),
    [
        ("annotator", "Tasks for you 3"),
        ("reviewer", "Tasks for you 3 To decide 0"),
        ("owner", "To decide 0 Labels 0 of 3 People 1 0 % of the wanted labels are there"),
    ],
)
def test_whoever_signs_in_once_works_in_all_projects_of_the_account(town, role, says):
    browser = joined(town)
    member(town, "q", "Bob")
    assert browser.get("/").url.path == "/label"
    invite = town.store.write(make_invite, "q", role=role, actor="o1")
    form = browser.get(f"/join/{invite}").text
    (key,) = re.findall(r'name="key" value="([^"]+)"', form)
    assert ("signed in as Ada" in form, 'type="password"' in form) == (True, False)
    # A second click joins nobody a second time, and fails at nothing.
    for _ in range(2):
        assert browser.post(f"/join/{invite}", key=key).url.path == "/projects"
    assert browser.get("/").url.path == "/projects"
    here = "annotator · open now Tasks for you 4 Open p"
    assert listed(browser) == {"p": here, "q": f"{role} {says} Open q"}
    old, before = browser.token, town.store.position()[0]
    for _ in range(2):
        browser.token = old
        assert browser.post("/projects", project="q").url.path == ("/manage" if role == "owner" else "/label")
    # What an old tab of the other project sends does nothing here.
    browser.token = old
    assert browser.post("/preferences", languages="de").status_code == 403
    kinds = [(event.project, event.kind) for event in town.store.events(before)]
    assert kinds == [("q", "signed-in"), ("q", "leased")][: 1 if role == "owner" else 2]
    assert "argon2" not in "".join(map(str, town.store.events()))


@pytest.mark.parametrize("by", ["the person", "the command"])
def test_another_password_holds_in_all_projects_of_the_account_and_in_no_other(town, by):
    browser = joined(town)
    member(town, "q", account=("p", "a1"))
    member(town, "r")
    if by == "the person":
        change_password(town.store, "p", "a1", WORD, NEW)
    else:
        set_password(town.store, "q", "a1", NEW, actor="command-line")
    assert browser.get("/projects").url.path == "/enter"
    for project, word, other in (("p", NEW, WORD), ("q", NEW, WORD), ("r", WORD, NEW)):
        assert sign_in(town.store, project, "Ada", word)
        with pytest.raises(NotYoursError):
            sign_in(town.store, project, "Ada", other)
    assert {*listed(entered(town, "q", NEW))} == {"p", "q"}


@pytest.mark.cases(quick=("sqlite",))
def test_a_row_of_the_same_name_is_added_by_its_password_alone_and_guesses_are_counted(town):
    """Even one with the very same password, which may be somebody else's."""
    browser = joined(town)
    member(town, "q")
    assert {*listed(browser)} == {"p"}
    assert browser.post("/projects", project="q").status_code == 403
    for word, status in (*[("a guess", 403)] * 10, (WORD, 429)):
        assert browser.post("/projects/link", project="q", password=word).status_code == status
    with pytest.raises(TooOftenError):
        sign_in(town.store, "q", "Ada", WORD)
    town.clock.advance(minutes=16)
    set_password(town.store, "q", "a1", NEW, actor="command-line")
    assert browser.post("/projects/link", project="nowhere", password=WORD).status_code == 403
    assert browser.post("/projects/link", project="q", password=NEW).url.path == "/projects"
    assert ({*listed(browser)}, bool(sign_in(town.store, "q", "Ada", WORD))) == ({"p", "q"}, True)
    # Nor does going there and back begin the count of guesses anew.
    for _ in range(10):
        browser.post("/account/password", old_password="a guess", new_password=NEW)
    for project in ("q", "p"):
        browser.post("/projects", project=project)
    assert browser.post("/account/password", old_password=WORD, new_password=NEW).status_code == 429


@pytest.mark.parametrize("happens", ["suspended", "erased", "signed out"])
def test_what_takes_somebodys_access_to_one_project_keeps_the_account_out_of_it(town, happens):
    browser = joined(town)
    member(town, "q", account=("p", "a1"))
    if happens == "signed out":
        # Everywhere, or whoever holds that browser would come back from the other project.
        town.store.write(revoke, "q", "a1", actor="o1")
        assert browser.get("/projects").url.path == "/enter"
        return
    if happens == "erased":
        erase_person(town.store, "q", "a1", actor="o1")
    else:
        town.store.write(set_standing, "q", "a1", "suspended", reason="left", actor="o1")
    assert ["suspended" in text for text in listed(browser).values()] == [False, True][
        : 1 + (happens != "erased")
    ]
    assert "Open q" not in browser.get("/projects").text
    assert browser.post("/projects", project="q").status_code == 403
    assert browser.post("/projects", project="p").url.path == "/label"
