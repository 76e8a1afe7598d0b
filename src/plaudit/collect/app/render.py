"""The one way to a page of the app: a template, the words of a language, and texts that nobody may trust.

Everything that a template prints is escaped. What people and models wrote is shown by `text`.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import (
    BaseLoader,
    ChoiceLoader,
    Environment,
    PackageLoader,
    StrictUndefined,
    TemplateNotFound,
    pass_context,
)
from jinja2.runtime import Context
from markupsafe import Markup, escape

from plaudit.collect.app.texts import html_of, visible
from plaudit.collect.kinds import KINDS
from plaudit.collect.kinds.kind import LETTERS, text_of
from plaudit.collect.pictures import parse_name
from plaudit.data.records import Message, Part, pictures, plain_text, turns_of

LANGUAGES: Mapping[str, str] = {"en": "English", "de": "Deutsch", "ar": "العربية"}
MEDIA_TYPES: Mapping[str, str] = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_WEIGHT = re.compile(r"[01](\.[0-9]{0,3})?")
_BOX, _THUMB = 640, 48
_ROLES = ("system", "user", "assistant", "tool")


def render(template: str, *, language: str, values: Mapping[str, Any]) -> str:
    """The HTML of a page; a name that the template uses and ``values`` lacks is an error."""
    direction = "rtl" if language == "ar" else "ltr"
    shared = {"lang": language, "direction": direction, "w": speaker(language)}
    return environment().get_template(template).render({**shared, **values})


@cache
def environment() -> Environment:
    """The templates of the app, and what they may call."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader("plaudit.collect.app"), _OfKinds()]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "text": _text,
        "thumb": _thumb,
        "static": static,
        "hidden": _hidden,
        "own": _own,
        "languages": LANGUAGES,
        "kinds": KINDS,
        "letters": LETTERS,
    }
    return made


class _OfKinds(BaseLoader):
    def get_source(self, environment: Environment, template: str) -> tuple[str, None, None]:
        kind = KINDS.get(template.removeprefix("kinds/").removesuffix(".html"))
        if kind is None or kind.template is None:
            raise TemplateNotFound(template)
        return kind.template.read_text("utf-8"), None, None

    def list_templates(self) -> list[str]:
        return [f"kinds/{kind.name}.html" for kind in KINDS.values() if kind.template is not None]


def _visible(value: Any) -> Any:
    """What is printed of a value: markup as it is, anything else with its invisible letters written out."""
    assert value is not None, "a template decides what stands where there is nothing"
    return value if hasattr(value, "__html__") else visible(str(value))


@cache
def words(language: str) -> Mapping[str, str]:
    result = dict[str, str]()
    folder = resources.files("plaudit.collect.app").joinpath("words", language)
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        read = json.loads(file.read_text("utf-8"))
        assert not result.keys() & read.keys(), f"{file}: keys of another file: {result.keys() & read.keys()}"
        result |= read
    return result


@cache
def speaker(language: str) -> Callable[..., Markup]:
    """A function from a key to its words; places in braces are filled with escaped texts.

    With a number ``n`` the form of the word that the language has for it is taken.

    >>> str(speaker("en")("answers", n=1)), str(speaker("en")("answers", n=3))
    ('1 answer', '3 answers')
    """
    known = words(language)

    def speak(key: str, **places: object) -> Markup:
        if key not in known and "n" in places:
            form = f"{key}.{plural(language, int(str(places['n'])))}"
            key = form if form in known else f"{key}.other"
        return escape(known[key]).format(
            **{name: _in_place(language, value) for name, value in places.items()}
        )

    return speak


def _in_place(language: str, value: object) -> Markup:
    """What stands in a place of a sentence: markup as it is, all else escaped."""
    text = value if isinstance(value, Markup) else escape(visible(str(value)))
    # Set apart, or a Latin word would take the Arabic sentence's colon to its other side.
    return Markup("\u2068{}\u2069").format(text) if language == "ar" else text


def best_language(accepted: str) -> str:
    """The language that a browser likes best of those that there are.

    >>> best_language("fr;q=0.9, de-AT;q=0.8, en;q=0.5"), best_language("")
    ('de', 'en')
    """
    liked = list[tuple[float, str]]()
    for entry in accepted.split(",")[:20]:
        name, _, weight = entry.partition(";")
        code = name.strip().lower().partition("-")[0]
        digits = weight.strip().removeprefix("q=") or "1"
        # Whatever is no number is liked least: a header is a stranger's.
        liked.append((float(digits) if _WEIGHT.fullmatch(digits) else 0.0, code))
    # The sort is stable: of the same weight the first is meant.
    supported = [
        code for weight, code in sorted(liked, key=lambda pair: -pair[0]) if code in LANGUAGES and weight
    ]
    return supported[0] if supported else "en"


