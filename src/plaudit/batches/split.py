"""One batch over ranks and, on each, over pieces that fit in memory: the same split every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import heapreplace
from typing import Protocol, TypeVar, runtime_checkable

from plaudit.batches.tokens import Example


@runtime_checkable
class Weighed(Protocol):
    """A row of any kind."""

    @property
    def tokens(self) -> int:
        """How many tokens have to be computed for it."""
        ...


Row = TypeVar("Row", bound=Weighed)
"""What a batch is made of."""


def split(
    examples: Sequence[Example], *, ranks: int, tokens_at_once: int
) -> tuple[tuple[tuple[Example, ...], ...], ...]:
    """`portions` of plain examples; a muted one has the same tokens and nothing trained.

    >>> from plaudit.batches.tokens import Completion
    >>> rows = [Example(prompt=(1,) * n, completions=()) for n in (6, 1, 5, 2)]
    >>> [[len(row.prompt) for row in piece] for piece in split(rows, ranks=1, tokens_at_once=8)[0]]
    [[6, 1], [5, 2]]
    """
    return portions(examples, _muted, ranks=ranks, tokens_at_once=tokens_at_once)


def portions(
    examples: Sequence[Row], muted: Callable[[Row], Row], *, ranks: int, tokens_at_once: int
) -> tuple[tuple[tuple[Row, ...], ...], ...]:
    """For each rank its pieces, as many on each, of about the same number of tokens.

    A piece exceeds ``tokens_at_once`` only when it is a single row that does. A rank without rows gets a
    muted one: it computes along, so that no rank waits, and adds nothing.
    """
    if not examples:
        raise ValueError("there are no rows to split; hand over at least one")
    if tokens_at_once < 1 or ranks < 1:
        raise ValueError(f"tokens_at_once ({tokens_at_once}) and ranks ({ranks}) must be at least 1")
    rows = sorted(examples, key=lambda example: -example.tokens)
    weights = [row.tokens for row in rows]
    short = [weight for weight in weights if weight <= tokens_at_once]
    pieces = _up(len(weights) - len(short) - (-sum(short) // tokens_at_once), ranks)
    while (bins := _spread(weights, pieces, tokens_at_once)) is None:
        pieces += _up(pieces // 50, ranks)
    filled = [tuple(rows[n] for n in own) or (muted(rows[-1]),) for own in bins]
    return tuple(tuple(filled[rank::ranks]) for rank in range(ranks))


def in_order(rows: Sequence[Row], tokens_at_once: int) -> Iterator[tuple[Row, ...]]:
    """The rows as they stand, as many together as there is room for: where nothing has to be balanced.

    >>> from plaudit.batches.tokens import Completion
    >>> rows = [Example(prompt=(1,) * n, completions=()) for n in (6, 1, 5, 2)]
    >>> [[len(row.prompt) for row in piece] for piece in in_order(rows, 8)]
    [[6, 1], [5, 2]]
    """
    piece: list[Row] = []
    filled = 0
    for row in rows:
        if piece and filled + row.tokens > tokens_at_once:
            yield tuple(piece)
            piece, filled = [], 0
        piece.append(row)
        filled += row.tokens
    if piece:
        yield tuple(piece)


def _spread(weights: Sequence[int], bins: int, most: int) -> list[list[int]] | None:
    """The longest rows first, each into the lightest bin so far; None when one has to hold too much."""
    held: list[list[int]] = [[] for _ in range(bins)]
    filling = [(0, index) for index in range(bins)]
    for n, weight in enumerate(weights):
        before, lightest = filling[0]
        if before > 0 and before + weight > most:
            return None
        held[lightest].append(n)
        heapreplace(filling, (before + weight, lightest))
    return held


def _up(count: int, step: int) -> int:
    """The count rounded up to a multiple of the step, and at least one step."""
    return max(1, -(-count // step)) * step


def _muted(example: Example) -> Example:
    """The same tokens with nothing trained."""
    return replace(
        example,
        completions=tuple(
            replace(completion, mask=(False,) * len(completion.ids)) for completion in example.completions
        ),
    )
