"""Frozen dataclass records, made again of what `dataclasses.asdict` and JSON made of them."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def restore(kind: type[Record], value: object) -> Record:
    """The record, what is missing as its default; ``ValueError`` names the place of what does not fit.

    >>> from plaudit.evaluation.stats import Estimate
    >>> restore(Estimate, {"value": 0.5, "low": None, "high": None, "n": 3, "prompts": 2}).n
    3
    """
    return _restore_value(kind, value, kind.__name__)


def _restore_value(kind: Any, value: Any, where: str) -> Any:
    if is_dataclass(kind):
        return _restore_record(kind, value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        candidates = [argument for argument in arguments if argument is not types.NoneType]
        return (
            None
            if value is None and len(candidates) < len(arguments)
            else _restore_value(candidates[0], value, where)
        )
    if origin is tuple:
        return _restore_tuple(arguments, value, where)
    if origin is not None:
        return {
            str(name): _restore_value(arguments[1], part, f"{where}.{name}")
            for name, part in dict(value).items()
        }
    # JSON of other writers has 1 where a float was meant; the reverse, and true for 1, is a fault.
    if kind is float and type(value) is int:
        return float(value)
    if kind is not Any and type(value) is not kind:
        raise ValueError(f"{where} is {value!r}, which is no {kind.__name__}")
    return value


def _restore_record(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is not an object")
    hints = get_type_hints(kind)
    allowed = {part.name for part in fields(kind)}
    required = {part.name for part in fields(kind) if part.default is part.default_factory is MISSING}
    if not required <= set(value) <= allowed:
        wrong = (required - set(value)) | (set(value) - allowed)
        raise ValueError(f"{where} lacks or has too much: {', '.join(sorted(wrong))}")
    return kind(**{name: _restore_value(hints[name], value[name], f"{where}.{name}") for name in value})


def _restore_tuple(arguments: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where} is not a list")
    # tuple[X, …] holds any number of one kind; any other tuple type says each place.
    kinds = [arguments[0]] * len(value) if arguments[1:] == (...,) else arguments
    if len(kinds) != len(value):
        raise ValueError(f"{where} has {len(value)} entries, not {len(kinds)}")
    return tuple(
        _restore_value(kind, item, f"{where}[{at}]")
        for at, (kind, item) in enumerate(zip(kinds, value, strict=True))
    )
