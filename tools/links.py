"""Links between the Markdown pages: each leads to a file and a heading, and each page is reachable."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from tools.tree import Fault

FOLDERS = ("docs", "examples", "benchmarks")
"""Where pages live, beside the root itself."""

_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HREF = re.compile(r"(?:href|src)=\"([^\"]+)\"")
_FENCE = re.compile(r"^\s*(```|~~~)")
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def markdown_pages(root: Path) -> list[Path]:
    """Every page, relative to the root."""
    below = [page for folder in FOLDERS for page in sorted((root / folder).rglob("*.md"))]
    return [page.relative_to(root) for page in [*sorted(root.glob("*.md")), *below]]


def link_faults(root: Path, pages: Sequence[Path]) -> Iterator[Fault]:
    """Links that lead nowhere, and pages of docs that no link, nor a page that is linked, leads to."""
    linked: set[Path] = set()
    leads: dict[Path, set[Path]] = {}
    for page in pages:
        for line, target in links_of((root / page).read_text("utf-8")):
            file = _target_file(root, page, target)
            problem = _problem_of(file, target)
            if problem:
                yield Fault(path=page, line=line, message=f"link to {target}: {problem}")
            leads.setdefault((root / page).resolve(), set()).add(file)
    reached = [(root / page).resolve() for page in ("README.md", "docs/README.md")]
    while reached:
        new = leads.get(reached.pop(), set()) - linked
        linked |= new
        reached += new
    for page in pages:
        is_content = page.parts[0] == "docs" and page != Path("docs/README.md")
        if is_content and (root / page).resolve() not in linked:
            yield Fault(path=page, line=1, message="no link leads here from README.md or docs/README.md")


def links_of(text: str) -> Iterator[tuple[int, str]]:
    """Line and target of each relative link, outside of code."""
    for number, line in prose_lines(text):
        prose = re.sub(r"`[^`]*`", "", line)
        for match in [*_LINK.finditer(prose), *_HREF.finditer(prose)]:
            if not _SCHEME.match(match[1]):
                yield number, match[1]


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line outside of fenced code."""
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            yield number, line


def anchors_of(text: str) -> set[str]:
    """The names that headings can be linked by, as GitHub makes them.

    >>> anchors_of("# Text to tokens, exactly")
    {'text-to-tokens-exactly'}
    """
    anchors: set[str] = set()
    for _, line in prose_lines(text):
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if heading:
            anchors.add(anchor_of(heading[1], anchors))
    return anchors


def anchor_of(heading: str, taken: Collection[str]) -> str:
    """The name that a heading is linked by on a page where others are taken."""
    name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    repeats = sum(1 for anchor in taken if re.fullmatch(re.escape(name) + r"(-\d+)?", anchor))
    return f"{name}-{repeats}" if repeats else name


def _target_file(root: Path, page: Path, target: str) -> Path:
    path = unquote(target.partition("#")[0])
    if path.startswith("/"):
        return (root / path.lstrip("/")).resolve()
    return (root / page.parent / path if path else root / page).resolve()


def _problem_of(file: Path, target: str) -> str | None:
    anchor = target.partition("#")[2]
    if not file.exists():
        return "there is no such file"
    if anchor and file.suffix == ".md" and anchor not in anchors_of(file.read_text("utf-8")):
        return "there is no such heading in it"
    return None
