"""Lists in YAML files that people write: what is wrong with an entry is named by its place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from plaudit.config import did_you_mean
from plaudit.errors import UserError

Entry = TypeVar("Entry")


def read_yaml(path: Path | Traversable, name: str, kind: str) -> Any:
    """What is in a file; messages call it by this name, and say of which kind it should be."""
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{name}: cannot be read as {kind}: {error}") from error


def read_entry(kind: type[Entry], where: str, row: object, expected: str) -> Entry:
    """One entry as a dataclass, whose fields without a default have to be there."""
    known = fields(kind)  # type: ignore[arg-type]
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected {expected}; found {row!r:.60}")
    refuse_unknown(where, row, [part.name for part in known])
    for part in known:
        if part.default is MISSING and part.name not in row:
            raise UserError(f"{where}: {part.name} is missing")
    try:
        return kind(**row)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def refuse_unknown(where: str, row: Iterable[object], known: Sequence[str]) -> None:
    for name in row:
        if name not in known:
            raise UserError(f"{where}: nothing is called {name!r}{did_you_mean(str(name), known)}")


def check_weight(weight: object) -> None:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise UserError(f"weight is {weight!r}: expected a number above 0")
