"""Libraries that not everyone has: imported when asked for, and named when missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from plaudit.errors import UserError


def required(package: str) -> Any:
    """The package, imported; a ``UserError`` with the extra to install when it is not there."""
    try:
        module = import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise UserError(_missing(package)) from None
    if module.__file__ is None:
        # A folder called wandb or mlflow, such as these tools leave behind, imports as an empty package.
        raise UserError(
            f"{_missing(package)} (Python found only a folder of that name: {[*module.__path__]}.)"
        )
    return module


def _missing(package: str) -> str:
    return f'logging to {package} needs a package that is not installed: pip install "plaudit[{package}]"'
