"""From a file of rows to examples: read, encode and hold out; rows that cannot be used are listed by name."""

import json
import math
import random
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from plaudit.data.files import source_name
from plaudit.data.read import ReadResult, read_records
from plaudit.data.records import Record, Text
from plaudit.engine.loop import MANY_ROWS
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.files.data_sets import sources_of
from plaudit.files.stored import joined, selected
from plaudit.methods.config import RowSettings, RunConfig
from plaudit.methods.shelf import CachedRows, open_shelf
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import EncodedRows, Encoder
from plaudit.tokens.parallel import RowProgress


@runtime_checkable
class PromptRow(Protocol):
    """Any row that has a prompt: all that holding out needs to know."""

    @property
    def prompt(self) -> tuple[int, ...]: ...

    @property
    def prompt_id(self) -> str:
        """The content hash of the prompt, what it shows beside tokens included."""
        ...


Row = TypeVar("Row", bound=PromptRow)
"""What a record becomes: an example, or an example with its judgement."""
TeacherPrompts = Mapping[str, tuple[int, ...]]
"""For each prompt of the student, by its content hash, the tokens that a teacher is asked in its place."""
PromptFamilies = Mapping[str, str]
"""For each prompt that was made of one of the file, the one that stands for all of these, by their hashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedData(Generic[Row]):
    encoding: EncodedRows[Row]
    """The rows as tokens, and those that cannot be used."""
    notes: tuple[str, ...] = ()
    teacher_prompts: TeacherPrompts = field(default_factory=dict[str, tuple[int, ...]])
    """What a teacher is asked, where that is something else."""
    families: PromptFamilies = field(default_factory=dict[str, str])
    """Prompts that were made of one question: each with the one that stands for all of them."""
    records: Sequence[Record] = ()


EncodeRecords = Callable[[Sequence[Record], Encoder, int], EncodedData[Row]]
"""From records, an encoder and the longest row in tokens to encoded rows; each method has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Generic[Row]):
    train: Sequence[Row]
    held_out: Sequence[Row]
    notes: tuple[str, ...]
    teacher_prompts: TeacherPrompts
    records: Sequence[Record]
    held_out_records: Sequence[Record]


def load_rows(
    config: RunConfig, encoder: Encoder, encode: EncodeRecords[Row], quarantine_folder: Path | None
) -> Rows[Row]:
    """All rows of a run; ``quarantine_folder`` is where unusable ones are listed (the first rank's only)."""
    read = partial(_read_and_encode, config=config, encoder=encoder, recipe=encode)
    sources: list[tuple[EncodedData[Row], float]] = []
    for number, (source, weight) in enumerate(sources_of(config.data), start=1):
        name = "data.jsonl" if number == 1 else f"data-{number}.jsonl"
        sources.append((read(Path(source), quarantine_folder and quarantine_folder / name), weight))
    parts = [part for part, _ in sources]
    everything = joined([part.encoding.examples for part in parts])
    notes = tuple(note for part in parts for note in part.notes)
    teacher_prompts = {key: value for part in parts for key, value in part.teacher_prompts.items()}
    families = {key: value for part in parts for key, value in part.families.items()}
    share = config.held_out_share
    held_out, held_out_records = everything[:0], ()
    trained: Sequence[int] = range(len(everything))
    if share is None:
        aside = quarantine_folder and quarantine_folder / "held-out.jsonl"
        held_out_data = read(Path(config.held_out), aside)
        held_out, notes = held_out_data.encoding.examples, notes + held_out_data.notes
        held_out_records = held_out_data.records
        teacher_prompts.update(held_out_data.teacher_prompts)
        from plaudit.engine.ranks import leak_notes

        notes += tuple(leak_notes(everything, held_out, config.held_out))
    elif share:
        trained, separate = hold_out(everything, share, config.seed, families)
        held_out = selected(everything, separate)
        notes += (f"{len(separate)} of {len(everything)} rows are held out",)
    train = selected(everything, _by_weights(trained, sources, config.seed))
    if not train:
        raise UserError(f"{config.data}: no row is left to train on; hold out less, or give more rows")
    return Rows(
        train=train,
        held_out=held_out,
        notes=(*notes, *_share_notes(train, config, [len(part.encoding.examples) for part in parts])),
        teacher_prompts=teacher_prompts,
        records=joined([part.records for part in parts]),
        held_out_records=held_out_records,
    )


