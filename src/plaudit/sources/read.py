"""From a source to records: detect, parse, put bad rows aside, refuse when there are too many."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from plaudit.errors import UserError
from plaudit.records.dicts import KINDS, kind_of
from plaudit.records.feedback import Record
from plaudit.sources.detect import SAMPLE, Detected, chosen_by_name, detect
from plaudit.sources.files import Source, name_of, raw_rows
from plaudit.sources.layouts import Layout, ReadOptions
from plaudit.sources.node import Node
from plaudit.sources.problems import BadRowError, LeftOutError, Problem
from plaudit.sources.quarantine import Quarantine
from plaudit.sources.rows import RawRow

DEFAULTS = ReadOptions()
"""Ties are soft, neutral steps are 0.5, rows have at most 10 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRead:
    """What became of one row: records, or a problem, or a reason to leave it out.

    Example: ``RowRead(raw=…, records=(Prompt(prompt="Hi", origin="a.jsonl:1"),))``
    """

    raw: RawRow
    """The row itself."""
    records: tuple[Record, ...] = ()
    """What it says."""
    problem: Problem | None = None
    """Why it is bad."""
    left_out: str | None = None
    """Why it is sound and yet holds no record (a tie, when ties are dropped)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A source that is being read, row by row.

    Example: ``Stream(detected=detected, rows=iter(()))``
    """

    detected: Detected
    """The layout, and the sentence about it."""
    rows: Iterator[RowRead]
    """The rows, read as they are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A source that has been read.

    Example: ``Reading(records=(…,), layout="trl-prompt", sentence="…", rows=3, counts={"prompt": 3}, …)``
    """

    records: tuple[Record, ...]
    """Every record of every sound row."""
    layout: str
    """The name of the layout."""
    sentence: str
    """What to say aloud about the layout."""
    rows: int
    """How many rows there were, bad ones included."""
    counts: Mapping[str, int]
    """How many records there are of each kind."""
    problems: tuple[Problem, ...]
    """What was wrong, one entry for each bad row."""
    left_out: Mapping[str, int]
    """How many sound rows held no record, by reason."""
    quarantine: Path | None
    """The file with the bad rows, when there is one."""


def open_rows(source: Source, *, format: str | None = None, options: ReadOptions = DEFAULTS) -> Stream:
    """Begin to read: the layout is known at once, the rows come as they are asked for.

    >>> stream = open_rows([{"prompt": "Hi"}])
    >>> stream.detected.layout.name, next(stream.rows).records[0].prompt
    ('trl-prompt', 'Hi')
    """
    rows = raw_rows(source, split=options.split, limit=options.row_limit)
    first = list(islice(rows, SAMPLE))
    name = name_of(source)
    if not first:
        raise UserError(f"{name}: there is no row in it")
    detected = detect(first, name) if format is None else chosen_by_name(format, first, name)
    read = (_read(row, detected.layout, options) for row in chain(first, rows))
    return Stream(detected=detected, rows=read)


def read_records(
    source: Source,
    *,
    format: str | None = None,
    kinds: Collection[str] | None = None,
    threshold: float = 0.01,
    quarantine: str | Path | None = None,
    options: ReadOptions = DEFAULTS,
) -> Reading:
    """All records of a source; bad rows are counted and, where ``quarantine`` names a file, put there.

    The share of bad rows may not be above ``threshold``: of 1000 rows ten may be bad at 1 %, of 99 none.
    ``kinds`` names the kinds of record that are wanted; a row that only holds others is refused at once.
    """
    _check(threshold, kinds)
    stream = open_rows(source, format=format, options=options)
    records: list[Record] = []
    problems: list[Problem] = []
    left_out: Counter[str] = Counter()
    rows = 0
    aside = None if quarantine is None else Path(quarantine)
    with Quarantine(aside, Path(source) if isinstance(source, str | Path) else None) as put_aside:
        for row in stream.rows:
            rows += 1
            records.extend(_wanted(row, kinds))
            if row.problem is not None:
                problems.append(row.problem)
                put_aside.put(row.raw, row.problem)
            if row.left_out is not None:
                left_out[row.left_out] += 1
    reading = Reading(
        records=tuple(records),
        layout=stream.detected.layout.name,
        sentence=stream.detected.sentence,
        rows=rows,
        counts=Counter(kind_of(record) for record in records),
        problems=tuple(problems),
        left_out=left_out,
        quarantine=put_aside.used,
    )
    _refuse_too_many(reading, threshold, name_of(source))
    return reading


def _read(row: RawRow, layout: Layout, options: ReadOptions) -> RowRead:
    if row.problem is not None:
        return RowRead(raw=row, problem=row.problem)
    try:
        records = layout.parse(Node(value=row.value, cells=row.cells), row.origin, options)
    except BadRowError as error:
        return RowRead(raw=row, problem=error.at(row.origin))
    except LeftOutError as reason:
        return RowRead(raw=row, left_out=str(reason))
    return RowRead(raw=row, records=records)


def _wanted(row: RowRead, kinds: Collection[str] | None) -> tuple[Record, ...]:
    """The records of the wanted kinds; when a row has none, the advice that fits."""
    if kinds is None or not row.records:
        return row.records
    wanted = tuple(record for record in row.records if kind_of(record) in kinds)
    if wanted:
        return wanted
    other = kind_of(row.records[0])
    advice = "Choose another file, or the command that trains on this kind."
    if "demonstration" in kinds and other in ("comparison", "ranking", "rating"):
        advice = (
            "To train on the preferred answers only, write them out first: "
            "plaudit data convert IN OUT --preferred"
        )
    raise UserError(f"{row.raw.origin}: wanted a {' or a '.join(kinds)}, and the row is a {other}. {advice}")


def _check(threshold: float, kinds: Collection[str] | None) -> None:
    if not 0 <= threshold <= 1:
        raise UserError(f"threshold {threshold}: expected a share from 0 to 1 (0.01 is 1 %)")
    unknown = [kind for kind in kinds or () if kind not in KINDS]
    if unknown:
        raise UserError(f"unknown kind {unknown[0]!r}; the kinds are {', '.join(KINDS)}")


def _refuse_too_many(reading: Reading, threshold: float, name: str) -> None:
    bad = len(reading.problems)
    allowed = math.floor(threshold * reading.rows + 1e-9)
    if bad <= allowed and reading.records:
        return
    if bad <= allowed:
        why = "; ".join(f"{count} {reason}" for reason, count in reading.left_out.items())
        raise UserError(f"{name}: {reading.rows} rows and no record in them{f' ({why})' if why else ''}")
    lines = [
        f"{name}: {bad} of {reading.rows} rows are bad ({bad / reading.rows:.1%}); "
        f"the threshold of {threshold:.1%} allows {allowed}. The first:",
        *(f"  {problem.sentence}" for problem in reading.problems[:5]),
        f"All of them are in {reading.quarantine}."
        if reading.quarantine
        else "To have them written to a file, name one as the quarantine.",
        f"Mend them, or go on without them: a threshold of {_rounded_up(bad / reading.rows):g} allows that "
        "(--threshold; in a training run --rows.threshold).",
    ]
    raise UserError("\n".join(lines))


def _rounded_up(share: float) -> float:
    """A share that is no smaller, with three digits after the point.

    >>> _rounded_up(1 / 3)
    0.334
    """
    return math.ceil(share * 1000) / 1000
