from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.collect.browser.seats import CHROMIUM, OpenSeat, Seat


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The distribution's browser, one for the tests of a module."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    # No longer than a module: while the driver runs, this thread has an event loop, and others want none.
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM)
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def open_seat(chromium: Browser) -> Iterator[OpenSeat]:
    """Opens windows of people; a test in which one of them heard something bad fails as it ends."""
    seats = list[Seat]()

    def opened(url: str, **options: object) -> Seat:
        seats.append(Seat(chromium, url, **options))
        return seats[-1]

    yield opened
    try:
        for seat in seats:
            seat.refuse_bad_news()
    finally:
        for seat in seats:
            seat.close()
