"""A browser without scripts: it reads the forms of a page and sends them as browsers do."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from starlette.testclient import TestClient

from plaudit.collect.app.pages import Site
from plaudit.collect.app.server import make_app
from plaudit.collect.people import join_project, make_invite
from plaudit.collect.sessions import open_session
from plaudit.collect.store import LabelStore
from tests.collect.desks import Desk, MakeDesk

HOST = "testserver"
SITE = Site(hosts=(HOST,), port=80)


@dataclass
class Button:
    text: str = ""
    name: str = ""
    value: str = ""
    to: str | None = None


@dataclass
class HtmlForm:
    action: str
    name: str = ""
    method: str = "GET"
    fields: list[tuple[str, str]] = field(default_factory=list)
    choices: dict[str, list[str]] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    buttons: list[Button] = field(default_factory=list)

    def value(self, name: str) -> str | None:
        return next((value for known, value in self.fields if known == name), None)

    @property
    def actions(self) -> set[str]:
        """Where it may be sent."""
        return {self.action, *(button.to for button in self.buttons if button.to is not None)}

    @property
    def names(self) -> set[str]:
        """Of all its fields and buttons, filled in or not."""
        return {*self.texts, *self.choices, *(button.name for button in self.buttons)} - {""}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms, self.words, self.title = list[HtmlForm](), list[str](), ""
        self._form: HtmlForm | None = None
        self._text: str | None = None
        self._inside, self._select = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            method = given.get("method", "get").upper()
            self._form = HtmlForm(action=given.get("action", ""), name=given.get("id", ""), method=method)
            self.forms.append(self._form)
        elif tag == "br" or self._form is None:
            self._inside = tag
        else:
            self._field(tag, given)
        if tag in ("button", "textarea", "option", "title"):
            self._text, self._inside = "", tag

    def _field(self, tag: str, given: dict[str, str]) -> None:
        assert self._form is not None
        name, value = given.get("name", ""), given.get("value", "")
        if tag == "input":
            self._input(self._form, given)
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select:
            options = self._form.choices.setdefault(self._select, [])
            options.append(value)
            if "selected" in given or len(options) == 1:
                self._form.fields = [known for known in self._form.fields if known[0] != self._select]
                self._form.fields.append((self._select, value))
        elif tag == "textarea":
            self._form.texts.add(name)
            self._form.fields.append((name, ""))
        elif tag == "button":
            self._form.buttons.append(Button(name=name, value=value, to=given.get("formaction")))

    @staticmethod
    def _input(form: HtmlForm, given: dict[str, str]) -> None:
        name, kind = given.get("name", ""), given.get("type", "text")
        value = given.get("value", "on" if kind == "checkbox" else "")
        is_choice = kind in ("radio", "checkbox")
        if is_choice:
            form.choices.setdefault(name, []).append(value)
        else:
            form.texts.add(name)
        if name and ("checked" in given if is_choice else kind not in ("submit", "file", "image")):
            form.fields.append((name, value))

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text += data
        self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "select":
            self._select = ""
        if self._text is None or tag != self._inside:
            return
        if tag == "title":
            self.title = self._text
        elif tag == "button" and self._form is not None:
            self._form.buttons[-1].text = " ".join(self._text.split())
        elif tag == "textarea" and self._form is not None:
            # A browser drops the line break right behind the tag.
            self._form.fields[-1] = self._form.fields[-1][0], self._text.removeprefix("\n")
        self._text = None


def _read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    return reader


def forms_of(page: str) -> list[HtmlForm]:
    return _read(page).forms


class HtmlPage:
    def __init__(self, response: Any) -> None:
        self.status, self.html, self.path = response.status_code, response.text, response.url.path
        self.address = self.path + (f"?{response.url.query.decode()}" if response.url.query else "")
        self.headers, self.bytes = response.headers, len(response.content)
        reader = _read(self.html)
        self.forms, self.title = reader.forms, reader.title
        self.words = re.sub(r"\s+", " ", " ".join(reader.words))

    def form(self, name: str = "task") -> HtmlForm:
        """The form of an id, or the one that sends to an address."""
        return next(form for form in self.forms if name in (form.name, form.action))


class Browser:
    """Somebody's browser, which keeps cookies and follows where a form leads."""

    def __init__(self, store: LabelStore, secret: str | None = None, language: str = "en") -> None:
        cookies = {} if secret is None else {SITE.cookie: secret}
        self.client = TestClient(make_app(store, SITE), base_url=f"http://{HOST}", cookies=cookies)
        self.language, self.pseudonym = language, ""

    def get(self, path: str) -> HtmlPage:
        return HtmlPage(self.client.get(path, headers={"Accept-Language": self.language}))

    def send(self, form: HtmlForm, button: str | None = None, **values: Any) -> HtmlPage:
        """Fill in and press a button; underscores of names stand for hyphens where there is no such field."""
        pressed = form.buttons[0] if button is None else next(b for b in form.buttons if b.text == button)
        fields = [*form.fields]
        for word, given in values.items():
            name = word if word in form.texts or word in form.choices else word.replace("_", "-")
            assert name in form.texts or name in form.choices, (name, sorted(form.texts), [*form.choices])
            fields = [known for known in fields if known[0] != name]
            for value in given if isinstance(given, list) else [given]:
                assert name in form.texts or value in form.choices[name], (name, value)
                fields.append((name, value))
        if pressed.name:
            fields.append((pressed.name, pressed.value))
        return self.post(pressed.to or form.action, fields)

    def post(self, to: str, fields: list[tuple[str, str]]) -> HtmlPage:
        """Send fields as they are, line ends as browsers write them."""
        sent = dict[str, list[str]]()
        for name, value in fields:
            sent.setdefault(name, []).append(value.replace("\n", "\r\n"))
        headers = {"Sec-Fetch-Site": "same-origin", "Accept-Language": self.language}
        return HtmlPage(self.client.post(to, data=sent, headers=headers))


