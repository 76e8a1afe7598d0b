"""From a file to examples: read, encode, hold out; whatever could not be used is put aside by name."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plaudit.batches.cut import Refused
from plaudit.batches.rows import Encoding, encode_rows
from plaudit.batches.template import Answered, Encoder
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.recipes.config import RowSettings, SupervisedConfig
from plaudit.records.feedback import Record
from plaudit.sources.layouts import ReadOptions
from plaudit.sources.read import Reading, read_records
from plaudit.training import durable

Recipe = Callable[[Sequence[Record]], Sequence[Answered]]
"""What becomes of the records before they are tokens: the identity for SFT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What a supervised run learns from, and what it is judged on.

    Example: ``Rows(train=(…,), held_out=(…,), notes=("rows.jsonl: read as …",))``
    """

    train: tuple[Example, ...]
    """Rows that are trained."""
    held_out: tuple[Example, ...]
    """Rows that never are."""
    notes: tuple[str, ...]
    """What was decided, for the user."""


def load_rows(config: SupervisedConfig, encoder: Encoder, recipe: Recipe, aside: Path | None) -> Rows:
    """All rows of a run; ``aside`` is the folder where unusable ones are listed (the first rank's only)."""
    train, notes = _encoded(config.data, config, encoder, recipe, aside)
    share = config.held_out_share
    if share is None:
        held_out, more = _encoded(Path(config.held_out), config, encoder, recipe, aside)
        notes += more
    else:
        train, held_out = hold_out(train, share, config.seed)
        notes += (f"{len(held_out)} of {len(train) + len(held_out)} rows are held out",) if share else ()
    if not train:
        raise UserError(f"{config.data}: no row is left to train on; hold out less, or give more rows")
    return Rows(train=train, held_out=held_out, notes=notes)


def hold_out(
    examples: Sequence[Example], share: float, seed: int
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Put a share of the *prompts* aside: rows with the same prompt stay together, so none leaks."""
    prompts = sorted({example.prompt for example in examples})
    random.Random(f"{seed}/held out").shuffle(prompts)
    wanted = math.ceil(share * len(prompts)) if share else 0
    chosen = set(prompts[: min(wanted, len(prompts) - 1)])
    train = tuple(example for example in examples if example.prompt not in chosen)
    return train, tuple(example for example in examples if example.prompt in chosen)


def _encoded(
    path: Path, config: SupervisedConfig, encoder: Encoder, recipe: Recipe, aside: Path | None
) -> tuple[tuple[Example, ...], tuple[str, ...]]:
    reading = _read(path, config, aside)
    encoding = encode_rows(recipe(reading.records), encoder, config.max_length)
    _refuse_too_many(path, encoding, config.rows, aside)
    return encoding.examples, tuple(_notes(reading, encoding, aside))


def _read(path: Path, config: SupervisedConfig, aside: Path | None) -> Reading:
    return read_records(
        path,
        format=config.format,
        threshold=config.rows.threshold,
        quarantine=None if aside is None else aside / f"quarantine-{path.stem}.jsonl",
        options=ReadOptions(split=config.rows.split, ties=config.rows.ties),
    )


def _notes(reading: Reading, encoding: Encoding, aside: Path | None) -> Iterable[str]:
    yield reading.sentence
    if reading.problems:
        yield f"{len(reading.problems)} of {reading.rows} rows are bad and were put into {reading.quarantine}"
    yield from (f"{count} rows: {reason}" for reason, count in reading.left_out.items())
    yield from (f"{count} rows: {note}" for note, count in encoding.notes.items())
    if encoding.refused:
        where = "" if aside is None else f"; they are listed in {aside / 'refused.jsonl'}"
        yield f"{len(encoding.refused)} rows cannot be trained ({encoding.refused[0].reason} …){where}"


def _refuse_too_many(path: Path, encoding: Encoding, rows: RowSettings, aside: Path | None) -> None:
    total = len(encoding.examples) + len(encoding.refused)
    if aside is not None and encoding.refused:
        lines = (json.dumps(_plain(refused), ensure_ascii=False) for refused in encoding.refused)
        durable.write_text(aside / "refused.jsonl", "".join(f"{line}\n" for line in lines))
    if len(encoding.refused) > math.floor(rows.threshold * total + 1e-9):
        first = "\n".join(f"  {refused.origin}: {refused.reason}" for refused in encoding.refused[:5])
        raise UserError(
            f"{path}: {len(encoding.refused)} of {total} rows cannot be trained, above the threshold of "
            f"{rows.threshold:.1%}. The first:\n{first}\nMend them, or set --rows.threshold higher"
        )


def _plain(refused: Refused) -> Mapping[str, str]:
    return {"origin": refused.origin, "reason": refused.reason}
