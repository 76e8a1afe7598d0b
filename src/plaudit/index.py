"""What is read from source: the public names of a package from the stub beside it, docstrings of fields.

A name is imported when it is first used.
``__init__.pyi`` is what type checkers and editors read; at run time the same lines say where a name lives.
"""

import ast
import dataclasses
import inspect
import sys
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path


def attach(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of the package whose ``__init__.py`` this file is."""
    homes = homes_of(Path(file).with_suffix(".pyi"))
    names = sorted(homes)

    def fetch(name: str) -> object:
        if name not in homes:
            method = name.removesuffix("Trainer").removesuffix("Config")
            if name.endswith(("Trainer", "Config")) and method.isupper():
                raise AttributeError(
                    f"{package} has no {name!r}: what TRL does by it is plaudit.train({method.lower()!r}, "
                    "model=…, data=…, out=…, learning_rate=…) here (docs/from-trl.md)"
                )
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"its public names are {', '.join(names)}"
            raise AttributeError(f"{package} has no {name!r}; {hint}")
        home = homes[name]
        # `from plaudit import losses` in the stub names a module, not a name within one.
        return import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)

    return fetch, lambda: names, names


def homes_of(stub: Path) -> dict[str, str]:
    return {
        alias.name: node.module or ""
        for node in ast.parse(stub.read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@cache
def field_docstrings(config_type: type) -> dict[str, str]:
    docs: dict[str, str] = {}
    for ancestor in reversed(config_type.__mro__):
        # A class that was made of a function's signature has no source; its fields carry their docs.
        if dataclasses.is_dataclass(ancestor) and "generated" not in vars(ancestor):
            docs |= _docstrings_in(_class_definition(ancestor).body)
    return docs


def _docstrings_in(body: list[ast.stmt]) -> dict[str, str]:
    docs: dict[str, str] = {}
    # Python keeps no docstring of a field: it is the text right behind the annotation in the source.
    for statement, following in pairwise(body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
            case _:
                pass
    return docs


def _class_definition(config_type: type) -> ast.ClassDef:
    node: ast.AST = _module_tree(config_type.__module__)
    for name in config_type.__qualname__.split("."):
        if name != "<locals>":
            node = next(n for n in ast.walk(node) if isinstance(n, _DEFINITION_NODES) and n.name == name)
    assert isinstance(node, ast.ClassDef)
    return node


_DEFINITION_NODES = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def _module_tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))
