"""A task of each kind, what is to be said of it, and three ways to say it on the page."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from plaudit.collect.answers import values_of
from plaudit.collect.app.server import serve_in_background
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.people import issue_token
from tests.collect.desks import Desk
from tests.collect.test_conversation import scripted
from tests.rewards.server import serving

CONVERSATIONS = ("talk", "attack")
WITH_KEYS = "html[data-keys=ready]"
SETTINGS: Mapping[str, dict[str, Any]] = {
    "rate": {"aspects": ("helpful", "kind"), "anchors": ((), ("rude", "neutral", "kind")), "points": 5}
}
"""What the project of a kind says beside its kind."""
LABELS: Mapping[str, dict[str, Any]] = {
    "pair": {"strength": -2, "both_bad": True, "flags": [["harmful"], []], "why": "It is right."},
    "rank": {"groups": [[2], [0, 1]], "why": "The third says why."},
    "rate": {"points": {"helpful": [4, 2], "kind": [3, None]}, "thumbs": [True, None]},
    "write": {"answer": "It is four.\nTwo and two."},
    "steps": {"labels": ["right", "wrong"], "ended": "error", "why": "Three is odd."},
    "talk": {"why": "The second knew more."},
    "attack": {"success": 2, "category": "poison", "worked": "A story."},
}
"""What is said, in the order shown."""


def body(kind: str, number: int = 0) -> dict[str, Any]:
    answers = {"pair": 2, "rank": 3, "rate": 2}.get(kind, 0)
    texts = [f"It is {2 * number + n}.\n\nThis is answer {n}." for n in range(answers)]
    steps = {"steps": ["Two is even.", "Three is even too.", "So is five."]} if kind == "steps" else {}
    draft = {"draft": "Is it four?"} if kind == "write" else {}
    candidates = {"candidates": [{"text": text, "ended": True} for text in texts]} if texts else {}
    return {"kind": kind, "prompt": f"What is {number} + {number}?", **candidates, **steps, **draft}


class Office:
    """A project of one kind that is served, with tasks and people."""

    def __init__(self, desk: Desk, url: str, kind: str) -> None:
        self.desk, self.url, self.kind, self.store = desk, url, kind, desk.store

    def person(self, name: str = "Ada") -> str:
        return self.store.write(issue_token, "p", "annotator", name=name).pseudonym

    def lease(self, person: str) -> Lease:
        found = self.store.write(next_task, "p", person)
        assert isinstance(found, Lease)
        return found

    def labels(self) -> list[dict[str, Any]]:
        return [
            event.body["label"] for event in self.store.events() if event.kind == "answered" and event.body
        ]


@contextmanager
def office(folder: Path, kind: str, *, tasks: int = 2, **settings: Any) -> Iterator[Office]:
    """A project of a kind, with a scripted model where it wants one."""
    with ExitStack() as stack:
        given = {**SETTINGS.get(kind, {}), **settings}
        if kind in CONVERSATIONS:
            model = stack.enter_context(serving(scripted))
            given["talks_to"] = f"{model.url.removesuffix('/score')}/v1#chatty"
        desk = Desk(folder / "labels.db", tasks=0, ask=kind, **given)
        stack.enter_context(closing(desk.store))
        desk.add([body(kind, number) for number in range(tasks)])
        server = stack.enter_context(serve_in_background(desk.store))
        yield Office(desk, server.url, kind)


# By mouse, or by touch: what is on the page is pressed, and texts are typed.


def fill_by_mouse(page: Page, shown: Mapping[str, Any], label: Mapping[str, Any]) -> None:
    for name, values in values_of(shown, label).items():
        for value in values:
            _press(page, name, value)


def _press(page: Page, name: str, value: str) -> None:
    # Without the form's own name before them: they are also looked for within a label, or a folded part.
    field = page.locator(f'[name="{name}"]:not([type=hidden])')
    kind = field.first.evaluate("field => field.type")
    if kind in ("radio", "checkbox"):
        field = page.locator(f'input[name="{name}"][value="{value}"]')
    folded = page.locator("details:not([open])", has=field)
    for _ in range(folded.count()):
        folded.first.locator("summary").first.click()
    if kind in ("radio", "checkbox"):
        page.locator("#task label", has=field).click()
    elif kind == "select-one":
        field.select_option(value)
    else:
        field.fill(value)


def talk_by_mouse(page: Page, kind: str) -> None:
    """Two turns, the second answer better in the first and the first in the second."""
    for message, strength in (("Hello", "2"), ("And then?", "-1")):
        page.locator("#message").fill(message)
        page.locator("#say").click()
        if kind == "talk":
            expect(page.locator("#newest .answer")).to_have_count(2)
            _press(page, "strength", strength)
            page.locator("#choose").click()
        expect(page.locator("#turns .turn.user", has_text=message)).to_have_count(1)
        expect(page.locator("#message")).to_have_value("")


def send_by_mouse(page: Page) -> None:
    page.locator("#send").click()


# By keyboard alone: nothing is touched by anything else.


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the focus is there; a person would too."""
    for _ in range(150):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"the focus never comes to {selector}")


