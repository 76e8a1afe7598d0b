"""``plaudit train``: one verb for each way to learn."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from plaudit.cli.options import add_options, read_config
from plaudit.cli.parser import Verbs
from plaudit.cli.train_list import print_list, settings_in_words
from plaudit.recipes.config import ContextConfig, ControlConfig, DistilConfig, RunConfig
from plaudit.recipes.group_config import GroupConfig
from plaudit.recipes.loop_config import LoopConfig
from plaudit.recipes.loop_table import LOOPS, LoopFacts
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_facts import PolicyFacts
from plaudit.recipes.policy_table import POLICIES
from plaudit.recipes.preference_config import PreferenceConfig
from plaudit.recipes.preference_table import PREFERENCES, PreferenceFacts
from plaudit.recipes.reward_config import RewardConfig
from plaudit.recipes.rlhf_config import RlhfConfig
from plaudit.recipes.worded_config import CriticConfig, RankerConfig, TextRewardConfig

METHODS: dict[str, tuple[str, str, type]] = {
    "sft": ("plaudit.recipes.sft:sft", "learn to say what demonstrations say", RunConfig),
    "preferred": (
        "plaudit.recipes.preferred:preferred",
        "learn the answers that were liked",
        RunConfig,
    ),
    "control": ("plaudit.recipes.control:control", "learn good and bad, told apart by a word", ControlConfig),
    "context": ("plaudit.recipes.context:context", "answer as if a context had been read", ContextConfig),
    "distil": ("plaudit.recipes.distil:distil", "learn from a teacher's distribution", DistilConfig),
    "group": (
        "plaudit.recipes.group:group",
        "learn how groups of people differ in what they prefer",
        GroupConfig,
    ),
    "reward": ("plaudit.recipes.reward:reward", "learn to score answers as people judged them", RewardConfig),
    "text-reward": (
        "plaudit.recipes.worded:text_reward",
        "learn to say in a word whether an answer is good",
        TextRewardConfig,
    ),
    "ranker": ("plaudit.recipes.worded:ranker", "learn to say which of two answers is better", RankerConfig),
    "critic": (
        "plaudit.recipes.worded:critic",
        "learn to write critiques, and points after them",
        CriticConfig,
    ),
    "rlhf": (
        "plaudit.recipes.rlhf:rlhf",
        "compare its own answers, learn the reward, improve by it; and again",
        RlhfConfig,
    ),
}
"""Each method: where its recipe is, what it does, what it can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Algorithms that are rows of a table, and so methods without an entry above.

    Example: ``TABLES[0].rows["dpo"].paper``
    """

    title: str
    """What they are, all together."""
    rows: Mapping[str, Any]
    """Each algorithm's facts, by its name."""
    recipe: str
    """Where the function is that takes a name and a config."""
    config_of: Callable[[Any], type]
    """From an algorithm's facts to what it can be told."""
    about: Callable[[Any], str]
    """From an algorithm's facts to its help."""


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


TABLES = (
    Table(
        title="Preference optimisation",
        rows=PREFERENCES,
        recipe="plaudit.recipes.preference:preference",
        config_of=lambda _: PreferenceConfig,
        about=_about_preference,
    ),
    Table(
        title="Policy optimisation",
        rows=POLICIES,
        recipe="plaudit.recipes.policy:policy",
        config_of=lambda _: PolicyConfig,
        about=_about_policy,
    ),
    Table(
        title="Loops that make their own rows",
        rows=LOOPS,
        recipe="plaudit.recipes.loop:loop",
        config_of=lambda _: LoopConfig,
        about=_about_loop,
    ),
)
"""Each table of algorithms."""


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
    for table in TABLES:
        for name, facts in table.rows.items():
            # Without ``help`` argparse does not list it: dozens more would hide the ten above.
            parser = methods.add_parser(name, description=table.about(facts))
            parser.fill = partial(add_options, config_type=table.config_of(facts))
    train.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, then say where the result lies."""
    path, config_type = _method(args.method)
    config: Any = read_config(config_type, args)
    from plaudit.training.interrupt import InterruptedRunError
    from plaudit.training.parallel import speaks

    recipe = _recipe(path)
    try:
        summary = recipe(config) if args.method in METHODS else recipe(args.method, config)
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


def _method(name: str) -> tuple[str, type]:
    for table in TABLES:
        if name in table.rows:
            return table.recipe, table.config_of(table.rows[name])
    path, _, config_type = METHODS[name]
    return path, config_type


def _recipe(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
