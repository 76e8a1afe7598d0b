"""Values as JSON, without losing their type; nothing that is read can run anything.

What is not plain data stays where it is: the caller says how it is named.
"""

from __future__ import annotations

import builtins
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

Packed = Any
"""What JSON can say."""

_SAFE = 2**53
"""Whole numbers below are JSON's own."""


def pack(value: object, other: Callable[[object], Packed]) -> Packed:
    """A value as JSON; ``other`` names what is no plain data.

    >>> pack((1, "a"), repr), pack({2: None}, repr)
    (['tuple', [1, 'a']], ['dict', [[2, None]]])
    """
    kind = type(value)
    if value is None or kind in (bool, str, float):
        return value
    # Not by isinstance: a proxy would be asked what it is, and asking packs it again.
    if issubclass(kind, type):
        name = str(getattr(value, "__name__", ""))
        return ["type", name] if getattr(builtins, name, None) is value else other(value)
    return _typed(value, other) if kind in _TYPED else other(value)


def _typed(value: Any, other: Callable[[object], Packed]) -> Packed:
    kind = type(value)
    if kind is int:
        return value if abs(value) < _SAFE else ["int", hex(value)]
    if kind in _TAKEN_APART:
        return [kind.__name__, _TAKEN_APART[kind](value)]
    if kind in _PAIRS:
        return [kind.__name__, [[pack(k, other), pack(v, other)] for k, v in value.items()]]
    parts = (value.start, value.stop, value.step) if kind in (slice, range) else value
    return [kind.__name__, [pack(part, other) for part in parts]]


def unpack(packed: Packed, other: Callable[[Packed], object]) -> object:
    """The value again; raises ValueError for what `pack` does not write.

    >>> unpack(["set", [1, 2]], repr)
    {1, 2}
    """
    if not isinstance(packed, list):
        if isinstance(packed, dict):
            raise ValueError("no value")
        return packed
    if len(packed) != 2 or packed[0] not in _PUT_TOGETHER:
        return other(packed)
    kind, inside = packed
    if kind in _PAIRED_NAMES:
        return _PUT_TOGETHER[kind]([(unpack(k, other), unpack(v, other)) for k, v in inside])
    if kind in _NESTED_NAMES:
        return _PUT_TOGETHER[kind]([unpack(item, other) for item in inside])
    return _PUT_TOGETHER[kind](inside)


def _builtin_type(name: str) -> type:
    found = getattr(builtins, name)
    if not isinstance(found, type):
        raise ValueError(f"{name} is no type")
    return found


_PAIRS = frozenset([dict, OrderedDict, Counter])
_NESTED = frozenset([list, tuple, set, frozenset, deque, slice, range])
_TAKEN_APART: Mapping[type, Callable[[Any], Packed]] = {
    bytes: bytes.hex,
    bytearray: bytearray.hex,
    complex: lambda v: [v.real, v.imag],
    Decimal: str,
    Fraction: lambda v: [hex(v.numerator), hex(v.denominator)],
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: lambda v: [v.days, v.seconds, v.microseconds],
}
_TYPED = frozenset([int, *_TAKEN_APART, *_PAIRS, *_NESTED])
_PAIRED_NAMES = frozenset(kind.__name__ for kind in _PAIRS)
_NESTED_NAMES = frozenset(kind.__name__ for kind in _NESTED)
_PUT_TOGETHER: Mapping[str, Callable[[Any], object]] = {
    "int": lambda v: int(v, 16),
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": lambda v: Counter(dict(v)),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": lambda v: complex(*v),
    "Decimal": Decimal,
    "Fraction": lambda v: Fraction(int(v[0], 16), int(v[1], 16)),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda v: timedelta(*v),
    "slice": lambda v: slice(*v),
    "range": lambda v: range(*v),
    "type": _builtin_type,
}
