"""Counts that make up a whole, a bar for each: won, tied and lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plaudit.page.html import Html, element
from plaudit.page.plot import WIDTH, chart, cut, drawing, words
from plaudit.page.words import percent

SHADES = ("first", "plain", "second")
"""How the parts of a bar are filled, from the left."""
_ROW, _NAME, _BAR = 36, 15, 13
_MOST_LABEL = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Portions:
    """A whole in its parts.

    Example: ``Portions(label="ppo", counts=(130, 200, 70))``
    """

    label: str
    """What is divided."""
    counts: tuple[int, ...]
    """How much falls to each part."""


def portions(title: str, unit: str, rows: Sequence[Portions], names: Sequence[str]) -> Html:
    """A bar of full width for each row, divided as its counts are; ``names`` says what the parts are."""
    assert len(names) == len(SHADES)
    told = "; ".join(f"{row.label}: {_told(row, names)}" for row in rows)
    drawn = [part for at, row in enumerate(rows) for part in _row(row, at * _ROW, names)]
    return chart(title, unit, drawing(title, told, len(rows) * _ROW, *drawn), *map(_key, SHADES, names))


def _row(row: Portions, top: int, names: Sequence[str]) -> Iterator[Html]:
    yield words("label", 0, top + 11, cut(row.label, _MOST_LABEL))
    yield words("number", WIDTH, top + 11, " : ".join(f"{count:,}" for count in row.counts))
    whole, left = sum(row.counts), 0.5
    for shade, count, name in zip(SHADES, row.counts, names, strict=True):
        wide = (WIDTH - 1) * count / whole if whole else 0.0
        if wide:
            place = {"x": f"{left:.1f}", "y": top + _NAME, "width": f"{wide:.1f}", "height": _BAR}
            tip = element(
                "title", {}, f"{row.label}: {name} {count:,} of {whole:,}, {percent(count / whole)}"
            )
            yield element("rect", {"class": f"bar {shade}", **place}, tip)
        left += wide


def _key(shade: str, name: str) -> Html:
    box = element("rect", {"class": f"bar {shade}", "x": "-5", "y": "-5", "width": "10", "height": "10"})
    sign = element("svg", {"class": "sign", "viewBox": "-6 -6 12 12", "aria-hidden": "true"}, box)
    return element("span", {"class": "key beside-others"}, sign, name)


def _told(row: Portions, names: Sequence[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in zip(names, row.counts, strict=True))
