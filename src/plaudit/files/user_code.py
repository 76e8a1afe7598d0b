"""Code that a user wrote: its modules, by file or by name, and its ends, which are not those of the run."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from plaudit.errors import CommandEnd, UserError

_end_process = os._exit
"""Python's own."""
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
    """The module of ``file.py`` or of ``package.module``; raises what its import raises.

    >>> import_user_module("math").sqrt(4.0)
    2.0
    """
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
