"""``plaudit collect check`` and ``backup``: whether a store is whole, and another copy of it."""

from __future__ import annotations

import argparse

from plaudit.cli.parser import Subparsers
from plaudit.collect.progress import rebuild_tables, store_faults
from plaudit.collect.verbs.opening import add_store_option, opened
from plaudit.errors import UserError


def add_parsers(verbs: Subparsers) -> None:
    """Add the verbs."""
    check = verbs.add_parser("check", help="look whether a store is whole and nothing in it was altered")
    check.add_argument("--rebuild", action="store_true", help="first make all tables anew from the log")
    backup = verbs.add_parser("backup", help="copy a store while it is in use; a copy is a store")
    backup.add_argument("target", metavar="TARGET", help="a new file, or the address of an empty database")
    for verb, run_verb in ((check, _check), (backup, _backup)):
        add_store_option(verb)
        verb.set_defaults(run_verb=run_verb)


def _check(args: argparse.Namespace) -> None:
    from plaudit.collect.log import chain_faults

    with opened(args) as store:
        if args.rebuild:
            with store.looking() as look:
                damaged = list(chain_faults(look.connection))
            # Tables that are made from an altered log would only look sound.
            _refuse_damaged(store.where, damaged)
            store.write(rebuild_tables)
            print(f"{store.where}: all tables made anew from the log")
        _refuse_damaged(store.where, store.read(store_faults))
        events = store.position()[0]
        print(f"{store.where}: sound: {events} events in one chain, and the tables are what a replay makes")


def _refuse_damaged(where: str, faults: list[str]) -> None:
    if faults:
        raise UserError("\n".join([f"{where}: the store is damaged:", *(f"  {fault}" for fault in faults)]))


def _backup(args: argparse.Namespace) -> None:
    from plaudit.collect.copying import copy_store
    from plaudit.collect.database import shown_address

    with opened(args) as store:
        events = copy_store(store, args.target)
        target = shown_address(args.target)
        print(f"{target}: a copy of {store.where} with {events} events, proven whole; use it with --store")
