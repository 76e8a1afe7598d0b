"""From a source to records: detect the layout, parse the rows, put bad ones aside, refuse too many of them.

Bad rows go into a file of their own, with the reason beside each: nothing is silently dropped.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from plaudit.data import columns
from plaudit.data.fields import BadRowError, LeftOutError, Node, Problem, RawRow, describe_value, join_names
from plaudit.data.files import Source, raw_rows, source_name
from plaudit.data.formats.layout import (
    MESSAGES,
    PICTURE_FIELDS,
    SYSTEM_FIELD,
    TEXT,
    TEXT_OR_MESSAGES,
    TOOLS_FIELD,
    FieldType,
    ReadOptions,
    RowFormat,
)
from plaudit.data.formats.registry import FORMATS, format_named
from plaudit.data.formats.transcripts import is_transcript_prompt, transcript_prompt
from plaudit.data.records import (
    RECORD_CLASSES,
    RECORD_TYPES,
    TOOLS_ROLE,
    Comparison,
    Demonstration,
    Message,
    Prompt,
    Ranking,
    Rating,
    Record,
    Steps,
    Text,
    ToolCall,
    answers_of,
    assistant_turn,
    pictures,
    record_kind,
    tool_schemas,
    turns_of,
    user_turn,
    with_opening,
)
from plaudit.data.transforms import prefers_nothing, safety_rows
from plaudit.data.turns import Turns, read_tools
from plaudit.errors import UserError
from plaudit.files import hub
from plaudit.files.atomic import AtomicFile
from plaudit.files.data_sets import registered_set
from plaudit.files.stored import RowKeeper
from plaudit.wings import offered

DETECTION_ROWS = 64
"""How many of the first rows decide the format."""


def detect_format(rows: Sequence[RawRow], name: str) -> tuple[RowFormat, str]:
    """The layout that at least half of the rows have and no narrower one explains better, and why."""
    nodes = columns.readable_nodes(rows)
    if not nodes:
        problems = [f" The first: {row.problem.message}" for row in rows if row.problem is not None]
        raise UserError(f"{name}: none of the first {len(rows)} rows can be read.{''.join(problems[:1])}")
    match_counts = {each.name: sum(map(each.matches, nodes)) for each in FORMATS}
    candidates = [row_format for row_format in FORMATS if 2 * match_counts[row_format.name] >= len(nodes)]
    narrowest = [
        row_format
        for row_format in candidates
        if not any(other is not row_format and other.is_narrower_than(row_format) for other in candidates)
    ]
    if not narrowest:
        raise UserError(_unknown_format_message(nodes, name))
    if len(narrowest) > 1:
        names = " or ".join(row_format.name for row_format in narrowest)
        raise UserError(
            f"{name}: the rows could be {' or '.join(row_format.title for row_format in narrowest)} "
            f"(fields: {join_names(columns.field_names(nodes))}); say which with --format {names}"
        )
    narrow = narrowest[0]
    share = "the rows" if match_counts[narrow.name] == len(nodes) else "most rows"
    no_prompt = "prompt" in narrow.excluded_fields and "prompt" not in narrow.schema
    return narrow, f"because {share} have {_schema_text(narrow, nodes)}{' and no prompt' * no_prompt}"


def _schema_text(row_format: RowFormat, nodes: Sequence[Node]) -> str:
    """The schema as the rows have it: where a text or messages would do, which of the two it is."""
    return ", ".join(
        f"{name} ({_field_type_text(name, field_type, nodes)})"
        for name, field_type in row_format.schema.items()
    )


def _field_type_text(name: str, field_type: FieldType, nodes: Sequence[Node]) -> str:
    values = [node for row in nodes if (node := row.optional(name)) is not None]
    for narrower in (TEXT, MESSAGES) if field_type is TEXT_OR_MESSAGES else ():
        if all(narrower.matches(value) for value in values):
            return narrower.name
    return field_type.name


def _unknown_format_message(nodes: Sequence[Node], name: str) -> str:
    fields = columns.field_names(nodes)
    examples = [f"{field} ({_example_text(field, nodes)})" for field in fields]
    fields_text = f"the fields {join_names(examples, 16)}" if examples else "no field"
    nearest = sorted(FORMATS, key=lambda row_format: -_similarity(row_format, fields))[:3]
    lines = [
        f"{name}: no known layout; the rows have {fields_text}. The nearest layouts:",
        *(f"  {row_format.name}: wants {row_format.schema_text}" for row_format in nearest),
        "Say which field is which (--columns prompt=FIELD …), convert the rows, or say --format NAME.",
    ]
    return "\n".join(lines)


def _example_text(field: str, nodes: Sequence[Node]) -> str:
    value = next((node.value for row in nodes if (node := row.optional(field)) is not None), None)
    if isinstance(value, list | tuple | Mapping):
        return "a list" if isinstance(value, list | tuple) else "an object"
    return "a text" if isinstance(value, str) else describe_value(value)


def _similarity(row_format: RowFormat, fields: Sequence[str]) -> float:
    """The wanted fields that are there less those that are not, a similar spelling counting in part."""
    closest = (
        max((SequenceMatcher(None, name, field).ratio() for field in fields), default=0.0)
        for name in row_format.schema
    )
    return 2.0 * sum(ratio for ratio in closest if ratio > 0.7) - len(row_format.schema)


class Quarantine:
    """A JSONL file that appears, whole, when the reading ends and at least one row was bad."""

    def __init__(self, path: Path | None, source: Path | None = None) -> None:
        if path is not None and source is not None and path.resolve() == source.resolve():
            raise UserError(f"{path}: the quarantine file would replace the data; choose another name")
        self._path = path
        self._file: AtomicFile | None = None
        self.created_path: Path | None = None
        """Where the bad rows are; None when there are none, or nobody asked for the file."""

    def add(self, row: RawRow, problem: Problem) -> None:
        if self._path is None:
            return
        if self._file is None:
            self._file, self.created_path = AtomicFile(self._path), self._path
        entry = {
            "origin": problem.origin,
            "kind": problem.kind,
            "field": problem.field,
            "reason": problem.message,
            "row": row.text,
        }
        # ASCII with escapes: a bad row may hold half a surrogate pair, which UTF-8 cannot write.
        self._file.stream.write(json.dumps(entry).encode("ascii") + b"\n")

    def __enter__(self) -> "Quarantine":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            # The bad rows are wanted most when the reading itself has failed.
            self._file.__exit__(None, None, None)


DEFAULT_OPTIONS = ReadOptions()
"""The options of a reader who chose none: ties soft, neutral steps 0.5, rows of at most 10 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRow:
    """What became of one row: records, or a problem, or a reason to leave it out."""

    raw: RawRow
    records: tuple[Record, ...] = ()
    problem: Problem | None = None
    left_out: str | None = None
    """Why it is sound and yet holds no record (a tie, when ties are dropped)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStream:
    """A source that is being read, row by row."""

    row_format: RowFormat
    sentence: str
    rows: Iterator[ParsedRow]
    unread_text: str | None = None
    """What to say of a field with text or a label that nothing reads; `read_records` refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    records: Sequence[Record]
    """Every record of every sound row: a tuple, or rows on disk."""
    format_name: str
    format_sentence: str
    rows: int
    counts: Mapping[str, int]
    problems: tuple[Problem, ...]
    left_out: Mapping[str, int]
    """How many sound rows held no record, by reason."""
    quarantine: Path | None


