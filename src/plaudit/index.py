"""The public names of a package, from the stub beside it: each is imported when it is first used.

``__init__.pyi`` is what type checkers and editors read; at run time the same lines say where a name lives.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def attach(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of the package whose ``__init__.py`` this file is."""
    homes = homes_of(Path(file).with_suffix(".pyi"))
    names = sorted(homes)

    def fetch(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"{package} has no {name!r}; its public names are {', '.join(names)}")
        home = homes[name]
        # `from plaudit import losses` in the stub names a module, not a name within one.
        return import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)

    return fetch, lambda: names, names


def homes_of(stub: Path) -> dict[str, str]:
    """The module of each name that a stub imports.

    >>> homes_of(Path(__file__).with_name("__init__.pyi"))["UserError"]
    'plaudit.errors'
    """
    return {
        alias.name: node.module or ""
        for node in ast.parse(stub.read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
