"""From a word on the command line, or a value in a YAML file, to the type that a setting has."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Union, get_args, get_origin

from plaudit.configs.suggest import did_you_mean


def convert(value: object, wanted: object) -> object:
    """The value as the wanted type; ``ValueError`` says what was expected.

    Numbers may be written as text, since YAML reads ``1e-4`` as text.

    >>> convert("1e-4", float)
    0.0001
    >>> convert(["a", "b"], tuple[str, ...])
    ('a', 'b')
    """
    for member in _members(wanted):
        try:
            return _convert_to(value, member)
        except ValueError:
            continue
    raise ValueError(f"expected {describe(wanted)}, got {value!r}{_hint(value, wanted)}")


def from_word(word: str, wanted: object) -> object:
    """As `convert`, for the command line, where ``none`` is how None is written.

    >>> from_word("none", int | None) is None
    True
    """
    return None if word == "none" and type(None) in _members(wanted) else convert(word, wanted)


def describe(wanted: object) -> str:
    """A type in words; ``TypeError`` when settings cannot have it.

    >>> describe(int | None)
    'a whole number or none'
    """
    return " or ".join(_describe_one(member) for member in _members(wanted))


def is_switch(wanted: object) -> bool:
    """Whether a setting is turned on and off: a bool, or a bool that may be left open."""
    return set(_members(wanted)) - {type(None)} == {bool}


def item_of(wanted: object) -> object | None:
    """The type of the items, when a setting is a list of them."""
    lists = [member for member in _members(wanted) if get_origin(member) is tuple]
    return get_args(lists[0])[0] if lists else None


def _members(wanted: object) -> tuple[object, ...]:
    """The alternatives; text comes last but for none, since any word is text."""
    members = get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,)
    return tuple(sorted(members, key=lambda member: (member is type(None), member is str)))


def _describe_one(member: object) -> str:
    if get_origin(member) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(member))
    if get_origin(member) is tuple and get_args(member)[1:] == (...,):
        return f"a list, each {describe(item_of(member))}"
    for kind, (words, _) in _KINDS.items():
        if member is kind:
            return words
    raise TypeError(f"a setting cannot be of type {member}")


def _convert_to(value: object, member: object) -> object:
    if get_origin(member) is Literal:
        return _choice(value, get_args(member))
    if get_origin(member) is tuple:
        return _items(value, item_of(member))
    for kind, (_, read) in _KINDS.items():
        if member is kind:
            return read(value)
    raise TypeError(f"a setting cannot be of type {member}")


def _choice(value: object, choices: tuple[object, ...]) -> object:
    for choice in choices:
        if str(choice) == str(value):
            return choice
    raise ValueError(value)


def _items(value: object, wanted: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(value)
    return tuple(convert(item, wanted) for item in value)


def _none(value: object) -> None:
    if value is not None:
        raise ValueError(value)


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(value)


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    return int(value)


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str) or math.isnan(float(value)):
        raise ValueError(value)
    return float(value)


def _path(value: object) -> Path:
    # Path("") is the current folder: an unset shell variable would silently write there.
    if not isinstance(value, str) or not value:
        raise ValueError(value)
    return Path(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


_KINDS: dict[object, tuple[str, Callable[[object], object]]] = {
    type(None): ("none", _none),
    bool: ("true or false", _bool),
    int: ("a whole number", _int),
    float: ("a number", _float),
    Path: ("a path", _path),
    str: ("text", _text),
}


def _hint(value: object, wanted: object) -> str:
    members = _members(wanted)
    choices = [
        str(choice) for member in members if get_origin(member) is Literal for choice in get_args(member)
    ]
    takes_words = bool(choices) or str in members or Path in members
    if isinstance(value, bool) and takes_words:
        return "; in YAML, yes, no, on and off are true and false unless they stand in quotes"
    if isinstance(value, int | float) and takes_words:
        return "; in YAML, text that looks like a number stands in quotes"
    return did_you_mean(str(value), choices)
