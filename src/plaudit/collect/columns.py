"""A project's labels as columns: page by page out of a store, or from a snapshot, the Parquet file of them.

Names of people and what they wrote beside their answers are left out, as an export leaves them out.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet
from sqlalchemy import Connection, bindparam, exists, select

from plaudit.collect import log
from plaudit.collect.answers import free_texts
from plaudit.collect.kinds import KINDS
from plaudit.collect.log import canonical, same
from plaudit.collect.project import Project, project_from_dict, project_to_dict
from plaudit.collect.store import LabelStore, Transaction
from plaudit.collect.tables import annotator, label, task
from plaudit.data.tables import READING_FAULTS
from plaudit.errors import UserError
from plaudit.files.atomic import AtomicFile

SNAPSHOT_VERSION = 1
_HEAD = b"plaudit.labels"
_TASKS_A_PAGE = 2_000
# Bodies are longer than the megabyte behind which pyarrow would write each of them anew for every label.
_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "write_page_checksum": True,
    "dictionary_pagesize_limit": 1 << 30,
}
_TEXTS = ("purpose", "annotator", "shown", "label", "guidelines")
# As numbers into the words that there are: a task's body stands once in the file for all of its labels.
_WORD = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
SCHEMA = pyarrow.schema(
    [
        ("seq", pyarrow.int64()),
        ("at", pyarrow.timestamp("us", "UTC")),
        *((name, _WORD) for name in ("task", "prompt", "body", "forward")),
        ("chosen", pyarrow.bool_()),
        *((name, _WORD) for name in _TEXTS),
        ("excluded", pyarrow.bool_()),
        ("surplus", pyarrow.bool_()),
        ("number", pyarrow.int32()),
        ("seconds", pyarrow.float64()),
        ("pasted", pyarrow.float64()),
    ]
)

_PEOPLE = (
    select(*(annotator.c[name] for name in ("name", "standing", "excluded", "skipped", "preferences")))
    .where(annotator.c.project == bindparam("p"))
    .order_by(annotator.c.seq)
)
_TASKS = (
    select(task.c.seq, task.c.id, task.c.prompt, task.c.body)
    .where(task.c.project == bindparam("p"), task.c.seq > bindparam("after"))
    .where(exists().where(same(label, task, task="id")))
    .order_by(task.c.seq)
    .limit(_TASKS_A_PAGE)
)
_LABELS = (
    select(*(column for column in label.c if column.name in SCHEMA.names))
    .join(task, same(task, label, id="task"))
    .where(task.c.project == bindparam("p"), task.c.seq > bindparam("after"), task.c.seq <= bindparam("last"))
    .order_by(task.c.seq, label.c.seq)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    name: str
    standing: str
    excluded: bool
    """Whether the labels are left out of exports, and so of agreement."""
    skipped: int
    """How many tasks were given back."""
    groups: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the person said of themselves, where the project asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What is known of all labels of a project together, as of the last event that changed them."""

    store: str
    project: Project
    seq: int
    people: tuple[Person, ...]


def table_of(
    columns: Mapping[str, Sequence[Any]], tasks: Mapping[str, tuple[str, str]], excluded: Collection[str] = ()
) -> pyarrow.Table:
    """Labels as a table of SCHEMA, with prompt and body of their tasks; what is not given is null."""
    facts = {name: (prompt, body, *_compared_by(prompt, body)) for name, (prompt, body) in tasks.items()}
    given = dict(columns)
    for place, name in enumerate(("prompt", "body", "forward", "chosen")):
        given[name] = [facts[task_id][place] for task_id in columns["task"]]
    given["excluded"] = [name in excluded for name in columns["annotator"]]
    given["label"] = [_without_reasons(text) for text in columns["label"]]
    arrays = list[Any]()
    for column in SCHEMA:
        values = given.get(column.name, [None] * len(given["task"]))
        plain = pyarrow.array(values, pyarrow.string() if column.type == _WORD else None)
        arrays.append(plain.dictionary_encode() if column.type == _WORD else plain.cast(column.type))
    return pyarrow.Table.from_arrays(arrays, schema=SCHEMA)


