"""make site: the docs as HTML in build/site; a warning, a dead link or a request to elsewhere fails."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from tools.site.source import PASSAGES_FILE, prepare
from tools.tree import root_from_arguments

SETTINGS = Path("docs/site")
"""Where Sphinx's settings, the navigation and the style are."""
_LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
"""What a browser fetches by itself, and the attribute that says from where."""
_CSS_LOAD = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)")
_SCHEME = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


@dataclass
class PageLinks(HTMLParser):
    """What a page can be linked by, what it links to, and what it loads."""

    names: set[str] = field(default_factory=set)
    """The ids of its elements."""
    links: list[str] = field(default_factory=list)
    """Targets of its links."""
    loads: list[str] = field(default_factory=list)
    """What a browser fetches to show it."""

    def __post_init__(self) -> None:
        """Begin as a parser."""
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element is called, and where it leads."""
        given = dict(attrs)
        self.names.update(value for value in (given.get("id"), given.get("name")) if value)
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        # rel="canonical" and the like tell a search machine something, and load nothing.
        shown = tag != "link" or given.get("rel") in ("stylesheet", "icon", "preload", "shortcut icon")
        target = given.get(_LOADED.get(tag, ""))
        if target and shown:
            self.loads.append(target)


def site_faults(site: Path) -> Iterator[str]:
    """Links of a built site that lead nowhere, and whatever it would load from elsewhere."""
    pages: dict[Path, PageLinks] = {}
    for file in sorted(site.rglob("*.html")):
        pages[file] = PageLinks()
        pages[file].feed(file.read_text("utf-8"))
    for file, page in pages.items():
        where = file.relative_to(site).as_posix()
        for target in dict.fromkeys([*page.links, *page.loads]):
            problem = None if _SCHEME.match(target) else _problem(site, file, target, pages)
            if problem:
                yield f"{where}: {target}: {problem}"
        yield from _foreign(where, page.loads)
    for file in sorted(site.rglob("*.css")):
        yield from _foreign(file.relative_to(site).as_posix(), _CSS_LOAD.findall(file.read_text("utf-8")))


def _foreign(where: str, loads: Sequence[str]) -> Iterator[str]:
    for target in dict.fromkeys(loads):
        if _SCHEME.match(target) and not target.startswith("data:"):
            yield f"{where}: it loads {target}; a page must work without a network"


def _problem(site: Path, file: Path, target: str, pages: dict[Path, PageLinks]) -> str | None:
    path, _, anchor = target.partition("#")
    plain = unquote(path.partition("?")[0])
    to = (file.parent / plain).resolve() if plain else file.resolve()
    if not to.is_relative_to(site.resolve()) or not to.exists():
        return "there is no such file"
    known = pages.get(site / to.relative_to(site.resolve()))
    if anchor and known and unquote(anchor) not in known.names:
        return "there is no such place on it"
    return None


def main(root: Path) -> int:
    """Builds the site of a repository; returns the exit code."""
    started = time.perf_counter()
    build = root / "build"
    prepare(root, build / "site-source")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--quiet",
        "--jobs",
        "auto",
        "--builder",
        "html",
    ]
    folders = ["--conf-dir", root / SETTINGS, "--doctree-dir", build / "site-doctrees", build / "site-source"]
    # A page that is gone must not live on in the site.
    command += ["--fresh-env", "--write-all"]
    done = subprocess.run([*command, *map(str, folders), str(build / "site")], check=False)
    if done.returncode != 0:
        print("the site was not built: mend what Sphinx names above; pages stand in docs/, and are copied")
        return 1
    shutil.copy(build / "site-source" / PASSAGES_FILE, build / "site" / "_static")
    faults = [*site_faults(build / "site")]
    print("\n".join(faults) or "every link leads somewhere, and nothing is loaded from elsewhere")
    count = sum(1 for _ in (build / "site").rglob("*.html"))
    print(f"{count} pages in {build / 'site' / 'index.html'}, {time.perf_counter() - started:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(root_from_arguments()))