def signed_in(store: LabelStore, name: str = "Ada", role: str = "annotator", language: str = "en") -> Browser:
    """The browser of somebody who has just joined."""
    project = store.projects()[0]
    joined = join_project(
        store, store.write(make_invite, project, role=role, actor="o1"), name, password="a long way to go"
    )
    browser = Browser(store, store.write(open_session, project, joined.pseudonym).secret, language)
    browser.pseudonym = joined.pseudonym
    return browser


ANSWERS = [{"text": f"Answer number {n}."} for n in range(4)]
TASKS: dict[str, dict[str, Any]] = {
    "pair": {"prompt": "Why?", "candidates": ANSWERS[:2]},
    "rank": {"prompt": "Why?", "candidates": ANSWERS},
    "rate": {"prompt": "Why?", "candidates": ANSWERS[:2]},
    "write": {"prompt": "Why?", "draft": "\nBecause of\nthis."},
    "steps": {"prompt": "1 + 1 + 1?", "steps": ["1 + 1 = 2", "2 + 1 = 3"]},
    "talk": {"prompt": ""},
    "attack": {"prompt": "Be rude."},
}


def desk_of(make_desk: MakeDesk, kind: str, count: int = 1, **settings: Any) -> Desk:
    desk = make_desk(tasks=0, ask=kind, **settings)
    bodies = [{**TASKS[kind], "metadata": {"n": n}} for n in range(count)]
    if TASKS[kind]["prompt"]:
        bodies = [{**body, "prompt": f"{body['prompt']} ({n})"} for n, body in enumerate(bodies)]
    desk.add(bodies)
    return desk


def given_labels(desk: Desk) -> list[dict[str, Any]]:
    return [event.body["label"] for event in desk.store.events() if event.kind == "answered" and event.body]
