"""A file of any layout written in plaudit's own: the whole of it, a random sample, or what it prefers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plaudit.data.formats.base import ReadOptions
from plaudit.data.read import read_records
from plaudit.data.records import Record
from plaudit.data.transforms import preferred_demonstration
from plaudit.data.write import write_records
from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSettings:
    """A file of any layout, checked, as rows of plaudit's own.

    Example: ``RowsSettings(data=Path("pairs.csv"), threshold=0.0)``
    """

    data: Path
    """The file: JSONL, JSON, CSV, Parquet or a datasets folder."""
    format: str | None = None
    """Its layout; none: told from the rows, and said."""
    threshold: float = 0.01
    """Above this share of bad rows the stage fails; the bad ones lie in quarantine.jsonl."""
    split: str | None = None
    """Which split of a datasets folder."""
    ties: Literal["soft", "drop"] = "soft"
    """What becomes of ties."""
    preferred: bool = False
    """Keep the preferred answers alone, as demonstrations."""
    n: int | None = None
    """At most so many records, drawn by chance; none: all of them."""
    seed: int = 0
    """The seed of that random choice."""

    def __post_init__(self) -> None:
        """Refuse to keep nothing."""
        if self.n is not None and self.n < 1:
            raise UserError(f"n must be at least 1, not {self.n}")


def convert_rows(settings: RowsSettings, folder: Path) -> tuple[str, ...]:
    """Write ``rows.jsonl``, and the bad rows beside it; returns what there is to say of them."""
    result = read_records(
        settings.data,
        format=settings.format,
        threshold=settings.threshold,
        quarantine=folder / "quarantine.jsonl",
        options=ReadOptions(ties=settings.ties, split=settings.split),
    )
    sentences = [f"{count} × {reason} left out" for reason, count in result.left_out.items()]
    if result.quarantine is not None:
        sentences.append(
            f"{len(result.problems)} of {result.rows} rows are bad; they are in {result.quarantine}"
        )
    records = tuple(_preferred(result.records)) if settings.preferred else result.records
    if settings.preferred:
        missing = len(result.records) - len(records)
        sentences.append(f"{missing} of {len(result.records)} records prefer nothing")
    output = write_records(_sample(records, settings), folder / "rows.jsonl")
    return (f"{output.rows} rows", result.format_sentence, *sentences)


def _preferred(records: Sequence[Record]) -> Iterator[Record]:
    demonstrations = map(preferred_demonstration, records)
    return (demonstration for demonstration in demonstrations if demonstration is not None)


def _sample(records: Sequence[Record], settings: RowsSettings) -> Sequence[Record]:
    """A random sample of the records, in the order of the file."""
    if settings.n is None or settings.n >= len(records):
        return records
    indices = random.Random(f"rows {settings.seed}").sample(range(len(records)), settings.n)
    return tuple(records[index] for index in sorted(indices))
