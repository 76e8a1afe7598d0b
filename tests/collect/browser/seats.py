"""A person's window on the pages, in a real browser that reports all that no page of plaudit may do."""

import shutil
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Request, Response, Route

from plaudit.collect.sessions import open_session
from plaudit.collect.store import LabelStore

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
"""The browser of the distribution; Playwright brings none."""
WIDTHS = {"small": 320, "phone": 390, "desktop": 1280}
"""Widths in pixels: the narrowest that must do without scrolling sideways, a phone, a desk."""
_REPORTS_OF_THE_POLICY = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`content policy: ${event.violatedDirective} refused ${event.blockedURI} ${event.sample}`));
"""
# A refusal that the person reads as a page (403, 409, 422) is in the console too, as a resource that failed.
_STATUS_OF_A_PAGE = "Failed to load resource: the server responded with a status of 4"


class Seat:
    """One person's window: cookies of its own, and a list of everything bad that it heard of."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        width, height = options.pop("width", WIDTHS["desktop"]), options.pop("height", 900)
        self.url = url.rstrip("/")
        self.origin = urlsplit(url).netloc
        self.bad_news = list[str]()
        self.asked_for = list[str]()
        self._browser = browser
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            # A colour that is still on its way to another has no contrast that could be measured.
            reduced_motion="reduce",
            **options,
        )
        self.context.set_default_timeout(30_000)
        self.context.on("console", self._hear_console)
        self.context.on("dialog", self._hear_dialog)
        self.context.on("weberror", lambda error: self.bad_news.append(f"script failed: {error.error}"))
        self.context.on("request", self._hear_request)
        self.context.on("response", self._hear_response)
        # Nothing leaves this machine, whatever a page asks for.
        self.context.route(lambda address: not self._is_own(address), _abort)
        if options.get("java_script_enabled", True):
            self.context.add_init_script(_REPORTS_OF_THE_POLICY)
        self.page = self.context.new_page()

    def sign_in(self, store: LabelStore, pseudonym: str, project: str = "p") -> "Seat":
        """Hold a session of a person, as if the sign-in page had just been passed."""
        secret = store.write(open_session, project, pseudonym, by="password").secret
        name = f"plaudit-{urlsplit(self.url).port}"
        self.context.add_cookies([{"name": name, "value": secret, "url": self.url, "httpOnly": True}])
        return self

    def go(self, path: str) -> Response:
        """The answer to an address of the app, shown."""
        found = self.page.goto(self.url + path)
        assert found is not None
        return found

    def close(self) -> None:
        self.context.close()

    def refuse_bad_news(self) -> None:
        """Fail where a dialog opened, a request left the origin, or the console was not clean."""
        assert self.bad_news == []

    def forgive(self, *words: str) -> list[str]:
        """Take away the bad news that holds any of these words, for the few tests that cause it."""
        taken = [news for news in self.bad_news if any(word in news for word in words)]
        self.bad_news = [news for news in self.bad_news if news not in taken]
        return taken

    def faults_of_access(self) -> list[str]:
        """What axe-core finds wrong with the page, one line for each place."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{fault['id']} ({fault['impact']}): {node['html'][:160]}"
            for fault in found
            for node in fault["nodes"]
        ]

    def overhang(self) -> int:
        """By how many pixels the page is wider than its window."""
        return self.page.evaluate(
            "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def _is_own(self, address: str) -> bool:
        parts = urlsplit(address)
        return parts.netloc == self.origin or parts.scheme in ("about", "blob")

    def _hear_console(self, message: ConsoleMessage) -> None:
        is_status = message.text.startswith(_STATUS_OF_A_PAGE)
        if message.type in ("error", "warning") and not is_status:
            self.bad_news.append(f"console: {message.type}: {message.text}")

    def _hear_dialog(self, dialog: Dialog) -> None:
        self.bad_news.append(f"dialog: {dialog.type}: {dialog.message}")
        dialog.dismiss()

    def _hear_request(self, request: Request) -> None:
        self.asked_for.append(request.url)
        if not self._is_own(request.url):
            self.bad_news.append(f"request that leaves: {request.url[:200]}")

    def _hear_response(self, response: Response) -> None:
        # Refused pages are for people to read; a script or a style that is refused is a fault of the page.
        is_page = response.request.resource_type in ("document", "fetch")
        if response.status >= (500 if is_page else 400):
            self.bad_news.append(f"status {response.status} of {response.url[:200]}")


def _abort(route: Route) -> None:
    route.abort()


OpenSeat = Callable[..., Seat]
"""Opens windows that are closed, and asked for what they heard, when the test ends."""
