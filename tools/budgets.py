"""Budgets that no file may leave: lines of a file and of a function, arguments, depth of inheritance.

There is no list of exceptions: what does not fit is cut into parts with names.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.ancestry import depths
from tools.tree import Fault, Source, docstring_of, report, root_from_arguments, sources

FILE_LINES = 600
"""Lines of a file, all of them counted."""
FUNCTION_LINES = 40
"""Lines of a function from its ``def`` to its end, without its docstring."""
ARGUMENTS = 8
"""Arguments of a function, without ``self`` and ``cls``."""
DEPTH = 1
"""Classes of the repository above a class."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
"""Both kinds of function."""


def length_of(function: Function) -> int:
    """Lines of a function without its docstring."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    docstring = docstring_of(function.body)
    if docstring is None or docstring.end_lineno is None:
        return lines
    return lines - (docstring.end_lineno - docstring.lineno + 1)


def arguments_of(function: Function) -> int:
    """How many arguments a caller has to know."""
    arguments = function.args
    named = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    starred = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return len([name for name in named if name not in ("self", "cls")]) + len(starred)


def faults_of(source: Source, functions: Sequence[Function]) -> Iterator[Fault]:
    """What in one file, of these functions, is over its budget."""
    lines = len(source.text.splitlines())
    if lines > FILE_LINES:
        yield Fault(path=source.path, line=1, message=f"file of {lines} lines, at most {FILE_LINES}")
    for function in functions:
        about = f"function {function.name}"
        length, arguments = length_of(function), arguments_of(function)
        if length > FUNCTION_LINES:
            message = f"{about}: {length} lines without its docstring, at most {FUNCTION_LINES}"
            yield Fault(path=source.path, line=function.lineno, message=message)
        if arguments > ARGUMENTS:
            message = f"{about}: {arguments} arguments, at most {ARGUMENTS}"
            yield Fault(path=source.path, line=function.lineno, message=message)


def functions_of(source: Source) -> list[Function]:
    """Every function of a file, methods and inner functions too."""
    return [node for node in ast.walk(source.tree) if isinstance(node, Function)]


def depth_faults(files: Sequence[Source]) -> Iterator[Fault]:
    """Classes that inherit through more than one class of the repository."""
    for (source, node), depth in depths(files):
        if depth > DEPTH:
            message = f"class {node.name}: {depth} of our classes above it, at most {DEPTH}; compose instead"
            yield Fault(path=source.path, line=node.lineno, message=message)


def main(root: Path) -> int:
    """Checks a repository; returns the exit code."""
    files = sources(root)
    functions = [functions_of(source) for source in files]
    faults = [
        fault for source, those in zip(files, functions, strict=True) for fault in faults_of(source, those)
    ]
    return report(
        [*faults, *depth_faults(files)],
        len(files),
        f"{len(files)} files, {sum(map(len, functions))} functions",
    )


if __name__ == "__main__":
    sys.exit(main(root_from_arguments()))
