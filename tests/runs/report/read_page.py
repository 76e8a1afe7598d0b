"""A page as its reader meets it: parsed, with the text under each heading."""

import base64
import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

_WITHOUT_END = ("meta", "img")


@dataclass(slots=True)
class Page:
    tags: Counter[str] = field(default_factory=Counter[str])
    """How often each element occurs."""
    attributes: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """Element, name and value of every attribute."""
    sections: dict[str, str] = field(default_factory=dict[str, str])
    """The text under each heading of the second rank; what stands above the first is under ``head``."""
    words: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The text of each element of a kind: h1, h3, title, td …"""

    def values(self, tag: str, name: str) -> list[str]:
        """The values of an attribute on elements of one kind."""
        return [value for found, key, value in self.attributes if (found, key) == (tag, name)]


def stands_alone(path: Path) -> Page:
    """The page, which nothing from outside can change: no script, no picture, and its style sheet alone."""
    page, text = read_page(path), path.read_text("utf-8")
    names = {name for _, name, _ in page.attributes}
    assert not names & {"style", "srcset", "action"}
    assert not {name for name in names if name.startswith("on")}
    assert all(source.startswith("data:image/") for source in page.values("img", "src"))
    assert not {"script", "link", "iframe", "object", "use", "image"} & set(page.tags)
    assert all(link.startswith("#") for link in page.values("a", "href"))
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = page.values("meta", "content")[0]
    allowed = f"style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    assert policy == f"default-src 'none'; {allowed}"
    return page


class _Reader(HTMLParser):
    """Follows the elements, and insists that they nest."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.open: list[str] = []
        self.section = "head"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.tags[tag] += 1
        self.page.attributes += [(tag, name, value or "") for name, value in attrs]
        self.page.words.setdefault(tag, []).append("")
        if tag not in _WITHOUT_END:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1] == tag, f"</{tag}> ends {self.open}"
        self.open.pop()
        if tag == "h2":
            self.section = self.page.words["h2"][-1]
            self.page.sections[self.section] = ""

    def handle_data(self, data: str) -> None:
        if "style" in self.open or not self.open:
            return
        for tag in set(self.open):
            self.page.words[tag][-1] += data
        if not {"head", "svg", "h2"} & set(self.open):
            self.page.sections[self.section] = self.page.sections.get(self.section, "") + data


def read_page(path: Path) -> Page:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == [], f"not closed: {reader.open}"
    return reader.page
