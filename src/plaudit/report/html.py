"""The frame of a page: it stands alone, and nothing on it may be loaded, run or sent.

No script, no font, no picture from elsewhere. What a page shows of a model's words is escaped, and its
content policy forbids whatever might slip through.

Markup that is safe by type: whatever is not `Html` already is escaped on its way in.

What a model said is not to be trusted, so no caller has to remember to escape it.
"""

from __future__ import annotations

import base64
import hashlib
import html

from markupsafe import Markup as Html

from plaudit.report.charts.svg import Attributes, element
from plaudit.report.page import stylesheet
from plaudit.report.words import escape_invisible, shortened


def void_element(name: str, attributes: Attributes) -> Html:
    """An element that HTML knows without an end, such as ``meta``."""
    return Html(_start_tag(name, attributes))


def join_html(*parts: str) -> Html:
    """Parts one after another; what is not markup is escaped."""
    return Html(
        "".join(
            str(part) if isinstance(part, Html) else html.escape(escape_invisible(part)) for part in parts
        )
    )


def section(title: str, name: str, *inside: Html) -> Html:
    """A part of the page under its heading; ``name`` is what links lead to."""
    heading = element("h2", {"id": name}, title)
    return element("section", {"aria-labelledby": name}, heading, *inside)


def folded(summary: str, *inside: Html) -> Html:
    """A block that is shown when its one-line summary is opened."""
    return element("details", {}, element("summary", {}, summary), *inside)


def figure_card(label: str, value: str, more: str = "") -> Html:
    """A figure that stands out, for a list of class ``cards``."""
    details = [element("dd", {"class": "more"}, more)] if more else []
    name = element("dt", {}, label)
    return element("div", {}, name, element("dd", {"class": "value"}, value), *details)


def quoted_text(text: str, max_length: int) -> Html:
    """A block with somebody's text, as it is, up to so many characters."""
    if not text.strip():
        return element("div", {"class": "said quiet"}, "(only white space)" if text else "(nothing)")
    # Each text finds its own direction, so that one in Arabic does not turn its neighbours round.
    return element("div", {"class": "said", "dir": "auto"}, shortened(text, max_length))


def text_column(label: str, content: Html, kind: str) -> Html:
    """One of several texts beside each other, for a division of class ``sides``."""
    return element("div", {"class": kind}, element("h4", {}, label), content)


def _start_tag(name: str, attributes: Attributes) -> str:
    pairs = (f' {key}="{html.escape(escape_invisible(str(value)))}"' for key, value in attributes.items())
    return f"<{name}{''.join(pairs)}>"


def document(title: str, main: Html, *, style: str = "") -> str:
    """The whole page around its ``main``; ``style`` is what it has beside the common style sheet."""
    page = element("html", {"lang": "en"}, _html_head(title, style), element("body", {}, main))
    return f"<!DOCTYPE html>\n{page}\n"


def read_stylesheet(package: str, name: str) -> str:
    """A style sheet."""
    return stylesheet(name.removesuffix(".css"))


def _html_head(title: str, extra_style: str) -> Html:
    style = Html(str(stylesheet("page")) + str(extra_style))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # Only this one style sheet, known by its hash, may take effect; nothing may be loaded, run or sent.
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return element(
        "head",
        {},
        void_element("meta", {"charset": "utf-8"}),
        void_element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        void_element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        void_element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("title", {}, title, " · plaudit"),
        element("style", {}, style),
    )
