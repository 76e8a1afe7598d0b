"""Every address with every role and without one, by a table of its own that a new address must join."""

import codecs
import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from starlette.routing import Route

from plaudit.collect.adding import add_tasks, set_project
from plaudit.collect.answering import own_history, submit_answer
from plaudit.collect.app.api import PREFIX
from plaudit.collect.app.server import make_app, serve_in_background
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.people import SCOPES, issue_token, look_at_invite, make_invite
from plaudit.collect.progress import project_tasks
from plaudit.collect.review import invites
from plaudit.collect.sessions import find_session, list_sessions, open_session
from tests.collect.browsers import forms_of
from tests.collect.desks import Desk, MakeDesk, pair_body
from tests.collect.visitors import Reply, Visitor

# What stands here is what the docs promise (docs/security.md), not what the code happens to do.
EXPECTED = {
    "open": """
        GET /  GET /enter  POST /enter  GET /entered  GET /join/{invite}  POST /join/{invite}
        GET /start/{secret}  POST /language  GET /static/{version}/{name}
        GET /api/v1/health  POST /api/v1/join
    """,
    "any": """
        POST /sign-out  GET /account  POST /account/password  POST /account/sessions  GET /keys
        GET /projects  POST /projects  POST /projects/link
        GET /api/v1/me  GET /api/v1/guidelines  GET /pictures/{hash}  GET /api/v1/pictures/{hash}
    """,
    "label": """
        GET /label  POST /label  POST /label/draft  POST /label/skip  POST /label/undo  POST /label/note
        POST /label/flag  POST /label/turn  POST /label/stream  POST /label/choose
        GET /label/edit/{assignment}  POST /label/edit/{assignment}  GET /guidelines  POST /guidelines/read
        POST /guidelines/question  POST /api/v1/ask
        GET /history  GET /preferences  POST /preferences
        POST /api/v1/next  POST /api/v1/draft  POST /api/v1/submit  POST /api/v1/revise  POST /api/v1/skip
        POST /api/v1/undo  POST /api/v1/note  POST /api/v1/flag  GET /api/v1/history  POST /api/v1/preferences
        POST /api/v1/turn  POST /api/v1/choose  GET /api/v1/turns
    """,
    "read": """
        GET /manage  GET /manage/tasks  GET /manage/tasks/{task}  GET /manage/settings  GET /manage/gaps
        GET /api/v1/project  GET /api/v1/status
    """,
    "review": """
        GET /manage/people  GET /manage/people/{person}  POST /manage/people/{person}/standing
        GET /manage/queue  POST /manage/queue/{task}  GET /manage/quality
        GET /manage/questions  POST /manage/questions
        GET /api/v1/queue  POST /api/v1/tasks/{task}/adjudicate  GET /api/v1/people
        POST /api/v1/people/{person}/standing
    """,
    "manage": """
        POST /manage/tasks/{task}/close  POST /manage/tasks/{task}/gold  GET /manage/add  POST /manage/add
        GET /manage/export  POST /manage/export  GET /manage/pay.csv  GET /manage/log  POST /manage/settings
        POST /manage/people/{person}/sessions  POST /manage/people/{person}/export
        POST /manage/people/{person}/groups  POST /manage/people/{person}/erase
        GET /manage/invites  POST /manage/invites  POST /manage/invites/end
        GET /manage/gold  POST /manage/gold
        PUT /api/v1/project  POST /api/v1/tasks  GET /api/v1/tasks  POST /api/v1/tasks/{task}/close
        POST /api/v1/people/{person}/revoke  POST /api/v1/people/{person}/erase  POST /api/v1/invites
        POST /api/v1/export
    """,
}
SCRIPTS = frozenset({"POST /label/stream", "GET /pictures/{hash}"})
GIVES_OUT = frozenset({"GET /label"})
"""Addresses that give a task out when they are read."""
NEEDED = {
    address: scope
    for scope, addresses in EXPECTED.items()
    for address in re.findall(r"(?:GET|POST|PUT) \S+", addresses)
}
ROLES = ("annotator", "reviewer", "owner")
FORBIDDEN = "may not do this ("
NOTHING = {
    "task": "t0",
    "person": "a9",
    "invite": "i_x",
    "secret": "x",
    "version": "0",
    "name": "nothing.css",
    "hash": "0",
}


