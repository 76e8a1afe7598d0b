"""``plaudit collect``: labels by people: a store, its tasks, those who answer, and rows out of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from plaudit.cli.parser import Parser, Subparsers
from plaudit.collect.verbs import exporting, people, projects, quality, screening, serving, solo, upkeep
from plaudit.config import did_you_mean
from plaudit.errors import UserError

_EXTRAS = {
    "sqlalchemy": "collect",
    "anyio": "collect",
    "argon2": "collect",
    "starlette": "collect",
    "uvicorn": "collect",
    "markdown_it": "collect",
    "nh3": "collect",
    "pg8000": "postgres",
}


def add_parser(subparsers: Subparsers) -> None:
    """Add ``collect`` with its verbs."""
    collect = subparsers.add_parser(
        "collect", epilog="By yourself, without a verb: plaudit collect FILE --out ROWS"
    )
    _add_verbs(collect)
    collect.set_defaults(run=run)


def _add_verbs(collect: Parser) -> argparse._SubParsersAction[Parser]:
    verbs = collect.add_subparsers(dest="collect_verb", required=True, title="verbs", metavar="VERB")
    for module in (solo, projects, people, screening, serving, quality, exporting, upkeep):
        module.add_parsers(verbs)
    return verbs


def whole_words(words: Sequence[str]) -> list[str]:
    """The words of a command with the verb that may be left out.

    >>> whole_words(["collect", "pairs.jsonl", "--out", "labels.jsonl"])
    ['collect', 'solo', 'pairs.jsonl', '--out', 'labels.jsonl']
    """
    verbs = _add_verbs(Parser()).choices
    first = words[1] if len(words) > 1 else "--help"
    if first in verbs or first in ("-h", "--help"):
        return [*words]
    if not first.startswith("-") and "." not in first and not Path(first).exists():
        raise UserError(
            f"plaudit collect {first}: there is no such file and no such verb{did_you_mean(first, verbs)}"
        )
    return [words[0], solo.VERB, *words[1:]]


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
