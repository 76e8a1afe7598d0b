"""The ``plaudit`` command: finds the verb, and turns what goes wrong into a message and an exit code."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from plaudit import __version__
from plaudit.cli.parser import Parser
from plaudit.errors import UserError

_VERBS: Mapping[str, str] = {
    "chat": "chat",
    "check": "check",
    "combine": "combine",
    "control": "control",
    "data": "data",
    "eval": "eval_reward",
    "lab": "lab",
    "plan": "plan",
    "prove": "prove",
    "report": "report",
    "run": "run",
    "sample": "sample",
    "train": "train",
    "world": "world",
}
"""The module of each verb, which is imported when the verb is called or all of them are listed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; 0 is well, 2 a fault that the user can mend, 130 a stop by Ctrl-C."""
    try:
        try:
            return _run_verb(argv)
        finally:
            sys.stdout.flush()
    except UserError as error:
        print(f"plaudit: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("plaudit: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        if not _is_pipe_closed():
            raise
        # Python flushes once more at its end: let it do so into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run_verb(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else argv
    verbs = words[:1] if words and words[0] in _VERBS else list(_VERBS)
    parser = _parser(verbs)
    args = parser.parse_args(words)
    if args.verb is None:
        parser.print_help(sys.stderr)
        return 2
    return _module(args.verb).run(args)


def _parser(verbs: Sequence[str]) -> Parser:
    parser = Parser(prog="plaudit", description="From a human's click to a better language model.")
    parser.add_argument("--version", action="version", version=f"plaudit {__version__}")
    subparsers = parser.add_subparsers(title="verbs", dest="verb", metavar="VERB")
    for verb in verbs:
        _module(verb).add_parser(subparsers)
    return parser


def _module(verb: str) -> Any:
    return import_module(f"plaudit.cli.{_VERBS[verb]}")


def _is_pipe_closed() -> bool:
    """Whether nobody reads standard output any more (``plaudit … | head``)."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))
