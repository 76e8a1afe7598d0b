"""Whatever is sent, by whomever: no request is a fault of the server, and the store stays whole."""

import http.client
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given, settings, strategies as st

from plaudit.collect.answering import own_history
from plaudit.collect.app import pages
from plaudit.collect.app.api import ENDPOINTS, PREFIX, Endpoint
from plaudit.collect.app.pages import Page, form_token
from plaudit.collect.app.server import PAGES
from plaudit.collect.kinds import KINDS
from plaudit.collect.people import issue_token, make_invite, set_standing
from plaudit.collect.progress import project_tasks, store_faults
from plaudit.collect.sessions import open_session
from tests.collect.browser.tasks import CONVERSATIONS, LABELS, office
from tests.collect.browsers import HtmlForm, forms_of
from tests.collect.desks import Desk, MakeDesk, pair_body
from tests.collect.test_http import served
from tests.collect.visitors import Visitor

ODD = (
    *("", "\0", "a\0b", "\ufffe", "\ud800", "a" * 300, "../../etc/passwd", "%00", "%ed%a0%80", "%", "null"),
    *("' OR 1=1 --", "\u202e", "1e999", "-1", "9" * 40, "NaN", "t1", "a1", "w1", "p", "owner", "active"),
)
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

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

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
        self.people = {role: desk.store.write(issue_token, "p", role, name=role).pseudonym for role in roles}
        for person in (self.people["annotator"], self.people["reviewer"]):
            lease = desk.lease(person)
            kind = lease.shown["kind"]
            if kind not in CONVERSATIONS:
                desk.submit(person, lease, "k", LABELS[kind])
                desk.lease(person)
        assignments = [
            row["assignment"] for row in desk.store.read(own_history, "p", self.people["annotator"], 9)
        ]
        self.words = {
            "task": [row["id"] for row in desk.store.read(project_tasks, "p", None, 9, 0)],
            "assignment": [*assignments, "w2", "w3"],
            # Not those who ask: an owner that is erased asks nothing more.
            "person": [desk.store.write(issue_token, "p", "annotator", name="Victim").pseudonym],
            "invite": [desk.store.write(make_invite, "p", uses=100, actor="o1")],
            "secret": ["x"],
        }

    def headers(self, role: str | None) -> tuple[dict[str, str], str]:
        """What a browser would send of somebody who has just signed in, and the forms' token."""
        headers = {"Origin": self.url, "Sec-Fetch-Site": "same-origin"}
        if role is None:
            return headers, ""
        secret = self.store.write(open_session, "p", self.people[role], by="password").secret
        token = form_token(secret, "p")
        cookie = f"plaudit-{self.url.rpartition(':')[2]}={secret}"
        return {**headers, "Cookie": cookie, "X-Form-Token": token}, token

    def forms(self, role: str) -> list[HtmlForm]:
        """All forms of all pages of a role, as they are filled in when the page is read."""
        visitor, found = Visitor(self.url).sign_in(self.store, self.people[role]), list[HtmlForm]()
        for page in PAGES:
            path = page.path
            for name, known in self.words.items():
                path = path.replace(f"{{{name}}}", known[0])
            if page.method == "GET":
                found += forms_of(visitor.get(path).text)
        return [form for form in found if form.method in ("POST", "GET")]


def field_names() -> list[str]:
    """Every name of a field that a template of a page has."""
    folder = Path(pages.__file__).parent / "templates"
    words = "".join(path.read_text("utf-8") for path in folder.rglob("*.html"))
    found = {*re.findall(r'name="([\w-]+)"', words), *re.findall(r'm\.\w+\("([\w-]+)"', words)}
    return sorted(found | {"after", "before", "at", "differences", "state", "next"})


def written(pairs: Iterable[tuple[str, str]]) -> str:
    """Fields as a form or an address has them."""
    return "&".join(f"{escaped(name)}={escaped(value)}" for name, value in pairs)


@pytest.mark.slow
def test_no_request_to_a_page_is_a_fault_of_the_server(tmp_path: Path) -> None:
    with office(tmp_path, "pair", tasks=6, overlap=2) as place, Wire(place.url) as wire:
        who, names = Everybody(place.desk, place.url), field_names()

        @settings(max_examples=120, deadline=None)
        @given(st.data())
        def ask_for(data: st.DataObject) -> None:
            page = data.draw(st.sampled_from(PAGES))
            role = data.draw(st.sampled_from((*who.people, None)))
            path, pairs = data.draw(page_requests(page, names, who.words))
            headers, token = who.headers(role)
            if page.script:
                body = json.dumps(data.draw(st.one_of(VALUES, st.dictionaries(TEXTS, VALUES)))).encode()
            else:
                odd = data.draw(st.one_of(st.binary(max_size=200), st.sampled_from(ODD_BYTES), st.just(b"")))
                body = f"form_token={token}&{written(pairs)}".encode() + odd
            assert wire.status(page.method, path, body, headers) < 500, (page.method, path, body)

        ask_for()
        assert place.store.read(store_faults) == []


@pytest.mark.slow
@pytest.mark.parametrize("ask", KINDS)
def test_no_form_is_a_fault_of_the_server(tmp_path: Path, ask: str) -> None:
    """The app's own forms, with some of their fields left out, doubled, or filled in with nonsense."""
    with office(tmp_path, ask, tasks=6, overlap=2) as place, Wire(place.url) as wire:
        who = Everybody(place.desk, place.url)
        forms = [(role, form) for role in who.people for form in who.forms(role)]
        assert len({form.action for _, form in forms}) > 15

        @settings(max_examples=60, deadline=None)
        @given(st.data())
        def send(data: st.DataObject) -> None:
            role, form = data.draw(st.sampled_from(forms))
            path = data.draw(st.sampled_from(sorted(form.actions)))
            names = sorted(form.names - {"form_token"}) or ["x"]
            others = st.tuples(st.sampled_from(names), FORM_VALUES)
            left_out = data.draw(st.sets(st.sampled_from(names), max_size=2))
            kept = [(name, value) for name, value in form.fields if name not in {*left_out, "form_token"}]
            pairs = [*kept, *data.draw(st.lists(others, max_size=4))]
            headers, token = who.headers(role)
            if form.method == "GET":
                path, pairs = f"{path}?{written(pairs)}", []
            body = f"form_token={token}&{written(pairs)}".encode()
            assert wire.status(form.method, path, body, headers) < 500, (path, pairs)

        send()
        assert place.store.read(store_faults) == []


@pytest.mark.slow
def test_no_request_to_the_api_is_a_fault_of_the_server(make_desk: MakeDesk) -> None:
    desk = make_desk(overlap=3)
    desk.add([pair_body(9, gold={"better": 0})])
    with served(desk) as api, Wire(api.url) as wire:

        @settings(max_examples=400, deadline=None)
        @given(st.data())
        def ask(data: st.DataObject) -> None:
            endpoint = data.draw(st.sampled_from(ENDPOINTS))
            client = data.draw(st.sampled_from((api.owner, api.reviewer, api.annotator)))
            if data.draw(st.booleans()):
                desk.store.write(
                    set_standing, "p", api.pseudonyms["annotator"], "active", reason="r", actor="o1"
                )
            method, path, body = data.draw(api_requests(endpoint))
            # Erased and revoked people answer nothing more, and the rest is to be asked too.
            if path.endswith(("/revoke", "/erase")) and any(name in path for name in api.pseudonyms.values()):
                return
            headers = {"Authorization": f"Bearer {client.token}"}
            assert wire.status(method, path, body, headers) < 500, (method, path, body)

        ask()
