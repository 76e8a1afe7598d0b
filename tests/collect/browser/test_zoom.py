"""Pictures in a real browser: every width, both schemes, three languages, in large, by keyboard."""

import pytest

from plaudit.collect.people import issue_token
from plaudit.collect.progress import project_tasks
from tests.collect.browser.seats import WIDTHS
from tests.collect.browser.tasks import office
from tests.collect.test_intake import written
from tests.collect.test_pictured_tasks import about, add, answers, draw

# Before it is there: what a picture takes of the page follows from its own attributes.
_SETTLED = "image => Math.abs(image.height - image.width * image.naturalHeight / image.naturalWidth) <= 1"


@pytest.mark.slow
def test_tasks_with_pictures_fit_every_width_and_are_answered_by_keys(tmp_path, open_seat):
    draw(tmp_path / "tall.png", "red", (300, 900))
    draw(tmp_path / "wide.png", "navy", (1600, 500))
    with office(tmp_path, "pair", tasks=0) as place:
        add(place.desk, written(tmp_path, [about("tall.png"), answers("tall.png", "wide.png")]))
        person, owner = place.person(), place.store.write(issue_token, "p", "owner", name="O").pseudonym
        ids = [task["id"] for task in place.store.read(project_tasks, "p")]
        pages = ["/manage/tasks", *(f"/manage/tasks/{name}" for name in ids)]
        for language in ("en", "de", "ar"):
            seat = open_seat(place.url, locale=language).sign_in(place.store, person)
            other = open_seat(place.url, locale=language).sign_in(place.store, owner)
            for window, path in ((seat, "/label"), *((other, path) for path in pages)):
                for scheme in ("light", "dark"):
                    window.page.emulate_media(color_scheme=scheme)
                    for width in WIDTHS.values():
                        window.page.set_viewport_size({"width": width, "height": 900})
                        window.go(path)
                        assert window.overhang() == 0, (path, language, scheme, width)
                    assert window.faults_of_access() == [], (path, language, scheme)
        for _ in ids:
            seat.go("/label")
            page, small = seat.page, seat.page.locator("a.picture img")
            page.wait_for_load_state("networkidle")
            assert all(image.evaluate(_SETTLED) for image in small.all())
            page.keyboard.press("z")
            large = page.locator("#zoom img")
            assert large.get_attribute("alt") == small.first.get_attribute("alt")
            assert seat.faults_of_access() == []
            page.keyboard.press("ArrowRight")
            assert large.evaluate("image => image.src") == small.last.evaluate("image => image.src")
            page.keyboard.press("z")
            assert page.locator("#zoom.full").count() == 1
            page.keyboard.press("Escape")
            page.keyboard.press("2")
            with page.expect_navigation(url="**/label?after=*"):
                page.keyboard.press("Enter")
        assert [label["strength"] for label in place.labels()] == [-2, -2]
