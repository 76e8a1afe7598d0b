"""From a file to examples: read, encode, hold out; whatever could not be used is put aside by name."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

from plaudit.batches.cut import Refused
from plaudit.batches.rows import Encoding
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.recipes.config import RowSettings, RunConfig
from plaudit.records.feedback import Record
from plaudit.records.messages import Text
from plaudit.sources.layouts import ReadOptions
from plaudit.sources.read import Reading, read_records
from plaudit.training import durable


@runtime_checkable
class Asked(Protocol):
    """A row of any kind, as far as holding out is concerned."""

    @property
    def prompt(self) -> tuple[int, ...]:
        """The prompt's tokens."""
        ...


Row = TypeVar("Row", bound=Asked)
"""What a record becomes: an example, or one with what was said of it."""
TeacherPrompts = Mapping[tuple[int, ...], tuple[int, ...]]
"""For each prompt of the student, as tokens, what a teacher is asked in its place."""
Families = Mapping[tuple[int, ...], tuple[int, ...]]
"""For each prompt that was made of a question, the one that stands for all that were made of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Generic[Row]):
    """What a method makes of the records of a file.

    Example: ``Prepared(encoding=encode_rows(records, encoder), notes=("3 rows: a tie",))``
    """

    encoding: Encoding[Row]
    """The rows as tokens, and those that cannot be used."""
    notes: tuple[str, ...] = ()
    """What was decided, for the user."""
    teacher_prompts: TeacherPrompts = field(default_factory=dict[tuple[int, ...], tuple[int, ...]])
    """What a teacher is asked, where that is something else."""
    families: Families = field(default_factory=dict[tuple[int, ...], tuple[int, ...]])
    """Prompts that were made of one question: each with the one that stands for all of them."""
    records: tuple[Record, ...] = ()
    """What the file holds."""


Recipe = Callable[[Sequence[Record], Encoder, int], Prepared[Row]]
"""From records, an encoder and the longest row to what is trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Generic[Row]):
    """What a run learns from, and what it is judged on.

    Example: ``Rows(train=(…,), held_out=(…,), notes=("rows.jsonl: read as …",))``
    """

    train: tuple[Row, ...]
    """Rows that are trained."""
    held_out: tuple[Row, ...]
    """Rows that never are."""
    notes: tuple[str, ...]
    """What was decided, for the user."""
    teacher_prompts: TeacherPrompts
    """What a teacher is asked, where that is something else."""
    records: tuple[Record, ...]
    """What the file of rows holds."""
    held_out_records: tuple[Record, ...]
    """What the held-out file holds, where there is one."""


def load_rows(config: RunConfig, encoder: Encoder, recipe: Recipe[Row], aside: Path | None) -> Rows[Row]:
    """All rows of a run; ``aside`` is the folder where unusable ones are listed (the first rank's only)."""
    encoded = partial(_encoded, config=config, encoder=encoder, recipe=recipe)
    data = encoded(config.data, aside=_Aside(folder=aside, role="data"))
    train, notes, teacher_prompts = data.encoding.examples, data.notes, dict(data.teacher_prompts)
    share, other_records = config.held_out_share, ()
    if share is None:
        other = encoded(Path(config.held_out), aside=_Aside(folder=aside, role="held-out"))
        held_out, notes = other.encoding.examples, notes + other.notes
        other_records = other.records
        teacher_prompts.update(other.teacher_prompts)
        notes += tuple(_leaks(train, held_out, config.held_out))
    else:
        train, held_out = hold_out(train, share, config.seed, data.families)
        notes += (f"{len(held_out)} of {len(train) + len(held_out)} rows are held out",) if share else ()
    if not train:
        raise UserError(f"{config.data}: no row is left to train on; hold out less, or give more rows")
    return Rows(
        train=train,
        held_out=held_out,
        notes=notes,
        teacher_prompts=teacher_prompts,
        records=data.records,
        held_out_records=other_records,
    )