def open_rows(
    source: Source, *, format: str | None = None, options: ReadOptions = DEFAULT_OPTIONS
) -> RowStream:
    """Begin to read: the layout is known at once, the rows come as they are asked for.

    >>> stream = open_rows([{"prompt": "Hi"}])
    >>> stream.row_format.name, next(stream.rows).records[0].prompt
    ('trl-prompt', 'Hi')
    """
    if isinstance(source, str | Path):
        source = hub.local_path(source, "dataset", split=options.split)
        registered = registered_set(source, options.split)
        if registered is not None:
            source, names = registered
            options = replace(options, split=None, columns=(*names, *options.columns))
    rows = raw_rows(source, split=options.split, limit=options.row_limit)
    name = source_name(source)
    first_rows = list(islice(rows, DETECTION_ROWS))
    if not first_rows:
        raise UserError(f"{name}: there is no row in it")
    if isinstance(source, str | Path) and options.pictures is None:
        place = Path(source)
        options = replace(options, pictures=place if place.is_dir() else place.parent)
    columns.check_columns(first_rows, options, name)
    first_rows = [columns.rename(row, options) for row in first_rows]
    row_format, because = (
        detect_format(first_rows, name) if format is None else (format_named(format), "as --format says")
    )
    nodes = columns.readable_nodes(first_rows)
    note = columns.unread_note(row_format, nodes, columns.field_names(nodes))
    sentence = f"{name}: read as {row_format.title} ({row_format.name}), {because}.{note}"
    label = columns.label_field(row_format, nodes, options)
    # The rows that decided the layout are taken from the iterator already.
    all_rows = chain(first_rows, (columns.rename(row, options) for row in rows))
    joined = all_rows if row_format.join is None else row_format.join(all_rows)
    parsed_rows = (_parse_row(row, row_format, options, label) for row in joined)
    unread = columns.unread_fault(row_format, nodes, options)
    return RowStream(row_format=row_format, sentence=sentence, rows=parsed_rows, unread_text=unread)


