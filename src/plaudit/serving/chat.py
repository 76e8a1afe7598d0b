"""``plaudit chat``: a conversation with one model in the terminal, or the same one with several."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from plaudit.cli import sample
from plaudit.cli.parser import Subparsers, refuse_missing_models
from plaudit.config import did_you_mean
from plaudit.data.records import Message, assistant_turn, user_turn
from plaudit.errors import UserError, located

if TYPE_CHECKING:
    from rich.console import Console

    from plaudit.rollouts.local import LocalSampler
    from plaudit.rollouts.sampler import SamplingSettings

COMMANDS = {
    "/new": "forget everything that was said",
    "/undo": "forget the last question and its answers",
    "/help": "show this",
    "/quit": "leave (or end the input, with Ctrl-D)",
}


def add_parser(subparsers: Subparsers) -> None:
    text = "hold a conversation with one model, or the same one with several"
    chat = subparsers.add_parser("chat", help=text, description=text.capitalize())
    chat.add_argument("--system", metavar="TEXT", help="what every conversation begins with")
    sample.add_best_of_options(chat)
    sample.add_model_options(chat, max_tokens=256)
    chat.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    settings = sample.sampling_settings(args)
    if args.system is not None and not args.system.strip():
        raise UserError("--system is empty; give the words, or leave it out")
    best_of = sample.best_of_choice(args)
    refuse_missing_models(*args.model)
    samplers = sample.load_samplers(args)
    opening = () if args.system is None else (Message(role="system", content=args.system),)
    for name, sampler in samplers.items():
        _refuse_without_chat_template(name, sampler, opening)
    names = " and ".join(samplers)
    session = ChatSession(samplers, settings, opening, best_of)
    session.console.print(f"You are talking to {names}; /help says what else can be done.", style="dim")
    for line in _input_lines(session.console):
        if line == "/quit":
            break
        if line.startswith("/") and len(line.split()) == 1:
            session.run_command(line)
        elif line:
            session.send(line)
    return 0


def _refuse_without_chat_template(name: str, sampler: LocalSampler, opening: tuple[Message, ...]) -> None:
    if not sampler.has_chat_template:
        why = "its tokenizer has no chat template"
        if sampler.encoder.chat_format is not None:
            why = "it was trained on raw text (--text raw), outside of its chat template"
        raise UserError(
            f"{name}: {why}, so it cannot hold a conversation; plaudit sample lets it go on from a text"
        )
    with located(name):
        sampler.check((*opening, *user_turn("Hello")))


def _input_lines(console: Console) -> Iterator[str]:
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        with suppress(ModuleNotFoundError):
            # Some builds of Python go without it; then lines are read without arrow keys.
            import_module("readline")
    while (line := _read_typed_line(console) if is_terminal else _read_piped_line(console)) is not None:
        yield line.strip()


def _read_typed_line(console: Console) -> str | None:
    try:
        return _read_line("> ")
    except KeyboardInterrupt:
        console.print("\n/quit or Ctrl-D leaves", style="dim")
        return ""


def _read_piped_line(console: Console) -> str | None:
    line = _read_line("")
    if line is not None:
        console.print(f"> {sample.escape_terminal(line)}", style="bold")
    return line


def _read_line(prompt: str) -> str | None:
    try:
        return input(prompt)
    except EOFError:
        return None
    except UnicodeDecodeError as error:
        raise UserError(f"the input is not UTF-8 text ({error.reason}); convert it first") from error


class ChatSession:
    """One conversation with each of several models, all sent the same questions."""

    def __init__(
        self,
        samplers: dict[str, LocalSampler],
        settings: SamplingSettings,
        opening: tuple[Message, ...],
        best_of: sample.BestOf | None = None,
    ) -> None:
        """Begin; every conversation opens with these turns. With ``best_of`` a reward chooses each reply."""
        self.console = sample.make_console()
        self._samplers = samplers
        self._best_of = best_of
        self._settings = settings
        self._opening = opening
        self._histories: dict[str, list[tuple[Message, ...]]] = {}
        self._question_count = 0
        self._reset()

    def run_command(self, command: str) -> None:
        if command == "/new":
            self._reset()
            self._print_dim("Everything is forgotten.")
        elif command == "/undo":
            self._undo()
        elif command == "/help":
            self._print_dim("\n".join(f"{name:6} {effect}" for name, effect in COMMANDS.items()))
        else:
            hint = did_you_mean(command, COMMANDS) or f"; the commands are {', '.join(COMMANDS)}"
            self._print_dim(f"There is no {command}{hint}")

    def send(self, question: str) -> None:
        """Send a question to every model in turn; Ctrl-C stops the reply that is being printed."""
        # Asked again after /undo, a question gets another answer.
        settings = replace(self._settings, seed=self._settings.seed + self._question_count)
        self._question_count += 1
        for name, sampler in self._samplers.items():
            if len(self._samplers) > 1:
                self.console.print(f"{name}:", style="cyan")
            turns = (*self._histories[name][-1], *user_turn(question))
            note = sampler.encoder.control_note(user_turn(question))
            if note is not None:
                self._print_dim(note)
            reply = self._reply(sampler, turns, settings)
            # Also without a reply, with what was there before: /undo takes one entry from every model alike.
            self._histories[name].append(
                self._histories[name][-1] if reply is None else turns + assistant_turn(reply)
            )
        self.console.print()

    def _reply(
        self, sampler: LocalSampler, turns: tuple[Message, ...], settings: SamplingSettings
    ) -> str | None:
        """The reply of one model, as far as it was let; None when it could not reply at all."""
        received: list[str] = []
        try:
            if self._best_of is not None:
                return self._best_reply(self._best_of, sampler, turns, settings)
            # closing: a reply that is stopped leaves the decoder's attention, and frees its cache, at once.
            with closing(sampler.stream(turns, settings)) as stream:
                sample.stream_answer(self.console, stream, received)
        except KeyboardInterrupt:
            self._print_dim(" … (stopped)")
            return "".join(received) or None
        except UserError as error:
            print(f"plaudit: {error}; /new forgets what was said before", file=sys.stderr)
            return None
        return "".join(received)

    def _best_reply(
        self,
        best_of: sample.BestOf,
        sampler: LocalSampler,
        turns: tuple[Message, ...],
        settings: SamplingSettings,
    ) -> str | None:
        """The reply that the reward scores highest of several; it comes in one piece, once all are there."""
        from plaudit.evaluation.policies.generate import EvaluationPrompt

        groups = sampler.generate_answers([turns], settings, n=best_of.n)
        [choice] = best_of.choose([EvaluationPrompt(prompt=turns)], groups)
        if choice.answer is None:
            self._print_dim(choice.note)
            return None
        self.console.out(sample.escape_terminal(choice.answer.text), end="", highlight=False)
        self._print_dim(f"{sample.ending_note(choice.answer)} {choice.note}")
        return choice.answer.text

    def _undo(self) -> None:
        if all(len(history) > 1 for history in self._histories.values()):
            for history in self._histories.values():
                history.pop()
            self._print_dim("The last question is forgotten.")
        else:
            self._print_dim("Nothing has been said yet.")

    def _reset(self) -> None:
        self._histories = {name: [self._opening] for name in self._samplers}

    def _print_dim(self, text: str) -> None:
        self.console.print(text, style="dim")
