"""Which numbers a setting can be: said in its type, once, for configs and for algorithms alike.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class PtxSettings:
        rows: FromOne = 16

        def __post_init__(self) -> None:
            check_bounds(self, "ptx")

``PtxSettings(rows=0)`` then says ``ptx.rows must be at least 1, not 0``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

from plaudit.errors import UserError


@dataclass(frozen=True, slots=True)
class Bound:
    """Which numbers a setting can be; stands in its annotation.

    Example: ``beta: Annotated[float, Bound("a number above 0", lambda value: 0 < value < math.inf)] = 0.1``
    """

    words: str
    """The numbers in words, as they follow "must be"."""
    holds: Callable[[float], bool]


Positive = Annotated[float, Bound("a number above 0", lambda value: 0 < value < math.inf)]
FromZero = Annotated[float, Bound("a number from 0 on", lambda value: 0 <= value < math.inf)]
NotNegative = Annotated[float, Bound("at least 0", lambda value: value >= 0)]
"""A limit, which may be infinite: no limit at all."""
Share = Annotated[float, Bound("from 0 to 1", lambda value: 0 <= value <= 1)]
BelowHalf = Annotated[float, Bound("from 0 to below 0.5", lambda value: 0 <= value < 0.5)]
"""The share of labels believed to be wrong: at a half they would say nothing."""
BelowOne = Annotated[float, Bound("from 0 to below 1", lambda value: 0 <= value < 1)]
PositiveShare = Annotated[float, Bound("above 0 and at most 1", lambda value: 0 < value <= 1)]
Finite = Annotated[float, Bound("a number", math.isfinite)]
FromOne = Annotated[int, Bound("at least 1", lambda value: value >= 1)]
"""A setting that counts things, of which there is one at least."""
FromTwo = Annotated[int, Bound("at least 2", lambda value: value >= 2)]
"""A setting that counts what is compared."""
Count = Annotated[int, Bound("at least 0", lambda value: value >= 0)]
"""A setting that counts things, of which there may be none."""


def check_bounds(settings: Any, group: str = "") -> None:
    """Refuse a number that its setting cannot be; ``group`` is what the settings are called in a config.

    >>> @dataclass
    ... class Loop:
    ...     rounds: FromOne | None = None
    ...     top: tuple[Share, ...] = ()
    >>> check_bounds(Loop(rounds=None, top=(0.5, 1.0)), "loop")
    >>> check_bounds(Loop(top=(0.5, 1.5)), "loop")
    Traceback (most recent call last):
        ...
    plaudit.errors.UserError: loop.top must be from 0 to 1, not 1.5
    """
    for name, bound in _bounds_of(type(settings)):
        value = getattr(settings, name)
        for number in value if isinstance(value, tuple) else (value,):
            refuse_unless(bound, f"{group}.{name}" if group else name, number)


def refuse_unless(bound: Bound, name: str, number: float | None) -> None:
    """Refuse a number outside its bound; None is a setting that is left open."""
    if number is not None and not bound.holds(number):
        raise UserError(f"{name} must be {bound.words}, not {number}")


def bound_in(hint: Any) -> Bound | None:
    """The bound that an annotation says; the outermost one counts.

    >>> [bound_in(hint).holds(math.inf) for hint in (NotNegative, FromZero)]
    [True, False]
    """
    return next(_bounds_in(hint), None)


@cache
def _bounds_of(settings_type: type) -> tuple[tuple[str, Bound], ...]:
    hints = get_type_hints(settings_type, include_extras=True)
    return tuple((name, bound) for name, hint in hints.items() if (bound := bound_in(hint)) is not None)


def _bounds_in(hint: Any) -> Iterator[Bound]:
    # In `FromZero | None` and `tuple[FromZero, ...]` the bound stands one level down.
    for part in (hint, *get_args(hint)):
        extras = reversed(getattr(part, "__metadata__", ()))
        yield from (extra for extra in extras if isinstance(extra, Bound))


def extent(value: Any, sizes: dict[int, int] | None = None) -> int:
    """How many characters and items would be written; what stands in several places counts in each."""
    if isinstance(value, str | bytes):
        return len(value)
    if not isinstance(value, list | tuple | Mapping):
        return 1
    sizes = {} if sizes is None else sizes
    if id(value) not in sizes:
        sizes[id(value)] = 1
        items = [*value, *value.values()] if isinstance(value, Mapping) else value
        sizes[id(value)] = 2 + sum(extent(item, sizes) for item in items)
    return sizes[id(value)]


def size_of_result(operator: str, left: Any, right: Any) -> float:
    """At most how large the result of an operator can be: in characters, items or bits."""
    if type(left) is str and type(right) is str and operator == "+":
        return len(left) + len(right)
    lengths = [len(side) for side in (left, right) if isinstance(side, str | list | tuple)]
    numbers = [abs(side) for side in (left, right) if isinstance(side, int)]
    match operator:
        case "*" if lengths and numbers:
            return max(extent(side) for side in (left, right)) * numbers[0]
        case "*" if len(numbers) == 2:
            return numbers[0].bit_length() + numbers[1].bit_length()
        case "**" if len(numbers) == 2:
            return numbers[0].bit_length() * numbers[1]
        case "%" if isinstance(left, str):
            # The width of a format: "%99999999d", or "%*d" of a number.
            widths = [*map(int, re.findall(r"\d{1,20}", left)), *numbers]
            widths += [abs(item) for item in right if isinstance(item, int)] if "*" in left else []
            return max(widths, default=0) + left.count("%") * extent(right)
        case _:
            return sum(lengths)
