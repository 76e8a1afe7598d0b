"""Plain values as JSON, without losing their type, and back; nothing that is read can run anything.

And what one process does for another with the objects that it has (`OPERATIONS`).
"""

import builtins
import itertools
import operator
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

Packed = Any
"""A Python value as JSON carries it to the peer."""

_MAX_JSON_INTEGER = 2**53
"""Whole numbers below are JSON's own."""


def pack(value: object, other: Callable[[object], Packed]) -> Packed:
    """A value as JSON; ``other`` names what is no plain data.

    >>> pack((1, "a"), repr), pack({2: None}, repr)
    (['tuple', [1, 'a']], ['dict', [[2, None]]])
    """
    kind = type(value)
    # By exact type: a subclass of int whose __eq__ always says yes must not travel as plain data.
    if value is None or kind in (bool, str, float):
        return value
    # Not by isinstance: a proxy would be asked what it is, and asking packs it again.
    if issubclass(kind, type):
        name = str(getattr(value, "__name__", ""))
        # The very built-in: a stranger's class that is merely called int stays where it is.
        return ["type", name] if getattr(builtins, name, None) is value else other(value)
    return _pack_typed(value, other) if kind in _PACKABLE_TYPES else other(value)


def _pack_typed(value: Any, other: Callable[[object], Packed]) -> Packed:
    kind = type(value)
    if kind is int:
        # Hex, since decimals of long integers take quadratic time and Python refuses more than 4,300 digits.
        return value if abs(value) < _MAX_JSON_INTEGER else ["int", hex(value)]
    if kind in _PACKERS:
        return [kind.__name__, _PACKERS[kind](value)]
    if kind in _PAIR_TYPES:
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
    if len(packed) != 2 or packed[0] not in _UNPACKERS:
        return other(packed)
    kind, content = packed
    if kind in _PAIRED_NAMES:
        return _UNPACKERS[kind]([(unpack(k, other), unpack(v, other)) for k, v in content])
    if kind in _NESTED_NAMES:
        return _UNPACKERS[kind]([unpack(item, other) for item in content])
    return _UNPACKERS[kind](content)


def _builtin_type(name: str) -> type:
    builtin = getattr(builtins, name)
    if not isinstance(builtin, type):
        raise ValueError(f"{name} is no type")
    return builtin


_PAIR_TYPES = frozenset([dict, OrderedDict, Counter])
_VIEW_TYPES = frozenset(map(type, ({}.keys(), {}.values(), {}.items())))
_NESTED_TYPES = frozenset([list, tuple, set, frozenset, deque, slice, range, *_VIEW_TYPES])
_PACKERS: Mapping[type, Callable[[Any], Packed]] = {
    bytes: bytes.hex,
    bytearray: bytearray.hex,
    complex: lambda v: [v.real, v.imag],
    Decimal: str,
    Fraction: lambda v: [hex(v.numerator), hex(v.denominator)],
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: lambda v: [v.days, v.seconds, v.microseconds],
    array: lambda v: [v.typecode, v.tolist()],
}
_PACKABLE_TYPES = frozenset([int, *_PACKERS, *_PAIR_TYPES, *_NESTED_TYPES])
_PAIRED_NAMES = frozenset(kind.__name__ for kind in _PAIR_TYPES)
_NESTED_NAMES = frozenset(kind.__name__ for kind in _NESTED_TYPES)
_UNPACKERS: Mapping[str, Callable[[Any], object]] = {
    "int": lambda v: int(v, 16),
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
    "dict": dict,
    "OrderedDict": OrderedDict,
    # By way of a dict: a Counter of a list of pairs would count the pairs.
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
    "array": lambda v: array(*v),
    # Views on a dictionary of their own, which is gone for whoever was lent them.
    "dict_keys": lambda v: dict.fromkeys(v).keys(),
    "dict_values": lambda v: dict(enumerate(v)).values(),
    "dict_items": lambda v: dict(v).items(),
    "type": _builtin_type,
}