def plural(language: str, n: int) -> str:
    """Which form of a word goes with a number (the categories of CLDR).

    >>> [plural("ar", n) for n in (0, 1, 2, 3, 11, 100)]
    ['zero', 'one', 'two', 'few', 'many', 'other']
    """
    if language != "ar" or n < 3:
        return ("zero", "one", "two")[n] if language == "ar" else ("one" if n == 1 else "other")
    if 3 <= n % 100 <= 10:
        return "few"
    return "many" if n % 100 >= 11 else "other"


@pass_context
def _own(context: Context, word: str) -> Markup:
    return own_word(context["lang"], word)


def own_word(language: str, word: str) -> Markup:
    """A word of a project's settings: one of plaudit's defaults in the reader's language, else as it is."""
    return escape(visible(words(language).get(f"default: {word}", word)))


@pass_context
def _text(context: Context, value: Any, markdown: bool = False, letter: str = "") -> Markup:
    """A prompt, or the answer of a letter: a text, or the turns of a conversation with who speaks in each."""
    if isinstance(value, str):
        return html_of(value, markdown)
    speak, turns, text = context["w"], list[Markup](), turns_of(text_of(value))
    numbers = iter(range(1, len(pictures(text)) + 1))

    def drawn(part: Part) -> Markup:
        number = next(numbers)
        words = speak("picture-answer", letter=letter) if letter else speak("picture", n=number)
        words = f"{words} {number}" if letter and len(pictures(text)) > 1 else words
        return _picture(part, words, speak, is_answer=bool(letter))

    for message in text:
        role = message.role if message.role in _ROLES else "tool"
        display = _message_html(message, markdown, drawn)
        # An answer that is a picture needs nobody who says it.
        if letter and len(text) == 1 and not plain_text(text):
            return display
        turns.append(
            Markup('<li class="turn {}"><p class="role">{}</p>{}</li>').format(
                role, speak(f"role-{role}"), display
            )
        )
    return Markup('<ol class="turns">{}</ol>').format(Markup("").join(turns))


def _message_html(message: Message, markdown: bool, drawn: Callable[[Part], Markup]) -> Markup:
    if isinstance(message.content, str) or not pictures((message,)):
        return html_of(plain_text((message,)), markdown)
    pieces = [
        drawn(part) if part.kind == "image" else html_of(part.text or "", markdown)
        for part in message.content
    ]
    calls = plain_text((replace(message, content=""),))
    return Markup("").join([*pieces, *([html_of(calls, markdown)] if calls else [])])


def _picture(part: Part, words: str, speak: Callable[..., Markup], *, is_answer: bool) -> Markup:
    """A picture that leads to itself in large; its size stands in the page, so that nothing moves later."""
    named = parse_name(part.source or "")
    if named is None:
        return Markup('<p class="quiet">{}</p>').format(speak("picture-missing"))
    # Answers are as large as each other: the larger of two would look like the better one.
    scale = _BOX / max(named[1:]) if is_answer else min(1, _BOX / max(named[1:]))
    return Markup('<a class="picture" href="/pictures/{}">{}</a>').format(
        named[0], _image(named, visible(part.alt) if part.alt else words, scale)
    )


def _image(named: tuple[str, int, int], alt: str, scale: float) -> Markup:
    size = (max(1, round(side * scale)) for side in named[1:])
    tag = '<img src="/pictures/{}" alt="{}" width="{}" height="{}" loading="lazy">'
    return Markup(tag).format(named[0], alt, *size)


def _thumb(source: str) -> Markup:
    """A picture beside words that say what it belongs to."""
    named = parse_name(source)
    return Markup() if named is None else _image(named, "", _THUMB / named[2])


@pass_context
def _hidden(context: Context) -> Markup:
    """The field by which a form shows that it is of this session."""
    return Markup('<input type="hidden" name="form_token" value="{}">').format(context["visit"].form_token)


def static(name: str) -> str:
    """The address of a static file; it changes with the files, so that browsers may keep it for ever."""
    assert name in _static_files(), name
    return f"/static/{static_version()}/{name}"


@cache
def static_version() -> str:
    """A short name of what all static files hold: one for all, since scripts name each other by place."""
    digest = hashlib.sha256()
    for name, content in sorted(_static_files().items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:12]


def static_file(name: str) -> tuple[bytes, str] | None:
    """The bytes of a static file and its media type; None where there is no such file."""
    content = _static_files().get(name)
    return None if content is None else (content, MEDIA_TYPES[name.rpartition(".")[2]])


@cache
def _static_files() -> Mapping[str, bytes]:
    folder = resources.files("plaudit.collect.app").joinpath("static")
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.name.rpartition(".")[2] in MEDIA_TYPES
    }
