"""What the checkers share: the repository's Python files, parsed, and the way to report on them."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("src", "tests", "tools", "examples", "benchmarks")
"""Where Python lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One parsed file.

    Example: ``Source(path=Path("src/plaudit/errors.py"), text="...", tree=ast.parse("..."))``
    """

    path: Path
    """Relative to the root."""
    text: str
    """Its text."""
    tree: ast.Module
    """Its syntax tree."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Fault:
    """One thing to mend.

    Example: ``Fault(path=Path("src/plaudit/errors.py"), line=3, message="file of 301 lines")``
    """

    path: Path
    """Where, relative to the root."""
    line: int
    """On which line."""
    message: str
    """What is wrong, and what would be right."""


def root_from_arguments() -> Path:
    """The root that the command line names, or the repository that holds this file."""
    return Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]


def sources(root: Path, folders: Sequence[str] = FOLDERS) -> list[Source]:
    """Every Python file under the folders, in the order of their paths."""
    gc.disable()  # Nothing of a tree is garbage, and looking for some takes longer than the trees do.
    try:
        paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
        texts = [(path, path.read_text("utf-8")) for path in paths]
        return [
            Source(path=path.relative_to(root), text=text, tree=ast.parse(text, str(path)))
            for path, text in texts
        ]
    finally:
        gc.freeze()
        gc.enable()


def report(faults: Sequence[Fault], checked: int, summary: str) -> int:
    """Prints the faults and what was looked at; 0 when something was looked at and all of it is right."""
    for fault in sorted(faults):
        print(f"{fault.path}:{fault.line}: {fault.message}")
    if checked == 0:
        print("nothing to check was found: is this the repository's root?")
    print(summary)
    return 1 if faults or checked == 0 else 0


def docstring_of(body: Sequence[ast.stmt], at: int = 0) -> ast.Expr | None:
    """The statement at an index of a body, when it is a bare string."""
    if at >= len(body):
        return None
    statement = body[at]
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return statement if isinstance(statement.value.value, str) else None
    return None


def name_of(expression: ast.expr) -> str:
    """The dotted name of an expression, without calls and subscripts: ``a.b[int]`` is ``a.b``."""
    if isinstance(expression, ast.Call):
        return name_of(expression.func)
    if isinstance(expression, ast.Subscript):
        return name_of(expression.value)
    if isinstance(expression, ast.Attribute):
        return f"{name_of(expression.value)}.{expression.attr}"
    return expression.id if isinstance(expression, ast.Name) else ""
