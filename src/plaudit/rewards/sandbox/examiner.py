"""The process that holds the tests: it runs them, asks the answer's process for results, gives the verdict.

The verdict goes out by a line that the answer's process never had. Whatever names the tests use and do not
define are the answer's; a built-in function stays Python's own unless the tests are about nothing else.
"""

import ast
import builtins
import importlib
import json
import os
import symtable
import sys
from collections.abc import Iterable, Sequence, Set
from types import CodeType

from plaudit.rewards.sandbox.peer import CaptureError, Peer, open_class
from plaudit.rewards.sandbox.plain import OPERATIONS
from plaudit.rewards.sandbox.runner import connect_peer, module_names, start_confined

TESTS_MODULE = "tests"
"""The module that the tests' own classes belong to."""


def main() -> None:
    """Run the tests of the setup file and write the verdict."""
    setup = start_confined()
    peer: Peer

    def serve(operation: str, args: list[object], kwargs: dict[str, object]) -> object:
        check_access(peer, operation, args)
        try:
            return OPERATIONS[operation](*args, **kwargs)
        except AssertionError as error:
            # The program that called back has it in its hands, and may let it fall.
            peer.failed = f"a test's function that the answer called: {_describe_error(error)}"
            raise

    peer = connect_peer(setup, serve, trusts=False)
    passed, reason = examine(peer, setup["tests"])
    # One write at the very end: before it, a killed or stuck examiner has said nothing at all.
    os.write(setup["verdict"], json.dumps({"passed": passed, "why": reason[:1000]}).encode())


def check_access(peer: Peer, operation: str, args: Sequence[object]) -> None:
    """Let the answer use what the tests gave it, and nothing behind it.

    By a function's attributes one would come to all the tests. So attributes are those of objects whose class
    the tests define, and only those with a public name.
    """
    if not args or not peer.owns(args[0]) or operation == "data":
        raise TypeError("nothing of this was given")
    if operation in ("getattr", "setattr", "delattr"):
        name = args[1] if len(args) > 1 else None
        is_public = isinstance(name, str) and not name.startswith("_")
        # What functools.wraps takes over of a function.
        is_label = operation == "getattr" and name in ("__name__", "__qualname__", "__doc__")
        if not is_label and not (is_public and type(args[0]).__module__ == TESTS_MODULE):
            raise AttributeError("this is not for the answer to see")
        # A method in its place would answer for the tests' own.
        if operation != "getattr" and callable(getattr(args[0], str(name), None)):
            raise AttributeError("this is not for the answer to change")


def examine(peer: Peer, tests: Sequence[str]) -> tuple[bool | None, str]:
    """Whether all tests pass, and what went wrong; None where nobody can tell."""
    found: object = None
    # First of all, which also waits for the other process to be confined.
    with CaptureError() as not_loaded:
        found = peer.request("load")
    # Before the answer is looked at: what the tests lack is the fault of none of them.
    try:
        codes, requested = _read_tests(tests)
    except (SyntaxError, ValueError, RecursionError) as error:
        return None, f"the tests cannot be run: {error}"
    if not_loaded.error is not None:
        return False, f"the answer does not run: {_describe_error(not_loaded.error)}"
    defined = requested & {*found} if isinstance(found, list) else set[str]()
    if not defined:
        return False, f"the answer does not define {', '.join(sorted(requested))}"
    harmless = _harmless_lines(tests)
    peer.may_swallow = lambda trace: (trace.tb_frame.f_code.co_filename, trace.tb_lineno) in harmless
    passed, reason = False, ""
    with CaptureError() as caught:
        passed, reason = _run_tests(peer, codes, _test_namespace(peer, "\n".join(tests), defined))
    # Tests of a class may ask what nobody but the program could tell; of a function's result that is no plain
    # data the program is to blame, or an answer that nobody can judge would be a way round every verdict.
    is_blameless = peer.refused and not peer.failed and any(map(_names_class, requested))
    return None if is_blameless else passed, reason or _describe_error(caught.error)


def _read_tests(tests: Sequence[str]) -> tuple[list[CodeType], set[str]]:
    """The tests, and the names that they expect of the answer; raises where no answer could pass."""
    codes = [compile(test, f"test {n}", "exec") for n, test in enumerate(tests, 1)]
    source = "\n".join(tests)
    missing, requested = missing_packages(source), requested_names(source)
    if missing:
        raise ValueError(f"they need {', '.join(missing)}, and the sandbox has the standard library only")
    if not requested:
        raise ValueError("they use nothing that an answer could define")
    return codes, requested


