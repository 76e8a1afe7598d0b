"""What a cell of an algorithm cannot do without, said at the cell and nowhere else.

A cell is a pure function (a loss, a weight, a link, an advantage). Who puts an algorithm together asks its
cells, so that no flag has to repeat what a function already is.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

CellT = TypeVar("CellT", bound=Callable[..., object])


def needs(*what: str) -> Callable[[CellT], CellT]:
    """Marks a function with what it needs beside its arguments.

    >>> @needs("reference")
    ... def link(log_ratio):
    ...     return log_ratio
    >>> sorted(needs_of(link))
    ['reference']
    """

    def mark(cell: CellT) -> CellT:
        cell.__dict__["needs"] = needs_of(cell) | {*what}
        return cell

    return mark


def needs_of(*cells: object) -> frozenset[str]:
    """What all of these cells need together; a function without a mark, or None, needs nothing.

    >>> sorted(needs_of(None, partial(needs("critic")(lambda reward: reward), 1)))
    ['critic']
    """
    found: set[str] = set()
    for cell in cells:
        # A partial has no mark of its own: what it wraps is asked below.
        found |= getattr(cell, "needs", frozenset[str]())
        if isinstance(cell, partial):
            found |= needs_of(cell.func)
    return frozenset(found)
