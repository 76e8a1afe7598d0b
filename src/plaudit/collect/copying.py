"""A store copied while it is in use: a backup, a restored one, or a move to another kind of database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Table, insert, select

from plaudit.collect import log, tables, views
from plaudit.collect.database import Database, refuse_other_encoding
from plaudit.collect.log import METADATA, meta
from plaudit.collect.store import LabelStore
from plaudit.errors import UserError

_ROWS = 1_000


def copy_store(store: LabelStore, target: str | Path) -> int:
    """Copy everything to a new file or an empty database, as of one moment; gives the log's position.

    The folds are made anew from the log, so that what is copied is proven to be whole.
    """
    database = Database(target)
    if database.is_file and Path(target).exists():
        raise UserError(f"{target}: there is a file already; a backup never overwrites one")
    try:
        with database.writing() as there, store.database.reading() as here:
            refuse_other_encoding(database, there)
            METADATA.create_all(there)
            if log.last(there)[0]:
                raise UserError(f"{database.where}: there is a store already; name an empty database")
            for table in (meta, log.log, *tables.PERSONAL):
                _copy_table(here, there, table)
            # The rows came past the log's own way of writing.
            log.cache_of(there).clear()
            faults = list(log.chain_faults(there))
            if faults:
                raise UserError(f"{store.where}: the store is damaged, so it was not copied: {faults[0]}")
            views.rebuild(there, log.events(there))
            return log.last(there)[0]
    # Ctrl-C too: half a copy would pass for a backup.
    except BaseException:
        database.close()
        # Closed before: SQLite then clears away the files that it keeps beside its own.
        if database.is_file:
            Path(target).unlink(missing_ok=True)
        raise
    finally:
        database.close()


def _copy_table(here: Connection, there: Connection, table: Table) -> None:
    # In parts: the log of a large project may not fit into memory.
    rows = here.execution_options(yield_per=_ROWS).execute(select(table)).mappings()
    for part in rows.partitions(_ROWS):
        there.execute(insert(table), [dict(row) for row in part])
