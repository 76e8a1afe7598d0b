"""One batch over ranks and, on each, over pieces that fit in memory: the same split every time."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from dataclasses import replace

from plaudit.batches.tokens import Example


def split(
    examples: Sequence[Example], *, ranks: int, tokens_at_once: int
) -> tuple[tuple[tuple[Example, ...], ...], ...]:
    """For each rank its pieces, as many on each, of about the same number of tokens.

    A piece exceeds ``tokens_at_once`` only when it is a single row that does. A rank without rows gets a
    muted one: it computes along, so that no rank waits, and adds nothing.

    >>> from plaudit.batches.tokens import Completion
    >>> rows = [Example(prompt=(1,) * n, completions=()) for n in (6, 1, 5, 2)]
    >>> [[len(row.prompt) for row in piece] for piece in split(rows, ranks=1, tokens_at_once=8)[0]]
    [[6, 1], [5, 2]]
    """
    if not examples:
        raise ValueError("there are no rows to split; hand over at least one")
    if tokens_at_once < 1 or ranks < 1:
        raise ValueError(f"tokens_at_once ({tokens_at_once}) and ranks ({ranks}) must be at least 1")
    pieces = -(-sum(example.tokens for example in examples) // (tokens_at_once * ranks)) * ranks
    bins = _spread(examples, pieces)
    while not all(len(piece) < 2 or _tokens(piece) <= tokens_at_once for piece in bins):
        pieces += ranks
        bins = _spread(examples, pieces)
    shortest = min(examples, key=lambda example: example.tokens)
    filled = [piece or (_muted(shortest),) for piece in bins]
    return tuple(tuple(filled[rank::ranks]) for rank in range(ranks))


def _spread(examples: Sequence[Example], bins: int) -> list[tuple[Example, ...]]:
    """The longest rows first, each into the lightest bin so far."""
    held: list[list[Example]] = [[] for _ in range(bins)]
    weights = [(0, index) for index in range(bins)]
    heapify(weights)
    for example in sorted(examples, key=lambda example: -example.tokens):
        weight, lightest = weights[0]
        held[lightest].append(example)
        heapreplace(weights, (weight + example.tokens, lightest))
    return [tuple(piece) for piece in held]


def _tokens(piece: Sequence[Example]) -> int:
    return sum(example.tokens for example in piece)


def _muted(example: Example) -> Example:
    """The same tokens with nothing trained."""
    return replace(
        example,
        completions=tuple(
            replace(completion, mask=(False,) * len(completion.ids)) for completion in example.completions
        ),
    )
