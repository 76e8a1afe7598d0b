"""``plaudit chat``: a conversation with one model in the terminal, or the same one with several."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from plaudit.cli.parser import Verbs
from plaudit.cli.talking import (
    add_model_options,
    load_samplers,
    make_console,
    settings_of,
    shown,
    speak,
)
from plaudit.configs.suggest import did_you_mean
from plaudit.errors import UserError
from plaudit.records.messages import Message, assistant_says, user_says

if TYPE_CHECKING:
    from rich.console import Console

    from plaudit.rollouts.local import LocalSampler
    from plaudit.rollouts.sampling import SamplingSettings

COMMANDS = {
    "/new": "forget everything that was said",
    "/undo": "forget the last question and its answers",
    "/help": "show this",
    "/quit": "leave (or end the input, with Ctrl-D)",
}
"""What may be typed in place of a question, and what it does."""


def add_parser(subparsers: Verbs) -> None:
    """Add ``chat``."""
    text = "hold a conversation with one model, or the same one with several"
    chat = subparsers.add_parser("chat", help=text, description=text.capitalize())
    chat.add_argument("--system", metavar="TEXT", help="what every conversation begins with")
    add_model_options(chat, max_tokens=256)
    chat.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Talk until the input ends."""
    settings = settings_of(args)
    if args.system is not None and not args.system.strip():
        raise UserError("--system is empty; give the words, or leave it out")
    samplers = load_samplers(args)
    opening = () if args.system is None else (Message(role="system", content=args.system),)
    for name, sampler in samplers.items():
        _refuse_who_cannot_talk(name, sampler, opening)
    names = " and ".join(samplers)
    talk = Talk(samplers, settings, opening)
    talk.console.print(f"You are talking to {names}; /help says what else can be done.", style="dim")
    for line in _lines(talk.console):
        if line == "/quit":
            break
        if line.startswith("/") and len(line.split()) == 1:
            talk.obey(line)
        elif line:
            talk.ask(line)
    return 0


def _refuse_who_cannot_talk(name: str, sampler: LocalSampler, opening: tuple[Message, ...]) -> None:
    if not sampler.chats:
        raise UserError(
            f"{name}: its tokenizer has no chat template, so it cannot hold a conversation; plaudit sample "
            "lets it go on from a text"
        )
    try:
        sampler.check((*opening, *user_says("Hello")))
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def _lines(console: Console) -> Iterator[str]:
    """What is said to the models, until there is no more of it."""
    typed = sys.stdin.isatty()
    if typed:
        with suppress(ModuleNotFoundError):
            # Some builds of Python go without it; then lines are read without arrow keys.
            import_module("readline")
    while (line := _typed_line(console) if typed else _piped_line(console)) is not None:
        yield line.strip()


def _typed_line(console: Console) -> str | None:
    try:
        return _line("> ")
    except KeyboardInterrupt:
        console.print("\n/quit or Ctrl-D leaves", style="dim")
        return ""


def _piped_line(console: Console) -> str | None:
    """A line that nobody types, shown as if somebody had."""
    line = _line("")
    if line is not None:
        console.print(f"> {shown(line)}", style="bold")
    return line


def _line(prompt: str) -> str | None:
    try:
        return input(prompt)
    except EOFError:
        return None
    except UnicodeDecodeError as error:
        raise UserError(f"the input is not UTF-8 text ({error.reason}); convert it first") from error


class Talk:
    """A conversation with each of some models, and what they have in common: the questions."""

    def __init__(
        self, samplers: dict[str, LocalSampler], settings: SamplingSettings, opening: tuple[Message, ...]
    ) -> None:
        """Begin; every conversation opens with these turns."""
        self.console = make_console()
        self._samplers = samplers
        self._settings = settings
        self._opening = opening
        self._past: dict[str, list[tuple[Message, ...]]] = {}
        self._asked = 0
        self._forget()

    def obey(self, command: str) -> None:
        """Do what a command says."""
        if command == "/new":
            self._forget()
            self._note("Everything is forgotten.")
        elif command == "/undo":
            self._undo()
        elif command == "/help":
            self._note("\n".join(f"{name:6} {what}" for name, what in COMMANDS.items()))
        else:
            hint = did_you_mean(command, COMMANDS) or f"; the commands are {', '.join(COMMANDS)}"
            self._note(f"There is no {command}{hint}")

    def ask(self, question: str) -> None:
        """Every model answers, one after the other; Ctrl-C stops the one that speaks."""
        # Asked again after /undo, a question gets another answer.
        settings = replace(self._settings, seed=self._settings.seed + self._asked)
        self._asked += 1
        for name, sampler in self._samplers.items():
            if len(self._samplers) > 1:
                self.console.print(f"{name}:", style="cyan")
            turns = (*self._past[name][-1], *user_says(question))
            answer = self._answer(sampler, turns, settings)
            self._past[name].append(
                self._past[name][-1] if answer is None else turns + assistant_says(answer)
            )
        self.console.print()

    def _answer(
        self, sampler: LocalSampler, turns: tuple[Message, ...], settings: SamplingSettings
    ) -> str | None:
        """What the model says, as far as it was let; None when it could not say anything."""
        heard: list[str] = []
        try:
            with closing(sampler.stream(turns, settings)) as pieces:
                speak(self.console, pieces, heard)
        except KeyboardInterrupt:
            self._note(" … (stopped)")
            return "".join(heard) or None
        except UserError as error:
            print(f"plaudit: {error}; /new forgets what was said before", file=sys.stderr)
            return None
        return "".join(heard)

    def _undo(self) -> None:
        if all(len(past) > 1 for past in self._past.values()):
            for past in self._past.values():
                past.pop()
            self._note("The last question is forgotten.")
        else:
            self._note("Nothing has been said yet.")

    def _forget(self) -> None:
        self._past = {name: [self._opening] for name in self._samplers}

    def _note(self, words: str) -> None:
        self.console.print(words, style="dim")
