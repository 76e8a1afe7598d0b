"""The ``plaudit`` command: finds the verb, and turns what goes wrong into a message and an exit code."""

import os
import select
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from plaudit import __version__
from plaudit.cli.parser import Parser
from plaudit.engine.starters import STARTED, join_starter
from plaudit.errors import UserError, WaitingError
from plaudit.files.user_code import exit_refused
from plaudit.releases import untried_releases_named
from plaudit.wings import Verb, everything, verbs_in

_CORE = {
    "check": "prove, before a run, that rows, model, reward and sampler are what you think",
    "completion": "complete verbs and options in bash, zsh or fish",
    "data": "look at a file of feedback, or write it in another layout",
    "eval": "how good a policy or a reward model is",
    "sample": "let models answer prompts",
    "train": "learn from rows",
}
"""The core's own verbs, each a module beside this one, and what they are for."""


@cache
def _verbs() -> Mapping[str, Verb]:
    """Every verb, the core's and the wings', none of which is imported before it is called."""
    return dict(sorted({**everything("verbs"), **verbs_in("plaudit.cli", **_CORE)}.items()))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; 0 is well, 2 a fault that the user can mend, 3 a wait for people, 130 a stop."""
    try:
        try:
            with untried_releases_named():
                return _run_verb(argv)
        finally:
            # Here a closed pipe is still caught below; at exit Python could only print a traceback.
            sys.stdout.flush()
    except WaitingError as waiting:
        print(f"plaudit: {waiting}", file=sys.stderr)
        return 3
    except UserError as error:
        print(f"plaudit: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("plaudit: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whether nobody reads standard output any more (``plaudit … | head``).
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        if not any(event & select.POLLERR for _, event in poll.poll(0)):
            raise
        # Python flushes once more at its end: let it do so into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # As a shell reports a program that SIGPIPE ended.
        return 141
    except (OSError, RuntimeError) as error:
        from plaudit.files.atomic import explain_disk_error

        # Whichever command it was: a name that is too long, a file system that refuses, a folder that
        # somebody removed in the meantime.
        sentence = explain_disk_error(error) or _explain_memory_error(error)
        if sentence is None:
            raise
        print(f"plaudit: {sentence}", file=sys.stderr)
        return 2


def _explain_memory_error(error: Exception) -> str | None:
    # By its name: torch may not even be loaded here.
    if type(error).__name__ != "OutOfMemoryError" and "DefaultCPUAllocator" not in str(error):
        return None
    return (
        f"there is too little memory ({str(error).partition('. ')[0]}). What was saved stays, and the same "
        "command goes on from it. plaudit plan in place of plaudit train says what a run needs and names the "
        "nearest settings that fit: --memory.checkpointing, fewer --memory.tokens-at-once, --lora.rank"
    )


def _run_verb(argv: Sequence[str] | None) -> int:
    if STARTED & os.environ.keys():
        # Before anything asks which rank this is.
        os.environ.update(join_starter(os.environ))
    words = sys.argv[1:] if argv is None else argv
    parser = parser_of(words[:1])
    if words and words[0] in _verbs():
        module: Any = import_module(_verbs()[words[0]].module)
        # Of `plaudit collect FILE` the verb is left out.
        arguments = parser.parse_args(getattr(module, "whole_words", list)(words))
        with exit_refused(f"plaudit {words[0]}: something that it called did not let it finish"):
            return module.run(arguments)
    _refuse_method_as_verb(words)
    parser.parse_args(words)
    parser.print_help(sys.stderr)
    return 2


def parser_of(words: Sequence[str]) -> Parser:
    """The parser of the verb that comes first, alone; of all verbs by name where none does."""
    called = words[0] if words and words[0] in _verbs() else None
    parser = Parser(prog="plaudit", description="From a human's click to a better language model.")
    parser.add_argument("--version", action="version", version=f"plaudit {__version__}")
    subparsers = parser.add_subparsers(title="verbs", dest="verb", metavar="VERB")
    if called is not None:
        module: Any = import_module(_verbs()[called].module)
        module.add_parser(subparsers)
        return parser
    for name, verb in _verbs().items():
        subparsers.add_parser(name, help=verb.purpose)
    return parser


def _refuse_method_as_verb(words: Sequence[str]) -> None:
    """Answer ``plaudit dpo`` with the command that trains so."""
    if not words or words[0].startswith("-"):
        return
    from plaudit.methods.registry import config_types

    if words[0] in config_types():
        raise UserError(
            f"{words[0]} is a way to train: plaudit train {words[0]} --help says how "
            f"(plaudit check {words[0]} looks it over, plaudit plan {words[0]} says what it costs)"
        )
