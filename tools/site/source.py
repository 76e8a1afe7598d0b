"""What Sphinx reads: the pages of docs, what they link to in the repository, and pages from the code."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tools.site.api import api_pages, public_names
from tools.site.indices import algorithm_page, papers_page
from tools.site.markdown import fenced, with_targets
from tools.site.navigation import ELSEWHERE, navigation_faults, read_navigation, with_contents
from tools.site.search import script

HOMES_FILE = "homes.json"
"""Where the module of each public name is written down, for links to its source."""
PASSAGES_FILE = "passages.js"
"""What the search reads."""
_LANGUAGES = {
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".sh": "bash",
    ".json": "json",
}


def docs_pages(root: Path) -> dict[str, str]:
    """The pages of docs by their paths, without ``.md``."""
    folder = root / "docs"
    pages = sorted(path for path in folder.rglob("*.md") if path.is_file())
    return {page.relative_to(folder).with_suffix("").as_posix(): page.read_text("utf-8") for page in pages}


def generated_pages(root: Path, written: dict[str, str]) -> dict[str, str]:
    """The pages that are made of the code."""
    return {"algorithm-table": algorithm_page(root), "papers": papers_page(root, written), **api_pages(root)}


def all_pages(root: Path) -> dict[str, str]:
    """Every page of the site by its path: written, made of the code, and from elsewhere in the repository."""
    written = docs_pages(root)
    pages = {page: _relinked(root, Path("docs", f"{page}.md"), text) for page, text in written.items()}
    pages |= generated_pages(root, written)
    named = (page for page in read_navigation(root, written).pages() if page.startswith(f"{ELSEWHERE}/"))
    waiting = [Path(page.partition("/")[2] + ".md") for page in named]
    waiting += _linked_elsewhere(root, written)
    while waiting:
        path = waiting.pop()
        page = site_path(root, path).removesuffix(".md")
        if page not in pages:
            text, more = _elsewhere(root, path)
            pages[page] = text
            waiting += more
    return pages


def site_path(root: Path, path: Path) -> str:
    """Where a file of the repository is on the site, pages with ``.md``.

    >>> site_path(Path("."), Path("docs/checks/mask.md")), site_path(Path("."), Path("benchmarks/RESULTS.md"))
    ('checks/mask.md', 'repository/benchmarks/RESULTS.md')
    """
    if path.parts[:1] == ("docs",):
        return path.relative_to("docs").as_posix()
    shown = path if path.suffix == ".md" and not (root / path).is_dir() else path.with_name(path.name + ".md")
    return f"{ELSEWHERE}/{shown.as_posix()}"


def _linked_elsewhere(root: Path, written: dict[str, str]) -> Iterator[Path]:
    for page, text in written.items():
        yield from _leaving(root, Path("docs", f"{page}.md"), text)


def _leaving(root: Path, page: Path, text: str) -> Iterator[Path]:
    """The files outside of docs that a page links to."""
    found: list[str] = []

    def note(target: str) -> str:
        found.append(target)
        return target

    with_targets(text, note)
    for target in found:
        path = _target(root, page, target)
        if path is not None and path.parts[:1] != ("docs",):
            yield path


def _target(root: Path, page: Path, target: str) -> Path | None:
    """The file of the repository that a link of a page leads to; None where it leads out of it."""
    plain = unquote(target.partition("#")[0])
    if not plain or ":" in plain or plain.startswith("/"):
        return None
    path = Path(os.path.normpath(page.parent / plain))
    return path if (root / path).exists() else None


def _relinked(root: Path, page: Path, text: str) -> str:
    """A page whose links to files of the repository lead to their places on the site."""
    here = Path(site_path(root, page)).parent

    def change(target: str) -> str:
        path = _target(root, page, target)
        if path is None:
            return target
        anchor = target.partition("#")[2]
        to = os.path.relpath(site_path(root, path), here)
        return f"{to}#{anchor}" if anchor else to

    return with_targets(text, change)


def _elsewhere(root: Path, path: Path) -> tuple[str, list[Path]]:
    """The page of a file outside of docs, and what it links to outside of docs."""
    if (root / path).is_dir():
        names = sorted(
            child.name for child in (root / path).iterdir() if not child.name.startswith((".", "__pyc"))
        )
        return _page_of(path, "\n".join(f"- `{name}`" for name in names)), []
    text = (root / path).read_text("utf-8")
    if path.suffix == ".ipynb":
        text, path = _notebook(text, path.name), path.with_name(path.name + ".md")
    if path.suffix == ".md":
        return _orphan(_relinked(root, path, text)), [*_leaving(root, path, text)]
    return _page_of(path, fenced(text.rstrip("\n"), _LANGUAGES.get(path.suffix, "text"))), []


def _notebook(text: str, name: str) -> str:
    """A notebook as a page: its words, and its cells as code."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    shown = [source if kind == "markdown" else fenced(source, "python") for kind, source in cells]
    return "\n\n".join([*shown, f"All of this is a notebook, `{name}`.", ""])


def _page_of(path: Path, content: str) -> str:
    return _orphan(f"# `{path.as_posix()}`\n\n{content}\n", searched=False)


def _orphan(text: str, *, searched: bool = True) -> str:
    """A page that may stand outside of the navigation; one that is not searched crowds no results."""
    return "\n".join(["---", "orphan: true", *([] if searched else ["nosearch: true"]), "---", "", text])


def prepare(root: Path, folder: Path) -> None:
    """Writes all that Sphinx reads into a folder; a page that the navigation does not lead to stops it."""
    pages = all_pages(root)
    navigation = read_navigation(root, pages)
    faults = [*navigation_faults(navigation, pages)]
    if faults:
        raise SystemExit("\n".join(faults))
    shutil.rmtree(folder, ignore_errors=True)
    for page, text in pages.items():
        file = folder / f"{page}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(with_contents(navigation, page, text), "utf-8")
    shutil.copytree(root / "docs" / "pictures", folder / "pictures")
    homes = [[name.package, name.name, name.home] for name in public_names(root).values()]
    (folder / HOMES_FILE).write_text(json.dumps(homes), "utf-8")
    (folder / PASSAGES_FILE).write_text(script(pages), "utf-8")
