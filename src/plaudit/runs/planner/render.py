"""A run's cost in sentences and tables, and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from plaudit.runs.planner.cost import RunCost, Split, Times, plan_on, transfers
from plaudit.runs.planner.machine import format_bytes, this_machine
from plaudit.runs.planner.memory import ALWAYS, GENERATE, LOAD, PROCESS, SAVE, STEP
from plaudit.runs.planner.suggestions import Suggestion
from plaudit.runs.planner.throughput import Throughput

PHASE_WORDS = {
    **{PROCESS: "always", ALWAYS: "always", STEP: "in a step"},
    **{GENERATE: "while drawing", SAVE: "while saving", LOAD: "while loading"},
}
SERVER_SHARE = 0.8
"""The share of a GPU that a server's weights may take, so that room is left for what it draws."""
SUGGESTIONS_FOLLOW = "these would, nearest first; those that leave the gradient as it is come before others:"


def cost_sentences(method: str, config: Any) -> Iterator[str]:
    """What a run will cost on this machine, by arithmetic; nothing is measured."""
    cost = plan_on(method, config, this_machine(config.device, device_kind=None, memory=None, ranks=1))
    yield from schedule_sentences(cost)
    yield fit_sentence(cost)


def schedule_sentences(cost: RunCost) -> Iterator[str]:
    plan = cost.schedule
    kind = "rows" if plan.rounds is None else "prompts"
    held_out = f"{plan.held_out:,} {_plural(plan.held_out, 'is', 'are')} held out"
    yield f"{plan.rows:,} {kind} are learnt from, {held_out}"
    ranks = f" × {plan.ranks} processes" if plan.ranks > 1 else ""
    largest = sum(example.tokens for example in plan.largest)
    microbatches = (
        f"at most {plan.microbatches} {_plural(plan.microbatches, 'piece')}{ranks}, of at most "
        f"{largest:,} tokens"
    )
    if plan.rounds is None:
        yield (
            f"a step: {min(plan.batch_size, plan.rows):,} rows in {microbatches}, whose gradients are added "
            "up (accumulation), then 1 optimiser step"
        )
    else:
        yield from _round_sentences(cost, microbatches)
    times = f"{plan.passes:.3g} times through {plan.rows:,} {kind}"
    if plan.rounds is None:
        each = f"{plan.steps_an_epoch:,} {_plural(plan.steps_an_epoch, 'step')} each time"
        yield f"the run: {times}, {each} = {plan.steps:,} optimiser steps"
    else:
        yield (
            f"the run: {times} = {plan.batches:,} rounds × {plan.updates_per_batch} = {plan.steps:,} "
            f"optimiser steps; {plan.generated:,} answers are drawn"
        )
    yield f"tokens: {plan.tokens:,} computed in optimiser steps, {plan.trained_tokens:,} of them learnt"