def type_into(page: Page, selector: str, words: str) -> None:
    """Go to a field by Tab, and type; line ends by Enter."""
    tab_to(page, selector)
    page.keyboard.press("Control+A")
    page.keyboard.type(words)


def _send_with_reason(page: Page, words: str) -> None:
    tab_to(page, "details.why summary")
    page.keyboard.press("Enter")
    type_into(page, "textarea[name=why]", words)
    page.keyboard.press("Control+Enter")


def _pair_by_keys(page: Page) -> None:
    page.keyboard.press("2")
    for selector in ("input[name=both_bad]", "details.flags summary", "input[name=flags-0][value=harmful]"):
        tab_to(page, selector)
        page.keyboard.press("Enter" if "summary" in selector else "Space")
    _send_with_reason(page, "It is right.")


def _rank_by_keys(page: Page) -> None:
    for place, number in ((2, "1"), (0, "2"), (1, "2")):
        tab_to(page, f".answer[data-place='{place}']")
        page.keyboard.press(number)
        # The order has changed under the focus: begin again from the top.
        page.evaluate("() => document.activeElement.blur()")
    _send_with_reason(page, "The third says why.")


def _rate_by_keys(page: Page) -> None:
    for name, number in (("points-0-0", "4"), ("points-1-0", "3"), ("points-0-1", "2")):
        tab_to(page, f"input[name={name}]")
        page.keyboard.press(number)
    page.evaluate("() => document.activeElement.blur()")
    tab_to(page, "input[name=thumb-0]")
    # Among options one goes by arrows: nothing is chosen, so back to the first.
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Control+Enter")


def _write_by_keys(page: Page) -> None:
    type_into(page, "textarea[name=answer]", "It is four.\nTwo and two.")
    page.keyboard.press("Control+Enter")


def _steps_by_keys(page: Page) -> None:
    for number in ("1", "3"):
        page.keyboard.press(number)
    _send_with_reason(page, "Three is odd.")


def _await_turn(page: Page, message: str) -> None:
    """The page has the turn and listens again: a key that is pressed before its scripts run does nothing."""
    expect(page.locator(f"{WITH_KEYS} #turns .turn.user", has_text=message)).to_have_count(1)
    expect(page.locator(f"{WITH_KEYS} #message")).to_have_value("")


def _talk_by_keys(page: Page) -> None:
    for message, key in (("Hello", "6"), ("And then?", "3")):
        type_into(page, "#message", message)
        page.keyboard.press("Control+Enter")
        expect(page.locator(f"{WITH_KEYS} #newest .answer")).to_have_count(2)
        page.keyboard.press(key)
        page.keyboard.press("Enter")
        _await_turn(page, message)
    _send_with_reason(page, "The second knew more.")


def _attack_by_keys(page: Page) -> None:
    for message in ("Hello", "And then?"):
        type_into(page, "#message", message)
        page.keyboard.press("Control+Enter")
        _await_turn(page, message)
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("3")
    type_into(page, "input[name=category]", "poison")
    type_into(page, "textarea[name=worked]", "A story.")
    page.keyboard.press("Control+Enter")


ANSWER_BY_KEYS: Mapping[str, Callable[[Page], None]] = {
    "pair": _pair_by_keys,
    "rank": _rank_by_keys,
    "rate": _rate_by_keys,
    "write": _write_by_keys,
    "steps": _steps_by_keys,
    "talk": _talk_by_keys,
    "attack": _attack_by_keys,
}
"""Each kind, answered as in ``LABELS``, by keys alone."""
