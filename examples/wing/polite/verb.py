"""``plaudit thanks``: the same from the command line."""

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add the verb with its options."""
    thanks = subparsers.add_parser("thanks")
    thanks.add_argument("data", type=Path, metavar="FILE", help="demonstrations")
    thanks.add_argument("out", type=Path, metavar="OUT", help="where those that thank are written")
    thanks.add_argument("--word", default="thank", help="what an answer must hold (default: thank)")


def run(arguments: argparse.Namespace) -> int:
    """Do it; returns the exit status."""
    from polite.stage import ThanksSettings, keep_thanks, sentence

    print(sentence(*keep_thanks(ThanksSettings(data=arguments.data, word=arguments.word), arguments.out)))
    return 0
