"""Records written to a file in plaudit's own layout or TRL's, and a summary of a source at a glance.

A file of any known layout is read and written whole, as a random sample, or only the answers that it prefers.
What TRL's layouts have no word for stays in extra columns, or is counted and named as lost. The summary shows
kinds, lengths, duplicates, problems and the first few records.
"""

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from itertools import permutations
from pathlib import Path
from typing import Any

from plaudit.data.edits import PairDifferences
from plaudit.data.fields import Problem, shorten
from plaudit.data.files import file_ending
from plaudit.data.formats.layout import TOOLS_FIELD
from plaudit.data.read import ParsedRow
from plaudit.data.records import (
    Comparison,
    Demonstration,
    Message,
    Prompt,
    Provenance,
    Ranking,
    Rating,
    Record,
    Steps,
    Text,
    picture_parts,
    plain_text,
    record_kind,
    record_to_dict,
    split_tools,
    text_to_json,
    words_of,
)
from plaudit.errors import UserError
from plaudit.files.atomic import AtomicFile

_ANNOTATION_FIELDS = tuple(part.name for part in fields(Provenance) if part.name != "origin")
_COMPARISON_EXTRAS = ("strength", "margin", "probability", "both_bad", *_ANNOTATION_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRows:
    """The rows of one record in an output format, and what the format has no field for."""

    rows: tuple[dict[str, object], ...] = ()
    lost: tuple[str, ...] = ()


def to_trl_rows(record: Record, number: int) -> OutputRows:
    """A record as TRL's rows; ``number`` names the group that a ranking's pairs keep.

    >>> to_trl_rows(Rating(prompt="Hi", completion=" Ho", score=1.0, thumb=True), 1).rows
    ({'prompt': 'Hi', 'completion': ' Ho', 'label': True},)
    """
    tools, prompt = split_tools(() if isinstance(record.prompt, str) else record.prompt)
    if not tools:
        return _rows_of_kind(record, number)
    # TRL has them in a field of the row, for which their JSON is as good as the list.
    converted = _rows_of_kind(replace(record, prompt=prompt), number)
    rows = tuple({**row, TOOLS_FIELD: words_of(tools[0])} for row in converted.rows)
    return replace(converted, rows=rows)


def _rows_of_kind(record: Record, number: int) -> OutputRows:
    match record:
        case Demonstration():
            return _demonstration_rows(record)
        case Comparison():
            return _comparison_rows(record)
        case Ranking():
            return _ranking_rows(record, number)
        case Rating():
            return _rating_rows(record)
        case Steps():
            return _steps_rows(record)
        case Prompt():
            converted = _selected_fields(record, "prompt", "answer")
            clashing = {"prompt", "answer"} & set(record.metadata)
            lost = ("metadata left out: a field is called as one of TRL's",) if clashing else ()
            rest = {name: value for name, value in record.metadata.items() if name not in clashing}
            return OutputRows(rows=({**rest, **converted.rows[0]},), lost=lost)


def _selected_fields(record: Record, *names: str, lost: tuple[str, ...] = ()) -> OutputRows:
    fields = record_to_dict(record)
    return OutputRows(rows=({name: fields[name] for name in names if name in fields},), lost=lost)


def _demonstration_rows(shown: Demonstration) -> OutputRows:
    if shown.prompt == "" and isinstance(shown.completion, str):
        return OutputRows(rows=({"text": shown.completion},))
    return _selected_fields(shown, "prompt", "completion", *_ANNOTATION_FIELDS)


def _comparison_rows(pair: Comparison) -> OutputRows:
    if pair.probability == 0.5 or pair.strength == 0:
        return OutputRows(lost=("ties left out: a TRL preference cannot be a tie",))
    if pair.probability is not None and pair.probability < 0.5:
        return OutputRows(lost=("comparisons left out: the rejected answer is the likelier one",))
    dropped = (
        ("probabilities kept as a column that TRL does not read",) if pair.probability is not None else ()
    )
    return _selected_fields(pair, "prompt", "chosen", "rejected", *_COMPARISON_EXTRAS, lost=dropped)


def _ranking_rows(ranking: Ranking, number: int) -> OutputRows:
    """All pairs of different rank; ``group_id`` lets a trainer put them back together."""
    completions = [text_to_json(answer) for answer in ranking.completions]
    row: dict[str, Any] = record_to_dict(ranking)
    rows = tuple(
        {
            "prompt": row["prompt"],
            "chosen": completions[i],
            "rejected": completions[j],
            "rank_chosen": ranking.ranks[i],
            "rank_rejected": ranking.ranks[j],
            "group_id": f"ranking-{number}",
            **{name: _of_two(row[name], i, j) for name in _ANNOTATION_FIELDS if name in row},
        }
        for i, j in permutations(range(len(completions)), 2)
        if ranking.ranks[i] < ranking.ranks[j] and completions[i] != completions[j]
    )
    lost = "rankings split into pairs that TRL weighs one by one (group_id keeps what belongs together)"
    tied = len(completions) * (len(completions) - 1) // 2 - len(rows)
    return OutputRows(rows=rows, lost=(lost, *["pairs left out: tied, or twice the same answer"] * tied))


def _of_two(value: Any, i: int, j: int) -> object:
    # What is of a ranking's answers becomes that of two of them.
    if isinstance(value, Mapping):
        return {name: [points[i], points[j]] for name, points in value.items()}
    return [value[i], value[j]] if isinstance(value, list) else value


def _rating_rows(rating: Rating) -> OutputRows:
    if not rating.thumb:
        return OutputRows(lost=("scores left out: a TRL label is a thumb, up or down",))
    converted = _selected_fields(rating, "prompt", "completion", *_ANNOTATION_FIELDS)
    (row,) = converted.rows
    lost = ("aspects left out: a TRL label is for the whole answer",) if rating.aspect is not None else ()
    return OutputRows(rows=({**row, "label": rating.score == 1},), lost=lost)


def _steps_rows(solution: Steps) -> OutputRows:
    if not isinstance(solution.prompt, str):
        return OutputRows(lost=("solutions left out: TRL has steps for texts only, not for conversations",))
    if any(label not in (0, 1) for label in solution.labels):
        return OutputRows(lost=("solutions left out: a TRL step is right or wrong, never neutral",))
    row = {"completions": list(solution.steps), "labels": [label == 1 for label in solution.labels]}
    converted = _selected_fields(solution, "prompt", *_ANNOTATION_FIELDS)
    return OutputRows(rows=({**converted.rows[0], **row},))


OUTPUT_ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")

OUTPUT_FORMATS: Mapping[str, Callable[[Record, int], OutputRows]] = {
    "plaudit": lambda record, number: OutputRows(rows=(record_to_dict(record),)),
    "trl": to_trl_rows,
}
"""The layouts that can be written: a record and its number to rows."""

_Row = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    path: Path
    rows: int
    lost: Mapping[str, int]
    """How often the format had no field for something, by sentence."""


def write_records(records: Iterable[Record], path: str | Path, *, layout: str = "plaudit") -> WriteResult:
    """Write records to JSON lines or Parquet, by the ending; the file appears whole or not at all."""
    path = Path(path)
    check_output_path(path)
    if layout not in OUTPUT_FORMATS:
        raise UserError(f"unknown layout {layout!r}: rows are written as {' or '.join(OUTPUT_FORMATS)}")
    lost, count = Counter[str](), Counter[str]()
    records = _refuse_mixed_kinds(records, path) if layout == "trl" else records
    with AtomicFile(path) as file:
        # Lazy: both counters are complete only when the last row has been written.
        rows = _output_rows(records, OUTPUT_FORMATS[layout], lost, count)
        if path.suffix.lower() == ".parquet":
            _write_parquet(rows, file)
        else:
            _write_lines(rows, file, zipped=path.suffix.lower() == ".gz")
        # Raised within the context, so that no empty file takes the place of an older one.
        if not count["rows"]:
            why = "; ".join(f"{times} {reason}" for reason, times in lost.items()) or "no record was given"
            raise UserError(f"{path}: nothing to write ({why})")
    return WriteResult(path=path, rows=count["rows"], lost=lost)


def check_output_path(path: Path) -> None:
    """Complain, before any work is done, about a place to which rows cannot be written."""
    file_ending(path, OUTPUT_ENDINGS)
    if not path.parent.is_dir():
        raise UserError(f"{path}: no such folder as {path.parent}; make it first")
    if path.is_dir():
        raise UserError(f"{path}: a folder; name a file in it")


def _output_rows(
    records: Iterable[Record],
    convert: Callable[[Record, int], OutputRows],
    lost: Counter[str],
    count: Counter[str],
) -> Iterator[_Row]:
    for number, record in enumerate(records, start=1):
        converted = convert(record, number)
        lost.update(converted.lost)
        count["rows"] += len(converted.rows)
        yield from converted.rows


def _refuse_mixed_kinds(records: Iterable[Record], path: Path) -> Iterator[Record]:
    first_kind: str | None = None
    for record in records:
        first_kind = first_kind or record_kind(record)
        if record_kind(record) != first_kind:
            raise UserError(
                f"{path}: a TRL file has rows of one kind, and the records are {first_kind}s and "
                f"{record_kind(record)}s; write them to plaudit's layout, or one kind at a time"
            )
        yield record


def _write_lines(rows: Iterable[_Row], file: AtomicFile, *, zipped: bool) -> None:
    if not zipped:
        file.stream.writelines(map(_json_line, rows))
        return
    # 31 asks zlib for gzip's format, without name or time in its header: same rows, same bytes.
    compressor = zlib.compressobj(wbits=31)
    file.stream.writelines(compressor.compress(_json_line(row)) for row in rows)
    file.stream.write(compressor.flush())


def _json_line(row: _Row) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
    except (ValueError, TypeError) as error:
        raise UserError(f"{row.get('origin', 'a record')}: cannot be written as JSON ({error})") from error


def _write_parquet(rows: Iterable[_Row], file: AtomicFile) -> None:
    import pyarrow
    import pyarrow.parquet

    # Metadata and arguments differ from row to row, so in a table they are the text of their JSON.
    table_rows = [
        {name: _table_value(value, name == "metadata") for name, value in row.items()} for row in rows
    ]
    # Of all rows, as fields at their default are left out of a row.
    names = list(dict.fromkeys(name for row in table_rows for name in row))
    try:
        table = pyarrow.table({name: [row.get(name) for row in table_rows] for name in names})
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise UserError(
            f"{file.path}: a Parquet column has one type, and these rows mix several "
            f"(texts with conversations, say); write .jsonl instead ({error})"
        ) from error
    pyarrow.parquet.write_table(table, file.stream)


def _table_value(value: Any, as_json: bool = False) -> Any:
    if as_json:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return {name: _table_value(item, name == "arguments") for name, item in value.items()}
    return [_table_value(item) for item in value] if isinstance(value, list) else value


_FIRST_RECORDS = 3
_QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)


