"""What a user wrote in a file or a module of their own: ``file.py:name`` or ``module:name``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from plaudit.errors import UserError
from plaudit.methods.signature import Algorithm, algorithm, describe


def load_object(word: str, option: str) -> object:
    """The object at ``file.py:name`` or ``module:name``; ``option`` begins each complaint.

    >>> load_object("math:pi", "--own")
    3.141592653589793
    """
    module_path, _, name = word.rpartition(":")
    if not module_path or not name:
        raise UserError(f"{option} {word}: write file.py:name or module:name")
    try:
        return getattr(_import_module(module_path), name)
    except (ImportError, AttributeError, OSError, SyntaxError) as error:
        raise UserError(f"{option} {word}: cannot be had: {error}") from error


def load_algorithm(word: str, *records: type, example: str) -> Algorithm:
    """The algorithm of ``file.py:name``: a function with settings, or a record (one of these) without any."""
    found = load_object(word, "--algorithm")
    if isinstance(found, records):
        record: Any = found

        def fixed() -> Any:
            return record

        return replace(describe(fixed), name=word.rpartition(":")[2], formula=record.formula)
    if not callable(found):
        raise UserError(
            f"--algorithm {word} is a {type(found).__name__}, and neither a function that makes an algorithm "
            f"nor one: write {example}"
        )
    return describe(algorithm(found))


def _import_module(module_path: str) -> ModuleType:
    if not module_path.endswith(".py"):
        if not {"", os.getcwd()} & {*sys.path}:
            # An installed command does not look in the present folder, where a user's own module lies.
            sys.path.append(os.getcwd())
        return importlib.import_module(module_path)
    spec = importlib.util.spec_from_file_location(f"own_{Path(module_path).stem}", module_path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{module_path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Records with annotations written as strings look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
