"""One batch over ranks and, on each, over pieces that fit in memory: the same split every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plaudit.batches.tokens import Example


def split(
    examples: Sequence[Example], *, ranks: int, tokens_at_once: int
) -> tuple[tuple[tuple[Example, ...], ...], ...]:
    """For each rank its pieces, as many on each, of about the same number of tokens.

    A rank without rows gets a muted one: it computes along, so that no rank waits, and adds nothing.

    >>> from plaudit.batches.tokens import Completion
    >>> rows = [Example(prompt=(1,) * n, completions=()) for n in (6, 1, 5, 2)]
    >>> [[len(row.prompt) for row in piece] for piece in split(rows, ranks=1, tokens_at_once=8)[0]]
    [[6, 1], [5, 2]]
    """
    pieces = -(-sum(example.tokens for example in examples) // (tokens_at_once * ranks)) * ranks
    while True:
        bins = _spread(examples, max(pieces, ranks))
        heaviest = max(sum(example.tokens for example in piece) for piece in bins if len(piece) > 1 or piece)
        alone = max((example.tokens for example in examples), default=0)
        if heaviest <= max(tokens_at_once, alone):
            break
        pieces += ranks
    filled = [piece or (_muted(examples[0]),) for piece in bins]
    return tuple(tuple(filled[rank::ranks]) for rank in range(ranks))


def _spread(examples: Sequence[Example], bins: int) -> list[tuple[Example, ...]]:
    """The longest rows first, each into the lightest bin so far."""
    held: list[list[Example]] = [[] for _ in range(bins)]
    weight = [0] * bins
    for example in sorted(examples, key=lambda example: -example.tokens):
        lightest = weight.index(min(weight))
        held[lightest].append(example)
        weight[lightest] += example.tokens
    return [tuple(piece) for piece in held]


def _muted(example: Example) -> Example:
    """The same tokens with nothing trained."""
    return replace(
        example,
        completions=tuple(
            replace(completion, mask=(False,) * len(completion.ids)) for completion in example.completions
        ),
    )
