"""Words of others stay words: texts that took other programs over, on every page, in a real browser."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from plaudit.collect.adding import add_tasks
from plaudit.collect.answering import add_note, own_history, report_task, submit_answer
from plaudit.collect.app.render import visible
from plaudit.collect.app.server import PAGES, serve_in_background
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.people import issue_token, make_invite
from plaudit.collect.progress import project_tasks
from tests.collect.browser.seats import OpenSeat, Seat
from tests.collect.desks import Desk
from tests.collect.hostile import ELEMENTS, HOSTILE, STRANGE_ELEMENTS

TENS = [HOSTILE[at : at + 10] for at in range(0, len(HOSTILE), 10)]
TOUCHED = """() => {
  for (const element of document.querySelectorAll("main *")) {
    if (element.localName === "details") element.open = true;
    for (const name of ["mouseover", "pointerover", "focus", "toggle", "animationstart", "begin"])
      element.dispatchEvent(new Event(name));
  }
}"""
"""A script that unfolds all that is folded, and does to every element what a person's pointer would."""


def look(seat: Seat, path: str) -> str:
    """Open a page, and complain about everything on it that no template holds; gives its text."""
    seat.go(path)
    strange = seat.page.evaluate(STRANGE_ELEMENTS)
    assert strange == [], (path, strange)
    seat.page.evaluate(TOUCHED)
    seat.refuse_bad_news()
    return seat.page.locator("main").text_content() or ""


def spells() -> Iterator[str]:
    while True:
        yield from HOSTILE


class Haunted:
    """A project in which everything that somebody may write is written by somebody who means no good."""

    def __init__(self, folder: Path, text: str) -> None:
        self.desk = Desk(
            folder / "labels.db",
            tasks=0,
            ask="rank",
            overlap=2,
            text=text,
            question=ELEMENTS[0],
            guidelines="\n\n".join(HOSTILE),
            flags=HOSTILE[:8],
            upsetting=HOSTILE[8:12],
        )
        self.store, self.words = self.desk.store, spells()
        for number, texts in enumerate(TENS):
            # The last of them are fewer than an answer needs.
            prompt, *answers = (*texts, "one more", "and another", "and a third")
            body = {"kind": "rank", "prompt": prompt, "category": HOSTILE[8 + number % 8]}
            answers = [{"text": answer, "ended": True, "source": {"model": prompt}} for answer in answers[:9]]
            self.store.write(add_tasks, "p", [{**body, "candidates": answers}], actor="o1")

    def joined(self, role: str) -> str:
        """Somebody whose name is hostile, who has read the guidelines."""
        return self.store.write(issue_token, "p", role, name=f"{next(self.words)[:180]} {role}").pseudonym

    def answer(self, person: str, lease: Lease, groups: Sequence[Sequence[int]]) -> None:
        assignment, key = lease.assignment, lease.assignment
        flags = [[HOSTILE[1]], *[[]] * 8][: len(lease.shown["answers"])]
        label = {"groups": groups, "why": next(self.words), "flags": flags}
        self.store.write(add_note, "p", person, assignment, f"n{key}", next(self.words))
        self.store.write(report_task, "p", person, assignment, f"f{key}", "broken", next(self.words))
        self.store.write(submit_answer, "p", person, assignment, key, label)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["plain", "markdown"])
def test_words_of_others_stay_words_on_every_page(tmp_path: Path, open_seat: OpenSeat, text: str) -> None:
    haunted = Haunted(tmp_path, text)
    with closing(haunted.store), serve_in_background(haunted.store) as server:
        first, second = haunted.joined("annotator"), haunted.joined("annotator")
        ada = open_seat(server.url).sign_in(haunted.store, first)
        look(ada, "/guidelines")
        ada.page.locator("form[action='/guidelines/read'] button").click()
        for _ in TENS:
            shown = look(ada, "/label")
            lease = haunted.store.write(next_task, "p", first)
            assert isinstance(lease, Lease)
            if text == "plain":
                assert [answer for answer in lease.shown["answers"] if visible(answer) not in shown] == []
            haunted.answer(first, lease, [[0], [1]])
        for _ in range(6):
            # The other way round, so that people are divided and a reviewer decides.
            haunted.answer(second, haunted.desk.lease(second), [[0], [1]])
        owner = open_seat(server.url).sign_in(haunted.store, haunted.joined("owner"))
        for path in addresses(haunted, first):
            look(owner if path.startswith("/manage") else ada, path)


def addresses(haunted: Haunted, person: str) -> Iterator[str]:
    """Every page of the app, of something that is there."""
    task = haunted.store.read(project_tasks, "p", None, 99, 0)[0]["id"]
    answered = haunted.store.read(own_history, "p", person, 9)[0]["assignment"]
    for page in PAGES:
        if page.method == "GET" and not any(word in page.path for word in ("{secret}", "{hash}", ".csv")):
            path = page.path.replace("{task}", task).replace("{person}", person)
            yield path.replace("{assignment}", answered).replace("{invite}", "i_x")


@pytest.mark.slow
def test_words_of_an_address_stay_words(tmp_path: Path, open_seat: OpenSeat) -> None:
    haunted = Haunted(tmp_path, "plain")
    with closing(haunted.store), serve_in_background(haunted.store) as server:
        stranger = open_seat(server.url)
        owner = open_seat(server.url).sign_in(haunted.store, haunted.joined("owner"))
        shown = look(stranger, f"/join/{haunted.store.write(make_invite, 'p', actor='o1')}")
        assert "<svg onload=alert(1)>" in shown
        for words in HOSTILE[::15]:
            word = quote(words, safe="")
            look(stranger, f"/enter?project={word}&next={word}&done={word}")
            look(stranger, f"/join/{word}?participant={word}")
            look(stranger, f"/{word}")
            look(owner, f"/account?done={word}")
            look(owner, f"/manage/tasks?words={word}&state={word}&after={word}")
            look(owner, f"/manage/people/{word}")
            look(owner, f"/manage/log?kind={word}&actor={word}")