class Town:
    """Two projects in one store that is served, with somebody of each role in both."""

    def __init__(self, desk: Desk, url: str) -> None:
        self.desk, self.url, self.store = desk, url, desk.store
        self.store.write(set_project, replace(self.store.project("p"), name="q"), actor="o1")
        self.store.write(add_tasks, "q", [pair_body(70 + n) for n in range(3)], actor="o1")
        self.joined = {
            (project, role): self.store.write(issue_token, project, role, name=f"{role}-of-{project}")
            for project in ("p", "q")
            for role in ROLES
        }

    def visitor(self, role: str | None, project: str = "p") -> Visitor:
        """Somebody of a role who has just signed in; nobody without one."""
        found = Visitor(self.url)
        if role is not None:
            found.sign_in(self.store, self.joined[project, role].pseudonym, project)
        return found

    def ask(self, address: str, role: str | None, **headers: str | None) -> Reply:
        """A request as bare as can be: whoever may ask is refused for its fields, whoever may not before."""
        method, path = address_of(address)
        if path.startswith(PREFIX):
            given = {"Authorization": f"Bearer {self.joined['p', role].token}"} if role is not None else {}
            return Visitor(self.url).send(method, path, headers=given)
        visitor = self.visitor(role)
        visitor.get("/account" if role is not None else "/enter")
        if method == "GET":
            return visitor.get(path)
        return post(visitor, address, visitor.form_token(), **headers)


def address_of(address: str) -> tuple[str, str]:
    """Method and path, with words that nothing is called by."""
    method, _, path = address.partition(" ")
    for name, word in NOTHING.items():
        path = path.replace(f"{{{name}}}", word)
    return method, path


def post(visitor: Visitor, address: str, token: str, **headers: str | None) -> Reply:
    """A form without fields, or what a script would send."""
    _, path = address_of(address)
    if address in SCRIPTS:
        return visitor.send("POST", path, b"{}", {"X-Form-Token": token, **headers})
    return visitor.send("POST", path, f"form_token={token}".encode(), headers)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    desk = Desk(tmp_path_factory.mktemp("town") / "labels.db", overlap=2)
    with closing(desk.store), serve_in_background(desk.store) as server:
        yield Town(desk, server.url)


def test_every_address_of_the_app_has_an_expectation(town):
    found = {
        f"{method} {route.path}"
        for route in make_app(town.store).routes
        if isinstance(route, Route)
        for method in (route.methods or ())
        if method != "HEAD"
    }
    assert found == set(NEEDED)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("address", NEEDED)
def test_every_address_lets_in_whom_it_should_and_nobody_else(town, address):
    needed = NEEDED[address]
    for role in (None, *ROLES):
        reply = town.ask(address, role)
        where = (address, role, reply.status, reply.text[:400])
        granted = role is not None and (needed == "any" or needed in SCOPES[role])
        assert reply.status < 500, where
        if needed == "open" or granted:
            assert reply.status != 401, where
            assert reply.status != 403 or FORBIDDEN not in reply.text, where
            assert not reply.headers.get("location", "").startswith("/enter?"), where
        elif role is not None:
            assert reply.status == 403, where
            assert FORBIDDEN in reply.text, where
        elif address.startswith("GET") and PREFIX not in address and address not in SCRIPTS:
            assert (reply.status, reply.location[:12]) == (303, "/enter?next="), where
        else:
            assert reply.status == 401, where


def test_what_was_refused_is_in_the_log(town):
    pseudonym = town.joined["p", "annotator"].pseudonym
    before = town.store.position()[0]
    assert town.ask("GET /api/v1/queue", "annotator").status == 403
    (event,) = [event for event in town.store.events(before) if event.kind == "refused"]
    assert (event.project, event.actor) == ("p", pseudonym)
    assert event.body is not None
    assert "GET /queue" in event.body["what"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", event.at)


CHANGES = [address for address in NEEDED if address.startswith("POST") and PREFIX not in address]
READS = [address for address in NEEDED if address.startswith("GET") and PREFIX not in address]


@pytest.mark.one_in(29)
@pytest.mark.parametrize("address", CHANGES)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null", "Sec-Fetch-Site": None},
        {"Origin": None, "Sec-Fetch-Site": None},
        {"Origin": None, "Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost.elsewhere.example", "Sec-Fetch-Site": None},
        {"Origin": "http://127.0.0.1:9", "Sec-Fetch-Site": None},
    ],
    ids=["elsewhere", "hidden", "silent", "typed", "sibling", "lookalike", "port"],
)
def test_a_change_from_another_site_changes_nothing(town, address, headers):
    """With the right token even: one wall is enough, and there are two."""
    before = town.store.position()
    for role in (None, *ROLES):
        reply = town.ask(address, role, **headers)
        assert (reply.status, "was not sent by a page of this app" in reply.text) == (403, True), role
    assert [event.kind for event in town.store.events(before[0])] == ["signed-in"] * len(ROLES)


