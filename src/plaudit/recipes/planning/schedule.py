"""The arithmetic of a run, by the functions that the run itself divides its rows with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from plaudit.batches.split import split
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.recipes.config import RunConfig
from plaudit.recipes.planning.rows import PlannedRows, with_answers
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_rows import chosen
from plaudit.recipes.run import steps_of
from plaudit.training.order import Order
from plaudit.training.policy_round import Round, Told

LOOKED_AT = 500
"""Batches that are divided to see how large their pieces are."""
Piece = tuple[Example, ...]
"""Rows that go through the model together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """What a batch of prompts becomes where answers are drawn.

    Example: ``Rounds(answers=8, rivals=0, longest=64, epochs=2, minibatches=4)``
    """

    answers: int
    """How many to each prompt."""
    rivals: int
    """Further ones, which are only scored."""
    longest: int
    """Tokens that an answer is taken to have."""
    epochs: int
    """How often they are gone through."""
    minibatches: int
    """Moves of one such epoch."""

    @property
    def moves(self) -> int:
        """Optimiser steps of a round."""
        return self.epochs * self.minibatches


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How many of everything.

    Example: ``schedule("sft", config, rows, ranks=1).steps``
    """

    rows: int
    """Rows that are trained; prompts, where answers are drawn."""
    held_out: int
    """Rows that never are."""
    batch_size: int
    """Rows of a batch, over all processes."""
    ranks: int
    """Processes that share each batch."""
    steps: int
    """Optimiser steps."""
    batches: int
    """Batches, or rounds, that are begun."""
    steps_an_epoch: int
    """Batches that see every row once."""
    passes: float
    """How often the rows are gone through."""
    rounds: Rounds | None
    """Where answers are drawn: how."""
    pieces: int
    """The most that one process computes one after another before an optimiser step (accumulation)."""
    largest: Piece
    """The largest of them."""
    tokens: int
    """Tokens that are computed in all moves, a shared prompt once."""
    trained: int
    """Of these, how many are learnt."""
    drawn: int
    """Answers that are drawn in the whole run."""

    @property
    def inner(self) -> int:
        """Optimiser steps of a batch."""
        return 1 if self.rounds is None else self.rounds.moves


def schedule(
    method: str, config: RunConfig, rows: PlannedRows, *, ranks: int, answer_tokens: int | None = None
) -> Schedule:
    """The arithmetic of a run; ``answer_tokens`` is how long drawn answers are, where that is known."""
    if not rows.train:
        raise UserError(f"{config.data}: no row is left to train on; hold out less, or give more rows")
    rounds = _rounds(method, config, answer_tokens)
    order = Order(rows=len(rows.train), batch_size=config.batch_size, seed=config.seed)
    inner = 1 if rounds is None else rounds.moves
    steps = steps_of(config, order, inner)
    batches = -(-steps // inner)
    asked = [_asked(row, rounds) for row in rows.train]
    room, looked = config.memory.tokens_at_once, islice(range(1, batches + 1), LOOKED_AT)
    pieces = 0
    largest: Piece = ()
    for number in looked:
        batch = [asked[row] for row in order.batch(number)]
        for move in _moves(batch, number, rounds, config.seed):
            for share in split(move, ranks=ranks, tokens_at_once=room):
                pieces = max(pieces, len(share))
                largest = max(largest, *share, key=_tokens)
    tokens, trained = _total(asked, order, steps, rounds, config.seed)
    drawn = 0
    if rounds is not None:
        drawn = rounds.answers * _rows_in(order, batches)
    return Schedule(
        rows=len(asked),
        held_out=len(rows.held_out),
        batch_size=config.batch_size,
        ranks=ranks,
        steps=steps,
        batches=batches,
        steps_an_epoch=order.steps_an_epoch,
        passes=order.epoch_after(batches),
        rounds=rounds,
        pieces=pieces,
        largest=largest,
        tokens=tokens,
        trained=trained,
        drawn=drawn,
    )


def _rounds(method: str, config: RunConfig, answer_tokens: int | None) -> Rounds | None:
    if not isinstance(config, PolicyConfig):
        return None
    found = chosen(method, config)
    return Rounds(
        answers=int(found.number("answers")),
        rivals=int(found.row.greedy or found.row.duels),
        longest=min(answer_tokens or config.draw.max_tokens, config.draw.max_tokens),
        epochs=int(found.number("epochs")),
        minibatches=int(found.number("minibatches")),
    )


def _asked(row: Example, rounds: Rounds | None) -> Example:
    return row if rounds is None else with_answers(row, rounds.answers, rounds.longest)


def _tokens(piece: Sequence[Example]) -> int:
    return sum(one.tokens for one in piece)


def _moves(
    batch: Sequence[Example], number: int, rounds: Rounds | None, seed: int
) -> Iterator[list[Example]]:
    """The rows of each optimiser step that a batch is learnt from."""
    if rounds is None:
        yield list(batch)
        return
    nothing_NT = torch.zeros(0, 0)
    told = Told(
        old_logp_NT=nothing_NT,
        ref_logp_NT=nothing_NT,
        advantage_NT=nothing_NT,
        value_NT=nothing_NT,
        return_NT=nothing_NT,
        weight_NT=nothing_NT,
    )
    made = Round(number=number, examples=tuple(batch), told=told, figures=(), longest=rounds.longest)
    for epoch in made.moves(rounds.epochs, rounds.minibatches, seed):
        yield from ([batch[group] for group in groups] for groups in epoch if groups)


def _total(
    rows: Sequence[Example], order: Order, steps: int, rounds: Rounds | None, seed: int
) -> tuple[int, int]:
    """Tokens that all moves compute, and how many of them are learnt; whole epochs are not walked through."""
    inner = 1 if rounds is None else rounds.moves
    times = 1 if rounds is None else rounds.epochs
    whole, rest = divmod(steps, inner)
    epochs, more = divmod(whole, order.steps_an_epoch)
    batches = [order.batch(epochs * order.steps_an_epoch + n) for n in range(1, more + 1)]
    found = [[one.tokens, one.trained_tokens] for one in rows]
    total = [0, 0]
    for kind in range(2):
        every = sum(one[kind] for one in found)
        some = sum(found[row][kind] for batch in batches for row in batch)
        total[kind] = times * (epochs * every + some)
    if rest:
        batch = [rows[row] for row in order.batch(whole + 1)]
        for move in islice(_moves(batch, whole + 1, rounds, seed), rest):
            total[0] += _tokens(move)
            total[1] += sum(one.trained_tokens for one in move)
    return total[0], total[1]


def _rows_in(order: Order, batches: int) -> int:
    """How many rows so many batches have."""
    epochs, more = divmod(batches, order.steps_an_epoch)
    return epochs * order.rows + min(more * order.batch_size, order.rows)
