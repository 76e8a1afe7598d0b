"""Long answers and formulas in a real browser: what is chosen and sent stays in sight, boxes scroll."""

from contextlib import closing
from dataclasses import replace

import pytest

from plaudit.collect.app.server import serve_in_background
from plaudit.collect.own import read_guidelines
from plaudit.collect.people import issue_token
from plaudit.collect.project import guidelines_version
from plaudit.collect.quality.cache import keep_report
from plaudit.collect.quality.result import quality_to_dict
from tests.collect.browser.seats import OpenSeat, Seat
from tests.collect.browser.tasks import Office, office
from tests.collect.offices import Office as Managed, a_card, a_report

FORMULA = "$$" + " + ".join(rf"\sqrt{{x_{{{n}}}}}" for n in range(60)) + "$$"
CODE = "```python\ndef f(x: int) -> str:  # " + "long " * 40 + '\n    return "no" * 2\n```'
ANSWERS = [{"text": f"# Answer {n}\n\n$x^{n}$\n\n{FORMULA}\n\n{CODE}\n\n{'word ' * 3_000}"} for n in (2, 3)]
COVERED = """(elements) => elements.filter((element) => {
  const box = element.getBoundingClientRect();
  const top = document.elementFromPoint(box.x + Math.min(box.width / 2, 20), box.y + box.height / 2);
  return box.height < innerHeight / 2 && !element.contains(top) && !top?.contains(element);
}).map((element) => element.outerHTML)"""
"""A script that lists elements that something lies over, or that are out of sight."""


def at_long_task(place: Office, open_seat: OpenSeat, size: tuple[int, int], **options: object) -> Seat:
    place.desk.add([{"kind": "pair", "prompt": "Why?", "candidates": ANSWERS}])
    person, project = place.person(), place.store.project("p")
    place.store.write(read_guidelines, "p", person, guidelines_version(project))
    seat = open_seat(place.url, width=size[0], height=size[1], **options).sign_in(place.store, person)
    seat.go("/label")
    return seat


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "de", "ar"])
@pytest.mark.parametrize("size", [(320, 568), (390, 844), (1280, 800)])
def test_what_is_chosen_and_sent_stays_in_sight_and_covers_nothing(tmp_path, open_seat, size, language):
    with office(tmp_path, "pair", tasks=0, text="markdown", guidelines="# Be kind") as place:
        seat = at_long_task(place, open_seat, size, locale=language)
        page, bar = seat.page, seat.page.locator(".bar")
        for share in range(11):
            page.evaluate("share => scrollTo(0, share * document.documentElement.scrollHeight / 10)", share)
            assert page.locator(".bar .choice, #send").evaluate_all(COVERED) == [], share
        assert bar.bounding_box()["height"] <= size[1] / 3
        bar.locator(".choice").first.click()
        for _ in range(45):
            page.keyboard.press("Tab")
            assert page.locator(":focus, .choice:has(:focus)").evaluate_all(COVERED) == []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert (seat.faults_of_access(), seat.overhang()) == ([], 0)
        page.set_viewport_size({"width": size[0], "height": 400})
        assert bar.evaluate("bar => getComputedStyle(bar).position") == "static"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("place", [".said.long", ".formula", "pre"])
def test_boxes_scroll_by_keys_and_guidelines_open_beside_without_a_script(tmp_path, open_seat, place):
    settings = {"text": "markdown", "guidelines": "# Be kind", "scale": tuple("abcde")}
    with office(tmp_path, "pair", tasks=0, **settings) as desk:
        seat = at_long_task(desk, open_seat, (1280, 800), java_script_enabled=False)
        page, box = seat.page, seat.page.locator(place).first
        box.focus()
        page.keyboard.press("End" if place == ".said.long" else "ArrowRight")
        page.wait_for_function("box => box.scrollTop + box.scrollLeft > 0", arg=box.element_handle())
        # More degrees than a phone has room for.
        assert "sticky" not in page.locator(".bar").get_attribute("class")
        page.locator("#guide summary").click()
        guide, form = page.locator("#guide").bounding_box(), page.locator("#task").bounding_box()
        assert guide["x"] > form["x"] + form["width"]


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "de", "ar"])
def test_the_table_of_people_has_a_line_each_and_cuts_nothing(tmp_path, open_seat, language):
    managed, card = Managed(tmp_path / "labels.db"), replace(a_card(), standing="watch", labels=12_345)
    keep_report(managed.store, quality_to_dict(a_report(managed, judges=("j",), annotators=(card,))))
    with closing(managed.store), serve_in_background(managed.store) as server:
        owner = managed.store.write(issue_token, "p", "owner", name="Olga").pseudonym
        seat = open_seat(server.url, locale=language).sign_in(managed.store, owner)
        seat.go("/manage/quality")
        table = seat.page.locator(".cards")
        assert table.locator("tbody tr").first.bounding_box()["height"] < 50
        assert table.evaluate("table => table.parentElement.scrollWidth <= table.parentElement.clientWidth")
