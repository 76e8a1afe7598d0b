"""The store over real HTTP: who may ask what, what is refused and how, and that a repeated send is one."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from plaudit.collect.adding import add_tasks, set_project
from plaudit.collect.app.api import PREFIX
from plaudit.collect.app.safety import MOST_BYTES, MOST_TASKS
from plaudit.collect.app.server import serve_in_background
from plaudit.collect.client import LabelClient, RefusedError
from plaudit.collect.export import export
from plaudit.collect.people import issue_token
from plaudit.collect.progress import project_status, project_tasks
from plaudit.collect.refusals import StoreUnavailableError
from tests.collect.desks import Desk, MakeDesk, pair_body


class Served:
    """A store that is served, with clients of each role."""

    def __init__(self, desk: Desk, url: str) -> None:
        self.desk, self.url = desk, url
        self.clients = list[LabelClient]()
        tokens = {
            role: desk.store.write(issue_token, "p", role, name=role)
            for role in ("owner", "reviewer", "annotator")
        }
        self.owner, self.reviewer, self.annotator = (
            self.client(tokens[role].token) for role in ("owner", "reviewer", "annotator")
        )
        self.pseudonyms = {role: joined.pseudonym for role, joined in tokens.items()}

    def client(self, token: str | None = None) -> LabelClient:
        self.clients.append(LabelClient(self.url, token, pause=0.01))
        return self.clients[-1]

    def person(self, name: str = "Ada") -> LabelClient:
        client = self.client()
        client.join(self.owner.invite(), name)
        return client

    def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        token: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """A request as it is, without a client that repairs it."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=30)
        sent = {"Authorization": f"Bearer {token}"} if token is not None else {}
        try:
            connection.request(method, path, body, {**sent, **(headers or {})})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


@contextmanager
def served(desk: Desk) -> Iterator[Served]:
    with serve_in_background(desk.store) as server:
        found = Served(desk, server.url)
        yield found
        for client in found.clients:
            client.close()


@pytest.fixture
def api(make_desk: MakeDesk) -> Iterator[Served]:
    with served(make_desk(overlap=2)) as found:
        yield found


def test_from_an_invite_to_rows(on_both, tmp_path):
    desk = on_both(tasks=0, overlap=2, guidelines="Be kind.")
    with served(desk) as api:
        assert api.owner.add_tasks([pair_body(n) for n in (0, 1, 2, 2)]) == {"added": 3, "repeated": 1}
        assert api.owner.add_tasks([pair_body(n) for n in range(4)]) == {"added": 1, "repeated": 3}
        people = [api.person("Ada"), api.person("Bob")]
        assert people[0].guidelines()["text"] == "Be kind."
        for person in people:
            for _ in range(4):
                task = person.next()["task"]
                better = 2 if "I think" in task["shown"]["answers"][0] else -2
                receipt = person.submit(task["assignment"], {"strength": better}, seconds=3.5)
                assert receipt["assignment"] == task["assignment"]
            assert person.next() == {"task": None, "reason": "done", "until": None}
            assert len(person.history()) == 4
        assert api.owner.status()["done"]
        snapshot = api.owner.export(tmp_path / "over.jsonl")
        assert snapshot["rows"] == 8
        own = export(desk.store, "p", tmp_path / "own.jsonl")
        assert (tmp_path / "over.jsonl").read_bytes() == (tmp_path / "own.jsonl").read_bytes()
        assert own.seq == snapshot["seq"]
        assert {row["labels"] for row in api.owner.people() if row["role"] == "annotator"} == {4, 0}


def test_a_token_with_less_than_its_role_may_do_less(api):
    reader = api.desk.store.write(issue_token, "p", "owner", name="dashboard", scopes=["read"])
    client = api.client(reader.token)
    assert client.status()["labels"] == 0
    with pytest.raises(RefusedError, match="may not do this"):
        client.invite()


def test_a_token_that_was_revoked_or_erased_opens_nothing(api):
    person = api.person()
    name = person.me()["pseudonym"]
    api.owner._send("POST", f"/people/{name}/revoke")
    with pytest.raises(RefusedError) as caught:
        person.next()
    assert caught.value.status == 401
    with pytest.raises(RefusedError, match="unknown, has ended or was revoked"):
        api.client("p_unknown").me()
    other = api.person("Bob")
    api.owner._send("POST", f"/people/{other.me()['pseudonym']}/erase")
    with pytest.raises(RefusedError, match="unknown, has ended or was revoked"):
        other.me()


