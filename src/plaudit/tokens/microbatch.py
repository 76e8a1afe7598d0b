"""What goes through the model at once; one batch over ranks and, on each, over pieces that fit in memory.

The split is the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import heapreplace
from typing import Protocol, TypeVar, runtime_checkable

from plaudit.tokens.batch import Example


@runtime_checkable
class HasTokenCount(Protocol):
    """A row of any kind."""

    @property
    def tokens(self) -> int:
        """How many tokens have to be computed for it."""
        ...


@runtime_checkable
class Microbatch(Protocol):
    """Rows that go through the model at once: what engine, checks and planner know of them."""

    @property
    def tokens(self) -> int:
        """How many tokens have to be computed."""
        ...

    def rows(self) -> Sequence[Microbatch]:
        """Each row alone, still counted as part of the same batch."""
        ...

    def shares(self, ranks: int, budget: int) -> Sequence[Sequence[Microbatch]] | None:
        """For each rank its pieces of at most ``budget`` tokens; None where only a whole batch divides."""
        ...


MicrobatchT = TypeVar("MicrobatchT", bound=Microbatch)
"""One kind of micro-batch; each method has its own."""
RowT = TypeVar("RowT", bound=HasTokenCount)
"""What a batch is made of."""


def split_examples(
    examples: Sequence[Example], *, ranks: int, tokens_at_once: int
) -> tuple[tuple[tuple[Example, ...], ...], ...]:
    """`portions` of plain examples; a muted one has the same tokens and nothing trained.

    >>> from plaudit.tokens.batch import Completion
    >>> rows = [Example(prompt=(1,) * n, completions=()) for n in (6, 1, 5, 2)]
    >>> [[len(row.prompt) for row in piece] for piece in split_examples(rows, ranks=1, tokens_at_once=8)[0]]
    [[6, 1], [5, 2]]
    """
    return split_rows(examples, _mask_all, ranks=ranks, tokens_at_once=tokens_at_once)


def split_rows(
    examples: Sequence[RowT], muted: Callable[[RowT], RowT], *, ranks: int, tokens_at_once: int
) -> tuple[tuple[tuple[RowT, ...], ...], ...]:
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
    pieces = _round_up(len(weights) - len(short) - (-sum(short) // tokens_at_once), ranks)
    while (bins := _fill_bins(weights, pieces, tokens_at_once)) is None:
        pieces += _round_up(pieces // 50, ranks)
    filled = [tuple(rows[n] for n in bin_rows) or (muted(rows[-1]),) for bin_rows in bins]
    return tuple(tuple(filled[rank::ranks]) for rank in range(ranks))


def micro_batches_in_order(rows: Sequence[RowT], tokens_at_once: int) -> Iterator[tuple[RowT, ...]]:
    """The rows as they stand, as many together as there is room for: where nothing has to be balanced.

    >>> from plaudit.tokens.batch import Completion
    >>> rows = [Example(prompt=(1,) * n, completions=()) for n in (6, 1, 5, 2)]
    >>> [[len(row.prompt) for row in piece] for piece in micro_batches_in_order(rows, 8)]
    [[6, 1], [5, 2]]
    """
    piece: list[RowT] = []
    filled = 0
    for row in rows:
        if piece and filled + row.tokens > tokens_at_once:
            yield tuple(piece)
            piece, filled = [], 0
        piece.append(row)
        filled += row.tokens
    if piece:
        yield tuple(piece)


def _fill_bins(weights: Sequence[int], bins: int, capacity: int) -> list[list[int]] | None:
    """The longest rows first, each into the lightest bin so far; None when one has to hold too much."""
    contents: list[list[int]] = [[] for _ in range(bins)]
    filling = [(0, index) for index in range(bins)]
    for n, weight in enumerate(weights):
        before, lightest = filling[0]
        if before > 0 and before + weight > capacity:
            return None
        contents[lightest].append(n)
        heapreplace(filling, (before + weight, lightest))
    return contents


def _round_up(count: int, step: int) -> int:
    """The count rounded up to a multiple of the step, and at least one step."""
    return max(1, -(-count // step)) * step


def _mask_all(example: Example) -> Example:
    """The same tokens with nothing trained."""
    return replace(
        example,
        completions=tuple(
            replace(completion, mask=(False,) * len(completion.ids)) for completion in example.completions
        ),
    )
