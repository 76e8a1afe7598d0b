"""The log: every task, answer and exclusion as an event, chained, and nothing ever overwritten.

An event's body is hashed with a salt of its own, and the chain is over the hash: a body can be erased without
breaking the chain, and what was erased cannot be guessed from what is left.

body_hash = sha256(salt, body);  link = sha256(the link before, every column but body and salt)
"""

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    FromClause,
    Index,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    and_,
    bindparam,
    insert,
    literal_column,
    select,
    update,
)

CACHE = "plaudit_cache"
"""The option of a connection under which lies what one transaction need not ask the database twice."""
LOG_VERSION = 1
"""The number of the log's own shape; raised only with a step that brings an older one to it."""
FIRST_LINK = "0" * 64
_PAGE = 2_000

METADATA = MetaData()

meta = Table("meta", METADATA, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))

log = Table(
    "log",
    METADATA,
    # Counted here and not by the database: the number is chained, so it is known before the row is written.
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("key", Text),
    Column("body", Text),
    Column("salt", Text),
    Column("body_hash", Text, nullable=False),
    Column("link", Text, nullable=False),
    # Events without a key do not collide: no NULL equals another one.
    UniqueConstraint("project", "key", name="log_key"),
    Index("log_actor", "project", "actor"),
)
"""The only truth; all other tables but the personal ones are folds of it."""


def bound(rows: FromClause, **names: str) -> ColumnElement[bool]:
    """Whether columns hold what is bound to names, such as ``bound(task, project="p", id="t")``."""
    return and_(*(rows.c[column] == bindparam(name) for column, name in names.items()))


def same(rows: FromClause, others: FromClause, **columns: str) -> ColumnElement[bool]:
    """Whether rows are of one project and belong together, such as ``same(task, label, id="task")``."""
    pairs = {"project": "project", **columns}
    return and_(*(rows.c[column] == others.c[other] for column, other in pairs.items()))


def _is_refusal(rows: FromClause) -> ColumnElement[bool]:
    # A literal and no bound parameter: a plan uses a partial index only where it can see that it applies.
    return rows.c.kind == literal_column("'refused'")


def index_where(condition: ColumnElement[bool], name: str, *columns: ColumnElement[Any]) -> Index:
    """A partial index, of the rows alone that a condition holds for."""
    return Index(name, *columns, sqlite_where=condition, postgresql_where=condition)


REFUSALS = index_where(_is_refusal(log), "log_refused", log.c.project, log.c.at)
"""Refused requests by their time: what a limit of failures counts, without reading through the log."""


def in_trail(rows: FromClause) -> ColumnElement[bool]:
    """Whether an event is none of those that come by the thousand: the audit trail is among the others."""
    # Literals, as above.
    common = ("task-added", "leased", "released", "prolonged", "answered", "revised", "judged")
    return rows.c.kind.not_in([literal_column(f"'{kind}'") for kind in common])


TRAIL = index_where(in_trail(log), "log_trail", log.c.project, log.c.seq)
"""The audit trail, which can be read backwards without all the answers between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    seq: int
    """Its number; dense, from 1."""
    at: str
    """When, in UTC."""
    project: str
    actor: str
    """Who, by pseudonym; of a model its name and version."""
    kind: str
    subject: str
    """The task, assignment or person that it happened to."""
    key: str | None
    """The sender's own key, by which a repeated send is known."""
    body: dict[str, Any] | None
    """What was shown, answered or set; None once it is erased."""
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    project: str
    actor: str
    kind: str
    subject: str
    """What it happens to; a `{seq}` in it becomes the event's own number."""
    body: dict[str, Any]
    key: str | None = None


