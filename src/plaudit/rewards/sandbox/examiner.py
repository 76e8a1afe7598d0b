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

from plaudit.rewards.sandbox.peer import OPERATIONS, CaptureError, Peer
from plaudit.rewards.sandbox.runner import connect_peer, start_confined

TESTS_MODULE = "tests"
"""The module that the tests' own classes belong to."""


def main() -> None:
    """Run the tests of the setup file and write the verdict."""
    setup = start_confined()
    peer: Peer

    def serve(operation: str, args: list[object], kwargs: dict[str, object]) -> object:
        check_access(peer, operation, args)
        return OPERATIONS[operation](*args, **kwargs)

    peer = connect_peer(setup, serve, trusts=False)
    passed, reason = examine(peer, setup["tests"])
    # One write at the very end: before it, a killed or stuck examiner has said nothing at all.
    os.write(setup["verdict"], json.dumps({"passed": passed, "why": reason[:1000]}).encode())


def check_access(peer: Peer, operation: str, args: Sequence[object]) -> None:
    """Let the answer use what the tests gave it, and nothing behind it.

    By a function's attributes one would come to all the tests. So attributes are those of objects whose class
    the tests define, and only those with a public name.
    """
    if not args or not peer.owns(args[0]):
        raise TypeError("nothing of this was given")
    if operation in ("getattr", "setattr"):
        name = args[1] if len(args) > 1 else None
        public = isinstance(name, str) and not name.startswith("_")
        if not public or type(args[0]).__module__ != TESTS_MODULE:
            raise AttributeError("this is not for the answer to see")


def examine(peer: Peer, tests: Sequence[str]) -> tuple[bool | None, str]:
    """Whether all tests pass, and what went wrong; None where the tests themselves cannot be run."""
    with CaptureError() as caught:
        defined = peer.request("load")
        try:
            codes = [compile(test, f"test {n}", "exec") for n, test in enumerate(tests, 1)]
        except (SyntaxError, ValueError) as error:
            return None, f"the tests are not Python: {error}"
        namespace = _test_namespace(peer, tests, defined if isinstance(defined, list) else [])
        return _run_tests(peer, codes, namespace)
    return False, f"the answer does not run: {_describe_error(caught.error)}"


def _run_tests(peer: Peer, codes: Sequence[CodeType], namespace: dict[str, object]) -> tuple[bool, str]:
    for n, code in enumerate(codes, 1):
        with CaptureError() as caught:
            exec(code, namespace)
        # A test may catch everything and go on; a line that broke on the way is a failure all the same.
        if caught.error is not None or peer.has_ended:
            return False, f"test {n} of {len(codes)}: {_describe_error(caught.error)}"
    return True, ""


def _describe_error(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"


def _test_namespace(peer: Peer, tests: Sequence[str], defined: Sequence[object]) -> dict[str, object]:
    """The names that the tests see."""
    free = free_names("\n".join(tests))
    undefined = {name for name in free if not hasattr(builtins, name)}
    namespace: dict[str, object] = {"__name__": TESTS_MODULE, "__builtins__": builtins}
    modules = {name for name in dotted_names("\n".join(tests)) if name in sys.stdlib_module_names}
    # With nothing else to ask for, a name such as `sum` is the function that was to be written.
    for name in sorted(undefined or free):
        if name in modules:
            # The answer's import is not taken over: it could be anything.
            namespace[name] = importlib.import_module(name)
        elif name in defined:
            namespace[name] = peer.request("global", name)
    return namespace


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
    # Scopes are not told apart: a name that the tests bind anywhere counts as theirs everywhere.
    used, bound = set[str](), set[str]()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            # Stored or deleted: every context but a load makes the name the tests' own.
            case ast.Name(id=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=other):
                # `import a.b` binds a.
                bound.add(other or name.partition(".")[0])
            case ast.arg(arg=name):
                bound.add(name)
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case _:
                pass
    return used - bound
