"""Modules that a user wrote: a file of theirs, or what can be imported by name from the present folder."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import zlib
from pathlib import Path
from types import ModuleType


def import_user_module(word: str) -> ModuleType:
    """The module of ``file.py`` or of ``package.module``; raises what its import raises.

    >>> import_user_module("math").sqrt(4.0)
    2.0
    """
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