@dataclass(slots=True, kw_only=True)
class DataSummary:
    """Counts, lengths, problems and the first records of the rows read so far; it grows meanwhile."""

    rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    word_lengths: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    character_lengths: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    differences: PairDifferences = field(default_factory=PairDifferences)
    """How far the chosen and the rejected answers of comparisons differ."""
    duplicates: int = 0
    pictures: Counter[Any] = field(default_factory=Counter[Any])
    """How often each picture is shown, by its `plaudit.files.pictures.PictureFacts`."""
    problems: Counter[str] = field(default_factory=Counter[str])
    first_problems: list[Problem] = field(default_factory=list[Problem])
    left_out: Counter[str] = field(default_factory=Counter[str])
    first_records: list[Record] = field(default_factory=list[Record])


def summarise_rows(rows: Iterable[ParsedRow]) -> DataSummary:
    """Look at rows one by one; only counts, lengths and the first few are kept."""
    summary = DataSummary()
    digests: set[bytes] = set()
    for row in rows:
        summary.rows += 1
        if row.left_out is not None:
            summary.left_out[row.left_out] += 1
        if row.problem is not None:
            summary.problems[row.problem.kind] += 1
            summary.first_problems += [row.problem][: 5 - len(summary.first_problems)]
        for record in row.records:
            _count_record(summary, record, digests)
    return summary