def hold_out(
    examples: Sequence[Row], share: float, seed: int, families: Families | None = None
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Put a share of the *prompts* aside: rows with the same prompt stay together, so none leaks."""
    own = families or {}
    family = {example.prompt: own.get(example.prompt, example.prompt) for example in examples}
    prompts = sorted(set(family.values()))
    random.Random(f"{seed}/held out").shuffle(prompts)
    wanted = math.ceil(share * len(prompts)) if share else 0
    chosen = set(prompts[: min(wanted, len(prompts) - 1)])
    train = tuple(example for example in examples if family[example.prompt] not in chosen)
    return train, tuple(example for example in examples if family[example.prompt] in chosen)


def families_of(records: Sequence[Record], encoding: Encoding[Example]) -> Families:
    """The prompts that a recipe has made of one prompt of the file."""
    prompt = {record.origin: record.prompt for record in records}
    first: dict[Text, tuple[int, ...]] = {}
    return {
        example.prompt: first.setdefault(prompt[example.origin], example.prompt)
        for example in encoding.examples
    }


def _leaks(train: Sequence[Asked], held_out: Sequence[Asked], name: str) -> Iterable[str]:
    """Held-out prompts that are trained as well: what is measured on them is memory."""
    trained = {example.prompt for example in train if example.prompt}
    count = sum(example.prompt in trained for example in held_out)
    if count:
        yield f"{count} of {len(held_out)} rows in {name} have a prompt that is also trained"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aside:
    """Where rows that cannot be used are listed; other files of a run may have the same name as its data."""

    folder: Path | None
    role: str

    @property
    def unread(self) -> Path | None:
        return None if self.folder is None else self.folder / f"quarantine-{self.role}.jsonl"

    @property
    def untrained(self) -> Path | None:
        return None if self.folder is None else self.folder / f"refused-{self.role}.jsonl"


def _encoded(
    path: Path, *, config: RunConfig, encoder: Encoder, recipe: Recipe[Row], aside: _Aside
) -> Prepared[Row]:
    reading = read_records(
        path,
        format=config.format,
        threshold=config.rows.threshold,
        quarantine=aside.unread,
        options=ReadOptions(split=config.rows.split, ties=config.rows.ties),
    )
    prepared = recipe(reading.records, encoder, config.max_length)
    _refuse_too_many(path, prepared.encoding, config.rows, aside)
    return replace(prepared, notes=tuple(_notes(reading, prepared, aside)), records=tuple(reading.records))


def _notes(reading: Reading, prepared: Prepared[Row], aside: _Aside) -> Iterable[str]:
    encoding = prepared.encoding
    yield reading.sentence
    yield from prepared.notes
    if reading.problems:
        yield f"{len(reading.problems)} of {reading.rows} rows are bad and were put into {reading.quarantine}"
    yield from (f"{count} rows: {reason}" for reason, count in reading.left_out.items())
    yield from (f"{count} rows: {note}" for note, count in encoding.notes.items())
    if encoding.refused:
        where = "" if aside.untrained is None else f"; they are listed in {aside.untrained}"
        yield f"{len(encoding.refused)} rows cannot be trained ({encoding.refused[0].reason} …){where}"


def _refuse_too_many(path: Path, encoding: Encoding[Row], rows: RowSettings, aside: _Aside) -> None:
    total = len(encoding.examples) + len(encoding.refused)
    if aside.untrained is not None and encoding.refused:
        lines = (json.dumps(_plain(refused), ensure_ascii=False) for refused in encoding.refused)
        durable.write_text(aside.untrained, "".join(f"{line}\n" for line in lines))
    if len(encoding.refused) > math.floor(rows.threshold * total + 1e-9):
        first = "\n".join(f"  {_told(refused)}" for refused in encoding.refused[:5])
        raise UserError(
            f"{path}: {len(encoding.refused)} of {total} rows cannot be trained, above the threshold of "
            f"{rows.threshold:.1%}. The first:\n{first}\nMend them, or set --rows.threshold higher"
        )


def _told(refused: Refused) -> str:
    """The reason behind its row, which some reasons begin with."""
    where = f"{refused.origin}: "
    return where + refused.reason.removeprefix(where)


def _plain(refused: Refused) -> Mapping[str, str]:
    return {"origin": refused.origin, "reason": refused.reason}