def _round_sentences(cost: RunCost, microbatches: str) -> Iterator[str]:
    plan, rounds = cost.schedule, cost.schedule.rounds
    assert rounds is not None
    prompts = min(plan.batch_size, plan.rows)
    completions = prompts * rounds.answers
    rivals = f" and {rounds.rivals} more that is only compared with" if rounds.rivals else ""
    times, parts = _plural(rounds.epochs, "time"), _plural(rounds.minibatches, "minibatch", "minibatches")
    yield (
        f"a round: {prompts:,} prompts × {rounds.answers} {_plural(rounds.answers, 'answer')}{rivals} of at "
        f"most {rounds.longest:,} tokens = {completions:,} answers; {rounds.epochs} {times} through × "
        f"{rounds.minibatches} {parts} = {rounds.updates_per_round} optimiser "
        f"{_plural(rounds.updates_per_round, 'step')}"
    )
    prompts_per_step = -(-prompts // rounds.minibatches)
    yield (
        f"an optimiser step: {prompts_per_step:,} prompts with {prompts_per_step * rounds.answers:,} answers "
        f"in {microbatches}, whose gradients are added up (accumulation)"
    )


def split_table(splits: Sequence[Split]) -> Table:
    """How long a round takes with so many GPUs on each side, learning while the next one is drawn."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("GPUs learn", "GPUs draw", "learning a round", "drawing it", "rounds an hour"):
        table.add_column(head, justify="right", no_wrap=True)
    for split in splits:
        times = map(_format_duration, (split.learning, split.drawing))
        table.add_row(str(split.trainers), str(split.servers), *times, f"{3600 / split.seconds:,.0f}")
    return table


def split_sentences(cost: RunCost, split: Split) -> Iterator[str]:
    """The time of rounds where some GPUs learn and others draw, and whether a server fits one of them."""
    plan, sides = cost.schedule, map(_format_duration, (split.learning, split.drawing))
    yield "a round: about {} to learn from it, {} to draw the next one".format(*sides)
    took = _format_duration(plan.batches * split.seconds)
    yield f"time: about {took} for {plan.batches:,} rounds, one drawn while another is learnt from"
    numbers = sum(weight.numel() for weight in cost.roles.trained_model.parameters())
    weights, room = numbers * cost.roles.numbers.products.itemsize, cost.request.machine.memory
    each = f"{format_bytes(weights)} of weights, and a GPU has {format_bytes(room)}"
    several = "" if weights < SERVER_SHARE * room else ": too little, so it takes several of them"
    yield f"a server holds {each}{several}"


def memory_table(cost: RunCost) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("memory", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("when", no_wrap=True)
    table.add_column("why", overflow="fold")
    for line in cost.memory.lines:
        table.add_row(line.name, format_bytes(line.bytes), PHASE_WORDS[line.when], line.why)
    return table


def disk_table(cost: RunCost) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("disk", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for stored in cost.disk:
        table.add_row(
            stored.name,
            format_bytes(stored.total),
            f"{stored.count} × {format_bytes(stored.bytes)}: {stored.why}",
        )
    return table


def transfer_table(cost: RunCost) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("between", "", "time", "why"):
        table.add_column(
            head, justify="left" if head in ("between", "why") else "right", no_wrap=head != "why"
        )
    for transfer in transfers(cost):
        took = _format_duration(transfer.seconds)
        table.add_row(transfer.name, format_bytes(transfer.bytes), took, transfer.why)
    return table


def fit_sentence(cost: RunCost) -> str:
    peak, room = cost.memory.peak, cost.request.machine.memory
    each = " in each process" if cost.schedule.ranks > 1 else ""
    comparison = f"{format_bytes(peak)} at the peak{each}, and there are {format_bytes(room)}"
    return f"it fits: {comparison}" if cost.fits else f"it does NOT fit: {comparison}"


def time_sentences(times: Times, throughput: Throughput) -> Iterator[str]:
    parts = {
        "optimiser steps": times.moves,
        "drawing and scoring": times.drawing,
        "held-out rows": times.looks,
        "the reference beforehand": times.before,
    }
    breakdown = ", ".join(f"{name} {_format_duration(seconds)}" for name, seconds in parts.items() if seconds)
    yield f"time: about {_format_duration(times.total)} ({breakdown}); samples and saving come on top"
    rate = f"{throughput.tokens:,.0f} tokens a second in optimiser steps"
    if throughput.answers is not None:
        rate += f", {throughput.answers:.2g} answers a second of {throughput.answer_tokens} tokens on average"
    how = (
        f"measured on {throughput.steps} {_plural(throughput.steps, 'step')} of this run"
        if throughput.steps
        else throughput.basis or "as you said"
    )
    yield f"pace: {rate}, {how}"
    if throughput.peak is not None:
        yield f"the measurement took {format_bytes(throughput.peak)} above what Python itself takes"


def suggestion_sentences(
    suggestions: Sequence[Suggestion], smallest: Suggestion | None, room: int
) -> Iterator[str]:
    """The suggestions that would fit, the smallest change first."""
    for suggestion in suggestions:
        peak = format_bytes(suggestion.cost.memory.peak)
        yield f"  {suggestion.change.words}: {peak}. {suggestion.change.means}"
    if not suggestions and smallest is not None:
        yield (
            f"nothing that can be set makes it fit into {format_bytes(room)}: the least is "
            f"{format_bytes(smallest.cost.memory.peak)}, with {smallest.change.words}"
        )


def plan_as_dict(
    cost: RunCost,
    times: Times | None,
    throughput: Throughput | None,
    suggestions: Sequence[Suggestion],
    split: Split | None,
) -> dict[str, Any]:
    plan = cost.schedule
    return {
        "fits": cost.fits,
        "peak_bytes": cost.memory.peak,
        "machine_bytes": cost.request.machine.memory,
        "ranks": plan.ranks,
        "rows": plan.rows,
        "held_out": plan.held_out,
        "batches": plan.batches,
        "steps": plan.steps,
        "epochs": plan.passes,
        "micro_batches": plan.microbatches,
        "answers": plan.generated,
        "tokens": plan.tokens,
        "trained_tokens": plan.trained_tokens,
        "memory": [asdict(line) for line in cost.memory.lines],
        "disk": [{"name": stored.name, "bytes": stored.bytes, "count": stored.count} for stored in cost.disk],
        "transfers": [asdict(transfer) for transfer in transfers(cost)],
        "round": None if split is None else {"learning": split.learning, "drawing": split.drawing},
        "seconds": None
        if times is None
        else {**_seconds(times), "total": times.total, "step": times.moves / plan.steps},
        "tokens_per_second": None if throughput is None else throughput.tokens,
        "measured_peak_bytes": None if throughput is None else throughput.peak,
        "suggestions": [
            {
                "settings": suggestion.change.words,
                "peak_bytes": suggestion.cost.memory.peak,
                "means": suggestion.change.means,
            }
            for suggestion in suggestions
        ],
    }


def _seconds(times: Times) -> dict[str, float]:
    return {name: getattr(times, name) for name in ("moves", "drawing", "looks", "before")}


def _plural(count: int, singular: str, plural: str | None = None) -> str:
    return singular if count == 1 else plural or f"{singular}s"


def _format_duration(seconds: int | float) -> str:
    """Seconds as people say them.

    >>> _format_duration(4.2), _format_duration(250), _format_duration(9000)
    ('4.2 s', '4 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
