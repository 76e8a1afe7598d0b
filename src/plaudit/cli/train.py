"""``plaudit train``: one verb for each way to learn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from plaudit.cli.options import add_options, read_config
from plaudit.cli.parser import Verbs
from plaudit.recipes.config import ContextConfig, ControlConfig, DistilConfig, SupervisedConfig

METHODS: dict[str, tuple[str, str, type]] = {
    "sft": ("plaudit.recipes.sft:sft", "learn to say what demonstrations say", SupervisedConfig),
    "preferred": (
        "plaudit.recipes.preferred:preferred",
        "learn the answers that were liked",
        SupervisedConfig,
    ),
    "control": ("plaudit.recipes.control:control", "learn good and bad, told apart by a word", ControlConfig),
    "context": ("plaudit.recipes.context:context", "answer as if a context had been read", ContextConfig),
    "distil": ("plaudit.recipes.distil:distil", "learn from a teacher's distribution", DistilConfig),
}
"""Each method: where its recipe is, what it does, what it can be told."""


def add_parser(subparsers: Verbs) -> None:
    """Add ``train`` and its methods."""
    train = subparsers.add_parser("train", help="learn from rows")
    methods = train.add_subparsers(dest="method", required=True, metavar="METHOD")
    for name, (_, text, config_type) in METHODS.items():
        add_options(methods.add_parser(name, help=text, description=text), config_type)
    train.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, then say where the result lies."""
    path, _, config_type = METHODS[args.method]
    config: Any = read_config(config_type, args)
    from plaudit.training.interrupt import InterruptedRunError
    from plaudit.training.parallel import speaks

    try:
        summary = _recipe(path)(config)
    except InterruptedRunError as stop:
        if speaks():
            print(f"plaudit: {stop}; the same command goes on from here", file=sys.stderr)
        return 128 + stop.signum
    if summary is not None:
        print(f"The model is in {config.out / 'model'}")
    return 0


def _recipe(path: str) -> Callable[[Any], Any]:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
