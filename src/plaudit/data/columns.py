"""What fields are called, and what stands beside those of a layout: labels are read, the rest is said.

A part of the prompt that nothing reads is never seen by the model, and an unread label lets bad answers be
learnt as good ones: both stop a run until somebody says what they are.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from plaudit.config import did_you_mean
from plaudit.data.fields import Node, RawRow, describe_value, join_names, shorten, value_at, without
from plaudit.data.formats.layout import OBJECTS, VERDICT, ReadOptions, RowFormat
from plaudit.data.records import Demonstration, Rating, Record
from plaudit.data.turns import ABOUT_TRAINING, ROLE_FIELDS, is_messages, unread_keys
from plaudit.errors import UserError

LABEL_FIELDS = ("label", "kto_tag", "thumb", "thumbs", "vote", "feedback", "desirable", "is_desirable")
"""Fields that say, by a verdict, whether the answer beside them is good."""
_LABEL_NAME = re.compile(
    r"label|tag$|thumb|vote|feedback|desir|like|good|bad|correct|accept|reject|approv|chosen|prefer|verdict|valid"
)
_PROMPT_NAMES = frozenset(
    ["system", "system_prompt", "instruction", "input", "question", "query", "context", "history", "prompt"]
)
_FEW_WORDS = 4
_TEMPLATE_MARKS = ("### Instruction:", "### Human:", "[INST]", "<|im_start|>", "<|start_header_id|>")
_TEMPLATE_NOTE = (
    "The texts hold {!r}, of a template that was written out: it is learnt as words, within the model's own "
    "template, and in a document the question is learnt too; give questions and answers without it."
)


def readable_nodes(rows: Sequence[RawRow]) -> list[Node]:
    return [Node(value=row.value, cells=row.cells) for row in rows if isinstance(row.value, Mapping)]


def field_names(nodes: Sequence[Node]) -> list[str]:
    return [name for name, _ in Counter(field for node in nodes for field in node.fields()).most_common()]


def check_columns(rows: Sequence[RawRow], options: ReadOptions, name: str) -> None:
    nodes = readable_nodes(rows)
    fields = field_names(nodes)
    fields += [old for old in options.renamed if any(node.optional(old) is not None for node in nodes)]
    wanted = (*((f"--columns {new}={old}", old) for old, new in options.renamed.items()),)
    # A name behind a dot (responses.why) is for the layout, which knows what its fields hold.
    left_out = (
        (f"--leave-out {name}", name if name in fields else name.partition(".")[0])
        for name in options.leave_out
    )
    for option, field in (*wanted, *left_out):
        if fields and field not in fields:
            hint = did_you_mean(field, fields) or f"; the rows have {join_names(fields)}"
            raise UserError(f"{name}: {option}: no row has the field {field!r}{hint}")
    for old, new in options.renamed.items():
        taken = new in fields and new not in (*options.renamed, *options.leave_out, old.partition(".")[0])
        if taken:
            raise UserError(
                f"{name}: --columns {new}={old}: the rows have a field {new!r} already; leave that out by "
                f"name (--leave-out {new}), or give it another (--columns OTHER={new})"
            )


def rename(row: RawRow, options: ReadOptions) -> RawRow:
    """The row with the names that the user has for its fields and speakers."""
    if not (options.columns or options.leave_out) or not isinstance(row.value, Mapping):
        return row
    renamed = options.renamed
    named = {
        new: value
        for old, new in renamed.items()
        if (value := value_at(row.value, old)) is not None or old in row.value
    }
    rest: object = row.value
    for path in (*renamed, *options.leave_out):
        rest = without(rest, path)
    fields = (rest if isinstance(rest, dict) else {}) | named
    return replace(row, value=_with_roles(fields, options.roles) if options.roles else fields)


def _with_roles(value: object, roles: Mapping[str, str]) -> object:
    """The value with the named roles of turns, wherever they stand; what calls and tools hold stays."""
    if isinstance(value, list):
        return [_with_roles(item, roles) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {
        name: roles.get(str(item), item)
        if name in ROLE_FIELDS
        else item
        if name in ("tools", "tool_calls", "function_call")
        else _with_roles(item, roles)
        for name, item in value.items()
    }


def label_field(
    row_format: RowFormat, nodes: Sequence[Node], options: ReadOptions | None = None
) -> str | None:
    """The field that says of most rows whether the answer is good, where a layout has one answer a row."""
    # What the user calls the label is one, and a row in which it is no verdict is bad.
    if row_format.takes_label and options is not None and LABEL_FIELDS[0] in options.renamed.values():
        return LABEL_FIELDS[0]
    for name in LABEL_FIELDS if row_format.takes_label else ():
        values = _values(name, nodes)
        if 2 * sum(VERDICT.matches(value) for value in values) >= max(len(values), 1):
            return name
    return None


def with_label(record: Record, row: Node, label: str | None) -> Record:
    """An answer with its label, which is a thumb; any other record as it is."""
    if label is None or not isinstance(record, Demonstration):
        return record
    score = float(row.get(label).verdict())
    return Rating(
        prompt=record.prompt, completion=record.completion, score=score, thumb=True, **record.provenance
    )


def unread_note(row_format: RowFormat, nodes: Sequence[Node], fields: Sequence[str]) -> str:
    """The fields, and the keys of turns, that nothing reads, in sentences with a blank before each."""
    label = label_field(row_format, nodes)
    unread = [name for name in row_format.unread_fields(fields) if name != label]
    read = [name for name in fields if name not in unread]
    paths = {path for path in (*read, *row_format.schema) if row_format.schema.get(path) is not OBJECTS}
    talks = [value for path in paths for value in _values(path, nodes) if is_messages(value)]
    keys = sorted({key for talk in talks for turn in talk.items() for key in unread_keys(turn)})
    notes = [f"Labels are read from {label}." if label in LABEL_FIELDS[1:] else ""]
    notes += [f"Fields left unread: {join_names(unread)}." if unread else ""]
    notes += [f"Keys of turns left unread: {join_names(keys)}." if keys else ""]
    words = str([value.value for name in read for value in _values(name, nodes)])
    marks = [mark for mark in _TEMPLATE_MARKS if mark in words]
    notes += [_TEMPLATE_NOTE.format(marks[0])] if marks and row_format.is_generic else []
    return "".join(f" {note}" for note in notes if note)


def unread_fault(row_format: RowFormat, nodes: Sequence[Node], options: ReadOptions) -> str | None:
    """What to say of the first field that has to be read or left out by name; None where there is none."""
    if not row_format.is_generic:
        return None
    fields = dict.fromkeys(name for node in nodes for name in node.fields())
    unread = [name for name in row_format.unread_fields(fields) if name not in options.renamed.values()]
    label = label_field(row_format, nodes)
    faults = [_unread_text(field, nodes, unread) for field in unread if field != label]
    if row_format.takes_label:
        faults += [_unread_label(field, _values(field, nodes)) for field in unread if field != label]
    return next((fault for fault in faults if fault is not None), None)


def _values(field: str, nodes: Iterable[Node]) -> list[Node]:
    return [value for row in nodes if (value := row.optional(field)) is not None]


def _unread_text(field: str, nodes: Sequence[Node], unread: Collection[str]) -> str | None:
    texts = [(row, node.value) for row in nodes if (node := row.optional(field)) is not None]
    words = [
        (row, text)
        for row, text in texts
        if isinstance(text, str) and len(text.split()) >= (1 if field in _PROMPT_NAMES else _FEW_WORDS)
    ]
    new = [text for row, text in words if not _is_elsewhere(text, row, unread)]
    if not new or 2 * len(new) < len(texts):
        return None
    return (
        f"the field {field!r} holds text that is not read ({shorten(new[0])!r}), and the model would "
        f"never see it. Say what it is (--columns prompt={field}; or system={field}), or leave it "
        f"out by name (--leave-out {field}); plaudit data convert takes both"
    )


def _is_elsewhere(text: str, row: Node, unread: Collection[str]) -> bool:
    """Whether a field that is read holds the same words, or the text is all of these in a template."""
    read = {name: row.get(name).value for name in row.fields() if name not in unread and row.optional(name)}
    if all(isinstance(value, str) and value.strip() in text for value in read.values()):
        return True
    words, others = (json.dumps(value, ensure_ascii=False, default=str) for value in (text.strip(), read))
    return words[1:-1] in others


def _unread_label(field: str, values: Sequence[Node]) -> str | None:
    """A field that seems to say which answers are good, or which are to be learnt at all."""
    if not values:
        return None
    about_training = ABOUT_TRAINING.search(field) and all(
        isinstance(value.value, int | float | list) for value in values
    )
    if not about_training and not (all(map(VERDICT.matches, values)) and _says_verdicts(field, values)):
        return None
    example = next((value for value in values if VERDICT.matches(value) and not value.verdict()), values[0])
    if about_training:
        return (
            f"the field {field!r} may say what is to be learnt ({describe_value(example.value)}), and it is "
            "not read. Take out rows that are not to be learnt (weight 0 does so of a turn), and leave the "
            f"field out by name (--leave-out {field}); plaudit data convert takes it too"
        )
    return (
        f"the field {field!r} may say which answers are good "
        f"({describe_value(example.value)}), and it is not read: bad answers would be learnt as the good "
        f"ones. Say that it is the label, for train kto and its like (--columns label={field}), or leave it "
        f"out by name (--leave-out {field}); plaudit data convert takes both"
    )


def _says_verdicts(field: str, values: Sequence[Node]) -> bool:
    """Whether verdicts are meant: where the name does not say so, they differ, and are more than 0 and 1."""
    differ = len({value.verdict() for value in values}) > 1
    are_words = not {str(value.value).strip() for value in values} <= {"0", "1", "0.0", "1.0"}
    return (differ and are_words) or bool(_LABEL_NAME.search(field.lower()))
