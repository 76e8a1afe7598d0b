"""Markup that is safe by type: whatever is not `Html` already is escaped on its way in.

What a model said is not to be trusted, so no caller has to remember to escape it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

# Controls, marks that reverse or hide text, half surrogates, and what Unicode reserves as no character. Tab
# and line feed stay; so do the joiners that emoji, Arabic and Indic scripts are written with.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f]"
)

Attributes = Mapping[str, str | int]
"""Names and values of an element's attributes."""


class Html(str):
    """Text that is markup already; anything joined to it becomes plain text again, and is escaped."""

    __slots__ = ()


def element(name: str, attributes: Attributes, *inside: str) -> Html:
    """One element with what stands inside it.

    >>> element("p", {"class": "a&b"}, "1 < 2, ", element("b", {}, "bold"))
    '<p class="a&amp;b">1 &lt; 2, <b>bold</b></p>'
    """
    return Html(f"{_start(name, attributes)}{together(*inside)}</{name}>")


def empty(name: str, attributes: Attributes) -> Html:
    """An element that HTML knows without an end, such as ``meta``."""
    return Html(_start(name, attributes))


def together(*parts: str) -> Html:
    """Parts one after another; what is not markup is escaped."""
    return Html("".join(part if isinstance(part, Html) else html.escape(visible(part)) for part in parts))


def section(title: str, name: str, *inside: Html) -> Html:
    """A part of the page under its heading; ``name`` is what links lead to."""
    heading = element("h2", {"id": name}, title)
    return element("section", {"aria-labelledby": name}, heading, *inside)


def folded(summary: str, *inside: Html) -> Html:
    """What is shown when its one line is opened."""
    return element("details", {}, element("summary", {}, summary), *inside)


def card(label: str, value: str, more: str = "") -> Html:
    """A figure that stands out, for a list of class ``cards``."""
    said = [element("dd", {"class": "more"}, more)] if more else []
    name = element("dt", {}, label)
    return element("div", {}, name, element("dd", {"class": "value"}, value), *said)


def quoted(text: str, most: int) -> Html:
    """What somebody said, as it was said, up to so many characters."""
    if not text.strip():
        return element("div", {"class": "said quiet"}, "(only white space)" if text else "(nothing)")
    # Each text finds its own direction, so that one in Arabic does not turn its neighbours round.
    return element("div", {"class": "said", "dir": "auto"}, shortened(text, most))


def side(label: str, said: Html, kind: str) -> Html:
    """One of several texts beside each other, for a division of class ``sides``."""
    return element("div", {"class": kind}, element("h4", {}, label), said)


def visible(text: str) -> str:
    """The text with characters that cannot be seen, or that turn others round, written by their numbers.

    >>> visible("tab\\tstays, \\x1b[1m and \\u202e do not")
    'tab\\tstays, ⟨U+001B⟩[1m and ⟨U+202E⟩ do not'
    """
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def shortened(text: str, most: int) -> str:
    """At most so many characters of the text, and how many more there were.

    >>> shortened("a long answer", 6)
    'a long … (7 more characters)'
    """
    if len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text) - most:,} more characters)"


def _start(name: str, attributes: Attributes) -> str:
    written = (f' {key}="{html.escape(visible(str(value)))}"' for key, value in attributes.items())
    return f"<{name}{''.join(written)}>"
