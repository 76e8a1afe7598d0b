"""How deep the repository's classes inherit from one another; classes of other packages do not count."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.tree import Source, name_of

Class = tuple[Source, ast.ClassDef]
"""A class and the file it stands in."""


def module_of(path: Path) -> str:
    """The dotted name that a file is imported by.

    >>> module_of(Path("src/plaudit/data/__init__.py"))
    'plaudit.data'
    """
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(source: Source) -> dict[str, str]:
    """What each imported name of a file stands for, in full."""
    package = module_of(source.path.parent / "__init__.py").split(".")
    names: dict[str, str] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            names |= {alias.asname or alias.name: f"{origin}.{alias.name}" for alias in node.names}
    return names


def depths(files: Sequence[Source]) -> list[tuple[Class, int]]:
    """Each class with the number of the repository's own classes above it, along the longest line."""
    classes: dict[str, Class] = {}
    for source in files:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                classes[f"{module_of(source.path)}.{node.name}"] = (source, node)
    imports = {source.path: imported_names(source) for source in files}
    return [(entry, _depth(name, classes, imports)) for name, entry in classes.items()]


def _depth(name: str, classes: Mapping[str, Class], imports: Mapping[Path, Mapping[str, str]]) -> int:
    source, node = classes[name]
    parents = [_full_name(name_of(base), source, imports[source.path]) for base in node.bases]
    own = [parent for parent in parents if parent in classes and parent != name]
    return max((1 + _depth(parent, classes, imports) for parent in own), default=0)


def _full_name(written: str, source: Source, imports: Mapping[str, str]) -> str:
    """The full name of a class as a file writes it: ``Base``, ``module.Base`` or ``package.module.Base``."""
    head, _, rest = written.partition(".")
    if written.rpartition(".")[0] in imports and rest:
        return f"{imports[written.rpartition('.')[0]]}.{written.rpartition('.')[2]}"
    if head in imports:
        return f"{imports[head]}.{rest}" if rest else imports[head]
    return f"{module_of(source.path)}.{written}"