@pytest.mark.parametrize("address", CHANGES)
def test_a_form_without_its_token_changes_nothing(town, address):
    owner, other = town.visitor("owner"), town.visitor("owner", "q")
    other.get("/account")
    before = town.store.position()
    for token in ("", "0" * 32, other.form_token()):
        for visitor in (owner, Visitor(town.url)):
            reply = post(visitor, address, token)
            assert reply.status in (400, 401, 403), (token, reply.text)
    assert town.store.position() == before


@pytest.mark.one_in(3)
@pytest.mark.parametrize("address", READS)
def test_reading_changes_nothing(town, address):
    _, path = address_of(address)
    visitors = {role: town.visitor(role) for role in (None, *ROLES)}
    before = town.store.position()
    for visitor in visitors.values():
        for method in ("GET", "HEAD"):
            visitor.send(method, path)
    kinds = [event.kind for event in town.store.events(before[0])]
    # Who may not look leaves a trace in the log, and a task that is shown is a task that is given out.
    assert {*kinds} <= ({"refused", "leased"} if address in GIVES_OUT else {"refused"})


def test_a_cookie_opens_nothing_of_the_api(town):
    owner = town.visitor("owner")
    assert owner.get("/account").status == 200
    for address, needed in NEEDED.items():
        method, path = address_of(address)
        if path.startswith(PREFIX) and needed != "open":
            assert owner.send(method, path, b"{}").status == 401, address


@pytest.mark.slow
def test_every_page_of_somebody_signed_in_offers_to_sign_out(town):
    for address in READS:
        for role in ROLES:
            reply = town.ask(address, role)
            if reply.headers.get("content-type", "").startswith("text/html") and reply.status != 404:
                assert any(form.action == "/sign-out" for form in forms_of(reply.text)), (address, role)


