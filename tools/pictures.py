"""Pictures of every page of the labelling app, for the docs: a store of examples, a browser, two widths.

``python -m tools.pictures`` writes them to docs/pictures/labelling. Whoever changes a page looks at them.
"""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any

from PIL import Image, ImageDraw
from playwright.sync_api import Browser, Page, sync_playwright

from plaudit.collect import conversation
from plaudit.collect.adding import add_tasks, set_project
from plaudit.collect.answering import own_history, submit_answer
from plaudit.collect.app.server import serve_in_background
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.kinds import KINDS
from plaudit.collect.own import read_guidelines
from plaudit.collect.people import issue_token, make_invite, set_standing
from plaudit.collect.pictures import stored_bodies
from plaudit.collect.progress import project_tasks
from plaudit.collect.project import Project, guidelines_version
from plaudit.collect.sessions import open_session
from plaudit.collect.store import LabelStore, open_store
from plaudit.files.pictures import data_url

PICTURED = "pictures"
"""What a pair of pictures is called here, beside the kinds."""
FOLDER = Path("docs/pictures/labelling")
"""Where they go."""
WIDTHS: Mapping[str, tuple[int, int]] = {"desktop": (1200, 800), "phone": (390, 844)}
"""Width and height of a window, by name."""
QUALITY = 50
"""Of WebP, from 0 to 100: letters are sharp, and a page has some twenty kilobytes."""
MOST_HIGH = 1300
"""How much of a long page is shown, in pixels."""
_GUIDELINES = """# What to look for

Prefer the answer that **helps more**.

- Right before long: a short answer that is right beats a long one that is not.
- Say so when both are bad.
- Skip what you cannot judge.
"""
_QUESTIONS: Sequence[tuple[str, str, str]] = (
    (
        "My bread does not rise. What could be wrong?",
        "Most often the yeast is old, or the water was too hot and killed it. Stir a spoon of yeast and some "
        "sugar into lukewarm water: after ten minutes it should foam.",
        "There are many possible reasons. Baking is an art that takes years to learn. You could buy bread.",
    ),
    (
        "Explain to a child why the sky is blue.",
        "Sunlight is a mix of all colours. On its way through the air the blue part is sent everywhere, "
        "and so blue reaches your eyes from all sides.",
        "The sky is blue because it mirrors the sea, which is blue.",
    ),
    (
        "Write a short note that I cannot come to the meeting on Friday.",
        "Dear all, I am sorry that I cannot join the meeting on Friday. I will read the minutes. Best wishes",
        "I can't come Friday.",
    ),
    ("How many days has a leap year?", "It has 366 days: February has 29.", "365 days, I think."),
)
_MORNING = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)


