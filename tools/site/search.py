"""What the site's search reads: what stands under each heading, as a script, for a page may not fetch from file://."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from itertools import groupby

from tools.links import anchor_of

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_FENCE = re.compile(r"^\s*(```+|~~~+|:::+)")
_DROPPED = re.compile(r"<[^>]*>|\{[a-z:]+\}|^\|?[-:| ]{3,}$|[`*|\\]")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_HEAD_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Passage:
    """What stands under one heading.

    Example: ``Passage("resume", "Stopping and going on", "try-it", "Try it", "A base model …")``
    """

    page: str
    """Its path on the site, without ``.html``."""
    title: str
    """The page's own heading."""
    anchor: str
    """What the heading is linked by; empty for the page's own."""
    heading: str
    """The heading in plain words."""
    text: str
    """All until the next heading, without marks of Markdown."""


def passages(pages: Mapping[str, str]) -> Iterator[Passage]:
    """Those of all pages but the ones that are not searched.

    >>> [(row.anchor, row.text) for row in passages({"resume": "# R\\nKilled.\\n## By `kill`\\nGoes on."})]
    [('', 'Killed.'), ('by-kill', 'Goes on.')]
    """
    for page, text in pages.items():
        head = _HEAD_MATTER.match(text)
        if head is None or "nosearch: true" not in head[0]:
            yield from _passages_of(page, text[head.end() :] if head else text)


def _passages_of(page: str, text: str) -> Iterator[Passage]:
    title, anchor, heading, anchors = page, "", page, list[str]()
    for match, lines in groupby(_with_headings(text), key=lambda pair: pair[0]):
        if match is not None:
            heading = plain(match[2])
            anchors.append(anchor_of(match[2], anchors))
            title, anchor = (heading, "") if len(match[1]) == 1 else (title, anchors[-1])
        words = " ".join(filter(None, (plain(line) for _, line in lines)))
        yield Passage(page, title, anchor, heading, words)


def _with_headings(text: str) -> Iterator[tuple[re.Match[str] | None, str]]:
    """Each line with the heading above it, the heading's own line being empty."""
    heading, inside = None, False
    for line in text.splitlines():
        fence = _FENCE.match(line) is not None
        inside ^= fence
        match = None if inside or fence else _HEADING.match(line)
        heading = match or heading
        yield heading, "" if match or fence else line


def plain(line: str) -> str:
    """A line of Markdown as its words.

    >>> plain("| `--resume` | see [here](a.md#b) |")
    '--resume see here'
    """
    return " ".join(_DROPPED.sub(" ", _LINK.sub(r"\1", line)).split())


def script(pages: Mapping[str, str]) -> str:
    """The passages as JavaScript."""
    return f"const PASSAGES = {json.dumps([*map(astuple, passages(pages))], ensure_ascii=False)};\n"
