"""The frame of a page: it stands alone, and nothing on it may be loaded, run or sent.

No script, no font, no picture from elsewhere. What a page shows of a model's words is escaped, and its
content policy forbids whatever might slip through.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from plaudit.page.html import Html, element, empty


def document(title: str, main: Html, *, style: str = "") -> str:
    """The whole page around its ``main``; ``style`` is what it has beside the common style sheet."""
    page = element("html", {"lang": "en"}, _preamble(title, style), element("body", {}, main))
    return f"<!DOCTYPE html>\n{page}\n"


def style_of(package: str, name: str) -> str:
    """The text of a style sheet that lies beside a package's code."""
    return resources.files(package).joinpath(name).read_text("utf-8")


def _preamble(title: str, own_style: str) -> Html:
    style = Html(style_of("plaudit.page", "page.css") + own_style)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # Only this one style sheet, known by its hash, may take effect; nothing may be loaded, run or sent.
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return element(
        "head",
        {},
        empty("meta", {"charset": "utf-8"}),
        empty("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        empty("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        empty("meta", {"name": "color-scheme", "content": "light dark"}),
        element("title", {}, title, " · plaudit"),
        element("style", {}, style),
    )
