"""A price for eyes and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table

from plaudit.recipes.planning.ledger import ALWAYS, DRAW, STEP
from plaudit.recipes.planning.machine import in_words
from plaudit.recipes.planning.nearest import Offer
from plaudit.recipes.planning.pace import Pace
from plaudit.recipes.planning.price import Price, Times

WHEN = {ALWAYS: "always", STEP: "in a step", DRAW: "while drawing"}
"""When a line is in memory, in words."""


def sentences(found: Price) -> Iterator[str]:
    """The arithmetic of the batches, in words and numbers."""
    numbers = found.schedule
    kind = "rows" if numbers.rounds is None else "prompts"
    yield f"{numbers.rows:,} {kind} are learnt from, {numbers.held_out:,} are held out"
    ranks = f" × {numbers.ranks} processes" if numbers.ranks > 1 else ""
    largest = sum(one.tokens for one in numbers.largest)
    pieces = (
        f"at most {numbers.pieces} {_many(numbers.pieces, 'piece')}{ranks}, of at most {largest:,} tokens"
    )
    if numbers.rounds is None:
        yield (
            f"a step: {min(numbers.batch_size, numbers.rows):,} rows in {pieces}, whose gradients are added "
            "up (accumulation), then 1 optimiser step"
        )
    else:
        yield from _of_rounds(found, pieces)
    times = f"{numbers.passes:.3g} times through {numbers.rows:,} {kind}"
    if numbers.rounds is None:
        each = numbers.steps_an_epoch
        yield f"the run: {times}, {each:,} steps each time = {numbers.steps:,} optimiser steps"
    else:
        yield (
            f"the run: {times} = {numbers.batches:,} rounds × {numbers.inner} = {numbers.steps:,} optimiser "
            f"steps; {numbers.drawn:,} answers are drawn"
        )
    yield f"tokens: {numbers.tokens:,} computed in optimiser steps, {numbers.trained:,} of them learnt"


def _of_rounds(found: Price, pieces: str) -> Iterator[str]:
    numbers, rounds = found.schedule, found.schedule.rounds
    assert rounds is not None
    prompts = min(numbers.batch_size, numbers.rows)
    whole = prompts * rounds.answers
    rivals = f" and {rounds.rivals} more that is only compared with" if rounds.rivals else ""
    times, parts = _many(rounds.epochs, "time"), _many(rounds.minibatches, "minibatch", "minibatches")
    yield (
        f"a round: {prompts:,} prompts × {rounds.answers} {_many(rounds.answers, 'answer')}{rivals} of at "
        f"most {rounds.longest:,} tokens = {whole:,} answers; {rounds.epochs} {times} through × "
        f"{rounds.minibatches} {parts} = {rounds.moves} optimiser {_many(rounds.moves, 'step')}"
    )
    own = -(-prompts // rounds.minibatches)
    yield (
        f"an optimiser step: {own:,} prompts with {own * rounds.answers:,} answers in {pieces}, whose "
        "gradients are added up (accumulation)"
    )


def memory_table(found: Price) -> Table:
    """A line for each thing in the memory of one process."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("memory", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("when", no_wrap=True)
    table.add_column("why", overflow="fold")
    for line in found.memory.lines:
        table.add_row(line.name, in_words(line.bytes), WHEN[line.when], line.why)
    return table


def disk_table(found: Price) -> Table:
    """A line for each thing on the disk."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("disk", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for one in found.disk:
        table.add_row(one.name, in_words(one.total), f"{one.count} × {in_words(one.bytes)}: {one.why}")
    return table


def verdict(found: Price) -> str:
    """Whether it fits."""
    peak, room = found.memory.peak, found.planned.machine.memory
    each = " in each process" if found.schedule.ranks > 1 else ""
    said = f"{in_words(peak)} at the peak{each}, and there are {in_words(room)}"
    return f"it fits: {said}" if found.fits else f"it does NOT fit: {said}"


def time_in_words(spent: Times, pace: Pace) -> Iterator[str]:
    """How long the run takes, and how that is known."""
    parts = {
        "optimiser steps": spent.moves,
        "drawing and scoring": spent.drawing,
        "held-out rows": spent.looks,
        "the reference beforehand": spent.before,
    }
    said = ", ".join(f"{name} {_long(seconds)}" for name, seconds in parts.items() if seconds)
    yield f"time: about {_long(spent.total)} ({said}); samples and saving come on top"
    rate = f"{pace.tokens:,.0f} tokens a second in optimiser steps"
    if pace.answers is not None:
        rate += f", {pace.answers:.2g} answers a second of {pace.answer_tokens} tokens on average"
    how = f"measured on {pace.steps} {_many(pace.steps, 'step')} of this run" if pace.steps else "as you said"
    yield f"pace: {rate}, {how}"
    if pace.peak is not None:
        yield f"the measurement took {in_words(pace.peak)} above what Python itself takes"


def offers_in_words(offers: Sequence[Offer], most: Offer | None, room: int) -> Iterator[str]:
    """What would fit, nearest first."""
    for one in offers:
        peak = in_words(one.price.memory.peak)
        yield f"  {one.change.words}: {peak}. {one.change.means}"
    if not offers and most is not None:
        yield (
            f"nothing that can be set makes it fit into {in_words(room)}: the least is "
            f"{in_words(most.price.memory.peak)}, with {most.change.words}"
        )


def as_dict(found: Price, spent: Times | None, pace: Pace | None, offers: Sequence[Offer]) -> dict[str, Any]:
    """Everything, for JSON."""
    numbers = found.schedule
    return {
        "fits": found.fits,
        "peak_bytes": found.memory.peak,
        "machine_bytes": found.planned.machine.memory,
        "ranks": numbers.ranks,
        "rows": numbers.rows,
        "held_out": numbers.held_out,
        "batches": numbers.batches,
        "steps": numbers.steps,
        "passes": numbers.passes,
        "pieces": numbers.pieces,
        "answers": numbers.drawn,
        "tokens": numbers.tokens,
        "trained_tokens": numbers.trained,
        "memory": [
            {"name": one.name, "bytes": one.bytes, "when": one.when, "why": one.why}
            for one in found.memory.lines
        ],
        "disk": [{"name": one.name, "bytes": one.bytes, "count": one.count} for one in found.disk],
        "seconds": None if spent is None else {**_seconds(spent), "total": spent.total},
        "tokens_per_second": None if pace is None else pace.tokens,
        "measured_peak_bytes": None if pace is None else pace.peak,
        "offers": [
            {"settings": one.change.words, "peak_bytes": one.price.memory.peak, "means": one.change.means}
            for one in offers
        ],
    }


def _seconds(spent: Times) -> dict[str, float]:
    return {name: getattr(spent, name) for name in ("moves", "drawing", "looks", "before")}


def _many(count: int, one: str, more: str | None = None) -> str:
    return one if count == 1 else more or f"{one}s"


def _long(seconds: int | float) -> str:
    """Seconds as people say them.

    >>> _long(4.2), _long(250), _long(9000)
    ('4.2 s', '4 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
