"""What one side can have the other do with its objects."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from plaudit.rewards.inside.peer import BINARY, PLAIN


def _call(function: Callable[..., object], *given: object, **named: object) -> object:
    return function(*given, **named)


def _is_instance(kind: type, one: object) -> bool:
    return isinstance(one, kind)


def _data(value: Any) -> object:
    """The plain data of an object of a subclass, whatever the subclass says of itself."""
    kind = next(kind for kind in PLAIN if isinstance(value, kind))
    return kind(value)


def _exit(context: Any, *given: object) -> object:
    return type(context).__exit__(context, *given)


OPERATIONS: Mapping[str, Callable[..., object]] = {
    **{name: getattr(operator, f"__{name}__") for name in (*BINARY, "eq", "lt", "le", "gt", "ge")},
    **{name: getattr(operator, name) for name in ("neg", "pos", "invert", "abs", "index")},
    **{name: getattr(operator, name) for name in ("getitem", "setitem", "delitem")},
    **{kind.__name__: kind for kind in (bool, int, float, str)},
    **{function.__name__: function for function in (len, repr, hash, iter, next, getattr, setattr)},
    "call": _call,
    "is_instance": _is_instance,
    "data": _data,
    "enter": lambda context: type(context).__enter__(context),
    "exit": _exit,
}
"""By the name that a request has."""