_INSERT = insert(log)
_LAST = select(log.c.seq, log.c.link, log.c.at).order_by(log.c.seq.desc()).limit(1)
# By number and not by offset, so that the last page of a long log costs no more than the first.
_AFTER = select(log).where(log.c.seq > bindparam("after")).order_by(log.c.seq).limit(_PAGE)
_BY_KEY = select(log).where(bound(log, project="p", key="k"))
_BY_SEQ = select(log).where(log.c.seq == bindparam("s"))
_OF_KIND = select(log).where(bound(log, project="p", kind="k")).order_by(log.c.seq)
_ABOUT = (
    select(log)
    .where(
        log.c.project == bindparam("p"), (log.c.actor == bindparam("n")) | (log.c.subject == bindparam("n"))
    )
    .order_by(log.c.seq)
)
_REFUSED = (
    select(log.c.subject, log.c.at, log.c.seq)
    .where(log.c.project == bindparam("p"), _is_refusal(log))
    .where(log.c.at > bindparam("since"), log.c.at <= bindparam("until"), log.c.body == bindparam("body"))
    .order_by(log.c.seq.desc())
    .limit(bindparam("most"))
)
_HASH = select(log.c.body_hash).where(log.c.seq == bindparam("s"))
# The salt goes too: with it a short body could be guessed until its hash fits.
_ERASE = update(log).where(log.c.seq == bindparam("s")).values(body=None, salt=None)


def canonical(value: object) -> str:
    """JSON that is the same for the same value.

    >>> canonical({"b": 1, "a": "é"})
    '{"a":"é","b":1}'
    """
    # NaN is refused: it is no JSON, and another reader of the log could not check the hash.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: object) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def last(connection: Connection) -> tuple[int, str, str]:
    cache = cache_of(connection)
    if "last" not in cache:
        row = connection.execute(_LAST).first()
        cache["last"] = (row.seq, row.link, row.at) if row else (0, FIRST_LINK, "")
    return cache["last"]


def cache_of(connection: Connection) -> dict[Any, Any]:
    """What this transaction knows already; whoever writes it anew keeps it true."""
    # A connection without the option gets another dictionary at each call, which remembers nothing.
    return connection.get_execution_options().get(CACHE, {})


def append(connection: Connection, now: str, entries: Sequence[Entry]) -> list[Event]:
    """Write events behind the last one; the caller holds the writer's lock."""
    seq, link, _ = last(connection)
    rows, written = list[dict[str, Any]](), list[Event]()
    for entry in entries:
        seq += 1
        row = _row(seq, now, entry, link)
        link = row["link"]
        rows.append(row)
        written.append(_event(row, entry.body))
    connection.execute(_INSERT, rows)
    # Kept up by hand: `last` would go on giving the old number, and two events cannot share one.
    cache_of(connection)["last"] = (seq, link, now)
    return written


def _row(seq: int, at: str, entry: Entry, link_before: str) -> dict[str, Any]:
    body, salt = canonical(entry.body), secrets.token_hex(16)
    row: dict[str, Any] = {
        "seq": seq,
        "at": at,
        "project": entry.project,
        "actor": entry.actor,
        "kind": entry.kind,
        "subject": entry.subject.replace("{seq}", str(seq)),
        "key": entry.key,
        "body_hash": hash_body(salt, body),
    }
    return {**row, "link": chain(link_before, row), "body": body, "salt": salt}


def hash_body(salt: str, body: str) -> str:
    """What stays of a body when it is erased."""
    return hashlib.sha256(f"{salt}\n{body}".encode()).hexdigest()


# For ever these, in this order: with any other list the links that are there would all be wrong.
_CHAINED = ("seq", "at", "project", "actor", "kind", "subject", "key", "body_hash")


def chain(link_before: str, row: Mapping[str, Any]) -> str:
    """The link of an event, from the one before it."""
    # As a list, not as joined words: what moves from one column to the next is then another list.
    return hashlib.sha256(canonical([link_before, *(row[name] for name in _CHAINED)]).encode()).hexdigest()


def by_key(connection: Connection, project: str, key: str) -> Event | None:
    row = connection.execute(_BY_KEY, {"p": project, "k": key}).mappings().first()
    return None if row is None else event_of_row(row)