def _by_weights(rows: Sequence[int], sources: Sequence[Any], seed: int) -> Sequence[int]:
    if all(weight == 1 for _, weight in sources):
        return rows
    from plaudit.engine.ranks import weighted

    weights = [weight for part, weight in sources for _ in range(len(part.encoding.examples))]
    return weighted(rows, weights, seed)


def _share_notes(train: Sequence[object], config: RunConfig, rows: Sequence[int]) -> Iterable[str]:
    if config.batch_size > len(train):
        yield f"batch_size {config.batch_size} takes all {len(train)} rows: an epoch is one step"
    sources = sources_of(config.data)
    if any(weight != 1 for _, weight in sources):
        each = "; ".join(
            f"{source_name(source)} {count:,} × {weight:g}"
            for (source, weight), count in zip(sources, rows, strict=True)
        )
        yield f"rows by weight: {each}; {len(train):,} are trained in one pass"


def hold_out(
    examples: Sequence[Row], share: float, seed: int, families: PromptFamilies | None = None
) -> tuple[Sequence[int], Sequence[int]]:
    """Split off a share of the *prompts*: rows with the same prompt stay together, so that none leaks.
    The numbers of the rows that are trained, and of those that are held out."""
    if len(examples) >= MANY_ROWS and not families:
        from plaudit.engine.ranks import separate

        return separate(examples, share, f"{seed}/held out")
    representative = families or {}
    prompt_ids: list[str] = []
    tokens: dict[str, bytes] = {}
    for example in examples:
        prompt_ids.append(sys.intern(example.prompt_id))
        if prompt_ids[-1] not in tokens:
            # Bytes that lie in the order of the tokens, in a ninth of their memory.
            packed = array("I", example.prompt)
            if sys.byteorder == "little":
                packed.byteswap()
            tokens[prompt_ids[-1]] = packed.tobytes()
    family = {prompt_id: representative.get(prompt_id, prompt_id) for prompt_id in tokens}
    # In the order of their tokens, so that the shuffle is of the prompts and not of how they are hashed.
    prompts = sorted(set(family.values()), key=lambda prompt_id: (tokens[prompt_id], prompt_id))
    random.Random(f"{seed}/held out").shuffle(prompts)
    # Rounded up, so that a small share still holds out a prompt; and one is always left to train on.
    count = math.ceil(share * len(prompts)) if share else 0
    held_out_prompts = set(prompts[: min(count, len(prompts) - 1)])
    parts = array("Q"), array("Q")
    for number, prompt_id in enumerate(prompt_ids):
        parts[family[prompt_id] in held_out_prompts].append(number)
    return parts


def prompt_families(records: Sequence[Record], encoding: EncodedRows[Example]) -> PromptFamilies:
    """The prompts that a method has made of one prompt of the file, so that they are held out together."""
    prompt_of = {record.origin: record.prompt for record in records}
    representative: dict[Text, str] = {}
    return {
        example.prompt_id: representative.setdefault(prompt_of[example.origin], example.prompt_id)
        for example in encoding.examples
    }