PLAIN: tuple[type[Any], ...] = (int, float, str, bytes, tuple, list, dict, set, frozenset)
"""Of a subclass of these the plain data can be had."""


# The data's own methods and not `kind(value)`, which asks the subclass: str(value) is what __str__ says.
_PLAIN_COPIES: Mapping[type, Callable[[Any], object]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda v: bytes.__getitem__(v, slice(None)),
    tuple: lambda v: tuple.__getitem__(v, slice(None)),
    list: list.copy,
    dict: dict.copy,
    set: lambda v: {*set.__iter__(v)},
    frozenset: lambda v: frozenset(frozenset.__iter__(v)),
}


def plain_value(value: Any) -> object:
    """The plain data of an object of a subclass, whatever the subclass says of itself.

    >>> plain_value(type('Any', (int,), {'__eq__': lambda *_: True})(3)) == 4
    False
    """
    return next(copy for kind, copy in _PLAIN_COPIES.items() if issubclass(type(value), kind))(value)


MAX_FETCHED_ITEMS = 100_000
MUTABLE = frozenset([list, dict, set, bytearray])
"""By exact type, as in `pack`: a subclass went as a reference, so there is no copy to bring up to date."""
_SHIFTS = ("lshift", "rshift")
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "and", "or", "xor", *_SHIFTS)
PAIRS = (*_BINARY, "pow", "divmod")
COMPARISONS = ("eq", "lt", "le", "gt", "ge")
SIGNS = ("neg", "pos", "abs", "invert", "index")


def _list_items(value: Iterable[object]) -> object:
    items = tuple(itertools.islice(iter(value), MAX_FETCHED_ITEMS + 1))
    if len(items) > MAX_FETCHED_ITEMS:
        raise ValueError(f"more than {MAX_FETCHED_ITEMS:,} items")
    return items


def _describe_object(value: Any) -> object:
    """What an object is made of: its data where it has some, else its class and its attributes."""
    if isinstance(value, PLAIN):
        return plain_value(value)
    names: Iterable[str] = vars(value) if hasattr(value, "__dict__") else getattr(value, "__slots__", ())
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.compare]
    return (type(value).__qualname__, *(getattr(value, name, None) for name in names))


def _exit_context(context: Any, kind: type[BaseException] | None = None, text: str = "") -> object:
    # Looked up on the type, as a with statement does.
    leave = type(context).__exit__
    if kind is None:
        return leave(context, None, None, None)
    error = make_error(kind, text)
    try:
        return bool(leave(context, kind, error, None))
    except kind as raised:
        # A generator that is a context raises again what it does not end.
        if raised is error:
            return False
        raise


def make_error(kind: type[BaseException], *args: object) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    # Not by the making of a class of somebody's own, which may want other arguments than a text.
    if kind.__module__ == "builtins":
        kind.__init__(error, *args)
    return error


def refill(old: Any, new: Any) -> None:
    """Gives a container the content of another of its kind: in place, since others may hold it too."""
    if type(old) is type(new) and type(old) in MUTABLE:
        old.clear()
        getattr(old, "update" if type(old) in (dict, set) else "extend")(new)


OPERATIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, f"__{name}__") for name in (*_BINARY, *COMPARISONS)},
    **{name: getattr(operator, name) for name in SIGNS},
    **{name: getattr(operator, name) for name in ("getitem", "setitem", "delitem", "contains")},
    **{kind.__name__: kind for kind in (bool, int, float, str)},
    **{function.__name__: function for function in (len, repr, hash, iter, next, getattr, setattr)},
    **{function.__name__: function for function in (pow, divmod, round, format, delattr)},
    "call": lambda function, /, *args, **kwargs: function(*args, **kwargs),
    "is_instance": lambda kind, value: isinstance(value, kind),
    "is_subclass": lambda kind, value: issubclass(value, kind),
    "send": lambda generator, value: generator.send(value),
    "data": _describe_object,
    "items": _list_items,
    "enter": lambda context: type(context).__enter__(context),
    "exit": _exit_context,
}
