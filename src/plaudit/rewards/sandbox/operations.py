"""What one process does for another with the objects that it has."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from plaudit.rewards.sandbox.plain import PLAIN, plain_value

MAX_FETCHED_ITEMS = 100_000
"""Items that are fetched of one iterable."""
MUTABLE = frozenset([list, dict, set, bytearray])
"""By exact type, as in `pack`: a subclass went as a reference, so there is no copy to bring up to date."""
_SHIFTS = ("lshift", "rshift")
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "and", "or", "xor", *_SHIFTS)
PAIRS = (*_BINARY, "pow", "divmod")
COMPARISONS = ("eq", "lt", "le", "gt", "ge")
SIGNS = ("neg", "pos", "abs", "invert", "index")


def _call_function(function: Callable[..., object], /, *args: object, **kwargs: object) -> object:
    return function(*args, **kwargs)


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
        names = [one.name for one in fields(value) if one.compare]
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
    "call": _call_function,
    "is_instance": lambda kind, value: isinstance(value, kind),
    "is_subclass": lambda kind, value: issubclass(value, kind),
    "send": lambda generator, value: generator.send(value),
    "data": _describe_object,
    "items": _list_items,
    "enter": lambda context: type(context).__enter__(context),
    "exit": _exit_context,
}
"""By the name that a request has."""
