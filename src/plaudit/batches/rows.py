"""Many rows → tokens: what fits, what was refused and why, and how often something had to be decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from plaudit.batches.cut import Refused, cut
from plaudit.batches.template import Answered, Encoded, Encoder, encode_record_noted
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.records.feedback import Record

Known = TypeVar("Known", bound=Record)
"""The kinds of records that a function takes."""
Row = TypeVar("Row")
"""What a record becomes: an example, or one with what was said of it."""

CUT = "the prompt was cut from its start, so that the longest answer fits whole"
"""Said of a row that was too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding(Generic[Row]):
    """What became of the rows.

    Example: ``Encoding(examples=(Example(...),), refused=(), notes={CUT: 1})``
    """

    examples: tuple[Row, ...]
    """The rows that can be trained, in order."""
    refused: tuple[Refused, ...]
    """The rows that cannot, each with its reason: to be quarantined, counted and shown."""
    notes: Mapping[str, int]
    """What had to be decided, and for how many rows."""


def encode_rows(
    records: Iterable[Answered], encoder: Encoder, max_tokens: int | None = None
) -> Encoding[Example]:
    """All rows as tokens, each at most ``max_tokens`` long; a bad row is refused, none is lost."""
    return encode_each(
        records, lambda record: encode_record_noted(record, encoder), lambda _, example: example, max_tokens
    )


def encode_each(
    records: Iterable[Known],
    encode: Callable[[Known], Encoded],
    finish: Callable[[Known, Example], Row],
    max_tokens: int | None = None,
) -> Encoding[Row]:
    """The same with a way of one's own: ``finish`` gets a record and its tokens when they fit."""
    rows: list[Row] = []
    refused: list[Refused] = []
    notes: Counter[str] = Counter()
    for record in records:
        try:
            encoded = encode(record)
            fitted = (
                encoded.example if max_tokens is None else cut(encoded.example, max_tokens, bos=encoded.bos)
            )
            if isinstance(fitted, Refused):
                refused.append(fitted)
                continue
            rows.append(finish(record, fitted))
        except UserError as error:
            refused.append(Refused(origin=record.origin, reason=str(error)))
            continue
        notes.update(encoded.notes)
        notes.update([CUT] if fitted is not encoded.example else [])
    return Encoding(examples=tuple(rows), refused=tuple(refused), notes=dict(notes))