def read_records(
    source: Source,
    *,
    format: str | None = None,
    kinds: Collection[str] | None = None,
    threshold: float = 0.01,
    quarantine: str | Path | None = None,
    options: ReadOptions = DEFAULT_OPTIONS,
    on_disk: Path | None = None,
) -> ReadResult:
    """All records of a source; bad rows are counted and, where ``quarantine`` names a file, put there.

    The share of bad rows may not be above ``threshold``: of 1000 rows ten may be bad at 1 %, of 99 none.
    ``kinds`` names the kinds of record that are wanted; a row that only holds others is refused at once.
    ``on_disk`` names files without an ending: the records lie there, and none of them stays in memory.
    """
    _check_arguments(threshold, kinds)
    stream = open_rows(source, format=format, options=options)
    if stream.unread_text is not None:
        raise UserError(f"{source_name(source)}: {stream.unread_text}")
    records, counts = RowKeeper[Record](on_disk, RECORD_CLASSES), Counter[str]()
    problems, left_out, rows = list[Problem](), Counter[str](), 0
    paths = (Path(item) if isinstance(item, str | Path) else None for item in (quarantine, source))
    with Quarantine(*paths) as quarantine_file, records:
        for row in stream.rows:
            rows += 1
            wanted = _records_of_kinds(row, kinds)
            records.extend(wanted)
            counts.update(map(record_kind, wanted))
            if row.problem is not None:
                problems.append(row.problem)
                quarantine_file.add(row.raw, row.problem)
            if row.left_out is not None:
                left_out[row.left_out] += 1
    result = ReadResult(
        records=records.result(),
        format_name=stream.row_format.name,
        format_sentence=stream.sentence,
        rows=rows,
        counts=counts,
        problems=tuple(problems),
        left_out=left_out,
        quarantine=quarantine_file.created_path,
    )
    _refuse_too_many_bad_rows(result, threshold, source_name(source))
    return result


