"""What an annotator's browser receives tells nothing of gold, of models, or of what others said."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from plaudit.collect.adding import add_tasks
from plaudit.collect.answering import add_note, own_history, submit_answer
from plaudit.collect.app.render import static, static_version
from plaudit.collect.app.server import PAGES, serve_in_background
from plaudit.collect.people import SCOPES, issue_token
from tests.collect.browsers import forms_of
from tests.collect.desks import Desk, MakeDesk, pair_body
from tests.collect.visitors import Visitor

SECRETS = ("secret-model", "hidden-fact", "uncertain-method", "purpose", "metadata", "surplus", "said by Bob")


class Place:
    """A project with gold, repeats, models, methods and somebody else's labels, and Ada's browser."""

    def __init__(self, desk: Desk, url: str) -> None:
        self.desk, self.store = desk, desk.store
        rows = [
            pair_body(
                n, category="sums", metadata={"hidden": "hidden-fact"}, method="uncertain-method", score=0.2
            )
            for n in range(8)
        ]
        gold = [pair_body(n, gold={"better": 0}, method="uncertain-method") for n in range(20, 30)]
        self.store.write(add_tasks, "p", [*rows, *gold], actor="o1")
        self.bob = self.store.write(issue_token, "p", "annotator", name="Bob").pseudonym
        for _ in range(5):
            lease = desk.lease(self.bob)
            label = {"strength": 3, "why": "said by Bob", "flags": [["harmful"], []]}
            self.store.write(submit_answer, "p", self.bob, lease.assignment, lease.assignment, label)
            self.store.write(add_note, "p", self.bob, lease.assignment, f"n{lease.assignment}", "said by Bob")
        self.ada = self.store.write(issue_token, "p", "annotator", name="Ada").pseudonym
        self.visitor = Visitor(url).sign_in(self.store, self.ada)

    def work(self) -> Iterator[tuple[str, str]]:
        """Ada's tasks, each with its purpose, which is in the log alone, and with its page; then answered."""
        while 'id="task"' in (page := self.visitor.get("/label").text):
            assignment = next(
                dict(form.fields)["assignment"] for form in forms_of(page) if form.action == "/label"
            )
            leased = [event for event in self.store.events() if event.kind == "leased"]
            (purpose,) = (
                event.body["purpose"] for event in leased if event.body and event.subject == assignment
            )
            yield purpose, page
            assert self.visitor.send_form("/label", strength="1", why="said by Ada").status == 303


@pytest.fixture
def place(make_desk: MakeDesk) -> Iterator[Place]:
    desk = make_desk(tasks=0, overlap=2, most=4, gold_share=0.5)
    with serve_in_background(desk.store) as server:
        yield Place(desk, server.url)


def test_what_an_annotators_pages_hold_tells_no_secrets(place: Place) -> None:
    received, purposes = list[str](), set[str]()
    for purpose, page in place.work():
        purposes.add(purpose)
        received.append(page)
    answered = [row["assignment"] for row in place.store.read(own_history, "p", place.ada, 99)]
    for page in PAGES:
        if page.method == "GET" and page.scope in ("any", "open", *SCOPES["annotator"]):
            path = page.path.replace("{assignment}", answered[0]).replace("{secret}", "x")
            received.append(place.visitor.get(path.replace("{invite}", "i_x")).text)
            received.append(place.visitor.get(path.replace("{assignment}", answered[-1])).text)
    assert purposes == {"work", "gold"}
    assert any("said by Ada" in text for text in received)
    for text in received:
        for word in (*SECRETS, place.bob):
            assert not re.search(rf"\b{word}\b", text), word
        # The words of the app itself do not name it either, where somebody labels.
        assert "gold" not in re.sub(r"\bgolden\b", "", text.lower())


def test_a_page_of_a_known_answer_looks_like_all_others(place: Place) -> None:
    looks = dict[str, set[str]]()
    for purpose, page in place.work():
        (body,) = re.findall(r"<main.*</main>", page, re.DOTALL)
        # What differs between any two tasks: figures, keys, the way back, and which answer says what.
        for part in (r'<p class="progress">.*?</p>', r'<form id="undo".*?</form>', r'value="[\w-]{16,}"'):
            body = re.sub(part, "", body, flags=re.DOTALL)
        body = re.sub(r"\d+|, I think", "", body)
        looks.setdefault(purpose, set()).add(re.sub(r"\s+", " ", body))
    assert len(looks["gold"]) == 1
    assert looks["gold"] == looks["work"]


def test_scripts_and_styles_hold_no_secrets_either(place: Place) -> None:
    folder = Path(static.__code__.co_filename).parent / "static"
    for file in folder.iterdir():
        reply = place.visitor.get(f"/static/{static_version()}/{file.name}")
        assert reply.status == 200
        for word in ("gold", "qualif", "purpose", "surplus"):
            assert word not in reply.text.lower(), (file.name, word)