@pytest.mark.slow
def test_the_app_answers_to_its_own_names_alone(town):
    """A page elsewhere may make its name lead to this machine, and read what comes back as its own."""
    port = town.visitor(None).port
    for name in (
        "elsewhere.example",
        f"elsewhere.example:{port}",
        f"127.0.0.1.nip.io:{port}",
        "127.0.0.1",
        "",
    ):
        for address in READS:
            if "/static/" not in address:
                reply = town.visitor("owner").send(*address_of(address), headers={"Host": name})
                # A request without any Host is refused before the app sees it.
                assert reply.status in (400, 421), (address, name)
    for name in (f"localhost:{port}", f"LOCALHOST:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert town.visitor("owner").send("GET", "/account", headers={"Host": name}).status == 200, name


# Object by object: what is there, and is another's.


@pytest.fixture
def two(make_desk: MakeDesk) -> Iterator[Town]:
    """A town of its own, in which the annotators of both projects have answered and hold a task."""
    desk = make_desk(overlap=2)
    with serve_in_background(desk.store) as server:
        town = Town(desk, server.url)
        for project in ("p", "q"):
            name = town.joined[project, "annotator"].pseudonym
            for strength in (-1, None):
                lease = town.store.write(next_task, project, name, f"{strength}")
                assert isinstance(lease, Lease)
                if strength is not None:
                    label = {"strength": strength, "why": f"thoughts of {project}"}
                    town.store.write(submit_answer, project, name, lease.assignment, "k", label)
        yield town


def changes(town: Town, before: int) -> list[tuple[str, str]]:
    return [(event.kind, event.project) for event in town.store.events(before) if event.kind != "signed-in"]


def test_nobody_reaches_what_is_anothers(two):
    """Somebody else of the same project, and of another one, with every form that names an assignment."""
    name = two.joined["p", "annotator"].pseudonym
    (answered,) = (row["assignment"] for row in two.store.read(own_history, "p", name, 9))
    held = two.store.write(next_task, "p", name, "None")
    assert isinstance(held, Lease)
    others = [two.visitor("reviewer"), two.visitor("annotator", "q"), two.visitor("owner", "q")]
    for other in others:
        other.get("/account")
        before = two.store.position()[0]
        for assignment in (answered, held.assignment):
            for path in ("/label", *(f"/label/{verb}" for verb in ("draft", "skip", "undo", "note", "flag"))):
                fields = {"assignment": assignment, "key": "k2", "strength": "3", "why": "mine now"}
                fields |= {"reason": "unclear", "note": "mine now", "report": "harmful"}
                assert other.post(path, fields).status in (403, 404), (path, assignment)
            for path in (
                f"/label/edit/{assignment}",
                f"/label?at={assignment}",
                f"/label?after={assignment}",
            ):
                reply = other.get(path)
                assert reply.status in (403, 404), path
                assert "thoughts of p" not in reply.text
                assert held.assignment not in reply.text.replace(path, "")
            reply = other.post(f"/label/edit/{assignment}", {"key": "k3", "strength": "3"})
            assert reply.status in (403, 404)
        assert {kind for kind, _ in changes(two, before)} <= {"refused", "leased"}
    assert [row["label"]["why"] for row in two.store.read(own_history, "p", name, 9)] == ["thoughts of p"]


def test_pages_of_one_project_show_nothing_of_another(two):
    """An owner of one project with every address of another's tasks, people, invites and sessions."""
    store, foreign = two.store, two.joined["q", "annotator"].pseudonym
    # One more of them in q: a pseudonym that p has nobody of.
    extra = [store.write(issue_token, "q", "annotator", name=f"extra-{n}").pseudonym for n in range(2)][-1]
    task = next(row["id"] for row in store.read(project_tasks, "q", None, 9, 0))
    secret = store.write(open_session, "q", foreign, by="password").secret
    (session,) = store.read(list_sessions, "q", foreign)
    owner = two.visitor("owner")
    for address in READS:
        path = address.partition(" ")[2]
        path = path.replace("{task}", task).replace("{person}", extra)
        text = owner.get(path).text
        for word in ("-of-q", "thoughts of q", "What is 70", "What is 71", "What is 72", session.id):
            assert word not in text, (address, word)
    owner.get("/account")
    before = store.position()[0]
    fields = {"reason": "r", "standing": "suspended", "session": session.id, "key": "k", "strength": "1"}
    fields |= {"decision_reason": "error", "sure": "yes", "confirm": extra}
    for address in CHANGES:
        path = address.partition(" ")[2]
        if "{task}" in path or "{person}" in path:
            reply = owner.post(path.replace("{task}", task).replace("{person}", extra), fields)
            assert reply.status == 404, (address, reply.status)
    owner.post("/account/sessions", {"session": session.id})
    invite = store.write(make_invite, "q", actor="o1")
    (listed,) = invites(store, "q")
    owner.post("/manage/invites/end", {"invite": listed.id})
    owner.get("/enter")
    assert store.read(look_at_invite, invite).uses == 1
    assert find_session(store, secret) is not None
    assert [change for change in changes(two, before) if change[1] == "q"] == [("invited", "q")]


def test_what_an_owner_of_another_project_exports_holds_nothing_of_this_one(two):
    owner = two.visitor("owner", "q")
    owner.get("/manage/export")
    files = [owner.get("/manage/pay.csv"), owner.post("/manage/export", {"position": ""})]
    # Without the mark of its first bytes spreadsheets read names as letters of another alphabet.
    assert files[0].content.startswith(codecs.BOM_UTF8)
    pseudonym = two.joined["q", "annotator"].pseudonym
    files.append(owner.post(f"/manage/people/{pseudonym}/export"))
    contents = [exported(reply) for reply in files]
    for content in contents:
        assert b"-of-p" not in content
        assert b"thoughts of p" not in content
        assert b"What is 0 + 0" not in content
    assert b"thoughts of q" in contents[-1]


def exported(reply: Reply) -> bytes:
    assert reply.status == 200, reply.text[:300]
    assert reply.headers["content-disposition"].startswith("attachment"), reply.headers
    if not reply.content.startswith(b"PK"):
        return reply.content
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        return b"".join(archive.read(name) for name in archive.namelist())
