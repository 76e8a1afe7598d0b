"""Words of others stay words: texts that took other programs over, on every page, in a real browser."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from plaudit.labelling.app.server import serve_in_background
from plaudit.labelling.people import Joined
from tests.labelling.browser.seats import OpenSeat, Seat
from tests.labelling.desks import Desk, MakeDesk
from tests.labelling.hostile import ELEMENTS, HOSTILE, STRANGE_ELEMENTS

TOUCHED = """() => {
  for (const element of document.querySelectorAll("main *"))
    for (const name of ["mouseover", "pointerover", "focus", "toggle", "animationstart", "begin"])
      element.dispatchEvent(new Event(name));
}"""
"""A script that does to every element what a person's pointer would."""


def look(seat: Seat, path: str) -> None:
    """Open a page, and complain about everything on it that no template holds."""
    seat.go(path)
    strange = seat.page.evaluate(STRANGE_ELEMENTS)
    assert strange == [], (path, strange)
    seat.page.evaluate(TOUCHED)
    seat.refuse_bad_news()


class Haunted:
    """A project in which everything that somebody may write is written by somebody who means no good."""

    def __init__(self, desk: Desk, url: str) -> None:
        self.desk, self.store, self.url = desk, desk.store, url
        guidelines = "\n\n".join(HOSTILE)
        self.store.set_project(replace(self.store.project("p"), guidelines=guidelines), actor="o1")

    def joined(self, role: str, name: str) -> Joined:
        return self.store.token("p", role, name=name)

    def seat(self, open_seat: OpenSeat, who: Joined) -> Seat:
        """A window of somebody who is signed in."""
        return open_seat(self.url).sign_in(self.store, who.pseudonym)


@pytest.fixture
def haunted(make_desk: MakeDesk, tmp_path: Path) -> Iterator[Haunted]:
    desk = make_desk(tmp_path / "labels.db")
    with serve_in_background(desk.store) as server:
        yield Haunted(desk, server.url)


def test_words_of_others_stay_words_on_every_page(haunted: Haunted, open_seat: OpenSeat) -> None:
    stranger = open_seat(haunted.url)
    look(stranger, f"/join/{haunted.store.invite('p', actor='o1')}")
    shown = stranger.page.locator("details").text_content()
    assert shown is not None
    assert "<svg onload=alert(1)>" in shown
    # What an address carries is text of others too.
    for words in HOSTILE[::7]:
        word = quote(words, safe="")
        look(stranger, f"/enter?project={word}&next={word}&done={word}")
        look(stranger, f"/join/{word}")
        look(stranger, f"/{word}")
    for name in ELEMENTS[::12]:
        ada = haunted.seat(open_seat, haunted.joined("annotator", f"{name[:150]}{secrets.token_hex(2)}"))
        look(ada, f"/account?done={quote(name)}")
        ada.close()