def by_seq(connection: Connection, seq: int) -> Event | None:
    row = connection.execute(_BY_SEQ, {"s": seq}).mappings().first()
    return None if row is None else event_of_row(row)


def events(connection: Connection, after: int = 0) -> Iterator[Event]:
    for page in _pages(connection, after):
        yield from map(event_of_row, page)


def events_of_kind(connection: Connection, project: str, kind: str) -> Iterator[Event]:
    for row in connection.execute(_OF_KIND, {"p": project, "k": kind}).mappings():
        yield event_of_row(row)


def events_about(connection: Connection, project: str, name: str) -> Iterator[Event]:
    """What somebody did in a project, and what was done about the person, in order."""
    for row in connection.execute(_ABOUT, {"p": project, "n": name}).mappings():
        yield event_of_row(row)


def refusals(
    connection: Connection, project: str, since: str, until: str, *, body: Mapping[str, Any], most: int
) -> Sequence[Any]:
    """Subject, time and number of what was refused between two moments with just this body, newest first."""
    names = {"p": project, "since": since, "until": until, "body": canonical(body), "most": most}
    return connection.execute(_REFUSED, names).all()


def erase(connection: Connection, seqs: Sequence[int]) -> dict[str, str]:
    """Take out bodies and their salts; hashes and chain stay. Gives the hash of each by its number."""
    hashes = dict[str, str]()
    for seq in seqs:
        hashes[str(seq)] = connection.execute(_HASH, {"s": seq}).scalar_one()
        connection.execute(_ERASE, {"s": seq})
    return hashes


def chain_faults(connection: Connection) -> Iterator[str]:
    """What is wrong with the chain: nothing for a whole one."""
    link, seq = FIRST_LINK, 0
    for page in _pages(connection, 0):
        for row in page:
            if row["seq"] != seq + 1:
                yield f"event {row['seq']}: the one before it is {seq}, so events are missing"
            if row["link"] != chain(link, row):
                yield f"event {row['seq']}: its link is not that of what it says, so it was altered"
            # Erasing takes body and salt together: a body that has no salt was altered by hand.
            if row["body"] is not None and row["body_hash"] != hash_body(row["salt"] or "", row["body"]):
                yield f"event {row['seq']}: its body is not the one that was hashed, so it was altered"
            # On from the link that stands there, or one altered event would make all behind it look altered.
            seq, link = row["seq"], row["link"]


def _pages(connection: Connection, after: int) -> Iterator[Sequence[Mapping[Any, Any]]]:
    while page := connection.execute(_AFTER, {"after": after}).mappings().all():
        yield page
        after = page[-1]["seq"]


def event_of_row(row: Mapping[Any, Any]) -> Event:
    return _event(row, None if row["body"] is None else json.loads(row["body"]))


def _event(row: Mapping[Any, Any], body: dict[str, Any] | None) -> Event:
    names = ("seq", "at", "project", "actor", "kind", "subject", "key", "link")
    return Event(**{name: row[name] for name in names}, body=body)


# An export writes an event itself: counted, the second of two equal exports would stand at another position.
_OWN_TRACES = ("exported", "signed-in", "refused", "invited", "revoked")
_LAST_OF_LABELS = (
    select(log.c.seq, log.c.link)
    # An expression, which no index has: by that of the actors SQLite would read and sort all events.
    .where((log.c.project + "") == bindparam("p"), log.c.kind.not_in(_OWN_TRACES))
    .where(log.c.seq <= bindparam("s"))
    .order_by(log.c.seq.desc())
    .limit(1)
)


def last_of_labels(connection: Connection, project: str, position: int) -> tuple[int, str]:
    """The number and link of the last event up to a position that changed a project's labels."""
    row = connection.execute(_LAST_OF_LABELS, {"p": project, "s": position}).first()
    return (0, FIRST_LINK) if row is None else (row.seq, row.link)