def _run_tests(peer: Peer, codes: Sequence[CodeType], namespace: dict[str, object]) -> tuple[bool, str]:
    for n, code in enumerate(codes, 1):
        with CaptureError() as caught:
            exec(code, namespace)
        # A test may catch everything and go on; a line that broke on the way is a failure all the same.
        failed = peer.failed or peer.refused
        if caught.error is not None or failed:
            return False, f"test {n} of {len(codes)}: {failed or _describe_error(caught.error)}"
    return True, "all passed"


def _describe_error(error: BaseException | None) -> str:
    text = ""
    # What a test says of a failure may be the answer's object, whose text is had from its process.
    with CaptureError():
        text = str(error)[:500]
    return f"{type(error).__name__}: {text}"


def _test_namespace(peer: Peer, source: str, defined: Iterable[str]) -> dict[str, object]:
    namespace = module_names(TESTS_MODULE)
    free = free_names(source)
    for name in sorted(free & _LENT.keys()):
        namespace[name] = getattr(importlib.import_module(_LENT[name]), name)
    for name in sorted(dotted_names(source) & free & sys.stdlib_module_names):
        # The answer's import is not taken over: it could be anything.
        namespace[name] = importlib.import_module(name)
    for name in sorted(defined):
        namespace[name] = peer.request("global", name)
        if _names_class(name):
            open_class(namespace[name])
    return namespace


def _names_class(name: str) -> bool:
    """Whether the tests ask for a class: they say so by its name, since a program may say what it likes."""
    return name.lstrip("_")[:1].isupper()


def _harmless_lines(tests: Sequence[str]) -> set[tuple[str, int]]:
    """Where an error leaves nothing out, so that a context manager of the answer may end it."""
    # That is the end of a ``with`` that stands in no other, if it raises or has no names: what comes of
    # anything else may stand before a claim, or be one.
    harmless, inside = set[tuple[str, int]](), set[ast.AST]()
    for n, test in enumerate(tests, 1):
        for node in ast.walk(ast.parse(test)):
            if isinstance(node, ast.With) and node not in inside:
                inside.update(ast.walk(node))
                *others, last = node.body
                claims = [part for part in ast.walk(last) if isinstance(part, ast.Name | ast.Assert)]
                if isinstance(last, ast.Raise) or not claims:
                    harmless.add((f"test {n}", last.lineno))
                harmless -= {(f"test {n}", other.end_lineno) for other in others}
    return harmless


_LENT = {"Counter": "collections", "OrderedDict": "collections", "deque": "collections", "isclose": "math"}
"""What tests compare with and often do not import: Python's own, unless the tests are about nothing else."""
_PACKAGES = frozenset(["np", "numpy", "pd", "pandas", "scipy", "sympy", "torch", "tf", "pytest"])
"""Names that stand for packages where tests use them and nobody defines them."""


def requested_names(source: str) -> set[str]:
    """The names that the tests expect of the answer.
    With nothing else to ask for, a name such as ``sum`` is the function that was to be written: the one that
    is called innermost, so that what only compares stays Python's own.

    >>> requested_names("assert abs(f(2) - 1) < 0.1"), requested_names("assert abs(sum([2]) - 2) < 0.1")
    ({'f'}, {'sum'})
    """
    free = free_names(source) - (dotted_names(source) & sys.stdlib_module_names)
    undefined = {name for name in free if not hasattr(builtins, name)}
    return undefined - _LENT.keys() or undefined or _innermost_builtins(source, free)


def _innermost_builtins(source: str, free: Set[str]) -> set[str]:
    # Classes (range, list, set) mostly make what a function is given: they are asked for after functions.
    calls = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in free
    ]
    functions = [call for call in calls if not isinstance(getattr(builtins, _called(call)), type)]
    chosen = functions or calls
    return {_called(call) for call in chosen if not any(part in chosen for part in [*ast.walk(call)][1:])}


def _called(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Name)
    return call.func.id


def missing_packages(source: str) -> list[str]:
    """The packages that the tests need and that are not part of Python.

    >>> missing_packages("import math, numpy.linalg; from solution import f; np.allclose(f(), 1)")
    ['np', 'numpy', 'solution']
    """
    nodes = [*ast.walk(ast.parse(source))]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    roots = {module.partition(".")[0] for module in modules}
    return sorted(dotted_names(source) & free_names(source) & _PACKAGES | roots - sys.stdlib_module_names)


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
    scopes = [symtable.symtable(source, "tests", "exec")]
    for scope in scopes:
        scopes += scope.get_children()
    symbols = {symbol for scope in scopes for symbol in scope.get_symbols()}
    bound = {symbol for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    bound |= {symbol for symbol in symbols if symbol.is_parameter()}
    used = {symbol.get_name() for symbol in symbols if symbol.is_referenced()}
    return used - {symbol.get_name() for symbol in bound}
