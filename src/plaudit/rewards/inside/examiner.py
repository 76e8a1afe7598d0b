"""The process that holds the tests: it runs them, asks the answer's process for results, gives the verdict.

The verdict goes out by a line that the answer's process never had. Whatever names the tests use and do not
define are the answer's; a built-in function stays Python's own unless the tests are about nothing else.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import os
import sys
from collections.abc import Sequence
from types import CodeType

from plaudit.rewards.inside.operations import OPERATIONS
from plaudit.rewards.inside.peer import Caught, Peer
from plaudit.rewards.inside.start import begin, line

NAME = "tests"
"""The module that the tests' own classes belong to."""


def main() -> None:
    """Examine, and say how it went."""
    told = begin()
    peer: Peer

    def serve(do: str, given: list[object], named: dict[str, object]) -> object:
        refuse(peer, do, given)
        return OPERATIONS[do](*given, **named)

    peer = line(told, serve)
    passed, why = examine(peer, told["tests"])
    os.write(told["verdict"], json.dumps({"passed": passed, "why": why[:1000]}).encode())


def refuse(peer: Peer, do: str, given: Sequence[object]) -> None:
    """Let the answer use what the tests gave it, and nothing behind it.

    By a function's attributes one would come to all the tests. So attributes are those of objects whose class
    the tests define, and only those with a public name.
    """
    if not given or not peer.owns(given[0]):
        raise TypeError("nothing of this was given")
    if do in ("getattr", "setattr"):
        name = given[1] if len(given) > 1 else None
        public = isinstance(name, str) and not name.startswith("_")
        if not public or type(given[0]).__module__ != NAME:
            raise AttributeError("this is not for the answer to see")


def examine(peer: Peer, tests: Sequence[str]) -> tuple[bool | None, str]:
    """Whether all tests pass, and what went wrong; None where the tests themselves cannot be run."""
    with Caught() as caught:
        defined = peer.ask("load")
        try:
            codes = [compile(test, f"test {n}", "exec") for n, test in enumerate(tests, 1)]
        except (SyntaxError, ValueError) as error:
            return None, f"the tests are not Python: {error}"
        space = _space(peer, tests, defined if isinstance(defined, list) else [])
        return _run(peer, codes, space)
    return False, f"the answer does not run: {_said(caught.error)}"


def _run(peer: Peer, codes: Sequence[CodeType], space: dict[str, object]) -> tuple[bool, str]:
    for n, code in enumerate(codes, 1):
        with Caught() as caught:
            exec(code, space)
        if caught.error is not None or peer.gone:
            return False, f"test {n} of {len(codes)}: {_said(caught.error)}"
    return True, ""


def _said(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"


def _space(peer: Peer, tests: Sequence[str], defined: Sequence[object]) -> dict[str, object]:
    """The names that the tests see."""
    free = free_names("\n".join(tests))
    wanted = {name for name in free if not hasattr(builtins, name)}
    space: dict[str, object] = {"__name__": NAME, "__builtins__": builtins}
    modules = {name for name in dotted_names("\n".join(tests)) if name in sys.stdlib_module_names}
    # With nothing else to ask for, a name such as `sum` is the function that was to be written.
    for name in sorted(wanted or free):
        if name in modules:
            # The answer's import is not taken over: it could be anything.
            space[name] = importlib.import_module(name)
        elif name in defined:
            space[name] = peer.ask("global", name)
    return space


def dotted_names(source: str) -> set[str]:
    """The names that something is fetched from.

    >>> dotted_names("math.pi + f(x)")
    {'math'}
    """
    nodes = ast.walk(ast.parse(source))
    return {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def free_names(source: str) -> set[str]:
    """The names that a program uses and nowhere defines.

    >>> sorted(free_names("import math; x = f(2); assert abs(x - math.pi) < 1"))
    ['abs', 'f']
    """
    used, bound = set[str](), set[str]()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=other):
                bound.add(other or name.partition(".")[0])
            case ast.arg(arg=name):
                bound.add(name)
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case _:
                pass
    return used - bound
