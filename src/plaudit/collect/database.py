"""Two databases behind one seam: SQLite in a file, PostgreSQL on a server, and one writer at a time on both.

Labelling is a trickle, so every change is one short transaction under one lock. Caps, exactly-once and the
chain of the log are then plain sequential code, and no isolation level has to be believed.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Executable, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import ExecuteStyle
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.pool import StaticPool

from plaudit.collect.log import CACHE, METADATA
from plaudit.collect.refusals import StoreUnavailableError
from plaudit.errors import UserError

BUSY_SECONDS = 15
"""How long a writer of SQLite waits for another program's lock."""
LOCK_NUMBER = 7_521_404
"""The advisory lock of PostgreSQL that stands for "the writer of this store"."""
# The level is named: at a stricter one, which a database may have by default, a writer would see what was
# there before it waited for the lock.
_BEGIN_AND_LOCK = f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({LOCK_NUMBER})"
MOST_PREPARED, MOST_BOUND = 200, 32
_PREPARED = "prepared"
CONNECTIONS = 8

_ADVICE = {
    "full": "the disk is full: free some space",
    "readonly": "the file cannot be written: make it and its folder writable",
    "locked": "another program holds the store's lock: wait for it, or end it",
    "unable to open": "the file cannot be opened: look whether its folder is there and can be written",
    "i/o error": "the disk reported an error: check it, and restore a backup where needed",
    "malformed": "the file is damaged: restore a backup",
    "could not decode": "the file is damaged: restore a backup",
    "not a database": "the file is no store of plaudit: choose another",
}
# A server that restarts leaves connections that cannot be closed in good order: what it means for a sender is
# said by `StoreUnavailableError`, and the pool's own page of traceback for each of them helps nobody.
logging.getLogger("sqlalchemy.pool.impl.QueuePool").addFilter(
    lambda record: not record.getMessage().startswith("Exception terminating connection")
)
_GONE_CODES = ("08", "53", "57", "58")
"""Classes of PostgreSQL's codes that are about the server's own state and not about a statement."""
_CLOSED_CODES = ("28", "3D")
"""Those of a wrong user, password or name of a database."""


class Database:
    def __init__(self, where: str | Path) -> None:
        """Open it; a file that is not there yet is made at the first write."""
        self.where = shown_address(where)
        self.is_file = not is_address(where)
        self.engine = _file_engine(Path(where)) if self.is_file else _server_engine(str(where))
        # Threads of one process queue here: SQLite's own waiting is a sleep that grows, and unfair.
        self._writer = threading.Lock()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction of the only writer: on the disk at its end, or as if it had not been."""
        # The lock in the same breath: on a server every statement is a way there and back.
        begin = "BEGIN IMMEDIATE" if self.is_file else _BEGIN_AND_LOCK
        with self._writer, self._explained(), self._transaction(begin) as connection:
            try:
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment of the store, and waits for nobody."""
        begin = "BEGIN" if self.is_file else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        with self._explained(), self._transaction(begin) as connection:
            try:
                yield connection
            finally:
                _roll_back(connection)

    def ask(self, question: Executable, names: Mapping[str, Any]) -> Any:
        """The first row of a single question, which sees one moment without a transaction; or None."""
        with self._explained():
            try:
                with self._connect() as connection:
                    return connection.execute(question, names).first()
            except DBAPIError:
                if self.is_file:
                    raise
                # As in `_transaction`: a question changes nothing and may be asked again.
                self.engine.dispose()
                with self._connect() as connection:
                    return connection.execute(question, names).first()

    def clear_traces(self) -> None:
        """Empty the file beside a SQLite store in which deleted words lie until they are written over."""
        if not self.is_file:
            return
        with self._explained(), self._connect() as connection:
            busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar_one()
        if busy:
            raise StoreUnavailableError(
                f"{self.where}: it is deleted, but somebody is still reading the store: until that ends, the "
                f"words can be found in {self.where}-wal. It is emptied once the last program has closed the "
                "store"
            )

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        # A connection with a transaction; one that the server has dropped since its last use is replaced.
        connection = self._connect()
        try:
            connection.exec_driver_sql(begin)
        except DBAPIError:
            connection.invalidate()
            connection.close()
            if self.is_file:
                raise
            # Nothing was said yet that could be said twice; all connections of before are as old as this one.
            self.engine.dispose()
            connection = self._connect()
            connection.exec_driver_sql(begin)
        with connection:
            yield connection

    def _connect(self) -> Connection:
        return self.engine.connect().execution_options(**{CACHE: dict[Any, Any]()})

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, UnicodeDecodeError) as error:
            # SQLite's own words hold those of a damaged file.
            damaged = isinstance(error, UnicodeDecodeError)
            advice = _ADVICE["malformed"] if damaged else _advice(error)
            if advice is None:
                raise
            raise StoreUnavailableError(
                f"{self.where}: {advice}; what was sent was not acknowledged, so send it again"
            ) from error


@contextmanager
def in_memory() -> Iterator[Connection]:
    """An empty store beside all others, for a replay that changes nothing of them."""
    with closing(Database(":memory:")) as database, database.writing() as connection:
        METADATA.create_all(connection)
        yield connection


def is_address(where: str | Path) -> bool:
    """Whether a store is named by the address of a server, not by a file."""
    return isinstance(where, str) and "://" in where


def shown_address(where: str | Path) -> str:
    """How messages name a store: never with its password, nor with options, which may hold one.

    >>> shown_address("postgresql+pg8000://me:secret@db/labels?password=secret")
    'postgresql+pg8000://me:***@db/labels'
    """
    if not is_address(where):
        return str(where)
    try:
        return make_url(str(where)).set(query={}).render_as_string()
    except (ArgumentError, ValueError):
        return "the store's address"