def _compared_by(prompt: str, text: str) -> tuple[str, bool]:
    # The places of a task's answers in the order of their hashes, and whether a score chose the task.
    body = json.loads(text)
    hashes = [_hash(prompt, candidate["text"]) for candidate in body.get("candidates", ())]
    places = sorted(range(len(hashes)), key=lambda place: hashes[place])
    # A task with a method other than chance was asked since a score wanted it: no sample of all tasks.
    is_chosen = body.get("method") not in (None, "random")
    return json.dumps(sorted(places, key=lambda place: places[place])), is_chosen


def _hash(prompt: str, text: object) -> bytes:
    # With the prompt: a refusal that many prompts share would stand on the same side in all of them.
    words = text if isinstance(text, str) else canonical(text)
    return blake2b(f"{prompt}\0{words}".encode(), digest_size=8).digest()


_ESSENCES = {kind.essence for kind in KINDS.values()}
_REASONS = tuple(name for name in free_texts() if name not in _ESSENCES)


def _without_reasons(text: str) -> str:
    # Nearly all labels are a few clicks, and need not be parsed.
    if not any(name in text for name in _REASONS):
        return text
    return canonical({name: value for name, value in json.loads(text).items() if name not in _REASONS})


def _head(moment: Transaction, store: LabelStore, project: str) -> Head:
    settings, rows = moment.settings(project), moment.connection.execute(_PEOPLE, {"p": project})
    seq, _ = log.last_of_labels(moment.connection, project, log.last(moment.connection)[0])
    people = tuple(
        Person(
            name=row.name,
            standing=row.standing,
            excluded=bool(row.excluded),
            skipped=row.skipped,
            groups=json.loads(row.preferences).get("groups", {}),
        )
        for row in rows
    )
    return Head(store=store.where, project=settings, seq=seq, people=people)


def _pages(connection: Connection, head: Head) -> Iterator[pyarrow.Table]:
    excluded = {person.name for person in head.people if person.excluded}
    names: dict[str, Any] = {"p": head.project.name, "after": 0}
    while page := connection.execute(_TASKS, names).all():
        rows = connection.execute(_LABELS, {**names, "last": page[-1].seq})
        columns = dict(zip(rows.keys(), zip(*rows, strict=True), strict=True))
        yield table_of(columns, {row.id: (row.prompt, row.body) for row in page}, excluded)
        names["after"] = page[-1].seq


def labels_of(store: LabelStore, project: str) -> tuple[Head, pyarrow.Table]:
    """All labels of a project, as of now, as `read_snapshot` gives them."""
    with store.looking() as moment:
        head = _head(moment, store, project)
        return head, pyarrow.concat_tables([SCHEMA.empty_table(), *_pages(moment.connection, head)])


def write_snapshot(store: LabelStore, project: str, out: Path) -> tuple[Head, int]:
    """Write all labels of a project as of now; gives what they are of, and how many."""
    count = 0
    with store.looking() as moment, AtomicFile(out) as file:
        head = _head(moment, store, project)
        values = asdict(head) | {"project": project_to_dict(head.project), "version": SNAPSHOT_VERSION}
        schema = SCHEMA.with_metadata({_HEAD: json.dumps(values)})
        with parquet.ParquetWriter(file.stream, schema, **_OPTIONS) as writer:
            for table in _pages(moment.connection, head):
                writer.write_table(table.replace_schema_metadata(schema.metadata))
                count += len(table)
        # Within the block, so that no empty file takes the place of an older one.
        if not count:
            raise UserError(f"{store.where}: project {project} has no labels yet")
    return head, count


def read_snapshot(path: Path, columns: Sequence[str] = SCHEMA.names) -> tuple[Head, pyarrow.Table]:
    """What `write_snapshot` wrote: what the labels are of, and some of the columns."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; write one with `plaudit collect snapshot`")
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            values = json.loads((file.schema_arrow.metadata or {}).get(_HEAD, b"{}"))
            version = values.pop("version", None)
            if version != SNAPSHOT_VERSION or not file.schema_arrow.equals(SCHEMA):
                raise ValueError(f"of version {version}, and this plaudit reads {SNAPSHOT_VERSION}")
            settings = {
                "project": project_from_dict(values["project"]),
                "people": tuple(Person(**person) for person in values["people"]),
            }
            return Head(**values | settings), file.read([*columns])
    except (*READING_FAULTS, AttributeError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"{path}: not a snapshot of labels that this plaudit wrote, or a damaged one ({why}); write it "
            "again with `plaudit collect snapshot`"
        ) from error
