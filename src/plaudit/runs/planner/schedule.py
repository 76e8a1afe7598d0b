"""The rows of a planned run, and its counts of batches, steps and tokens.

Rows are tokens where there is a tokenizer, else of stated lengths; they are divided by the functions that the
run itself uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Ranking, Record
from plaudit.engine.loop import BatchOrder
from plaudit.engine.ranks import weighted
from plaudit.errors import UserError
from plaudit.files.data_sets import sources_of
from plaudit.files.stored import mapped
from plaudit.methods.config import RunConfig
from plaudit.methods.data import hold_out, load_rows
from plaudit.methods.named_runs import SUPERVISED_METHODS
from plaudit.methods.policy.batch import minibatches_of
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.policy.conflicts import configured_algorithm
from plaudit.methods.policy.run import encode_prompts_with_room
from plaudit.methods.preference.config import PreferenceConfig
from plaudit.methods.preference.run import load_preference_rows
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.methods.reward_model.data import encode_judged_rows
from plaudit.methods.reward_model.run import bootstrap_rows
from plaudit.methods.run import encoder_for, total_steps
from plaudit.tokens.batch import Completion, Example
from plaudit.tokens.microbatch import split_examples
from plaudit.tokens.tokenizer import load_tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedLengths:
    """Lengths that the user states, where no tokenizer can count tokens."""

    prompt: int
    answer: int

    def __post_init__(self) -> None:
        if self.prompt < 1 or self.answer < 1:
            raise UserError("--prompt-tokens and --answer-tokens are 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRows:
    """What is learnt from and what is held out, as far as it costs; prompts alone have no answers."""

    train: Sequence[Example]
    held_out: Sequence[Example]
    notes: tuple[str, ...]


def planned_rows(method: str, config: RunConfig, stated: StatedLengths | None) -> PlannedRows:
    if stated is not None:
        return _stated_rows(config, stated)
    try:
        load_tokenizer(config.model)
    except UserError as error:
        raise UserError(
            f"{error}\nTo plan without a tokenizer, say how long rows are: --prompt-tokens N "
            "--answer-tokens N"
        ) from error
    encoder = encoder_for(config)
    example_of: Callable[[Any], Example] = attrgetter("example")
    if isinstance(config, PolicyConfig):
        rows_read: Any = load_rows(config, encoder, partial(encode_prompts_with_room, config), None)
        example_of = _prompt_only
    elif isinstance(config, PreferenceConfig):
        rows_read = load_preference_rows(method, config, encoder, None)
    elif isinstance(config, RewardConfig):
        rows_read = load_rows(config, encoder, partial(encode_judged_rows, config.reward), None)
        rows_read = replace(rows_read, train=bootstrap_rows(rows_read.train, config.ensemble, config.seed))
    else:
        rows_read = load_rows(config, encoder, SUPERVISED_METHODS[method].encode, None)
        return PlannedRows(train=rows_read.train, held_out=rows_read.held_out, notes=rows_read.notes)
    train, held_out = (mapped(rows, example_of) for rows in (rows_read.train, rows_read.held_out))
    return PlannedRows(train=train, held_out=held_out, notes=rows_read.notes)


def _prompt_only(row: Any) -> Example:
    return Example(prompt=row.prompt, completions=())


def with_answers(prompt: Example, answers: int, tokens: int) -> Example:
    """A prompt with so many answers of so many tokens, none of which is looked at."""
    answer = Completion(ids=(0,) * tokens, mask=(True,) * tokens, finished=True)
    return Example(prompt=prompt.prompt, completions=(answer,) * answers)


def _stated_rows(config: RunConfig, lengths: StatedLengths) -> PlannedRows:
    share = config.held_out_share
    parts = [
        (_rows_of_stated_length(Path(source), config, lengths), weight)
        for source, weight in sources_of(config.data)
    ]
    rows = tuple(row for part, _ in parts for row in part)
    trained: Sequence[int] = range(len(rows))
    if share is None:
        held_out = _rows_of_stated_length(Path(config.held_out), config, lengths)
    else:
        trained, separate = hold_out(rows, share, config.seed)
        held_out = tuple(rows[number] for number in separate)
    often = weighted(trained, [weight for part, weight in parts for _ in part], config.seed)
    rows = tuple(rows[number] for number in often)
    note = f"every prompt is taken to have {lengths.prompt:,} tokens, every answer {lengths.answer:,}"
    return PlannedRows(train=rows, held_out=held_out, notes=(note,))


def _rows_of_stated_length(path: Path, config: RunConfig, lengths: StatedLengths) -> tuple[Example, ...]:
    # Rows of the stated lengths; equal prompts stay equal, so that they are held out together.
    records = read_records(
        path, format=config.format, threshold=config.rows.threshold, options=config.read_options
    ).records
    example_of: dict[object, Example] = {}
    for record in records:
        example_of.setdefault(
            record.prompt, Example(prompt=(len(example_of),) * lengths.prompt, completions=())
        )
    if isinstance(config, PolicyConfig):
        return tuple(example_of.values())
    return tuple(
        with_answers(example_of[record.prompt], _completion_count(record), lengths.answer)
        for record in records
    )


def _completion_count(record: Record) -> int:
    match record:
        case Comparison():
            return 2
        case Ranking():
            return len(record.completions)
        case _:
            return 1


SAMPLED_BATCHES = 500
"""Batches that are divided to find the largest micro-batch."""
Microbatch = tuple[Example, ...]
"""A micro-batch: rows that go through the model together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundShape:
    """The shape of a round, where completions are generated."""

    answers: int
    rivals: int
    """Further completions of each prompt that are only scored."""
    longest: int
    """Tokens that a completion is taken to have."""
    epochs: int
    minibatches: int

    @property
    def updates_per_round(self) -> int:
        return self.epochs * self.minibatches


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The counts of a run: rows, batches, steps, micro-batches and tokens."""

    rows: int
    """Rows that are trained; prompts, where answers are drawn."""
    held_out: int
    batch_size: int
    ranks: int
    steps: int
    batches: int
    steps_an_epoch: int
    passes: float
    rounds: RoundShape | None
    microbatches: int
    """The most that one process computes one after another before an optimiser step (accumulation)."""
    largest: Microbatch
    tokens: int
    """Tokens that are computed in all optimiser steps, a shared prompt once."""
    trained_tokens: int
    generated: int

    @property
    def updates_per_batch(self) -> int:
        return 1 if self.rounds is None else self.rounds.updates_per_round


def make_schedule(
    method: str, config: RunConfig, rows: PlannedRows, *, ranks: int, answer_tokens: int | None = None
) -> Schedule:
    """The arithmetic of a run; ``answer_tokens`` is how long drawn answers are, where that is known."""
    if not rows.train:
        raise UserError(f"{config.data}: no row is left to train on; hold out less, or give more rows")
    rounds = _round_shape(method, config, answer_tokens)
    order = BatchOrder(rows=len(rows.train), batch_size=config.batch_size, seed=config.seed)
    inner = 1 if rounds is None else rounds.updates_per_round
    steps = total_steps(config, order, inner)
    batches = -(-steps // inner)
    examples = mapped(rows.train, partial(_with_round_completions, rounds=rounds))
    tokens_at_once, sampled = config.memory.tokens_at_once, islice(range(1, batches + 1), SAMPLED_BATCHES)
    microbatches = 0
    largest: Microbatch = ()
    for number in sampled:
        batch = [examples[row] for row in order.batch_rows(number)]
        for step_examples in _step_examples(batch, number, rounds, config.seed):
            for share in split_examples(step_examples, ranks=ranks, tokens_at_once=tokens_at_once):
                microbatches = max(microbatches, len(share))
                largest = max(largest, *share, key=_microbatch_tokens)
    tokens, trained_tokens = _total_tokens(examples, order, steps, rounds, config.seed)
    generated = 0
    if rounds is not None:
        generated = rounds.answers * _rows_in_batches(order, batches)
    return Schedule(
        rows=len(examples),
        held_out=len(rows.held_out),
        batch_size=config.batch_size,
        ranks=ranks,
        steps=steps,
        batches=batches,
        steps_an_epoch=order.steps_per_epoch,
        passes=order.epoch_after(batches),
        rounds=rounds,
        microbatches=microbatches,
        largest=largest,
        tokens=tokens,
        trained_tokens=trained_tokens,
        generated=generated,
    )


def _round_shape(method: str, config: RunConfig, answer_tokens: int | None) -> RoundShape | None:
    if not isinstance(config, PolicyConfig):
        return None
    algorithm = configured_algorithm(method, config)
    return RoundShape(
        answers=algorithm.group_size,
        rivals=int(bool({"greedy_baseline", "rival"} & algorithm.needs)),
        longest=min(answer_tokens or config.draw.longest, config.draw.longest),
        epochs=algorithm.update_epochs,
        minibatches=algorithm.minibatches,
    )


def _with_round_completions(row: Example, rounds: RoundShape | None) -> Example:
    return row if rounds is None else with_answers(row, rounds.answers, rounds.longest)


def _microbatch_tokens(piece: Sequence[Example]) -> int:
    return sum(example.tokens for example in piece)


def _step_examples(
    batch: Sequence[Example], number: int, rounds: RoundShape | None, seed: int
) -> Iterator[list[Example]]:
    if rounds is None:
        yield list(batch)
        return
    for epoch in minibatches_of(len(batch), rounds.epochs, rounds.minibatches, f"{seed}/{number}"):
        yield from ([batch[group] for group in groups] for groups in epoch if groups)


def _total_tokens(
    rows: Sequence[Example], order: BatchOrder, steps: int, rounds: RoundShape | None, seed: int
) -> tuple[int, int]:
    # Tokens that all moves compute, and how many of them are learnt; whole epochs are not walked through.
    inner = 1 if rounds is None else rounds.updates_per_round
    times = 1 if rounds is None else rounds.epochs
    whole_batches, rest = divmod(steps, inner)
    epochs, further = divmod(whole_batches, order.steps_per_epoch)
    batches = [order.batch_rows(epochs * order.steps_per_epoch + n) for n in range(1, further + 1)]
    token_counts = [[row.tokens, row.trained_tokens] for row in rows]
    total = [0, 0]
    for kind in range(2):
        epoch_tokens = sum(count[kind] for count in token_counts)
        further_tokens = sum(token_counts[row][kind] for batch in batches for row in batch)
        total[kind] = times * (epochs * epoch_tokens + further_tokens)
    if rest:
        batch = [rows[row] for row in order.batch_rows(whole_batches + 1)]
        for step_examples in islice(_step_examples(batch, whole_batches + 1, rounds, seed), rest):
            total[0] += _microbatch_tokens(step_examples)
            total[1] += sum(example.trained_tokens for example in step_examples)
    return total[0], total[1]


def _rows_in_batches(order: BatchOrder, batches: int) -> int:
    epochs, further = divmod(batches, order.steps_per_epoch)
    return epochs * order.rows + min(further * order.batch_size, order.rows)