def record_texts(record: Record) -> Iterator[tuple[str, Text]]:
    """The texts of a record, each with the name of its field.

    >>> list(record_texts(Demonstration(prompt="2 + 2 =", completion=" 4")))
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


def summary_text(summary: DataSummary) -> str:
    """The summary for a reader, plain on any terminal."""
    kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(summary.kinds.items())) or "none"
    lines = [
        f"rows        {summary.rows}",
        f"records     {kinds}",
        f"duplicates  {summary.duplicates}",
        *_picture_lines(summary.pictures),
        f"bad rows    {summary.problems.total()}",
        *(f"  {count} × {kind}" for kind, count in summary.problems.most_common()),
        *(f"  {problem.message}" for problem in summary.first_problems),
        *(f"left out    {count} × {reason}" for reason, count in summary.left_out.items()),
        "",
        *_length_lines(summary.word_lengths, summary.character_lengths),
        *([f"pairs       {pairs}"] if (pairs := summary.differences.sentence) else []),
    ]
    return "\n".join([*lines, *(line for record in summary.first_records for line in _record_lines(record))])


def _count_record(summary: DataSummary, record: Record, digests: set[bytes]) -> None:
    summary.kinds[record_kind(record)] += 1
    summary.first_records += [record][: _FIRST_RECORDS - len(summary.first_records)]
    for name, text in record_texts(record):
        content = plain_text(text)
        summary.word_lengths.setdefault(name, []).append(len(content.split()))
        summary.character_lengths.setdefault(name, []).append(len(content))
    if isinstance(record, Comparison):
        summary.differences.add(plain_text(record.chosen), plain_text(record.rejected))
    sources = [part.source or "" for _, text in record_texts(record) for part in picture_parts(text)]
    facts = _facts(sources)
    summary.pictures.update(facts[source] for source in sources)
    # Without the origin, in which any two copies differ; and pictures by their pixels.
    record_json = json.dumps(record_to_dict(replace(record, origin="")), default=str)
    for source, fact in facts.items():
        record_json = record_json.replace(json.dumps(source), json.dumps(fact.id))
    # Sixteen bytes of each record are kept in memory, and not its text.
    digest = blake2b(record_json.encode("utf-8"), digest_size=16).digest()
    summary.duplicates += digest in digests
    digests.add(digest)


def _picture_lines(pictures: Counter[Any]) -> list[str]:
    """How many pictures there are and how large they are; those that cannot be shown, each with its fault."""
    sizes = Counter(f"{fact.size[0]} × {fact.size[1]}" for fact in pictures.elements() if fact.size)
    bad = [fact.fault for fact in pictures.elements() if fact.fault]
    common = ", ".join(f"{count} of {size}" for size, count in sizes.most_common(3))
    more = f" and {len(sizes) - 3} more sizes" if len(sizes) > 3 else ""
    good = (
        f"pictures    {pictures.total()}, {len(pictures)} different; {common or 'none can be opened'}{more}"
    )
    faults = [f"  {len(bad)} cannot be shown to a model", *(f"  {fault}" for fault in bad[:5])] if bad else []
    return [good, *faults] if pictures else []


def _length_lines(
    word_lengths: Mapping[str, Sequence[int]], character_lengths: Mapping[str, Sequence[int]]
) -> list[str]:
    if not word_lengths:
        return []
    heads = ("shortest", "median", "90 %", "99 %", "longest")
    lines = [f"{'length':<24}" + "".join(f"{head:>10}" for head in heads)]
    for name in word_lengths:
        for unit, lengths in (("words", word_lengths[name]), ("characters", character_lengths[name])):
            lines.append(
                f"{name + ', ' + unit:<24}" + "".join(f"{n:>10}" for n in _length_quantiles(lengths))
            )
    return lines


def _length_quantiles(lengths: Sequence[int]) -> list[int]:
    """Lengths that occur, at the chosen shares of the sorted list.

    >>> _length_quantiles([5, 1, 9])
    [1, 5, 9, 9, 9]
    """
    ordered = sorted(lengths)
    return [ordered[round(share * (len(ordered) - 1))] for share in _QUANTILES]


def _record_lines(record: Record) -> list[str]:
    lines = ["", f"{record.origin}, {record_kind(record)}"]
    for name, text in record_texts(record):
        if isinstance(text, str):
            lines.append(f"  {name:<12}{shorten(text, 90)}")
            continue
        lines += [
            f"  {name:<12}{turn.role}: {_shown(turn)}{shorten(plain_text((turn,)), 80)}" for turn in text
        ]
    return lines


def _facts(sources: Sequence[str]) -> dict[str, Any]:
    if not sources:
        return {}
    from plaudit.files.pictures import picture_facts

    return {source: picture_facts(source) for source in sources}


def _shown(turn: Message) -> str:
    sources = [part.source or "" for part in picture_parts((turn,))]
    facts = [*map(_facts(sources).__getitem__, sources)]
    sizes = ("{} × {}".format(*fact.size) if fact.size else "that cannot be opened" for fact in facts)
    return "".join(f"[picture {size}, {fact.id[:8]}] " for size, fact in zip(sizes, facts, strict=True))