def test_projects_of_one_store_never_see_each_other(api):
    api.desk.store.write(set_project, replace(api.desk.store.project("p"), name="q"), actor="o1")
    api.desk.store.write(add_tasks, "q", [pair_body(70)], actor="o1")
    mine = api.person().next()["task"]
    foreign = api.client(api.desk.store.write(issue_token, "q", "annotator", name="Eve").token)
    theirs = foreign.next()["task"]
    assert theirs["shown"]["prompt"] == "What is 70 + 70?"
    before = api.desk.store.position()
    for call in (
        lambda: foreign.submit(mine["assignment"], {"strength": 1}),
        lambda: foreign.skip(mine["assignment"], "unclear"),
        lambda: foreign.draft(mine["assignment"], {"strength": 1}),
        lambda: foreign.note(mine["assignment"], "mine now"),
    ):
        with pytest.raises(RefusedError, match="was not given to you") as caught:
            call()
        assert caught.value.status == 403
    owner = api.client(api.desk.store.write(issue_token, "q", "owner", name="Q").token)
    assert owner.status()["project"] == "q"
    assert [row["pseudonym"] for row in owner.people()] == ["a1", "o1"]
    task = api.desk.store.read(project_tasks, "p")[0]["id"]
    with pytest.raises(RefusedError) as missing:
        owner.adjudicate(task, {"strength": 1}, "error")
    assert missing.value.status == 404
    events = [(event.kind, event.project) for event in api.desk.store.events(before[0])]
    # Nothing changed, and the audit trail of the project that they belong to says who tried what.
    assert events == [("refused", "q")] * 4 + [("joined", "q")]


def test_what_an_annotator_receives_tells_no_secrets(make_desk):
    """Gold, models and others' labels stand in no byte of any answer to an annotator."""
    desk = make_desk(tasks=0, overlap=2, gold_share=0.5, most=3)
    rows = [
        pair_body(n, category="sums", metadata={"hidden": "hidden-fact"}, reference_answer="hidden-fact")
        for n in range(6)
    ]
    rows += [pair_body(n, gold={"better": 0}, method="uncertain-method", score=0.25) for n in range(20, 26)]
    desk.add(rows)
    received = bytearray()
    with served(desk) as api:
        ada, bob = api.person("Ada"), api.person("Bob")
        for client in (ada, bob):
            plain = client._request

            def listen(method: str, path: str, body: object = None, plain: Any = plain) -> bytes:
                content = plain(method, path, body)
                received.extend(content)
                return content

            client._request = listen  # type: ignore[method-assign]
        for client in (ada, bob):
            for _ in range(6):
                task = client.next()["task"]
                client.draft(task["assignment"], {"strength": 1})
                client.submit(task["assignment"], {"strength": 1, "why": f"said by {client.me()['person']}"})
            client.history()
            client.me()
        ada_only = bytes(received).partition(b"said by Bob")[0]
    purposes = {event.body["purpose"] for event in desk.store.events() if event.kind == "leased"}
    assert purposes == {"work", "gold"}
    for word in ("secret-model", "gold", "purpose", "hidden-fact", "uncertain-method", '"score"', "metadata"):
        assert word.encode() not in received, word
    assert b"said by Ada" in ada_only
    assert b"said by Ada" not in bytes(received)[len(ada_only) :].partition(b"said by Bob")[2]


def test_a_lost_reply_to_a_join_costs_no_second_person(api):
    invite = api.owner.invite(uses=1)
    one, two = api.client(), api.client()
    first, again = one.join(invite, "Ada", "k"), two.join(invite, "Ada", "k")
    assert first["pseudonym"] == again["pseudonym"]
    assert one.me() == two.me()
    with pytest.raises(RefusedError, match="used already"):
        api.client().join(invite, "Bob", "another key")
    *_, last = api.desk.store.events()
    assert (last.kind, last.actor) == ("refused", "nobody")
    assert last.body == {"what": "POST /join: this invite was used already; ask for another one"}


def test_a_client_goes_on_when_the_server_comes_back(api):
    """The connection dies in the middle, and then the server: the same send is tried again, and is one."""
    person = api.person()
    task = person.next()["task"]
    person._connection.sock.shutdown(socket.SHUT_RDWR)
    receipt = person.submit(task["assignment"], {"strength": 1}, "k")
    assert person.submit(task["assignment"], {"strength": 1}, "k") == receipt
    gone = LabelClient("http://127.0.0.1:1", attempts=2, pause=0.01)
    with pytest.raises(StoreUnavailableError, match="does not answer: tried 2 times"):
        gone.me()


