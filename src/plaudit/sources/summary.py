"""A source at a glance: kinds, lengths, duplicates, problems, and the first few records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from plaudit.records.dicts import as_dict, kind_of
from plaudit.records.feedback import Comparison, Demonstration, Prompt, Ranking, Rating, Record, Steps
from plaudit.records.messages import Text, words
from plaudit.sources.problems import Problem, short
from plaudit.sources.read import RowRead

_FIRST = 3
_QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)


@dataclass(slots=True, kw_only=True)
class Summary:
    """What a look at the rows has found so far; it grows while they are read.

    Example: ``summarise(open_rows("pairs.jsonl").rows).rows``
    """

    rows: int = 0
    """How many rows were looked at."""
    kinds: Counter[str] = field(default_factory=Counter[str])
    """Records by kind."""
    words: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The number of words of each text, by field."""
    characters: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The number of characters of each text, by field."""
    duplicates: int = 0
    """Records that say the same as an earlier one."""
    problems: Counter[str] = field(default_factory=Counter[str])
    """Bad rows by kind of problem."""
    first_problems: list[Problem] = field(default_factory=list[Problem])
    """The first few of them."""
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Sound rows without a record, by reason."""
    first: list[Record] = field(default_factory=list[Record])
    """The first few records."""


def summarise(rows: Iterable[RowRead]) -> Summary:
    """Look at rows one by one; only counts, lengths and the first few are kept."""
    found = Summary()
    seen: set[bytes] = set()
    for row in rows:
        found.rows += 1
        if row.left_out is not None:
            found.left_out[row.left_out] += 1
        if row.problem is not None:
            found.problems[row.problem.kind] += 1
            found.first_problems += [row.problem][: 5 - len(found.first_problems)]
        for record in row.records:
            _add(found, record, seen)
    return found


def said_in(record: Record) -> Iterator[tuple[str, Text]]:
    """The texts of a record, each with the name of its field.

    >>> list(said_in(Demonstration(prompt="2 + 2 =", completion=" 4")))
    [('prompt', '2 + 2 ='), ('completion', ' 4')]
    """
    yield "prompt", record.prompt
    match record:
        case Demonstration() | Rating():
            yield "completion", record.completion
        case Comparison():
            yield "chosen", record.chosen
            yield "rejected", record.rejected
        case Ranking():
            yield from (("completion", completion) for completion in record.completions)
        case Steps():
            yield from (("step", step) for step in record.steps)
        case Prompt():
            return


def summary_page(found: Summary) -> str:
    """The summary for a reader, plain on any terminal."""
    kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(found.kinds.items())) or "none"
    lines = [
        f"rows        {found.rows}",
        f"records     {kinds}",
        f"duplicates  {found.duplicates}",
        f"bad rows    {found.problems.total()}",
        *(f"  {count} × {kind}" for kind, count in found.problems.most_common()),
        *(f"  {problem.sentence}" for problem in found.first_problems),
        *(f"left out    {count} × {reason}" for reason, count in found.left_out.items()),
        "",
        *_length_table(found.words, found.characters),
    ]
    return "\n".join([*lines, *(line for record in found.first for line in _record_lines(record))])


def _add(found: Summary, record: Record, seen: set[bytes]) -> None:
    found.kinds[kind_of(record)] += 1
    found.first += [record][: _FIRST - len(found.first)]
    for name, text in said_in(record):
        plain = words(text)
        found.words.setdefault(name, []).append(len(plain.split()))
        found.characters.setdefault(name, []).append(len(plain))
    plain_record = json.dumps(as_dict(replace(record, origin="")), default=str)
    digest = blake2b(plain_record.encode("utf-8"), digest_size=16).digest()
    found.duplicates += digest in seen
    seen.add(digest)


def _length_table(
    by_words: Mapping[str, Sequence[int]], by_letters: Mapping[str, Sequence[int]]
) -> list[str]:
    if not by_words:
        return []
    heads = ("shortest", "median", "90 %", "99 %", "longest")
    lines = [f"{'length':<24}" + "".join(f"{head:>10}" for head in heads)]
    for name in by_words:
        for unit, lengths in (("words", by_words[name]), ("characters", by_letters[name])):
            lines.append(f"{name + ', ' + unit:<24}" + "".join(f"{n:>10}" for n in _quantiles(lengths)))
    return lines


def _quantiles(lengths: Sequence[int]) -> list[int]:
    """Lengths that occur, at the chosen shares of the sorted list.

    >>> _quantiles([5, 1, 9])
    [1, 5, 9, 9, 9]
    """
    ordered = sorted(lengths)
    return [ordered[round(share * (len(ordered) - 1))] for share in _QUANTILES]


def _record_lines(record: Record) -> list[str]:
    lines = ["", f"{record.origin}, {kind_of(record)}"]
    for name, text in said_in(record):
        if isinstance(text, str):
            lines.append(f"  {name:<12}{short(text, 90)}")
            continue
        lines += [f"  {name:<12}{turn.role}: {short(words((turn,)), 80)}" for turn in text]
    return lines
