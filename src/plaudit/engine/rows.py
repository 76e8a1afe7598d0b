"""Rows that several ranks share: each works on some of them, and all have the results of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from plaudit.config import to_plain_data
from plaudit.engine.distributed import Ranks
from plaudit.files import exact_json

Row = TypeVar("Row")
Result = TypeVar("Result")
_RANKS_OF_ROWS: list[Ranks] = []
"""The ranks over which rows are divided now; none where one process does all."""


@contextmanager
def rows_divided(ranks: Ranks) -> Iterator[None]:
    """Within the block all ranks come to the same results, and `divide_rows` shares the work."""
    _RANKS_OF_ROWS.append(ranks)
    try:
        yield
    finally:
        _RANKS_OF_ROWS.pop()


def divide_rows(
    rows: Sequence[Row], work: Callable[[Sequence[Row], int], Sequence[Result]], kind: Any
) -> list[Result]:
    """The result of each row, of a ``kind``; each rank works on the rows that begin at some place.

    >>> divide_rows("abc", lambda part, begin: [f"{begin}{letter}" for letter in part], str)
    ['0a', '0b', '0c']
    """
    rank, world = (_RANKS_OF_ROWS[-1].rank, _RANKS_OF_ROWS[-1].world_size) if _RANKS_OF_ROWS else (0, 1)
    begin, end = (len(rows) * at // world for at in (rank, rank + 1))
    return of_all_ranks(work(rows[begin:end], begin), kind)


def of_all_ranks(results: Sequence[Result], kind: Any) -> list[Result]:
    """What each rank has found where rows are divided, in the order of ranks, to the bit."""
    if not _RANKS_OF_ROWS or _RANKS_OF_ROWS[-1].world_size == 1:
        return [*results]
    text = exact_json.dumps([to_plain_data(item) for item in results])
    parts = map(exact_json.loads, _RANKS_OF_ROWS[-1].all_gather_strings([text]))
    return [exact_json.restore(kind, item) for part in parts for item in part]