def sent(label: bytes = b"{}", assignment: bytes = b"w1", key: bytes = b"k") -> bytes:
    return b'{"assignment": "%b", "key": "%b", "label": %b}' % (assignment, key, label)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/next", b"{", 400, "no JSON"),
        ("/next", b'{"key": "\xff"}', 400, "no JSON in UTF-8"),
        ("/next", b'{"key": "a", "key": "b"}', 400, "there twice"),
        ("/next", b"[1]", 422, "expected a JSON object, found a list of 1"),
        ("/next", b'{"kex": "a"}', 422, "did you mean key?"),
        ("/next", b'{"\\ud800": 1}', 422, "unknown field"),
        ("/next", b'{"key": 3}', 422, "key: expected a text, found 3"),
        ("/next", b'{"key": ""}', 422, "1 to 200 characters"),
        ("/submit", b'{"assignment": "w1", "key": "k"}', 422, "label: expected a value, found nothing"),
        ("/submit", sent(b"NaN"), 400, "no JSON"),
        ("/submit", sent(b"[" * 60 + b"]" * 60), 422, "level"),
        ("/submit", sent(b"[" * 200_000), 400, "nested too deeply"),
        ("/submit", sent(assignment=b"\\u0000"), 422, "assignment: expected a text without it, found a NUL"),
        ("/submit", sent(key=b"\\ud800"), 422, "key"),
        ("/preferences", b'{"declined": "all"}', 422, "declined: expected a list"),
        ("/preferences", b'{"declined": [3]}', 422, "declined: expected a text"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused_by_field(api, path, body, status, says):
    person = api.person()
    before = api.desk.store.position()
    found, said = api.send("POST", PREFIX + path, body, token=person.token)
    assert (found, says in said["error"]["message"]) == (status, True), said
    assert api.desk.store.position() == before


def test_labels_are_refused_by_field(api):
    person = api.person()
    task = person.next()["task"]
    before = api.desk.store.position()
    for label, field, says in (
        ({"strength": 9}, "strength", "a whole number from -3 to 3"),
        ({"strength": 1, "flags": [["rude"], []]}, "flags[0][0]", "harmful"),
        ([], "label", "an object"),
    ):
        with pytest.raises(RefusedError, match=says) as caught:
            person.submit(task["assignment"], label)
        assert (caught.value.status, caught.value.field) == (422, field)
    for timing in ({"seconds": -1}, {"seconds": "long"}, {"pasted": 3}):
        with pytest.raises(RefusedError, match="a number from 0 to"):
            person.submit(task["assignment"], {"strength": 1}, **timing)
    assert api.desk.store.position() == before


def test_tasks_are_bounded_and_refused_whole(api):
    good = json.dumps(pair_body(50)).encode()
    before = api.desk.store.position()

    def send(body: bytes) -> tuple[int, str]:
        status, said = api.send("POST", f"{PREFIX}/tasks", body, token=api.owner.token)
        return status, said["error"]["message"]

    many = b"\n".join([b"{}"] * (MOST_TASKS + 1))
    assert send(many)[0] == 413
    status, says = send(good + b"\n{]")
    assert (status, "line 2" in says) == (400, True)
    equal = pair_body(51)
    equal["candidates"][1]["text"] = equal["candidates"][0]["text"]
    status, says = send(good + b"\n" + json.dumps(equal).encode())
    assert (status, "task 2, candidates[1].text" in says) == (422, True)
    for change, says_what in (
        ({"promt": "x"}, "did you mean prompt?"),
        ({"prompt": "x" * 10_000_000}, "task 1"),
    ):
        body = json.dumps({**pair_body(52), **change}).encode()
        status, says = send(body)
        assert (status, says_what in says) == (422, True), (change, says[:200])
    status, says = send(b'{"prompt": "\\ud800", "candidates": []}')
    assert status == 422
    assert api.desk.store.position() == before


def test_a_request_is_cut_off_when_it_is_too_long(api):
    person = api.person()
    body = b'{"key": "' + b"k" * (MOST_BYTES + 1) + b'"}'
    assert api.send("POST", f"{PREFIX}/next", body, token=person.token)[0] == 413
    connection = http.client.HTTPConnection(urlsplit(api.url).netloc, timeout=30)
    try:
        # Chunked: nobody says beforehand how long it is.
        chunks, bearer = (b"x" * 1_000_000 for _ in range(20)), {"Authorization": f"Bearer {person.token}"}
        connection.request("POST", f"{PREFIX}/next", chunks, bearer, encode_chunked=True)
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        # The server hung up in the middle of the flood, which is the same refusal.
        pass
    finally:
        connection.close()
    assert person.next()["task"] is not None


def test_addresses_that_are_not_there(api):
    assert api.send("GET", f"{PREFIX}/nowhere")[0] == 404
    assert api.send("DELETE", f"{PREFIX}/next")[0] == 405
    status, said = api.send("GET", f"{PREFIX}/health")
    assert (status, [*said]) == (200, ["plaudit"])
    # A name that leads to this machine, and is none of the app's (DNS rebinding).
    for method, path in (("GET", "/health"), ("POST", "/join"), ("GET", "/me")):
        token = api.owner.token if path == "/me" else None
        assert api.send(method, PREFIX + path, b"{}", token, {"Host": "evil.example:80"})[0] == 421
    assert api.send("POST", f"{PREFIX}/people/%00/revoke", token=api.owner.token)[0] == 422
    for huge in ("9" * 30, "9" * 5_000):
        path = f"{PREFIX}/history?before={huge}"
        assert api.send("GET", path, token=api.annotator.token)[0] == 422
    body = b'{"position": ' + b"9" * 30 + b"}"
    assert api.send("POST", f"{PREFIX}/export", body, token=api.owner.token)[0] == 422
    assert api.send("GET", f"{PREFIX}/history?limit=0", token=api.annotator.token)[0] == 422
    assert api.send("GET", f"{PREFIX}/history?limit=2&limit=3", token=api.annotator.token)[0] == 422
    assert api.send("GET", f"{PREFIX}/history?most=3", token=api.annotator.token)[0] == 422


def test_an_owner_changes_settings_but_not_where_the_server_reaches(api):
    settings = api.owner.project()
    api.owner.set_project({**settings, "overlap": 3})
    assert api.owner.project()["overlap"] == 3
    for change, says in (
        ({"talks_to": "http://169.254.169.254/v1#m"}, "set on the server"),
        ({"gold_rows": "/etc/passwd"}, "set on the server"),
        ({"name": "q"}, "settings.name"),
        ({"overlapp": 2}, "did you mean overlap?"),
        ({"overlap": 0}, "overlap is 1 to 100"),
        ({"overlap": "3"}, "settings.overlap: expected 3, found '3'"),
        ({"ties": "true"}, "settings.ties: expected True"),
        ({"question": 5}, "question"),
        ({"ask": "rank"}, "make another project"),
    ):
        with pytest.raises(RefusedError, match=says):
            api.owner.set_project({**settings, **change})
    assert api.owner.project()["overlap"] == 3


def test_reviewers_decide_blind_and_owners_know_names(api):
    api.desk.add([pair_body(50, reference_answer="hidden-fact", priority=9.0)])
    ada, bob, cem, dan = (api.person(name) for name in ("Ada", "Bob", "Cem", "Dan"))
    for strength, client in zip((2, -2, 0, 0), (ada, bob, cem, dan), strict=True):
        for _ in range(5):
            task = client.next()["task"]
            if task is None:
                break
            first_is_right = "I think" not in task["shown"]["answers"][0]
            client.submit(task["assignment"], {"strength": strength * (1 if first_is_right else -1)})
    queue = api.reviewer.queue()
    assert queue
    assert any("50 + 50" in task["body"]["prompt"] for task in queue)
    assert not any(word in json.dumps(queue) for word in ("secret-model", "hidden-fact", "priority"))
    assert "annotator" not in json.dumps(queue)
    decided = api.reviewer.adjudicate(queue[0]["id"], {"strength": -1}, "guideline-gap", "d1")
    assert api.reviewer.adjudicate(queue[0]["id"], {"strength": -1}, "guideline-gap", "d1") == decided
    assert len(api.reviewer.queue()) == len(queue) - 1
    assert all("person" not in row for row in api.reviewer.people())
    assert {row["person"] for row in api.owner.people()} >= {"Ada", "Bob"}
    api.reviewer.set_standing(bob.me()["pseudonym"], "suspended", "clicks left")
    assert bob.next()["reason"] == "suspended"
    with pytest.raises(RefusedError, match="your work in this project is over"):
        bob.undo(bob.history()[0]["assignment"])


@pytest.mark.one_in(2)
def test_many_people_at_once_stay_below_the_cap(on_both):
    """Twelve threads over HTTP, each send made twice: every task has its labels, and none above the cap."""
    desk = on_both(tasks=20, overlap=3)
    with served(desk) as api:
        invite = api.owner.invite(uses=12)
        faults = list[BaseException]()

        def work(number: int) -> None:
            try:
                client = api.client()
                client.join(invite, f"person {number}")
                ordinal = 0
                while (task := client.next(f"n{ordinal}")["task"]) is not None:
                    label, key = {"strength": -1 if number % 2 else 2}, f"s{ordinal}"
                    first = client.submit(task["assignment"], label, key)
                    assert client.submit(task["assignment"], label, key) == first
                    ordinal += 1
            except BaseException as fault:
                faults.append(fault)
                raise

        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert faults == []
    status = desk.store.read(project_status, "p")
    assert status.labels >= 60
    assert status.surplus == 0
