"""Code that a user wrote: its modules, by file or by name, and its functions, called with what they take.

Its ends are not those of the run.
"""

import importlib
import importlib.util
import inspect
import os
import sys
import threading
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from plaudit.errors import CommandEnd, UserError, located

_end_process = os._exit
_guarded = threading.local()
"""Of each thread: the process in which it runs guarded code; nothing where it does not."""


@contextmanager
def exit_refused(what: str) -> Iterator[None]:
    """While this lasts ``sys.exit`` and ``os._exit`` are errors: a run that they end would look finished.

    >>> with exit_refused("mine.py:short"):
    ...     raise SystemExit(0)
    Traceback (most recent call last):
    plaudit.errors.UserError: mine.py:short: it ended the program (SystemExit: 0); return, or raise an error
    """
    before = getattr(_guarded, "process", None)
    _guarded.process = os.getpid()
    # Once and for all: which thread runs guarded code is looked up when it is called.
    os._exit = _refuse_or_end
    try:
        yield
    except CommandEnd:
        raise
    except SystemExit as end:
        raise UserError(
            f"{what}: it ended the program ({type(end).__name__}: {end.code}); return, or raise an error"
        ) from end
    finally:
        _guarded.process = before


def _refuse_or_end(status: int) -> NoReturn:
    # A fork of the user's own may end: it is another process.
    if getattr(_guarded, "process", None) == os.getpid():
        raise SystemExit(f"os._exit({status})")
    _end_process(status)


def import_user_module(word: str) -> ModuleType:
    """The module of ``file.py`` or of ``package.module``; raises what its import raises."""
    with exit_refused(word):
        if word.endswith(".py"):
            return _load_file(Path(word))
        if not {"", os.getcwd()} & {*sys.path}:
            # An installed command does not look in the present folder, where a user's own module lies.
            sys.path.append(os.getcwd())
        return importlib.import_module(word)


def _load_file(path: Path) -> ModuleType:
    # Not by its stem alone: a user's math.py must not stand for Python's own, nor for another folder's.
    name = f"own_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses with annotations written as strings look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def accepted_arguments(
    name: str, function: Callable[..., object], available: tuple[str, ...], *, required: tuple[str, ...]
) -> tuple[str, ...]:
    """Which of the available arguments the function takes; one that lacks a required argument is refused.

    >>> accepted_arguments("mine", lambda answer, seed=0: 0, ("prompt", "answer"), required=("answer",))
    ('answer',)
    """
    with located(f"{name}: it does not say what it takes", TypeError, ValueError):
        parameters = inspect.signature(function).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    accepted = tuple(entry.name for entry in parameters if entry.kind in named and entry.name in available)
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    mandatory = (entry for entry in parameters if entry.default is entry.empty and entry.kind not in several)
    unavailable = [entry.name for entry in mandatory if entry.name not in accepted]
    if any(entry.kind is entry.VAR_KEYWORD for entry in parameters):
        accepted = tuple(dict.fromkeys((*accepted, *available)))
    missing = [name for name in required if name not in accepted]
    if unavailable or missing:
        missing_message = f"it does not take the {' and the '.join(missing)}"
        message = f"it asks for {', '.join(unavailable)}" if unavailable else missing_message
        # As other libraries call theirs: once, with lists.
        listed = {*unavailable} & {"completions", "prompts", "completion_ids", "samples", "outputs"}
        hint = f" (for one answer at a time: `def f({', '.join(required)}, **rest)`)" if listed else ""
        if not listed and (len(unavailable) > 1 or "first" in required):
            hint = "; a judge of two answers is `def f(first, second, prompt)`"
        raise UserError(f"{name}: {message}; it is called by name with any of {', '.join(available)}{hint}")
    return accepted


def call_user_function(
    where: str, function: Callable[..., object], arguments: Mapping[str, object]
) -> object:
    """The result of a user's function; an exception becomes an error that names where it was called."""
    with exit_refused(where):
        try:
            return function(**arguments)
        # Nobody knows what it raises.
        except Exception as error:
            file = getattr(getattr(function, "__code__", None), "co_filename", "")
            raise UserError(
                f"{where}: it raised {type(error).__name__}: {error}{line_in(error, file)}"
            ) from error


def line_in(error: Exception, file: str) -> str:
    """The line of a user's file at which an error left it; empty where that is not known."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [at.lineno for at in frames if file and Path(at.filename).resolve() == Path(file).resolve()]
    return f" ({Path(file).name}, line {lines[-1]})" if lines else ""
