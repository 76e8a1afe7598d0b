"""Which store and project a verb works on."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from plaudit.config import did_you_mean
from plaudit.data.fields import join_names
from plaudit.errors import UserError

if TYPE_CHECKING:
    from plaudit.collect.store import LabelStore

ACTOR = "command-line"
"""What the log calls whoever works on a store by this command."""

STORE = "labels.db"
"""The store that commands work on where none is named."""


@contextmanager
def opened(args: argparse.Namespace, *, create: bool = False) -> Iterator[LabelStore]:
    """The store that ``--store`` names, while the block runs."""
    # Here and not above: every other command must start without the database's packages.
    from plaudit.collect.store import open_store

    if not args.store:
        raise UserError("--store: expected a file or an address, got ''")
    with closing(open_store(args.store, create=create)) as store:
        yield store


def project_name(store: LabelStore, word: str | None) -> str:
    """The project that ``--project`` names, or the only one."""
    names = store.projects()
    if word in names:
        return word
    if not names:
        raise UserError(
            f"{store.where}: there is no project in it; make one with `plaudit collect project FILE.yaml`"
        )
    if word is not None:
        hint = did_you_mean(word, names) or f"; there is {join_names(names)}"
        raise UserError(f"{store.where}: there is no project {word!r}{hint}")
    if len(names) > 1:
        raise UserError(f"{store.where}: it has several projects ({join_names(names)}): say --project NAME")
    return names[0]


def add_store_option(verb: argparse.ArgumentParser) -> None:
    """Add ``--store``."""
    verb.add_argument(
        "--store",
        default=STORE,
        metavar="FILE",
        help=f"where labels lie; or postgresql+pg8000://… (default: {STORE})",
    )


def add_project_option(verb: argparse.ArgumentParser) -> None:
    """Add ``--store`` and ``--project``."""
    add_store_option(verb)
    verb.add_argument("--project", metavar="NAME", help="which one, where the store has several")
