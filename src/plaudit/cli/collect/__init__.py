"""``plaudit collect``: labels by people: a store, its tasks, those who answer, and rows out of it."""

from __future__ import annotations

import argparse

from plaudit.cli.collect import exporting, people, projects, screening, serving, upkeep
from plaudit.cli.parser import Subparsers
from plaudit.errors import UserError

_EXTRAS = {
    "sqlalchemy": "collect",
    "argon2": "collect",
    "starlette": "collect",
    "uvicorn": "collect",
    "pg8000": "postgres",
}


def add_parser(subparsers: Subparsers) -> None:
    """Add ``collect`` with its verbs."""
    collect = subparsers.add_parser("collect")
    verbs = collect.add_subparsers(dest="collect_verb", required=True, title="verbs", metavar="VERB")
    for module in (projects, people, screening, serving, exporting, upkeep):
        module.add_parsers(verbs)
    collect.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb that was asked for."""
    try:
        args.run_verb(args)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        # A missing module of our own is a fault, and no extra to install.
        if package not in _EXTRAS:
            raise
        raise UserError(
            f'plaudit collect {args.collect_verb} needs {package}: pip install "plaudit[{_EXTRAS[package]}]"'
        ) from error
    return 0
