"""Whatever is sent, by whomever: no request is a fault of the server, and the store stays whole."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given, settings, strategies as st

from plaudit.labelling.app import pages
from plaudit.labelling.app.api import ENDPOINTS, PREFIX, Endpoint
from plaudit.labelling.app.pages import Page, form_token
from plaudit.labelling.app.server import PAGES
from tests.labelling.browser.tasks import LABELS, office
from tests.labelling.desks import Desk, MakeDesk, pair_body
from tests.labelling.test_http import served

ODD = (
    *("", "\0", "a\0b", "\ufffe", "\ud800", "a" * 300, "../../etc/passwd", "%00", "%ed%a0%80", "%", "null"),
    *("' OR 1=1 --", "\u202e", "1e999", "-1", "9" * 40, "NaN", "t1", "a1", "w1", "p", "owner", "active"),
)
"""Texts that have been faults somewhere."""
ODD_BYTES = (b"\xff\xfe", b"%ed%a0%80", b"%00", b"%", b"%zz", b"\x00", b"\xc0\xaf", b"+", b"=&=&", b";")
"""Bytes that are no text, or no form."""
TEXTS = st.one_of(st.sampled_from(ODD), st.text(max_size=30))
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=True),
        TEXTS,
        st.sampled_from(({"strength": 1}, {"groups": [[0], [1]]}, {"points": {"overall": [1, 2]}}, "w1")),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)


def escaped(word: str) -> str:
    """A word for an address; half a character goes as the bytes that a careless client would send."""
    return quote(word.encode("utf-8", "surrogatepass"), safe="")


class Wire:
    """One connection that is opened again when the server shuts it."""

    def __init__(self, url: str) -> None:
        self.host = urlsplit(url).netloc
        self.connection = http.client.HTTPConnection(self.host, timeout=30)

    def status(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> int:
        """The status of the answer, which was read to its end."""
        try:
            self.connection.request(method, path, body, dict(headers))
            response = self.connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self.connection.close()
            self.connection.request(method, path, body, dict(headers))
            response = self.connection.getresponse()
        response.read()
        return response.status


@st.composite
def api_requests(draw: st.DrawFn, endpoint: Endpoint) -> tuple[str, str, bytes]:
    """A request to an endpoint: its own fields with any values, fields of others, or no JSON at all."""
    path = PREFIX + endpoint.path
    for name in ("task", "person"):
        path = path.replace(f"{{{name}}}", escaped(draw(TEXTS)) or "t1")
    names = st.one_of(st.sampled_from([*endpoint.rules, "key", "assignment"]), TEXTS)
    if endpoint.method == "GET":
        pairs = draw(st.lists(st.tuples(names, TEXTS), max_size=4))
        return "GET", path + "?" + "&".join(f"{escaped(n)}={escaped(v)}" for n, v in pairs), b""
    if draw(st.booleans()):
        found: Any = draw(st.dictionaries(names, VALUES, max_size=6))
        found = {name: draw(VALUES) for name in endpoint.rules} | found if draw(st.booleans()) else found
        return endpoint.method, path, json.dumps(found).encode()
    # Lines of tasks are read as JSON too; what is no JSON goes everywhere.
    return endpoint.method, path, draw(st.one_of(st.binary(max_size=200), st.sampled_from(ODD_BYTES)))


FORM_VALUES = st.one_of(
    TEXTS, st.sampled_from(("1", "-2", "none", "yes", "pair", "annotator", "wrong", "up"))
)


@st.composite
def page_requests(
    draw: st.DrawFn, page: Page, names: Sequence[str], words: Mapping[str, Sequence[str]]
) -> tuple[str, list[tuple[str, str]]]:
    """The address of a page with a query, and the fields of its form: true names, many of them wrong."""
    path = page.path
    for name, known in words.items():
        path = path.replace(f"{{{name}}}", escaped(draw(st.one_of(st.sampled_from(known), TEXTS))) or "t1")
    pairs = draw(st.lists(st.tuples(st.one_of(st.sampled_from(names), TEXTS), FORM_VALUES), max_size=8))
    if page.method == "GET" and pairs:
        path += "?" + "&".join(f"{escaped(n)}={escaped(v)}" for n, v in pairs)
    return path, pairs


class Everybody:
    """Somebody of each role at the pages, with tasks in hand and answered."""

    def __init__(self, desk: Desk, url: str) -> None:
        self.store, self.url = desk.store, url
        roles = ("owner", "reviewer", "annotator")
        self.people = {role: desk.store.token("p", role, name=role).pseudonym for role in roles}
        for person in (self.people["annotator"], self.people["reviewer"]):
            lease = desk.lease(person)
            desk.store.submit("p", person, lease.assignment, "k", LABELS[lease.shown["kind"]])
            desk.lease(person)
        assignments = [row["assignment"] for row in desk.store.history("p", self.people["annotator"], 9)]
        self.words = {
            "task": [row["id"] for row in desk.store.tasks("p", None, 9, 0)],
            "assignment": [*assignments, "w2", "w3"],
            # Not those who ask: an owner that is erased asks nothing more.
            "person": [desk.store.token("p", "annotator", name="Victim").pseudonym],
            "invite": [desk.store.invite("p", uses=100, actor="o1")],
            "secret": ["x"],
        }
        self.known = (*self.words["task"], *self.words["assignment"], *self.people.values())

    def cookie(self, role: str) -> tuple[str, str]:
        """The session's cookie and its form token, for a fresh session."""
        secret = self.store.open_session("p", self.people[role], by="password").secret
        return f"plaudit-{self.url.rpartition(':')[2]}={secret}", form_token(secret)


