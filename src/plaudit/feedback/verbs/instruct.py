"""``plaudit instruct``: prompts with instructions that a program can check, for ``--reward instructions``."""

import argparse

from plaudit.cli.parser import Subparsers, given_path, integer, positive_integer
from plaudit.feedback.verbs.judge import settings_from

_EPILOG = """\
Half of the prompts have one instruction, the others up to --most. A prompt that its checkers have no verdict
on is left out and said. --without holds kinds out: what a policy does with them later shows what it learnt
beyond the kinds that it was rewarded for. The kinds are those of IFEval, as in punctuation:no_comma."""


def add_parser(subparsers: Subparsers) -> None:
    instruct = subparsers.add_parser(
        "instruct", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG
    )
    add = instruct.add_argument
    add("prompts", nargs="?", type=given_path, metavar="ROWS", help="prompts to put instructions behind")
    add("--out", type=given_path, required=True, metavar="FILE", help="where the prompts go")
    add("--n", type=positive_integer, default=1000, help="how many (default: 1000)")
    add("--most", type=positive_integer, default=3, help="the most instructions of one, 1 to 3 (default: 3)")
    add("--without", nargs="+", default=[], metavar="KIND", help="kinds that no prompt may have")
    add("--only", nargs="+", default=[], metavar="KIND", help="the kinds that there may be")
    add("--seed", type=integer, default=0, help="of chance (default: 0)")


def run(args: argparse.Namespace) -> int:
    from plaudit.feedback.instructing import InstructSettings, write_instructed

    first, *others = write_instructed(settings_from(InstructSettings, args), args.out)
    print(f"{args.out}: {first}", *others, sep="\n")
    return 0
