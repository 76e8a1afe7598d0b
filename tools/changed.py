"""What a change reaches: the tests whose imports, through however many files, lead to what changed."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from tools.tree import FOLDERS, Source, name_of, sources

EVERYWHERE = ("pyproject.toml", "constraints.txt", "tests/conftest.py")
"""Files on which every test rests."""
DOCTESTED = ("src/", "examples/proofs/", "examples/diffusion/")
"""Where a module's docstrings are tests too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    changed: tuple[Path, ...]
    """What is not as it was, relative to the root."""
    tests: tuple[Path, ...]
    """Test files that a change reaches, and changed modules themselves, for their doctests."""
    left_out: int
    """How many test files are reached by no import."""

    def sentence(self) -> str:
        files = sum(path.name.startswith("test_") for path in self.tests) + self.left_out
        return (
            f"{len(self.changed)} files changed. Left out: slow tests, and {self.left_out} of {files} files "
            "of tests, which import none of them; what a test reaches by starting a command is not followed "
            "(./check tests runs all)"
        )


def reach(root: Path, since: str = "HEAD") -> Reach:
    """What changed since a commit, committed or not, and the tests that it reaches."""
    changed = changed_files(root, since)
    if not changed and since == "HEAD":
        changed = changed_files(root, "HEAD~1")
    files = sources(root, FOLDERS)
    tests = {source.path for source in files if source.path.name.startswith("test_")}
    if any(path.as_posix() in EVERYWHERE for path in changed):
        reached: AbstractSet[Path] = tests
    else:
        places = {module_of(source.path): source.path for source in files}
        reached = {places[name] for name in _importers(files, {*_touched(changed, places)})}
    doctests = {path for path in changed if path.as_posix().startswith(DOCTESTED) and path.suffix == ".py"}
    chosen = (reached & tests) | {path for path in doctests if (root / path).exists()}
    return Reach(
        changed=tuple(changed), tests=tuple(sorted(chosen)), left_out=len(tests) - len(reached & tests)
    )


def changed_files(root: Path, since: str) -> list[Path]:
    """Paths that differ from a commit, new ones among them."""

    def lines(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=root, text=True, capture_output=True, check=True)
        return done.stdout.splitlines()

    differing = lines("diff", "--name-only", "--no-renames", since)
    return sorted({Path(name) for name in [*differing, *lines("ls-files", "-o", "--exclude-standard")]})


def module_of(path: Path) -> str:
    """The dotted name that a file is imported by.

    >>> module_of(Path("src/plaudit/losses/__init__.py")), module_of(Path("tests/models/zoo.py"))
    ('plaudit.losses', 'tests.models.zoo')
    """
    parts = path.with_suffix("").parts[path.parts[0] == "src" :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _touched(changed: Sequence[Path], places: Mapping[str, Path]) -> Iterator[str]:
    """The modules that changed; for a file that is none, those beside it or nearest above it."""
    for path in changed:
        if path.suffix == ".py" and path.name != "conftest.py":
            yield module_of(path)
            continue
        folders = (folder for folder in path.parents if folder != Path())
        nearest = next((f for f in folders if any(place.parent == f for place in places.values())), None)
        below = path.name == "conftest.py"
        for name, place in places.items():
            if nearest is not None and (place.parent == nearest or (below and nearest in place.parents)):
                yield name


def _importers(files: Sequence[Source], touched: AbstractSet[str]) -> set[str]:
    """All modules that import one of these, or a module that does, and these themselves."""
    modules = {module_of(source.path) for source in files}
    importers: dict[str, set[str]] = {}
    for source in files:
        for name in imports(source.tree, modules | touched):
            importers.setdefault(name, set()).add(module_of(source.path))
    waiting = [*touched]
    reached = set(waiting)
    while waiting:
        waiting += (more := importers.get(waiting.pop(), set()) - reached)
        reached |= more
    return reached & modules


def imports(tree: ast.Module, modules: AbstractSet[str]) -> Iterator[str]:
    """What a file imports when it runs, within functions too, but not what it only names in annotations."""
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and name_of(block.test).endswith("TYPE_CHECKING")
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else node.module for name in names)
