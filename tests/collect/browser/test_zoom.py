"""Pictures in a real browser: every width, both schemes, three languages, by keyboard, without a script."""

from pathlib import Path

import pytest
from playwright.sync_api import Route

from plaudit.collect.people import issue_token
from plaudit.collect.progress import project_tasks
from tests.collect.browser.seats import WIDTHS, OpenSeat
from tests.collect.browser.tasks import Office, office
from tests.collect.test_pictured_tasks import SAID, add, answers, draw, part, written


def fill(place: Office, folder: Path) -> None:
    draw(folder / "in/tall.png", "red", (300, 900))
    draw(folder / "in/wide.png", "navy", (1600, 500))
    parts = [part("in/tall.png", alt="A red card"), {"type": "text", "text": "Which card is it?"}]
    about = {"prompt": [{"role": "user", "content": parts}], "candidates": SAID}
    add(place.desk, written(folder, [about, answers("in/tall.png", "in/wide.png")]))


@pytest.mark.slow
def test_tasks_with_pictures_fit_every_width_and_are_answered_by_keys(tmp_path, open_seat: OpenSeat):
    with office(tmp_path, "pair", tasks=0) as place:
        fill(place, tmp_path)
        person, owner = place.person(), place.store.write(issue_token, "p", "owner", name="O").pseudonym
        ids = [task["id"] for task in place.store.read(project_tasks, "p")]
        for language in ("en", "de", "ar"):
            seat, manager = (
                open_seat(place.url, locale=language).sign_in(place.store, who) for who in (person, owner)
            )
            for one, path in (
                (seat, "/label"),
                *((manager, path) for path in ("/manage/tasks", *(f"/manage/tasks/{name}" for name in ids))),
            ):
                for scheme in ("light", "dark"):
                    one.page.emulate_media(color_scheme=scheme)
                    for width in WIDTHS.values():
                        one.page.set_viewport_size({"width": width, "height": 900})
                        one.go(path)
                        assert one.overhang() == 0, (path, language, scheme, width)
                    assert one.faults_of_access() == [], (path, language, scheme)
        for _ in ids:
            seat.go("/label")
            page, count = seat.page, seat.page.locator("a.picture").count()
            page.keyboard.press("z")
            large = page.locator("#zoom img")
            assert large.get_attribute("alt") == page.locator("a.picture img").first.get_attribute("alt")
            assert seat.faults_of_access() == []
            page.keyboard.press("ArrowLeft")
            last = page.locator("a.picture").nth(count - 1).get_attribute("href")
            assert (large.get_attribute("src") or "").endswith(last or "nothing")
            page.keyboard.press("z")
            assert page.locator("#zoom.full").count() == 1
            page.keyboard.press("Escape")
            page.keyboard.press("2")
            with page.expect_navigation(url="**/label?after=*"):
                page.keyboard.press("Enter")
        assert [label["strength"] for label in place.labels()] == [-2, -2]


@pytest.mark.slow
def test_nothing_moves_when_pictures_come_and_they_open_without_a_script(tmp_path, open_seat: OpenSeat):
    with office(tmp_path, "pair", tasks=0) as place:
        fill(place, tmp_path)
        seat = open_seat(place.url, java_script_enabled=False, width=390).sign_in(place.store, place.person())
        pending = list[Route]()
        seat.page.route("**/pictures/*", lambda route: pending.append(route))
        seat.go("/label")
        before = [image.bounding_box() or {} for image in seat.page.locator("a.picture img").all()]
        seat.page.unroute("**/pictures/*")
        with seat.page.expect_response("**/pictures/*"):
            for route in pending:
                route.continue_()
        seat.page.wait_for_load_state("networkidle")
        after = [image.bounding_box() or {} for image in seat.page.locator("a.picture img").all()]
        # But for what is lost where a size is rounded to whole pixels.
        assert after == [pytest.approx(box, abs=1.01) for box in before] != []
        seat.page.locator("a.picture").first.click()
        assert "/pictures/" in seat.page.url