def _file_engine(path: Path) -> Engine:
    # In memory every connection would be a database of its own.
    pool = (
        {"poolclass": StaticPool}
        if str(path) == ":memory:"
        else {"pool_size": CONNECTIONS, "max_overflow": 64}
    )
    engine = create_engine(
        f"sqlite:///{path}",
        isolation_level="AUTOCOMMIT",
        # An error's words go to the server's output, which is no place for what people wrote.
        hide_parameters=True,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        **pool,
    )

    def settle_connection(connection: sqlite3.Connection, _: object) -> None:
        # FULL: acknowledged means on the disk, also when the power goes.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}")

    event.listen(engine, "connect", settle_connection)
    return engine


def _server_engine(address: str) -> Engine:
    try:
        engine = create_engine(
            address,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            pool_size=CONNECTIONS,
            max_overflow=64,
            connect_args={"timeout": BUSY_SECONDS, **_password(address)},
        )
    except (ArgumentError, ValueError, NoSuchModuleError, ModuleNotFoundError) as error:
        # What cannot be read as an address may have the password anywhere, also in the words of the error.
        why = "" if isinstance(error, ValueError) else f" ({error})"
        raise UserError(
            f"{shown_address(address)}: this address of a store cannot be used{why}; give a file, or "
            "postgresql+pg8000://USER:PASSWORD@HOST/DATABASE with `pip install 'plaudit[postgres]'`"
        ) from None
    if engine.dialect.name != "postgresql":
        raise UserError(
            f"{shown_address(address)}: a store is a file or PostgreSQL, not {engine.dialect.name}"
        )
    # First, as the dialect itself asks the server something on its first connection.
    event.listen(engine, "connect", _connected, insert=True)
    for name in ("do_execute", "do_executemany"):
        event.listen(engine, name, _execute)
    return engine


class _Statements:
    # By itself pg8000 reads and plans at every use, on three ways to the server and back where one is enough.
    def __init__(self, connection: Any) -> None:
        self._connection, self._anew = connection, connection.execute_unnamed
        self._prepared = dict[str, tuple[Any, ...]]()
        self._wanted = ""

    def keeps(self, statement: str, values: Sequence[Any]) -> bool:
        # What `_PREPARED` stands for from now on.
        self._wanted = statement
        # A list has a text of its own for each length: those would leave no room for any other.
        return 0 < len(values) <= MOST_BOUND and (
            statement in self._prepared or len(self._prepared) < MOST_PREPARED
        )

    def __call__(self, statement: str, vals: Any = (), oids: Any = (), stream: Any = None) -> Any:
        from pg8000.legacy import convert_paramstyle, make_params

        if statement != _PREPARED:
            return self._anew(statement, vals=vals, oids=oids, stream=stream)
        if self._wanted not in self._prepared:
            plain, _ = convert_paramstyle("format", self._wanted, ())
            self._prepared[self._wanted] = self._connection.prepare_statement(plain, ())
        name, columns, readers = self._prepared[self._wanted]
        values = make_params(self._connection.py_types, vals)
        return self._connection.execute_named(name, values, columns, readers, self._wanted)


def _connected(connection: Any, _: object) -> None:
    connection.execute_unnamed = _Statements(connection)


def _execute(cursor: Any, statement: str, values: Any, context: Any) -> bool:
    # What is false is left to the driver.
    statements = context.root_connection.connection.dbapi_connection.execute_unnamed
    is_many = context.execute_style is ExecuteStyle.EXECUTEMANY
    if not statements.keeps(statement, values[0] if is_many else values):
        return False
    (cursor.executemany if is_many else cursor.execute)(_PREPARED, values)
    return True


def _password(address: str) -> dict[str, str]:
    # PostgreSQL's own variable, where the address has no password: addresses end up in files of settings.
    # An empty one where there is none: pg8000 trips over a server that wants one and is given nothing.
    word = os.environ.get("PGPASSWORD", "")
    return {} if make_url(address).password is not None else {"password": word}


def refuse_other_encoding(database: Database, connection: Connection) -> None:
    """A database whose encoding cannot hold every letter is refused before anything is stored."""
    if database.is_file:
        return
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise UserError(
            f"{database.where}: the database's encoding is {encoding}, which cannot hold every letter; make "
            "one with `createdb --encoding UTF8 --template template0 NAME`"
        )


def _roll_back(connection: Connection) -> None:
    try:
        connection.exec_driver_sql("ROLLBACK")
    except DBAPIError:
        # The connection is gone, or the database ended the transaction: nothing of it is left either way.
        connection.invalidate()


def _advice(error: DBAPIError) -> str | None:
    # What is wrong with the database itself; None where the statement was.
    if isinstance(error, IntegrityError):
        return None
    words = str(error.orig).lower()
    for mark, advice in _ADVICE.items():
        if mark in words and isinstance(error.orig, sqlite3.Error):
            return advice
    if isinstance(error.orig, sqlite3.Error):
        return None
    details = _details(error)
    # None where the connection broke before the server said anything.
    code = None if details is None else str(details.get("C", ""))
    if code is not None and code.startswith(_CLOSED_CODES):
        return (
            f"the database lets nobody in by this address ({_server_words(error)}): look at its user, "
            "database and password, which may stand in PGPASSWORD"
        )
    if code is None or code.startswith(_GONE_CODES):
        return f"the database does not answer ({_server_words(error)})"
    return None


def _server_words(error: DBAPIError) -> str:
    details = _details(error)
    return str(error.orig) if details is None else str(details.get("M", error.orig))


def _details(error: DBAPIError) -> dict[str, str] | None:
    arguments = getattr(error.orig, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], dict) else None
