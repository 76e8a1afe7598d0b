"""Many rows → tokens: what fits, what was refused and why, and how often something had to be decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plaudit.batches.cut import Refused, cut
from plaudit.batches.template import Answered, Encoder, encode_record_noted
from plaudit.batches.tokens import Example
from plaudit.errors import UserError

CUT = "the prompt was cut from its start, so that the longest answer fits whole"
"""Said of a row that was too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """What became of the rows.

    Example: ``Encoding(examples=(Example(...),), refused=(), notes={CUT: 1})``
    """

    examples: tuple[Example, ...]
    """The rows that can be trained, in order."""
    refused: tuple[Refused, ...]
    """The rows that cannot, each with its reason: to be quarantined, counted and shown."""
    notes: Mapping[str, int]
    """What had to be decided, and for how many rows."""


def encode_rows(records: Iterable[Answered], encoder: Encoder, max_tokens: int | None = None) -> Encoding:
    """All rows as tokens, each at most ``max_tokens`` long; a bad row is refused, none is lost."""
    examples: list[Example] = []
    refused: list[Refused] = []
    notes: Counter[str] = Counter()
    for record in records:
        try:
            encoded = encode_record_noted(record, encoder)
        except UserError as error:
            refused.append(Refused(origin=record.origin, reason=str(error)))
            continue
        fitted = encoded.example
        if max_tokens is not None:
            fitted = cut(encoded.example, max_tokens, bos=encoder.info.bos)
        if isinstance(fitted, Refused):
            refused.append(fitted)
            continue
        examples.append(fitted)
        notes.update(encoded.notes)
        notes.update([CUT] if fitted is not encoded.example else [])
    return Encoding(examples=tuple(examples), refused=tuple(refused), notes=dict(notes))