def _parse_row(row: RawRow, row_format: RowFormat, options: ReadOptions, label: str | None) -> ParsedRow:
    if row.problem is not None:
        return ParsedRow(raw=row, problem=row.problem)
    try:
        node = Node(value=row.value, cells=row.cells, names=row_format.names)
        parsed = tuple(row_format.parse(node, options))
        if not parsed:
            raise LeftOutError(row_format.without_records)
        records = tuple(record if record.origin else replace(record, origin=row.origin) for record in parsed)
        if row_format.is_generic:
            records = tuple(_with_turns_of_transcript(record) for record in records)
            records = tuple(_with_system_turn(record, node) for record in records)
        records = tuple(columns.with_label(record, node, label) for record in records)
        records = tuple(_with_tools(record, node) for record in records)
        records = tuple(_with_facts(_with_pictures(record, node, options), node) for record in records)
    except BadRowError as error:
        return ParsedRow(raw=row, problem=error.problem_at(row.origin))
    except LeftOutError as reason:
        return ParsedRow(raw=row, left_out=str(reason))
    # Here and not in each layout: what prefers nothing is a tie, whatever field said so.
    retained = tuple(record for record in records if not (options.ties == "drop" and prefers_nothing(record)))
    reason = "ties" if records and not retained else None
    if retained and (wanted := options.safety) is not None:
        retained = tuple(chain(*(safety_rows(record, wanted, options.unsafe) for record in retained)))
        reason = f"not {wanted}" if any(getattr(record, "flags", ()) for record in records) else "no flags"
        reason = None if retained else reason
    return ParsedRow(raw=row, records=retained, left_out=reason)


def _with_system_turn(record: Record, row: Node) -> Record:
    """The record behind the words of the row's field ``system``; strings become turns with it."""
    node = row.optional(SYSTEM_FIELD)
    if node is None or not isinstance(node.value, str) or not node.text().strip():
        return record
    return _behind_turn(record, Message(role="system", content=node.text()), SYSTEM_FIELD, _as_turn)


def _with_tools(record: Record, row: Node) -> Record:
    node = row.optional(TOOLS_FIELD)
    found = () if node is None else read_tools(node)
    return _behind_turn(record, found[0], TOOLS_FIELD, partial(_without_padding, found)) if found else record


def _with_pictures(record: Record, row: Node, options: ReadOptions) -> Record:
    """The record with the row's pictures in their places; in its turns, so that no metadata repeats them."""
    fields = row.value if isinstance(row.value, Mapping) else {}
    texts = (record.prompt, *answers_of(record))
    if not any(fields.get(name) for name in PICTURE_FIELDS) and not any(map(pictures, texts)):
        return record
    turns = offered("placed_pictures", of="pictures")(record, row, options.pictures or Path())
    n = len(turns_of(record.prompt))
    if isinstance(record, Prompt):
        rest = {name: item for name, item in record.metadata.items() if name not in PICTURE_FIELDS}
        return replace(record, prompt=turns, metadata=rest)
    record = _with_prompt(record, turns[:n], _as_turn)
    return replace(record, completion=turns[n:]) if turns[n:] else record  # pyright: ignore


def _with_facts(record: Record, row: Node) -> Record:
    if (node := row.optional("facts")) is None or not record.prompt:
        return record
    *before, last = turns_of(record.prompt)
    return _with_prompt(record, (*before, replace(last, facts=node.text())), _as_turn)


def _with_turns_of_transcript(record: Record) -> Record:
    """The record with turns for a prompt that is a transcript, be it a text or all that the user says."""
    *before, last = user_turn(record.prompt) if isinstance(record.prompt, str) else record.prompt
    is_all = last.role == "user" and all(turn.role == "system" for turn in before)
    if not (is_all and isinstance(last.content, str) and is_transcript_prompt(last.content)):
        return record
    turns = transcript_prompt(Node(value=last.content, path="prompt"))
    return _with_prompt(record, (*before, *turns), _as_turn)


def _behind_turn(record: Record, turn: Message, field: str, change: Callable[[Text], Turns]) -> Record:
    if isinstance(record.prompt, str) and not record.prompt:
        raise BadRowError("wrong value", field, expected="a prompt behind it", found="a text without one")
    prompt = change(record.prompt) if not isinstance(record.prompt, str) else turns_of(record.prompt)
    if any(other.role == turn.role for other in prompt):
        expected = f"one {turn.role} turn"
        raise BadRowError("wrong value", field, expected=expected, found="another in the conversation")
    prompt = (turn, *prompt) if turn.role == TOOLS_ROLE else with_opening((turn,), prompt)
    return _with_prompt(record, prompt, change)