def _read_and_encode(
    path: Path, aside: Path | None, *, config: RunConfig, encoder: Encoder, recipe: EncodeRecords[Row]
) -> EncodedData[Row]:
    """The rows of one source; those of no use are listed in two files whose names end as ``aside`` does."""
    # What could not be read, and what could not be encoded.
    quarantine, refused = (
        aside and aside.with_name(f"{kind}-{aside.name}") for kind in ("quarantine", "refused")
    )
    progress = RowProgress(path.name, shown=aside is not None)
    with open_shelf(path, config, encoder, recipe, progress) as shelf:
        cached = shelf.cached_rows()
        if cached is not None:
            if aside is not None:
                print(f"{path}: {len(cached.examples):,} rows as they were read before", file=sys.stderr)
            encoding = EncodedRows(examples=cached.examples, refused=(), notes={})
            return EncodedData(encoding=encoding, notes=cached.notes, records=cached.records)
        reading = read_records(
            path,
            format=config.format,
            threshold=config.rows.threshold,
            quarantine=quarantine,
            options=config.read_options,
            on_disk=shelf.record_files,
        )
        progress.total = len(reading.records)
        counting = replace(encoder, on_row=progress.on_row, workshop=shelf.workshop)
        prepared = recipe(reading.records, counting, config.max_length)
        progress.close()
        _refuse_too_many_bad_rows(path, prepared.encoding, config.rows, refused)
        notes = tuple(_reading_notes(reading, prepared, refused))
        read = CachedRows(records=reading.records, examples=prepared.encoding.examples, notes=notes)
        # Sound is what needs no telling again when the rows are taken as they were read before.
        reported = reading.problems or prepared.encoding.refused
        cached = shelf.keep(read, sound=not (reported or prepared.teacher_prompts or prepared.families))
    encoding = replace(prepared.encoding, examples=cached.examples)
    return replace(prepared, encoding=encoding, notes=notes, records=cached.records)


def _reading_notes(reading: ReadResult, prepared: EncodedData[Row], listed: Path | None) -> Iterable[str]:
    encoding = prepared.encoding
    yield reading.format_sentence
    yield from prepared.notes
    if reading.problems:
        yield f"{len(reading.problems)} of {reading.rows} rows are bad and were put into {reading.quarantine}"
    yield from (f"{count} rows left out: {reason}" for reason, count in reading.left_out.items())
    yield from (f"{count} rows: {note}" for note, count in encoding.notes.items())
    if encoding.refused:
        where = "" if listed is None else f"; they are listed in {listed}"
        yield f"{len(encoding.refused)} rows cannot be trained ({encoding.refused[0].reason} …){where}"


def _refuse_too_many_bad_rows(
    path: Path, encoding: EncodedRows[Row], rows: RowSettings, listed: Path | None
) -> None:
    total = len(encoding.examples) + len(encoding.refused)
    # Listed before the refusal: whoever has to mend the rows needs the list most.
    if listed is not None and encoding.refused:
        lines = (json.dumps(asdict(refused), ensure_ascii=False) for refused in encoding.refused)
        atomic.write_text(listed, "".join(f"{line}\n" for line in lines))
    if len(encoding.refused) > math.floor(rows.threshold * total + 1e-9):
        # Where a reason begins with the origin, it is not said twice.
        reported = ((f"{row.origin}: ", row.reason) for row in encoding.refused[:5])
        first = "\n".join(f"  {origin}{reason.removeprefix(origin)}" for origin, reason in reported)
        raise UserError(
            f"{path}: {len(encoding.refused)} of {total} rows cannot be trained, above the threshold of "
            f"{rows.threshold:.1%}. The first:\n{first}\n{mend_advice(len(encoding.refused), total)}"
        )


def mend_advice(refused: int, total: int) -> str:
    """What to do about rows that were refused.

    >>> mend_advice(3, 40)
    'Mend them, or leave them out with --rows.threshold 0.075'
    >>> mend_advice(40, 40)
    'Mend them: without them no row would be left'
    """
    if refused == total:
        return "Mend them: without them no row would be left"
    # Rounded up, so that the very share that is named is enough.
    return f"Mend them, or leave them out with --rows.threshold {math.ceil(refused / total * 1000) / 1000:g}"
