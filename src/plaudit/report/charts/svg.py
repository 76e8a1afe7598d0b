"""Elements of a drawing, safe by type: whatever is not markup already is escaped on its way in."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup, escape

from plaudit.report.words import escape_invisible

Attributes = Mapping[str, str | int]
"""Names and values of an element's attributes."""


def element(name: str, attributes: Attributes, *inside: str) -> Markup:
    """One element with what stands inside it.

    >>> print(element("text", {"class": "a&b"}, "1 < 2, ", element("tspan", {}, "bold")))
    <text class="a&amp;b">1 &lt; 2, <tspan>bold</tspan></text>
    """
    pairs = (f' {key}="{_escaped(str(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{''.join(pairs)}>{''.join(map(_escaped, inside))}</{name}>")


def _escaped(text: str) -> Markup:
    return text if isinstance(text, Markup) else escape(escape_invisible(text))
