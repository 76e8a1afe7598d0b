"""Faults that were found in programs of this kind, by the names they were published under, and their kin."""

import json
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import pytest

from plaudit.collect.adding import add_tasks, set_project
from plaudit.collect.app.api import PREFIX
from plaudit.collect.app.pages import OnceLink, Solo
from plaudit.collect.app.server import serve_in_background
from plaudit.collect.people import identity_of, issue_token
from plaudit.collect.progress import project_people
from plaudit.collect.sessions import find_session, open_session
from plaudit.collect.store import LabelStore, open_store
from tests.collect.desks import Desk, MakeDesk, pair_body
from tests.collect.test_http import Served, served
from tests.collect.visitors import Visitor

CLIMBS = (
    *("/.git/config", "/.env", "/labels.db", "/static/", "/static/0/", "/static/0/../../server.py"),
    *("/static/0/..%2f..%2fserver.py", "/static/0/%2e%2e/%2e%2e/server.py", "/static/..;/server.py"),
    *("/static../server.py", "/static/0/app.css/../../pages.py", "/static/0/..%5c..%5cserver.py"),
    *("/static/0/%00app.css", "/static/0/%252e%252e%252fserver.py", "/static/0//etc/passwd", "//etc/passwd"),
    *("/static/0/templates%2fbase.html", "/static/0/C:%5cWindows%5cwin.ini", "/docs", "/openapi.json"),
    *("/metrics", "/admin", "/debug", "/api/v1/", "/api/v1/docs", "/server-status", "/console"),
    "/.well-known/security.txt",
)


@pytest.fixture
def api(make_desk: MakeDesk) -> Iterator[Served]:
    with served(make_desk(overlap=2)) as found:
        yield found


def test_cve_2023_43791_no_store_knows_the_sessions_of_another(tmp_path):
    """A key that came with the program signed everybody's sessions; here nothing is signed."""
    first, second = Desk(tmp_path / "one.db"), Desk(tmp_path / "two.db")
    try:
        (ada,), (bob,) = first.people(1), second.people(1)
        assert ada == bob
        secret = first.store.write(open_session, "p", ada, by="password").secret
        token = first.store.write(issue_token, "p", "owner", name="O").token
        assert find_session(first.store, secret) is not None
        assert find_session(second.store, secret) is None
        assert identity_of(second.store, token) is None
    finally:
        first.store.close()
        second.store.close()


def test_ghsa_6hjj_gq77_j4qw_no_filter_reaches_another_table(api):
    """Fields of others were found out by filtering by them; here a filter is one of a few words."""
    for name in ("person", "password", "annotator__password", "gold", "source", "q", "order_by", "project"):
        status, said = api.send("GET", f"{PREFIX}/tasks?{name}=a", token=api.owner.token)
        assert (status, "unknown field" in said["error"]["message"]) == (422, True), name
        body = json.dumps({name: "a"}).encode()
        assert api.send("POST", f"{PREFIX}/export", body, token=api.owner.token)[0] == 422, name


def test_ghsa_p59w_9gqw_wj8r_the_server_calls_no_address_that_came_over_the_network(api):
    settings = api.owner.project()
    for url in (
        "http://169.254.169.254/latest#m",
        "file:///etc/passwd",
        "http://127.0.0.1:1/#m",
        "//internal#m",
    ):
        body = json.dumps({"settings": {**settings, "talks_to": url}}).encode()
        assert api.send("PUT", f"{PREFIX}/project", body, token=api.owner.token)[0] == 422, url
    task = {"prompt": "x", "candidates": [{"text": "http://127.0.0.1:1/"}, {"text": "b"}]}
    api.owner.add_tasks([task])
    assert api.desk.store.project("p").talks_to is None


def test_cve_2026_22033_nobody_sets_what_another_prefers(api):
    """Somebody's keys were another's to write, and ran as a script in their page."""
    ada, bob = api.person("Ada"), api.person("Bob")
    name = ada.me()["pseudonym"]
    for field in ("annotator", "pseudonym", "person", "project", "user"):
        body = json.dumps({"declined": ["war"], field: name}).encode()
        assert api.send("POST", f"{PREFIX}/preferences", body, token=bob.token)[0] == 422
    assert api.send("POST", f"{PREFIX}/preferences", b'{"declined": ["war"]}', token=bob.token)[0] == 200
    preferring = [event for event in api.desk.store.events() if event.kind == "preferences-set"]
    assert {event.actor for event in preferring} == {bob.me()["pseudonym"]}


def test_nobody_gives_themselves_more_by_a_field(api):
    """Mass assignment: what a request may set is a list, and the rest of it is refused by name."""
    invite = api.owner.invite()
    for field, value in (("role", "owner"), ("scopes", ["manage"]), ("project", "q"), ("standing", "active")):
        body = json.dumps({"invite": invite, "name": "Eve", field: value}).encode()
        status, said = api.send("POST", f"{PREFIX}/join", body)
        assert (status, said["error"]["field"]) == (422, field)
    task = api.person().next()["task"]
    extra = {"gold": {"better": 0}, "author": "a1", "surplus": False, "purpose": "work", "qualify": True}
    for field, value in extra.items():
        body = json.dumps(
            {"assignment": task["assignment"], "key": "k", "label": {"strength": 1}, field: value}
        )
        status, said = api.send("POST", f"{PREFIX}/submit", body.encode(), token=api.annotator.token)
        assert (status, said["error"]["field"]) == (422, field)
    page = Visitor(api.url)
    page.get(f"/join/{invite}")
    fields = {"name": "Eve", "password": "correct horse battery", "key": "k"}
    fields |= {"role": "owner", "scopes": "manage"}
    page.post(f"/join/{invite}", fields)
    joined = [row for row in api.desk.store.read(project_people, "p") if row["person"] == "Eve"]
    assert [row["role"] for row in joined] in ([], ["annotator"])


