"""Sessions as a browser holds them: forged, brought along from outside, ended, and passwords in forms."""

import base64
import hashlib
import hmac
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from plaudit.collect.app.server import serve_in_background
from plaudit.collect.people import hash_secret, issue_token, make_invite, revoke, set_standing
from plaudit.collect.privacy import erase_person
from plaudit.collect.progress import project_people
from plaudit.collect.sessions import change_password, find_session, list_sessions, open_session
from tests.collect.desks import Desk, MakeDesk
from tests.collect.visitors import Visitor

PASSWORD = "correct horse battery"


class Served:
    """A store that is served, with its place on the disk."""

    def __init__(self, desk: Desk, url: str, file: Path) -> None:
        self.desk, self.url, self.file, self.store = desk, url, file, desk.store

    def joined(self, name: str = "Ada", role: str = "annotator") -> tuple[Visitor, str]:
        """Somebody who came by an invite, with a password; and the pseudonym."""
        visitor, path = (
            Visitor(self.url),
            f"/join/{self.store.write(make_invite, 'p', role=role, actor='o1')}",
        )
        visitor.get(path)
        entered = visitor.send_form(path, name=name, password=PASSWORD)
        assert entered.status == 303, entered.text
        return visitor, next(
            row["pseudonym"] for row in self.store.read(project_people, "p") if row["person"] == name
        )

    def again(self, name: str = "Ada", password: str = PASSWORD) -> Visitor:
        visitor = Visitor(self.url)
        visitor.get("/enter")
        visitor.send_form("/enter", project="p", name=name, password=password)
        return visitor


def is_in(visitor: Visitor) -> bool:
    return visitor.get("/account").status == 200


@pytest.fixture
def served(make_desk: MakeDesk, tmp_path: Path) -> Iterator[Served]:
    file = tmp_path / "labels.db"
    desk = make_desk(file)
    with serve_in_background(desk.store) as server:
        yield Served(desk, server.url, file)


def forgeries(secret: str, pseudonym: str) -> list[str]:
    """Signed claims, what stands in the store, and words that a query could stumble over."""
    claims = {"alg": "none"}, {"project": "p", "pseudonym": pseudonym, "role": "owner"}
    token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in claims)
    signed = hmac.new(b"secret", token.encode(), hashlib.sha256).hexdigest()
    words = ("s_", "null", "0", "' OR 1=1 --", "%00", "*", "owner", pseudonym, f"p/{pseudonym}")
    near = (secret[:-1], secret.swapcase(), hash_secret(secret), hash_secret(secret)[:12])
    return [f"{token}.", f"{token}.{signed}", *words, *near]


def test_a_forged_session_opens_nothing(served):
    """Neither what other programs would sign with a well-known key, nor what stands in the store."""
    ada, pseudonym = served.joined()
    secret = ada.cookies[ada.cookie]
    with closing(sqlite3.connect(served.file)) as file:
        (row,) = file.execute("SELECT * FROM session").fetchall()
    assert hash_secret(secret) in row
    assert secret not in row
    for value in forgeries(secret, pseudonym):
        visitor = Visitor(served.url)
        visitor.cookies[visitor.cookie] = value
        assert not is_in(visitor), value
    # Nor does a token of the API in the cookie, or a session's secret at the API.
    visitor = Visitor(served.url)
    visitor.cookies[visitor.cookie] = served.store.write(issue_token, "p", "owner", name="program").token
    assert not is_in(visitor)
    bearer = {"Authorization": f"Bearer {secret}"}
    assert Visitor(served.url).send("GET", "/api/v1/me", headers=bearer).status == 401
    assert is_in(ada)


@pytest.mark.slow
def test_a_session_from_outside_is_never_taken_up(served):
    """Whoever plants a cookie before the sign-in knows nothing of the session after it (fixation)."""
    served.joined()
    planted = "s_" + "x" * 32
    visitor = Visitor(served.url)
    visitor.cookies[visitor.cookie] = planted
    visitor.cookies[f"{visitor.cookie}-guest"] = "g" * 32
    visitor.get("/enter")
    assert visitor.send_form("/enter", project="p", name="Ada", password=PASSWORD).status == 303
    first = visitor.cookies[visitor.cookie]
    assert first != planted
    assert re.fullmatch(r"s_[\w-]{32}", first)
    assert f"{visitor.cookie}-guest" not in visitor.cookies
    # Signing in again, with the session still open, is another session, and the first one has ended.
    other = Visitor(served.url)
    other.cookies[other.cookie] = first
    other.get("/account")
    other.post(
        "/enter", {"project": "p", "name": "Ada", "password": PASSWORD, "form_token": other.form_token()}
    )
    assert other.cookies[other.cookie] != first
    assert not is_in(visitor)
    assert is_in(other)
    secrets = {served.store.write(open_session, "p", "a1", by="password").secret for _ in range(50)}
    assert len(secrets) == 50


