"""People at work in real browsers: from an invite to the last task, and what goes wrong on the way."""

from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from plaudit.collect.app.server import serve_in_background
from plaudit.collect.people import make_invite
from plaudit.collect.progress import project_people, project_status, project_tasks, store_faults
from plaudit.lab.world.annotators import Annotator, annotator_pool
from plaudit.lab.world.online import direct_verdict, label_of, shown_as_task
from tests.collect.browser.seats import WIDTHS, OpenSeat, Seat
from tests.collect.browser.tasks import Office, fill_by_mouse, office, send_by_mouse, tab_to
from tests.lab.world.test_online import answered, bodies, store_of

PASSWORD = "correct horse battery"
SEED = 5


def join(seat: Seat, invite: str, name: str) -> None:
    """Come in by an invite's link, as its page asks for it."""
    seat.go(f"/join/{invite}")
    seat.page.get_by_label("name").first.fill(name)
    seat.page.locator("input[type=password]").fill(PASSWORD)
    seat.page.locator("main form button").click()
    seat.page.wait_for_url("**/label")


def text_of(page: Page, selector: str) -> str:
    found = page.locator(selector).text_content()
    assert found is not None
    return found


def prompt_of(page: Page) -> Any:
    """The prompt: a text, or the turns of a conversation with who speaks in each."""
    turns = page.locator(".prompt .turn")
    if not turns.count():
        return text_of(page, ".prompt .text")
    roles = turns.evaluate_all("turns => turns.map((turn) => turn.classList[1])")
    texts = turns.locator(".text").all_text_contents()
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]


def read(page: Page, settings: dict[str, Any]) -> dict[str, Any]:
    """A task as it stands on the page: a simulated person sees no more than others do."""
    places = range(page.locator(".answer").count())
    return {
        **settings,
        "prompt": prompt_of(page),
        "answers": [text_of(page, f".answer[data-place='{place}'] .said .text") for place in places],
        "ended": [page.locator(f".answer[data-place='{place}'] .cut").count() == 0 for place in places],
    }


def label_all(seat: Seat, annotator: Annotator, settings: dict[str, Any]) -> int:
    """Answer until the page says that there is nothing left; gives how often."""
    done = 0
    while seat.page.locator("#task").count():
        shown = read(seat.page, settings)
        verdict = direct_verdict(annotator, shown_as_task(shown), SEED)
        fill_by_mouse(seat.page, shown, label_of(shown, verdict))
        with seat.page.expect_navigation(url="**/label?after=*"):
            send_by_mouse(seat.page)
        done += 1
    seat.refuse_bad_news()
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("people", "rows"),
    [(3, 5), pytest.param(30, 40, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
    ids=["three", "thirty"],
)
def test_labels_by_the_pages_are_those_of_the_same_people_asked_directly(tmp_path, open_seat, people, rows):
    """A browser each, in turn; nothing is read but the page, and nothing sent but its form."""
    crowd = [*islice(cycle(annotator_pool("crowd")), people)]
    with store_of(tmp_path / "labels.db", bodies(rows), ask="pair", overlap=3) as store:
        invite = store.write(make_invite, "p", uses=people, actor="o1")
        project = store.project("p")
        settings = {"kind": "pair", "scale": [*project.scale], "ties": True, "flags": [*project.flags]}
        names = dict[str, Annotator]()
        with serve_in_background(store) as server:
            for number, annotator in enumerate(crowd):
                seat = open_seat(server.url)
                join(seat, invite, f"{annotator.name} the {number}th")
                names[f"{annotator.name} the {number}th"] = annotator
                label_all(seat, annotator, settings)
                seat.close()
        named = {row["pseudonym"]: row["person"] for row in store.read(project_people, "p")}
        found = [*answered(store)]
        for pseudonym, shown, label in found:
            annotator = names[named[pseudonym]]
            assert label == label_of(shown, direct_verdict(annotator, shown_as_task(shown), SEED))
        assert len(found) >= 3 * len(store.read(project_tasks, "p", None, 500, 0))
        assert store.read(project_status, "p").surplus == 0
        assert store.read(store_faults) == []


# What goes wrong.


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Office]:
    with office(tmp_path, "pair", tasks=4) as found:
        yield found


@pytest.fixture
def person(place: Office) -> str:
    return place.person()


@pytest.fixture
def seat(place: Office, person: str, open_seat: OpenSeat) -> Seat:
    found = open_seat(place.url).sign_in(place.store, person)
    found.go("/label")
    return found


def choose(page: Page, value: str = "-2") -> None:
    page.locator("#task label", has=page.locator(f'input[name=strength][value="{value}"]')).click()


def write_why(page: Page, words: str) -> None:
    if not page.locator("details.why[open]").count():
        page.locator("details.why summary").click()
    page.locator("textarea[name=why]").fill(words)


@pytest.mark.slow
def test_the_back_button_changes_nothing_and_another_answer_from_there_is_asked_about(place, seat):
    choose(seat.page)
    with seat.page.expect_navigation(url="**/label?after=*"):
        send_by_mouse(seat.page)
    seat.page.go_back()
    seat.page.wait_for_load_state()
    # Pages are not stored: the address is asked again, and shows the task in hand.
    assert len(place.labels()) == 1
    choose(seat.page, "1")
    with seat.page.expect_navigation(url="**/label?after=*"):
        send_by_mouse(seat.page)
    assert [label["strength"] for label in place.labels()] == [-2, 1]


@pytest.mark.slow
def test_signing_out_leaves_nothing_in_the_browser(place, seat):
    choose(seat.page)
    write_why(seat.page, "nobody else's business")
    held = "() => JSON.stringify([{...localStorage}, {...sessionStorage}])"
    assert "nobody else" in seat.page.evaluate(held)
    seat.page.locator("form.who button").click()
    seat.page.wait_for_load_state()
    assert "nobody else" not in seat.page.evaluate(held)
    assert [cookie for cookie in seat.context.cookies() if "guest" not in str(cookie)] == []
    seat.page.go_back()
    seat.page.wait_for_load_state()
    assert "nobody else" not in seat.page.content()


@pytest.mark.slow
def test_ten_pairs_from_an_invite_by_keyboard_on_a_phones_width(tmp_path, open_seat):
    with office(tmp_path, "pair", tasks=10) as place:
        seat = open_seat(place.url, width=WIDTHS["phone"])
        seat.go(f"/join/{place.store.write(make_invite, 'p', actor='o1')}")
        page = seat.page
        tab_to(page, "input[name=name]")
        page.keyboard.type("Ada")
        tab_to(page, "input[type=password]")
        page.keyboard.type(PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_url("**/label")
        for number in range(10):
            expect(page.locator("#task")).to_be_visible()
            page.keyboard.press(str(1 + number % 7))
            with page.expect_navigation(url="**/label?after=*"):
                page.keyboard.press("Enter")
        expect(page.locator("#task")).to_have_count(0)
        assert [label["strength"] for label in place.labels()] == [-3, -2, -1, 0, 1, 2, 3, -3, -2, -1]
