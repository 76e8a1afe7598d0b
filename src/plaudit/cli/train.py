"""``plaudit train``: one verb for each way to learn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from plaudit.cli.options import add_options, read_config
from plaudit.cli.parser import Verbs
from plaudit.cli.train_list import print_list, settings_in_words
from plaudit.recipes.config import ContextConfig, ControlConfig, DistilConfig, RunConfig
from plaudit.recipes.group_config import GroupConfig
from plaudit.recipes.preference_config import PreferenceConfig
from plaudit.recipes.preference_table import PREFERENCES
from plaudit.recipes.reward_config import RewardConfig
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
}
"""Each method: where its recipe is, what it does, what it can be told."""


def add_parser(subparsers: Verbs) -> None:
    """Add ``train`` and its methods."""
    train = subparsers.add_parser(
        "train",
        help="learn from rows",
        epilog=f"Preference optimisation (plaudit train --list): {', '.join(PREFERENCES)}.",
    )
    train.add_argument(
        "--list", action=_List, nargs=0, help="list the algorithms of preference optimisation, and exit"
    )
    methods = train.add_subparsers(dest="method", required=True, metavar="METHOD")
    for name, (_, text, config_type) in METHODS.items():
        parser = methods.add_parser(name, help=text, description=text)
        parser.fill = partial(add_options, config_type=config_type)
    for name, facts in PREFERENCES.items():
        own = ", ".join(
            f"--preference.{setting}" for setting in settings_in_words(facts.defaults).split(", ")
        )
        # Without ``help`` argparse does not list it: thirty more would hide the ten above.
        about = f"learn a policy from {facts.data}: {facts.formula}. {facts.paper}. Its own settings: {own}"
        parser = methods.add_parser(name, description=about)
        parser.fill = partial(add_options, config_type=PreferenceConfig)
    train.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, then say where the result lies."""
    path, config_type = _method(args.method)
    config: Any = read_config(config_type, args)
    from plaudit.training.interrupt import InterruptedRunError
    from plaudit.training.parallel import speaks

    recipe = _recipe(path)
    try:
        summary = recipe(args.method, config) if args.method in PREFERENCES else recipe(config)
    except InterruptedRunError as stop:
        if speaks():
            print(f"plaudit: {stop}; the same command goes on from here", file=sys.stderr)
        return 128 + stop.signum
    if summary is not None:
        model = config.out / "model"
        print(f"The model is in {model if model.is_dir() else config.out}")
    return 0


class _List(argparse.Action):
    """Prints the table of algorithms."""

    def __call__(self, *_: Any) -> None:
        print_list()
        raise SystemExit(0)


def _method(name: str) -> tuple[str, type]:
    if name in PREFERENCES:
        return "plaudit.recipes.preference:preference", PreferenceConfig
    path, _, config_type = METHODS[name]
    return path, config_type


def _recipe(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
