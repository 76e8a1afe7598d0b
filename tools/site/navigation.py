"""The navigation of the site: every page of docs stands in it once (docs/site/navigation.toml)."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

FILE = Path("docs/site/navigation.toml")
"""Where it stands."""
HOME = "index"
"""The first page, which no section names."""
ELSEWHERE = "repository"
"""The folder of the site for what lies outside of docs; its pages may be reached by links alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Some pages under one title.

    Example: ``Section(title="Start", pages=("ten-minutes", "choosing"))``
    """

    title: str
    """What the reader sees."""
    pages: tuple[str, ...]
    """Pages by their paths under docs, without ``.md``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Navigation:
    """What leads to each page.

    Example: ``Navigation(sections=(Section(title="Trust", pages=("checks",)),), below={"checks": ("a",)})``
    """

    sections: tuple[Section, ...]
    """The sections in their order."""
    below: dict[str, tuple[str, ...]]
    """Of a page, the pages that lie under it."""

    def pages(self) -> Iterator[str]:
        """Every page that is named, in order."""
        for section in self.sections:
            yield from section.pages
        for pages in self.below.values():
            yield from pages


def read_navigation(root: Path, pages: Collection[str]) -> Navigation:
    """The navigation of a repository; ``checks/*`` there stands for the other pages of that folder."""
    table = tomllib.loads((root / FILE).read_text("utf-8"))

    def expanded(names: list[str], above: str) -> tuple[str, ...]:
        found = (
            sorted(page for page in pages if fnmatch(page, name) and page != above) if "*" in name else [name]
            for name in names
        )
        return tuple(page for group in found for page in group)

    sections = [Section(title=each["title"], pages=tuple(each["pages"])) for each in table["section"]]
    below = {page: expanded(names, page) for page, names in table["below"].items()}
    return Navigation(sections=tuple(sections), below=below)


def navigation_faults(navigation: Navigation, pages: Collection[str]) -> Iterator[str]:
    """Pages that no reader would find, and entries that lead nowhere."""
    counts = Counter(navigation.pages())
    own = {page for page in pages if not page.startswith(f"{ELSEWHERE}/")}
    for page in sorted(own - {*counts, HOME}):
        yield f"docs/{page}.md stands nowhere in {FILE}: name it in a section, or under a page in [below]"
    for page, count in counts.items():
        if page not in pages:
            yield f"{FILE} names {page}, which is no page"
        elif count > 1:
            yield f"{FILE} names {page} {count} times"
    for page in {*navigation.below} - {*counts}:
        yield f"{FILE} puts pages under {page}, which it names in no section"


def with_contents(navigation: Navigation, page: str, text: str) -> str:
    """A page with the lists of pages that Sphinx makes the navigation of; readers do not see them here."""
    blocks = [_contents(navigation.below[page])] if page in navigation.below else []
    if page == HOME:
        blocks += [_contents(section.pages, section.title) for section in navigation.sections]
    return "\n".join([text, *blocks])


def _contents(pages: Collection[str], title: str = "") -> str:
    caption = [f":caption: {title}"] if title else []
    return "\n".join(["```{toctree}", ":hidden:", *caption, "", *(f"/{page}" for page in pages), "```", ""])