def _with_prompt(record: Record, prompt: Turns, change: Callable[[Text], Turns]) -> Record:
    match record:
        case Comparison():
            sides = {side: change(getattr(record, side)) for side in ("chosen", "rejected")}
            return replace(record, prompt=prompt, **sides)
        case Ranking():
            return replace(record, prompt=prompt, completions=tuple(map(change, record.completions)))
        case Demonstration() | Rating():
            return replace(record, prompt=prompt, completion=change(record.completion))
        case Steps() | Prompt():
            return replace(record, prompt=prompt)


def _without_padding(tools: Turns, text: Text) -> Turns:
    """The turns with calls that hold no null for what is no parameter of their function."""
    # Tables give every call the fields of all, and so does JSON that was written from a table.
    schemas: Any = tool_schemas(tools)
    functions = {schema["function"]["name"]: schema["function"] for schema in schemas}

    def is_padding(call: ToolCall, name: str, value: object) -> bool:
        parameters = functions.get(call.name, {}).get("parameters") or {}
        known = parameters.get("properties") if isinstance(parameters, dict) else None
        return value is None and isinstance(known, dict) and name not in known

    def unpadded(call: ToolCall) -> ToolCall:
        given: dict[str, object] = json.loads(call.arguments)
        retained = {name: value for name, value in given.items() if not is_padding(call, name, value)}
        arguments = json.dumps(retained, ensure_ascii=False)
        return call if retained == given else replace(call, arguments=arguments)

    return tuple(replace(turn, tool_calls=tuple(map(unpadded, turn.tool_calls))) for turn in _as_turn(text))


def _as_turn(text: Text) -> Turns:
    return assistant_turn(text.removeprefix(" ")) if isinstance(text, str) else text


def _records_of_kinds(row: ParsedRow, kinds: Collection[str] | None) -> tuple[Record, ...]:
    if kinds is None or not row.records:
        return row.records
    matching = tuple(record for record in row.records if record_kind(record) in kinds)
    if matching:
        return matching
    other_kind = record_kind(row.records[0])
    advice = "Choose another file, or the command that trains on this kind."
    if "demonstration" in kinds and other_kind in ("comparison", "ranking", "rating"):
        advice = (
            "To train on the preferred answers only, write them out first: "
            "plaudit data convert IN OUT --preferred"
        )
    wanted = " or a ".join(kinds)
    raise UserError(f"{row.raw.origin}: wanted a {wanted}, and the row is a {other_kind}. {advice}")


def _check_arguments(threshold: float, kinds: Collection[str] | None) -> None:
    if not 0 <= threshold <= 1:
        raise UserError(f"threshold {threshold}: expected a share from 0 to 1 (0.01 is 1 %)")
    unknown = [kind for kind in kinds or () if kind not in RECORD_TYPES]
    if unknown:
        raise UserError(f"unknown kind {unknown[0]!r}; the kinds are {', '.join(RECORD_TYPES)}")


def _refuse_too_many_bad_rows(result: ReadResult, threshold: float, name: str) -> None:
    bad = len(result.problems)
    # 0.29 · 100 is 28.999… in floats; the addition keeps a share that is just met.
    allowed = math.floor(threshold * result.rows + 1e-9)
    if bad <= allowed and result.records:
        return
    if bad <= allowed:
        why = "; ".join(f"{count} {reason}" for reason, count in result.left_out.items())
        raise UserError(f"{name}: {result.rows} rows and no record in them{f' ({why})' if why else ''}")
    lines = [
        f"{name}: {bad} of {result.rows} rows are bad ({bad / result.rows:.1%}); "
        f"the threshold of {threshold:.1%} allows {allowed}. The first:",
        *(f"  {problem.message}" for problem in result.problems[:5]),
        f"All of them are in {result.quarantine}."
        if result.quarantine
        else "To have them written to a file, name one as the quarantine.",
        # Rounded up, or it would not allow that.
        f"Mend them, or go on without them: a threshold of {math.ceil(bad / result.rows * 1000) / 1000:g} "
        "allows that (--threshold; in a training run --rows.threshold)."
        if bad < result.rows
        else "Mend them: without them no row would be left.",
    ]
    raise UserError("\n".join(lines))
