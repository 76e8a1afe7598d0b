"""The one way to a page: a template filled with data, in a frame that lets nothing be loaded, run or sent.

What a model said is not to be trusted: whatever a template prints is escaped, unless it is a drawing of
plaudit's own (`markupsafe.Markup`), and the page's content policy forbids whatever might slip through.
"""

import base64
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from plaudit.files import atomic
from plaudit.runs.report import words
from plaudit.runs.report.parts import Page, Part

_BREAK_AT_TAG = re.compile(r"(?<=>)\s*\n\s*|\s*\n\s*(?=<)|^\s*\n\s*|\s*\n\s*$")
_BREAK = re.compile(r"\s*\n\s*")
_FOLDED_LENGTH = 320
"""Letters of a question's text from which on the rest of it is folded."""
_DOCS = re.compile(r"docs/([\w-]+(?:/[\w-]+)?)\.md(?:#([\w-]+))?")
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*\w")


def render(page: Page) -> str:
    """The text of a page, as page.html.j2 lays it out."""
    text = environment().get_template("page.html.j2").render(page=page)
    named = dict.fromkeys(re.findall(r'href="#docs-[^"]*">docs/([\w/-]+)\.md#?([\w-]*)<', text))
    if not named:
        return text
    section = environment().get_template("docs.html.j2").render(named=named, docs_section=docs_section)
    return text.replace("</main>", f"{section}</main>")


@cache
def docs_section(page: str, heading: str) -> Markup:
    """What a page of docs says under a heading, or under its first; empty where there is none."""
    folder = Path(str(resources.files("plaudit")))
    file = next(
        (at / f"{page}.md" for at in (folder / "docs", folder.parents[1] / "docs") if at.is_dir()), None
    )
    if file is None or not file.is_file():
        return Markup()
    lines, place, held, inside = list[str](), "", False, False
    for line in file.read_text("utf-8").splitlines():
        inside ^= line.startswith("```")
        if not inside and (title := re.match(r"#+ (.*)", line)):
            place = re.sub(r"[^\w\- ]", "", title[1].lower()).replace(" ", "-")
            held = place == heading if heading else not lines
        elif held:
            lines.append(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line))
    text = "\n".join(line for line in lines if not line.startswith("<"))
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))


def write_page(text: str, path: Path) -> Path:
    """Puts a page where it is to be, in a folder that may be missing; returns where it is."""
    atomic.make_folder(path.parent)
    atomic.write_text(path, text)
    return path


def lay_out(part: Part) -> Markup:
    """A part of a page, as the macro of parts.html.j2 that has its name makes it; a drawing as it is."""
    if isinstance(part, Markup):
        return part
    return getattr(environment().get_template("parts.html.j2").module, type(part).__name__.lower())(part)


def stylesheet(*names: str) -> Markup:
    folder = resources.files("plaudit.runs.report").joinpath("styles")
    return Markup("".join(folder.joinpath(f"{name}.css").read_text("utf-8") for name in names))


class _TemplateLayout(Extension):
    """A template's line breaks and indentation are for its reader only.
    Beside a tag, of HTML or of Jinja, they vanish; between words they are one space. So a template may be
    laid out as its reader likes it, and no space appears on the page where it would part two words."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for token in stream:
            if token.type != "data":
                yield token
            elif text := _BREAK.sub(" ", _BREAK_AT_TAG.sub("", token.value)):
                yield Token(token.lineno, "data", text)


@cache
def environment() -> Environment:
    """The templates of this package, their filters, and the rules that they print by."""
    environment = Environment(
        loader=PackageLoader("plaudit.runs.report"),
        autoescape=True,
        # A misspelt name in a template fails, where Jinja's default would print nothing.
        undefined=StrictUndefined,
        finalize=_visible,
        extensions=[_TemplateLayout],
    )
    environment.globals |= {"folded_length": _FOLDED_LENGTH, "stylesheet": stylesheet}
    environment.filters |= {
        "counted": words.counted,
        "digest": lambda text: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode(),
        "laid_out": lay_out,
        "short": words.short_name,
        "shortened": words.shortened,
        "timestamp": words.timestamp_text,
        "unbroken": _unbroken,
    }
    return environment


def _visible(value: Any) -> str:
    """What is printed of a value: a drawing as it is, anything else as text of which every letter shows."""
    assert value is not None, "a template decides what stands where there is nothing"
    return value if isinstance(value, Markup) else words.escape_invisible(str(value))


def _unbroken(text: str) -> Markup:
    """A sentence with no number parted from its per cent, and no option's name broken behind its hyphens."""
    printed = str(escape(words.escape_invisible(words.unbroken(text))))
    marked = _OPTION.sub(r'<span class="option">\g<0></span>', printed)
    return Markup(_DOCS.sub(lambda named: _link_to_docs(*named.group(0, 1, 2)), marked))


def _link_to_docs(named: str, page: str, heading: str | None) -> str:
    """What is named, as a link to where the page says what stands there."""
    anchor = f"docs-{page}-{heading or ''}".replace("/", "-")
    return f'<a href="#{anchor}">{named}</a>' if docs_section(page, heading or "") else named