def field_names() -> list[str]:
    """Every name of a field that a template of a page has."""
    folder = Path(pages.__file__).parent / "templates"
    words = "".join(path.read_text("utf-8") for path in folder.rglob("*.html"))
    found = {*re.findall(r'name="([\w-]+)"', words), *re.findall(r'm\.\w+\("([\w-]+)"', words)}
    numbered = {f"{name}-{n}" for name in ("place", "step", "flags", "thumb", "points-0") for n in range(3)}
    return sorted(found | numbered | {"after", "before", "at", "differences", "state", "next"})


@pytest.mark.parametrize("ask", ["pair", "rank", "rate", "write", "steps"])
def test_no_form_is_a_fault_of_the_server(tmp_path: Path, ask: str) -> None:
    with office(tmp_path, ask, tasks=6, overlap=2) as place:
        who = Everybody(place.desk, place.url)
        wire, names = Wire(place.url), field_names()
        origin = {"Origin": place.url, "Sec-Fetch-Site": "same-origin"}

        @settings(max_examples=200, deadline=None)
        @given(st.data())
        def ask_for(data: st.DataObject) -> None:
            page = data.draw(st.sampled_from(PAGES))
            role = data.draw(st.sampled_from((*who.people, None)))
            path, pairs = data.draw(page_requests(page, names, who.words))
            cookie, token = who.cookie(role) if role is not None else ("", "")
            headers = {**origin, "Cookie": cookie, "X-Form-Token": token}
            if page.script:
                body = json.dumps(data.draw(st.one_of(VALUES, st.dictionaries(TEXTS, VALUES)))).encode()
            elif data.draw(st.booleans()):
                given = [
                    ("assignment", data.draw(st.sampled_from(who.known))),
                    ("key", data.draw(TEXTS)),
                    *pairs,
                ]
                fields = "&".join(f"{escaped(name)}={escaped(value)}" for name, value in given)
                body = f"form_token={token}&{fields}".encode()
            else:
                body = data.draw(st.one_of(st.binary(max_size=200), st.sampled_from(ODD_BYTES)))
                body += f"&form_token={token}".encode()
            assert wire.status(page.method, path, body, headers) < 500, (page.method, path, body)

        ask_for()
        wire.connection.close()
        assert place.store.check() == []


def test_no_request_to_the_api_is_a_fault_of_the_server(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk(tmp_path / "labels.db", overlap=3)
    desk.store.add_tasks("p", [pair_body(9, gold={"better": 0})], actor="o1")
    with served(desk) as api:
        wire = Wire(api.url)

        @settings(max_examples=400, deadline=None)
        @given(st.data())
        def ask(data: st.DataObject) -> None:
            endpoint = data.draw(st.sampled_from(ENDPOINTS))
            client = data.draw(st.sampled_from((api.owner, api.reviewer, api.annotator)))
            if data.draw(st.booleans()):
                desk.store.set_standing("p", api.pseudonyms["annotator"], "active", reason="r", actor="o1")
            method, path, body = data.draw(api_requests(endpoint))
            # Erased and revoked people answer nothing more, and the rest is to be asked too.
            if path.endswith(("/revoke", "/erase")) and api.pseudonyms[client.me()["role"]] in path:
                return
            headers = {"Authorization": f"Bearer {client.token}"}
            assert wire.status(method, path, body, headers) < 500, (method, path, body)

        ask()
        wire.connection.close()
    assert desk.store.check() == []
