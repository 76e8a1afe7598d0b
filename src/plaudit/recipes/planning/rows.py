"""The rows of a run that is planned: as tokens where there is a tokenizer, else of stated lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from plaudit.batches.template import make_encoder
from plaudit.batches.tokenizer import load_tokenizer
from plaudit.batches.tokens import Completion, Example
from plaudit.errors import UserError
from plaudit.recipes.config import RunConfig
from plaudit.recipes.judged import judged_rows
from plaudit.recipes.kinds import SUPERVISED
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_ready import questions_for
from plaudit.recipes.preference_config import PreferenceConfig
from plaudit.recipes.preference_ready import rows_for
from plaudit.recipes.reward import drawn
from plaudit.recipes.reward_config import RewardConfig
from plaudit.recipes.rows import hold_out, load_rows
from plaudit.records.feedback import Comparison, Ranking, Record
from plaudit.sources.layouts import ReadOptions
from plaudit.sources.read import read_records


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long rows are said to be, where nobody can count their tokens.

    Example: ``Lengths(prompt=512, answer=256)``
    """

    prompt: int
    """Tokens of a prompt."""
    answer: int
    """Tokens of an answer."""

    def __post_init__(self) -> None:
        """Refuse nothing to compute."""
        if self.prompt < 1 or self.answer < 1:
            raise UserError("--prompt-tokens and --answer-tokens are 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRows:
    """What is learnt from and what is held out, as far as cost is concerned; prompts alone have no answers.

    Example: ``planned_rows("sft", config, None).train``
    """

    train: tuple[Example, ...]
    """Rows that are trained."""
    held_out: tuple[Example, ...]
    """Rows that never are."""
    notes: tuple[str, ...]
    """What was decided about them."""


def planned_rows(method: str, config: RunConfig, stated: Lengths | None) -> PlannedRows:
    """The rows as the run itself reads them, or as long as they are said to be."""
    if stated is not None:
        return _stated(config, stated)
    try:
        load_tokenizer(config.model)
    except UserError as error:
        raise UserError(
            f"{error}\nTo plan without a tokenizer, say how long rows are: --prompt-tokens N "
            "--answer-tokens N"
        ) from error
    encoder = make_encoder(config.model, turns=config.turns)
    if isinstance(config, PolicyConfig):
        found: Any = load_rows(config, encoder, partial(questions_for, config), None)
        train, held_out = (
            [Example(prompt=row.prompt, completions=()) for row in rows] for rows in _parts(found)
        )
        return PlannedRows(train=tuple(train), held_out=tuple(held_out), notes=found.notes)
    if isinstance(config, PreferenceConfig):
        found = rows_for(method, config, encoder, None)
    elif isinstance(config, RewardConfig):
        found = load_rows(config, encoder, partial(judged_rows, config.reward), None)
        own = drawn(found.train, config.ensemble, config.seed)
        return PlannedRows(train=_examples(own), held_out=_examples(found.held_out), notes=found.notes)
    else:
        found = load_rows(config, encoder, SUPERVISED[method].recipe, None)
        return PlannedRows(train=found.train, held_out=found.held_out, notes=found.notes)
    return PlannedRows(train=_examples(found.train), held_out=_examples(found.held_out), notes=found.notes)


def with_answers(prompt: Example, answers: int, tokens: int) -> Example:
    """A prompt with so many answers of so many tokens, none of which is looked at."""
    answer = Completion(ids=(0,) * tokens, mask=(True,) * tokens, finished=True)
    return Example(prompt=prompt.prompt, completions=(answer,) * answers)


def _parts(found: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    return found.train, found.held_out


def _examples(rows: Sequence[Any]) -> tuple[Example, ...]:
    return tuple(row.example for row in rows)


def _stated(config: RunConfig, lengths: Lengths) -> PlannedRows:
    share = config.held_out_share
    rows = _said(config.data, config, lengths)
    if share is None:
        held_out = _said(Path(config.held_out), config, lengths)
    else:
        rows, held_out = hold_out(rows, share, config.seed)
    note = f"every prompt is taken to have {lengths.prompt:,} tokens, every answer {lengths.answer:,}"
    return PlannedRows(train=rows, held_out=held_out, notes=(note,))


def _said(path: Path, config: RunConfig, lengths: Lengths) -> tuple[Example, ...]:
    """Rows with the same prompt have the same one again, so that they are held out together."""
    options = ReadOptions(split=config.rows.split, ties=config.rows.ties)
    records = read_records(
        path, format=config.format, threshold=config.rows.threshold, quarantine=None, options=options
    ).records
    number: dict[object, Example] = {}
    for record in records:
        number.setdefault(record.prompt, Example(prompt=(len(number),) * lengths.prompt, completions=()))
    if isinstance(config, PolicyConfig):
        return tuple(number.values())
    return tuple(with_answers(number[one.prompt], _answers(one), lengths.answer) for one in records)


def _answers(record: Record) -> int:
    match record:
        case Comparison():
            return 2
        case Ranking():
            return len(record.completions)
        case _:
            return 1