class _Model(BaseHTTPRequestHandler):
    """What people talk to: it has two things to say, one after the other."""

    def do_POST(self) -> None:
        """Answer a message, as servers of models do."""
        length = int(self.headers["Content-Length"])
        seed = json.loads(self.rfile.read(length)).get("seed") or 0
        message = {"role": "assistant", "content": _QUESTIONS[0][1 + seed % 2]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        reply = {"object": "chat.completion", "choices": [choice]}
        content = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of each request."""


def task_bodies(kind: str) -> list[dict[str, Any]]:
    """Tasks of a kind, with the questions above."""
    found = list[dict[str, Any]]()
    if kind == PICTURED:
        drawn = [{"picture": owl(*how)} for how in ((90, 60), (50, 110))]
        return [{"prompt": "A large owl on a branch, the moon behind it", "candidates": drawn}]
    for question, good, poor in _QUESTIONS:
        texts = {"pair": (good, poor), "rank": (good, poor, f"{poor} {good}"), "rate": (good, poor)}.get(
            kind, ()
        )
        body: dict[str, Any] = {"kind": kind, "prompt": question}
        if texts:
            body["candidates"] = [{"text": text, "ended": True} for text in texts]
        if kind == "write":
            body["draft"] = poor
        if kind == "steps":
            body |= {"prompt": "A train takes 2 hours for 160 km. How far does it go in 3 hours?"}
            body["steps"] = ["It goes 160 / 2 = 80 km in an hour.", "So in 3 hours 80 + 3 = 83 km.", "83 km."]
        found.append(body)
    return found[:1] if kind == "steps" else found


def owl(size: int, blue: int) -> str:
    """An owl by night, as large as this on its picture."""
    image = Image.new("RGB", (640, 480), (10, 20, blue))
    pen = ImageDraw.Draw(image)
    pen.ellipse((480, 50, 570, 140), fill=(245, 240, 200))
    pen.rectangle((0, 400, 640, 420), fill=(80, 55, 40))
    pen.ellipse((320 - size, 400 - 3 * size, 320 + size, 400), fill=(130, 95, 60))
    for middle in (320 - size // 2, 320 + size // 2):
        pen.ellipse((middle - size // 3, 420 - 3 * size, middle + size // 3, 420 - 2 * size), fill="white")
        pen.ellipse((middle - 9, 408 - 5 * size // 2, middle + 9, 426 - 5 * size // 2), fill="black")
    content = BytesIO()
    image.save(content, "PNG")
    return data_url(content.getvalue())


def kind_settings(stack: ExitStack, kind: str) -> dict[str, Any]:
    """What the project of a kind says beside its kind; a model to talk to lives as long as the stack."""
    if kind == "rate":
        return {"aspects": ("helpful", "polite"), "anchors": ((), ("rude", "neutral", "polite"))}
    if kind in ("talk", "attack"):
        model = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), _Model))
        Thread(target=model.serve_forever, daemon=True).start()
        stack.callback(model.shutdown)
        return {"talks_to": f"http://127.0.0.1:{model.server_port}/v1#chatty"}
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """A store at work, with one person of each role.

    Example: ``Shop(store=store, url="http://127.0.0.1:8080", people={"annotator": "a1"})``
    """

    store: LabelStore
    """The store."""
    url: str
    """Where it is served."""
    people: Mapping[str, str] = field(default_factory=dict[str, str])
    """Pseudonyms by role."""


def opened_shop(stack: ExitStack, folder: Path, kind: str) -> Shop:
    """A project of a kind with tasks, some of them answered by people who disagree, until the stack ends."""
    # A clock that stands: two runs make the same pictures.
    opened = open_store(folder / f"{kind}.db", create=True, clock=lambda: _MORNING)
    store = stack.enter_context(closing(opened))
    settings = kind_settings(stack, kind)
    ask = "pair" if kind == PICTURED else kind
    project = Project(name="helpful", ask=ask, overlap=2, most=2, guidelines=_GUIDELINES, **settings)
    store.write(set_project, project, actor="owner")
    bodies = stored_bodies(store, "helpful", task_bodies(kind))
    store.write(add_tasks, "helpful", bodies, actor="owner")
    roles = {"annotator": "Ada", "reviewer": "Grace", "owner": "Olga", "second": "Ben"}
    people = {
        role: store.write(
            issue_token, "helpful", "annotator" if role == "second" else role, name=name
        ).pseudonym
        for role, name in roles.items()
    }
    for person in people.values():
        store.write(read_guidelines, "helpful", person, guidelines_version(project))
    if kind == "pair":
        _disagree(store, people)
    if kind in ("talk", "attack"):
        lease = store.write(next_task, "helpful", people["annotator"])
        assert isinstance(lease, Lease)
        names = ("helpful", people["annotator"], lease.assignment)
        conversation.say(store, *names, key="k", message="My bread does not rise. Why?")
    server = stack.enter_context(serve_in_background(store))
    return Shop(store=store, url=server.url, people=people)


def _disagree(store: LabelStore, people: Mapping[str, str]) -> None:
    """Two people answer the same tasks, each for the answer that is shown first."""
    for person, many in ((people["annotator"], 2), (people["second"], 3)):
        for _ in range(many):
            lease = store.write(next_task, "helpful", person)
            assert isinstance(lease, Lease)
            label = {"strength": -2, "why": "It says what to do."}
            store.write(
                submit_answer,
                "helpful",
                person,
                lease.assignment,
                f"k{lease.assignment}",
                label,
                seconds=41.0,
            )
    store.write(
        set_standing, "helpful", people["second"], "watch", reason="always the first one", actor="owner"
    )


def pages_of(shop: Shop) -> Iterator[tuple[str, str, str]]:
    """The name of each picture, who looks, and at which address."""
    answered = shop.store.read(own_history, "helpful", shop.people["annotator"], 1)[0]["assignment"]
    task = shop.store.read(project_tasks, "helpful", None, 9, 0)[0]["id"]
    for name in ("guidelines", "history", "preferences", "keys", "account"):
        yield name, "annotator", f"/{name}"
    yield "change-an-answer", "annotator", f"/label/edit/{answered}"
    for name in (
        "tasks",
        "queue",
        "quality",
        "gaps",
        "gold",
        "questions",
        "people",
        "invites",
        "settings",
        "add",
        "export",
        "log",
    ):
        yield f"manage-{name}", "owner", f"/manage/{name}"
    yield "manage-overview", "owner", "/manage"
    yield "manage-task", "owner", f"/manage/tasks/{task}"
    yield "manage-person", "owner", f"/manage/people/{shop.people['second']}"
    yield "sign-in", "", "/enter"
    yield "join", "", f"/join/{shop.store.write(make_invite, 'helpful', actor='owner')}"


def window(browser: Browser, shop: Shop, role: str) -> Page:
    """A page of somebody who is signed in, or of nobody."""
    context = browser.new_context(locale="en")
    if role:
        secret = shop.store.write(open_session, "helpful", shop.people[role], by="password").secret
        name = f"plaudit-{shop.url.rpartition(':')[2]}"
        context.add_cookies([{"name": name, "value": secret, "url": shop.url}])
    return context.new_page()


def _wait_for_report(page: Page) -> None:
    """Look again at the page of quality until its report has been made, in another process."""
    while page.url.endswith("/manage/quality") and page.get_by_text("Look again").count():
        page.wait_for_timeout(500)
        page.reload()


def take(page: Page, address: str, name: str, folder: Path) -> None:
    """A picture at each width, as high as the page is, up to a limit."""
    for size, (width, height) in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": height})
        page.goto(address)
        _wait_for_report(page)
        high = page.evaluate("() => document.documentElement.scrollHeight")
        high = min(max(high, height // 2), MOST_HIGH)
        # As high as the picture: what sticks to the window's lower edge stands at the end of the page.
        page.set_viewport_size({"width": width, "height": high})
        # Playwright itself writes no WebP, which is a third as large as PNG.
        session = page.context.new_cdp_session(page)
        clip = {"x": 0, "y": 0, "width": width, "height": high, "scale": 1}
        wanted = {"format": "webp", "quality": QUALITY, "clip": clip, "captureBeyondViewport": True}
        found = session.send("Page.captureScreenshot", wanted)
        (folder / f"{name}-{size}.webp").write_bytes(base64.b64decode(found["data"]))


def write_pictures(folder: Path) -> list[Path]:
    """Make all pictures anew; gives their files."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("pictures need Chromium: apt-get install chromium")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.webp"):
        old.unlink()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=program)
        stack.callback(browser.close)
        for kind in (*KINDS, PICTURED):
            shop = opened_shop(stack, home, kind)
            windows = {role: window(browser, shop, role) for role in ("annotator", "owner", "")}
            take(windows["annotator"], f"{shop.url}/label", f"label-{kind}", folder)
            for name, role, path in pages_of(shop) if kind == "pair" else ():
                take(windows[role], shop.url + path, name, folder)
    return sorted(folder.glob("*.webp"))


def main() -> None:
    """Write them, and say how large they are."""
    files = write_pictures(FOLDER)
    size = sum(file.stat().st_size for file in files)
    print(f"{len(files)} pictures in {FOLDER}, {size / 1e6:.2f} MB in all")


if __name__ == "__main__":
    main()
