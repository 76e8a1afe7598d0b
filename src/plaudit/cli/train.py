"""``plaudit train``: one verb for each way to learn."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from typing import Any

from plaudit.cli.options import add_options, read_config
from plaudit.cli.parser import Verbs
from plaudit.cli.train_list import print_list, settings_in_words
from plaudit.recipes.loop_table import LoopFacts
from plaudit.recipes.methods import METHODS, TABLES, config_types, run_method
from plaudit.recipes.policy_facts import PolicyFacts
from plaudit.recipes.preference_table import PreferenceFacts


def _about_preference(facts: PreferenceFacts) -> str:
    own = ", ".join(f"--preference.{setting}" for setting in settings_in_words(facts.defaults).split(", "))
    return f"learn a policy from {facts.data}: {facts.formula}. {facts.paper}. Its own settings: {own}"


def _about_policy(facts: PolicyFacts) -> str:
    own = ", ".join(f"{name} {value}" for name, value in facts.defaults.items())
    return (
        f"improve a policy by a reward: {facts.formula} ({facts.cells}). {facts.paper}. Its own settings "
        f"(--policy, --draw, --shape): {own}"
    )


def _about_loop(facts: LoopFacts) -> str:
    own = ", ".join(f"--loop.{setting}" for setting in settings_in_words(facts.defaults).split(", "))
    return f"draw answers and learn from them: {facts.formula}. {facts.paper}. Its own settings: {own}"


_ABOUT: tuple[Callable[[Any], str], ...] = (_about_preference, _about_policy, _about_loop)
"""From an algorithm's facts to its help, for each of the tables."""


def add_parser(subparsers: Verbs) -> None:
    """Add ``train`` and its methods."""
    train = subparsers.add_parser(
        "train",
        help="learn from rows",
        epilog="plaudit train --list says what these are. "
        + " ".join(f"{table.title}: {', '.join(table.rows)}." for table in TABLES),
        formatter_class=_WholeNames,
    )
    train.add_argument("--list", action=_List, nargs=0, help="list the algorithms of the tables, and exit")
    methods = train.add_subparsers(dest="method", required=True, metavar="METHOD")
    for name, (_, text, config_type) in METHODS.items():
        parser = methods.add_parser(name, help=text, description=text)
        parser.fill = partial(add_options, config_type=config_type)
    for table, about in zip(TABLES, _ABOUT, strict=True):
        for name, facts in table.rows.items():
            # Without ``help`` argparse does not list it: dozens more would hide the ten above.
            parser = methods.add_parser(name, description=about(facts))
            parser.fill = partial(add_options, config_type=table.config)
    train.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, then say where the result lies."""
    config: Any = read_config(config_types()[args.method], args)
    from plaudit.training.interrupt import InterruptedRunError
    from plaudit.training.parallel import speaks

    try:
        summary = run_method(args.method, config)
    except InterruptedRunError as stop:
        if speaks():
            print(f"plaudit: {stop}; the same command goes on from here", file=sys.stderr)
        return 128 + stop.signum
    if summary is not None:
        model = config.out / "model"
        print(f"The model is in {model if model.is_dir() else config.out}")
    return 0


class _WholeNames(argparse.HelpFormatter):
    """Breaks no name at its hyphen, so that it can be searched for and copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        said = " ".join(text.split())
        return textwrap.fill(
            said, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )


class _List(argparse.Action):
    """Prints the tables of algorithms."""

    def __call__(self, *_: Any) -> None:
        print_list()
        raise SystemExit(0)