@pytest.mark.one_in(10)
@pytest.mark.parametrize("path", CLIMBS)
def test_no_file_of_the_machine_is_served(api, path):
    """A stroke that was missing in a proxy's alias served every file above the static ones."""
    owner = Visitor(api.url).sign_in(api.desk.store, api.pseudonyms["owner"])
    for method in ("GET", "TRACE", "OPTIONS", "PROPFIND", "DELETE", "PUT"):
        reply = owner.send(method, path)
        assert reply.status in (400, 404, 405), (method, reply.status)
        for word in ("make_app", "root:", "[core]", "SQLite", "Index of", "Traceback", "LabelStore"):
            assert word not in reply.text, (method, word)


def test_words_of_sql_are_words(api):
    others = ("' OR 1=1 --", "'; DROP TABLE log; --", "a' UNION SELECT hash FROM token --", "%' ESCAPE '")
    for spell in (*others, "\\"):
        person = api.person(spell)
        task = person.next()["task"]
        person.note(task["assignment"], spell)
        person.submit(task["assignment"], {"strength": 1, "why": spell})
        word = quote(spell)
        status, _ = api.send("GET", f"{PREFIX}/turns?assignment={word}", token=person.token)
        assert status == 403, spell
        found = api.send("GET", f"{PREFIX}/tasks?state={word}", token=api.owner.token)
        assert found in ((200, {"tasks": []}), (422, found[1])), spell
        names = [row["person"] for row in api.owner.people()]
        assert spell in names


def test_no_text_forges_an_event(api):
    """Line ends, codes of a terminal and JSON in a text stay in that text."""
    before = len([*api.desk.store.events()])
    forged = '"}\n{"seq": 1, "kind": "standing-set", "actor": "o1"}\r\n\x1b[2J\u2028'
    person = api.person('"}, {"seq": 1')
    task = person.next()["task"]
    person.note(task["assignment"], forged)
    events = [*api.desk.store.events()][before:]
    assert [event.kind for event in events] == ["invited", "joined", "leased", "noted"]
    assert events[-1].body is not None
    assert events[-1].body["text"] == forged


@pytest.mark.slow
def test_nobody_is_there_by_default(tmp_path):
    store = open_store(tmp_path / "labels.db", create=True)
    with serve_in_background(store) as server:
        assert store.projects() == []
        for name in ("admin", "root", "owner", "plaudit", "test", ""):
            visitor = Visitor(server.url)
            visitor.get("/enter")
            assert (
                visitor.send_form("/enter", project="p", name=name, password=name or "password").status == 403
            )
            status = visitor.send(
                "GET", f"{PREFIX}/me", headers={"Authorization": f"Bearer {name or 'x'}"}
            ).status
            assert status == 401
    store.close()


def test_a_token_in_an_address_opens_nothing(api):
    token = api.owner.token
    for name in ("token", "access_token", "authorization", "session", "key"):
        assert api.send("GET", f"{PREFIX}/status?{name}={token}")[0] == 401
    secret = api.desk.store.write(open_session, "p", api.pseudonyms["owner"], by="password").secret
    assert Visitor(api.url).get(f"/account?session={secret}").status == 303


def test_a_fault_of_the_server_tells_nothing_of_the_machine(api, monkeypatch):
    def fails(*_: object) -> None:
        raise ZeroDivisionError(f"/home/somebody/{api.desk.store.where} PGPASSWORD=hunter2")

    owner = Visitor(api.url).sign_in(api.desk.store, api.pseudonyms["owner"])
    monkeypatch.setattr(LabelStore, "read", fails)
    status, said = api.send("GET", f"{PREFIX}/me", token=api.owner.token)
    page = owner.get("/account")
    assert (status, page.status) == (500, 500)
    for text in (json.dumps(said), page.text):
        assert "nothing was acknowledged" in text
        for word in ("hunter2", "somebody", "labels.db", "Traceback", "line ", ".py"):
            assert word not in text, word


def test_the_link_of_one_person_works_once(make_desk):
    desk = make_desk()
    person = desk.store.write(issue_token, "p", "reviewer", name="you").pseudonym
    link = OnceLink.new()
    assert len(link.secret) >= 32
    with serve_in_background(desk.store, solo=Solo(project="p", pseudonym=person, link=link)) as server:
        stranger = Visitor(server.url)
        for wrong in ("x", link.secret[:-1], link.secret + "x", "%00", "%c3%a9"):
            assert stranger.get(f"/start/{wrong}").status in (403, 422), wrong
        browser = Visitor(server.url)
        # Again in the same browser it is somebody who came back.
        for leads in ("/entered?next=%2Flabel", "/label"):
            assert browser.get(f"/start/{link.secret}").headers["location"] == leads
        assert stranger.get(f"/start/{link.secret}").status == 403
        assert stranger.get("/enter").status == 403


def test_projects_of_one_name_in_other_letters_are_apart(api):
    api.desk.store.write(set_project, replace(api.desk.store.project("p"), name="P"), actor="o1")
    api.desk.store.write(add_tasks, "P", [pair_body(80)], actor="o1")
    other = api.client(api.desk.store.write(issue_token, "P", "owner", name="O").token)
    assert [row["role"] for row in other.people()] == ["owner"]
    assert other.status()["project"] == "P"
