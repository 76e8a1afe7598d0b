"""A frozen record again from the JSON that `dataclasses.asdict` made of it."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")
"""A dataclass."""


def revived(kind: type[Record], value: object) -> Record:
    """The record, what is missing as its default; ``ValueError`` names the place of what does not fit.

    >>> from plaudit.evaluation.result import Estimate
    >>> revived(Estimate, {"value": 0.5, "low": None, "high": None, "n": 3, "prompts": 2}).n
    3
    """
    return _revived(kind, value, kind.__name__)


def _revived(kind: Any, value: Any, where: str) -> Any:
    if is_dataclass(kind):
        return _record(kind, value, where)
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        wanted = [one for one in inside if one is not types.NoneType]
        return None if value is None and len(wanted) < len(inside) else _revived(wanted[0], value, where)
    if origin is tuple:
        return _row(inside, value, where)
    if origin is not None:
        return {str(name): _revived(inside[1], part, f"{where}.{name}") for name, part in dict(value).items()}
    return _plain(kind, value, where)


def _record(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is not an object")
    hints = get_type_hints(kind)
    known = {part.name for part in fields(kind)}
    wanted = {part.name for part in fields(kind) if _has_no_default(part)}
    if not wanted <= set(value) <= known:
        wrong = (wanted - set(value)) | (set(value) - known)
        raise ValueError(f"{where} lacks or has too much: {', '.join(sorted(wrong))}")
    return kind(**{name: _revived(hints[name], value[name], f"{where}.{name}") for name in value})


def _has_no_default(part: Field[Any]) -> bool:
    return part.default is MISSING and part.default_factory is MISSING


def _row(inside: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where} is not a list")
    kinds = [inside[0]] * len(value) if inside[1:] == (...,) else inside
    if len(kinds) != len(value):
        raise ValueError(f"{where} has {len(value)} entries, not {len(kinds)}")
    return tuple(
        _revived(kind, one, f"{where}[{at}]") for at, (kind, one) in enumerate(zip(kinds, value, strict=True))
    )


def _plain(kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if kind is not Any and type(value) is not kind:
        raise ValueError(f"{where} is {value!r}, which is no {kind.__name__}")
    return value