def test_a_session_is_over_after_signing_out(served):
    visitor, _ = served.joined()
    kept = dict(visitor.cookies)
    visitor.get("/account")
    assert visitor.send_form("/sign-out").status == 200
    assert visitor.cookie not in visitor.cookies
    visitor.cookies |= kept
    assert not is_in(visitor)
    # The form of the page that is still open shows what was filled in, and changes nothing.
    before = served.store.position()
    lost = visitor.post("/account/sessions", {"form_token": "0", "session": "what I was about to send"})
    assert (lost.status, "what I was about to send" in lost.text) == (401, True)
    assert served.store.position() == before


def erased(served: Served, pseudonym: str) -> None:
    erase_person(served.store, "p", pseudonym, actor="o1")


def suspended(served: Served, pseudonym: str) -> None:
    served.store.write(set_standing, "p", pseudonym, "suspended", reason="clicks left", actor="o1")


def revoked(served: Served, pseudonym: str) -> None:
    served.store.write(revoke, "p", pseudonym, actor="o1")


def given_another_password(served: Served, pseudonym: str) -> None:
    fresh = change_password(served.store, "p", pseudonym, PASSWORD, "another good password")
    assert find_session(served.store, fresh.secret) is not None
    assert is_in(served.again(password="another good password"))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("happens", [erased, suspended, revoked, given_another_password])
def test_what_takes_somebodys_access_shuts_their_pages(served, happens):
    first, pseudonym = served.joined()
    second, bob = served.again(), served.joined("Bob")[0]
    assert is_in(first)
    assert is_in(second)
    happens(served, pseudonym)
    assert not is_in(first)
    assert not is_in(second)
    assert is_in(bob)


def test_people_see_and_end_their_own_sessions_alone(served):
    ada, _ = served.joined()
    elsewhere = served.again()
    bob, pseudonym = served.joined("Bob")
    (theirs,) = served.store.read(list_sessions, "p", pseudonym)
    listed = ada.get("/account").text
    assert theirs.id not in listed
    assert hash_secret(ada.cookies[ada.cookie])[:20] not in listed
    mine = hash_secret(elsewhere.cookies[elsewhere.cookie])[:12]
    # Another's id ends nothing, nor does a part of one's own.
    for wanted in (theirs.id, mine[:5]):
        ada.post("/account/sessions", {"session": wanted})
    assert is_in(bob)
    assert is_in(elsewhere)
    assert mine in ada.get("/account").text
    ada.post("/account/sessions", {"session": mine})
    assert is_in(ada)
    assert not is_in(elsewhere)
    ada.get("/account")
    ada.post("/account/sessions", {})
    assert not is_in(ada)


def test_a_password_stands_in_no_page_and_in_no_file(served):
    visitor, _ = served.joined()
    visitor.get("/account")
    wrong = visitor.send_form(
        "/account/password", old_password="a wrong secret", new_password="another secret"
    )
    assert wrong.status in (403, 422)
    # A form that comes without its token is shown again, without what is nobody's to read.
    late = visitor.post(
        "/account/password", {"form_token": "0", "old_password": PASSWORD, "new_password": "another secret"}
    )
    for word in (PASSWORD, "a wrong secret", "another secret"):
        assert word not in wrong.text + late.text
        for file in served.file.parent.iterdir():
            assert word.encode() not in file.read_bytes(), file


def test_passwords_are_masked_and_may_be_pasted(served):
    visitor, _ = served.joined()
    guest = Visitor(served.url)
    invite = served.store.write(make_invite, "p", actor="o1")
    pages = [guest.get("/enter"), guest.get(f"/join/{invite}"), visitor.get("/account")]
    fields = [field for page in pages for field in re.findall(r"<input[^>]*password[^>]*>", page.text)]
    assert len(fields) == 4
    for field in fields:
        assert 'type="password"' in field, field
        assert re.search(r'autocomplete="(current|new)-password"', field), field
        assert not re.search(r"maxlength|pattern|readonly|value=", field), field
    # No question that somebody else could answer too.
    assert not any(re.search(r"hint of|secret question|security question", page.text) for page in pages)


def test_a_browser_that_keeps_no_cookies_is_told_so_at_the_first_form_and_behind_the_door(served):
    path = f"/join/{served.store.write(make_invite, 'p', actor='o1')}"
    visitor = Visitor(served.url)
    visitor.get(path)
    visitor.cookies.clear()
    before = served.store.position()
    reply = visitor.send_form(path, name="Ada", password=PASSWORD)
    for told in (reply, Visitor(served.url).get("/entered?next=/label")):
        assert (told.status, "Allow cookies for this site" in told.text) == (400, True)
    assert served.store.position() == before
