"""The tables that are folds of the log, those with personal facts that are not, and their statements.

Statements are constants with bound parameters: built anew at each call they would cost four times as much.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Float,
    FromClause,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    literal_column,
)

from plaudit.collect.log import METADATA, index_where


def _keys(*names: str) -> list[Column[str]]:
    return [Column(name, Text, primary_key=True) for name in names]


def _texts(*names: str) -> list[Column[str]]:
    return [Column(name, Text, nullable=False) for name in names]


def _counts(*names: str) -> list[Column[int]]:
    return [Column(name, Integer, nullable=False) for name in names]


project = Table(
    "project",
    METADATA,
    Column("name", Text, primary_key=True),
    *_texts("settings", "guidelines"),
    Column("seq", BigInteger, nullable=False),
)
"""The settings that hold now, and the version of the guidelines."""

task = Table(
    "task",
    METADATA,
    *_keys("project", "id"),
    Column("seq", BigInteger, nullable=False),
    *_texts("purpose", "prompt", "authors"),
    Column("category", Text),
    Column("language", Text),
    Column("priority", Float, nullable=False),
    *_texts("scramble", "state"),
    *_counts("wanted", "taken", "done", "started", "lacking"),
    # Last, since SQLite reads through a long text on its way to any column behind it.
    Column("body", Text, nullable=False),
    Index("task_seq", "project", "seq"),
    Index("task_prompt", "project", "prompt"),
    Index("task_state", "project", "state", "wanted", "done", "taken"),
)
"""What is asked; ``lacking`` is wanted less taken (open leases) less done (labels that count)."""

# Literals and no bound parameters: a plan uses a partial index only where it can see that it applies.
_OPEN, _WORK, _NOTHING = (literal_column(word) for word in ("'open'", "'work'", "0"))


def has_place(rows: FromClause) -> ColumnElement[bool]:
    """Whether a task may be given out: it is open, and lacks a label that nobody is about to give."""
    return (rows.c.state == _OPEN) & (rows.c.lacking > _NOTHING)


def is_item(rows: FromClause) -> ColumnElement[bool]:
    return rows.c.purpose != _WORK


def is_open(rows: FromClause) -> ColumnElement[bool]:
    return rows.c.state == _OPEN


# What keeps *next* flat at any number of tasks: only those that may be given out, in the order of giving.
OPEN_TASKS = index_where(
    has_place(task),
    "task_open",
    *(task.c.project, task.c.started, task.c.lacking.desc(), task.c.priority.desc(), task.c.scramble),
    # Not for the order: whether somebody has met them all is then known without reading a single row.
    task.c.id,
)
SPECIAL_TASKS = index_where(is_item(task), "task_special", task.c.project, task.c.purpose, task.c.scramble)
"""Items whose answer is known, and those that qualify."""

assignment = Table(
    "assignment",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    *_texts("project", "task", "annotator", "prompt", "purpose", "shown", "guidelines", "until", "state"),
    Index("assignment_task", "project", "task"),
    Index("assignment_annotator", "project", "annotator", "task"),
    Index("assignment_state", "project", "annotator", "state", "seq"),
    Index("assignment_prompt", "project", "annotator", "prompt"),
)
"""Who was given what, in which order, until when; open, answered, skipped or ended."""
OPEN_ASSIGNMENTS = index_where(
    is_open(assignment), "assignment_open", assignment.c.project, assignment.c.until
)
"""Leases that may end by the clock."""

label = Table(
    "label",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    *_texts("at", "project", "task", "assignment", "annotator", "author"),
    *_texts("purpose", "shown", "label", "guidelines"),
    Column("seconds", Float),
    Column("pasted", Float),
    *_counts("surplus", "number"),
    Index("label_task", "project", "task"),
    Index("label_annotator", "project", "annotator", "number"),
    Index("label_assignment", "assignment"),
)
"""What holds now, in the order in which the answers were shown; ``number`` counts an annotator's answers."""

annotator = Table(
    "annotator",
    METADATA,
    *_keys("project", "name"),
    *_texts("role", "standing"),
    *_counts("excluded", "assigned", "answered", "skipped"),
    *_texts("preferences", "guidelines"),
    Column("seq", BigInteger, nullable=False),
)
"""Everybody by pseudonym: counts, standing, and the version of the guidelines last read. ``excluded``
outlives the person: labels that were not to be trusted are not exported once nobody is left to suspend."""

FOLDS = (project, task, assignment, label, annotator)
"""What a replay of the log makes anew."""

person = Table("person", METADATA, *_keys("project", "pseudonym"), *_texts("name", "at"))
"""Which name belongs to a pseudonym: never in the log."""

invite = Table(
    "invite",
    METADATA,
    Column("hash", Text, primary_key=True),
    *_texts("project", "role"),
    Column("uses", Integer, nullable=False),
    Column("expires", Text, nullable=False),
)
"""Invites by the hash of their secret, with the uses that are left."""

token = Table(
    "token",
    METADATA,
    Column("hash", Text, primary_key=True),
    *_texts("project", "pseudonym", "role", "scopes", "expires"),
    Index("token_person", "project", "pseudonym"),
)
"""Bearer tokens by the hash of their secret."""

draft = Table(
    "draft",
    METADATA,
    Column("assignment", Text, primary_key=True),
    *_texts("project", "annotator"),
    Column("label", Text),
    Column("conversation", Text),
    Index("draft_annotator", "project", "annotator"),
)
"""What is not sent yet: half a label, or a conversation in progress."""

password = Table(
    "password",
    METADATA,
    *_keys("project", "pseudonym"),
    *_texts("name_key", "hash"),
    # By this name one signs in, so that no two people of a project may share it.
    Index("password_name", "project", "name_key", unique=True),
)
"""Passwords as Argon2id makes them, under the name that is typed at sign-in."""

session = Table(
    "session",
    METADATA,
    Column("hash", Text, primary_key=True),
    *_texts("project", "pseudonym", "started", "used", "stretch", "expires"),
    Index("session_person", "project", "pseudonym"),
)
"""Sessions of browsers by the hash of their secret; ``stretch`` is since when there was no longer pause."""

panel = Table(
    "panel",
    METADATA,
    Column("hash", Text, primary_key=True),
    *_texts("project", "code"),
    Column("tasks", Integer),
)
"""Of a panel's invite, by its hash: the completion code, and after how many answers it is shown."""

participant = Table(
    "participant",
    METADATA,
    *_keys("project", "pseudonym"),
    *_texts("panel", "participant"),
    Index("participant_panel", "panel", "participant", unique=True),
)
"""What a panel calls those whom it sent."""

group = Table(
    "group_of_person", METADATA, *_keys("project", "pseudonym"), Column("value", Text, nullable=False)
)
"""The group in which somebody wants to be counted."""

picture = Table(
    "picture", METADATA, *_keys("project", "hash"), Column("content", LargeBinary, nullable=False)
)
"""The pictures of a project's tasks, by their pixels: in no event, and of no person."""

salt = Table("salt", METADATA, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))
"""What keeps a typed name from being read out of the log; made at first need, different in every store."""

PERSONAL = (person, invite, token, draft, password, session, panel, participant, group, salt)
"""Ordinary tables, in no event."""
