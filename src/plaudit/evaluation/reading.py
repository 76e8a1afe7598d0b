"""A file of feedback as evidence."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plaudit.errors import UserError
from plaudit.evaluation.evaluate import Evidence
from plaudit.evaluation.pairs import Judged
from plaudit.records.feedback import Comparison, Ranking, Record
from plaudit.sources.read import Reading, open_rows, read_records


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Evidence, and what a reader is told about the file that it comes from.

    Example: ``read_evidence(Path("pairs.jsonl")).evidence``
    """

    evidence: Evidence
    """What models are compared with."""
    said: tuple[str, ...]
    """How the file was read and what was left out, sentence by sentence."""


def read_evidence(
    path: Path, *, format: str | None = None, threshold: float = 0.01, n: int | None = None, seed: int = 0
) -> Read:
    """The comparisons and rankings of a file, or n of them by chance, in the order of the file."""
    reading = read_records(path, format=format, threshold=threshold)
    judged = [record for record in reading.records if isinstance(record, Comparison | Ranking)]
    if not judged:
        raise UserError(
            f"{path}: holds {_counts(reading.counts)}, and neither a comparison nor a ranking; a reward "
            "model is evaluated on answers that people compared"
        )
    kept = judged if n is None else _drawn(judged, n, seed)
    evidence = Evidence(
        name=path.name,
        records=kept,
        layout=reading.layout,
        ids=_ids(path, format) if reading.layout == "rewardbench2" else {},
    )
    return Read(evidence=evidence, said=tuple(_said(path, reading, judged, kept)))


def _drawn(judged: Sequence[Judged], n: int, seed: int) -> list[Judged]:
    """Benchmarks are sorted by subset, so the first n would be of one kind."""
    places = sorted(random.Random(seed).sample(range(len(judged)), min(n, len(judged))))
    return [judged[place] for place in places]


def _said(path: Path, reading: Reading, judged: Sequence[Record], kept: Sequence[Record]) -> list[str]:
    said = [reading.sentence]
    if reading.problems:
        said.append(f"{path.name}: {len(reading.problems)} of {reading.rows} rows are bad and left out")
    said += [f"{path.name}: {count} × {reason} left out" for reason, count in reading.left_out.items()]
    others = len(reading.records) - len(judged)
    if others:
        said.append(f"{path.name}: {others} records are neither comparisons nor rankings, and left out")
    if len(kept) < len(judged):
        said.append(f"{path.name}: {len(kept)} of {len(judged)} records, drawn by chance")
    return said


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {kind}" for kind, count in counts.items()) or "no record"


def _ids(path: Path, format: str | None) -> dict[str, str]:
    """What each row calls itself: RewardBench 2 couples rows by it, and records do not keep it."""
    rows = (row.raw for row in open_rows(path, format=format).rows)
    return {
        row.origin: str(row.value["id"]) for row in rows if isinstance(row.value, dict) and "id" in row.value
    }
