"""``plaudit sample``: what models say to some prompts, several answers to each, models side by side."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.parser import Verbs
from plaudit.cli.talking import (
    add_model_options,
    load_samplers,
    make_console,
    mark_of,
    settings_of,
    short_names,
    shown,
    speak,
)
from plaudit.errors import UserError
from plaudit.records.dicts import text_as_plain
from plaudit.records.messages import Text, assistant_says, words
from plaudit.rollouts.sampling import Answer, SamplingSettings
from plaudit.sources.atomic import AtomicFile
from plaudit.sources.files import ending
from plaudit.sources.read import read_records
from plaudit.sources.write import check_target

if TYPE_CHECKING:
    from rich.console import Console

    from plaudit.rollouts.local import LocalSampler

AT_ONCE = 64
"""Answers of one model that are drawn before they are shown."""


def add_parser(subparsers: Verbs) -> None:
    """Add ``sample``."""
    text = "let models answer prompts"
    sample = subparsers.add_parser("sample", help=text, description=f"{text}, side by side".capitalize())
    sample.add_argument(
        "--prompt", action="append", default=[], metavar="TEXT", help="what is asked; may be repeated"
    )
    sample.add_argument(
        "--data", type=Path, metavar="FILE", help="rows of any kind: their prompts are asked, each once"
    )
    sample.add_argument(
        "--n", type=int, metavar="N", help="answers to each prompt (default: 3; 1 at temperature 0)"
    )
    sample.add_argument(
        "--out", type=Path, metavar="FILE", help="write the answers as rows to this .jsonl file too"
    )
    add_model_options(sample, max_tokens=64)
    sample.set_defaults(run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one model said to one prompt.

    Example: ``Said(prompt="Name a fruit.", model="runs/first/model", answers=(answer,))``
    """

    prompt: Text
    """What it was asked."""
    model: str
    """The folder, as it was given."""
    answers: tuple[Answer, ...]
    """Its answers."""


def run(args: argparse.Namespace) -> int:
    """Ask, show and, where that was asked for, write."""
    settings, n = settings_of(args), _answers_each(args)
    if args.out is not None:
        ending(args.out, (".jsonl",))
        check_target(args.out)
    prompts = _prompts(args)
    samplers = load_samplers(args)
    _check(prompts, samplers)
    if n == 1 and len(samplers) == 1 and args.data is None:
        answered = _streamed(list(prompts), samplers, settings)
    else:
        answered = _side_by_side(list(prompts), samplers, settings, n)
    with _file(args.out, settings.seed) as write:
        for said in answered:
            write(said)
    return 0


def _answers_each(args: argparse.Namespace) -> int:
    if args.n is None:
        return 1 if args.temperature == 0 else 3
    if args.n < 1:
        raise UserError(f"--n {args.n}: expected 1 answer or more to every prompt")
    if args.n > 1 and args.temperature == 0:
        raise UserError(
            f"--n {args.n}: at temperature 0 all answers to a prompt are the same; leave --n out, or raise "
            "--temperature"
        )
    return args.n


def _prompts(args: argparse.Namespace) -> dict[Text, str]:
    """Every different prompt, and where it comes from."""
    prompts: dict[Text, str] = {prompt: "--prompt" for prompt in args.prompt}
    if args.data is not None:
        reading = read_records(args.data)
        for problem in reading.problems:
            print(f"plaudit: left out: {problem.sentence}", file=sys.stderr)
        for record in reading.records:
            prompts.setdefault(record.prompt, record.origin)
    if not prompts:
        raise UserError("nothing is asked; give --prompt TEXT, or --data FILE with rows that have prompts")
    return prompts


def _check(prompts: Mapping[Text, str], samplers: Mapping[str, LocalSampler]) -> None:
    """Before the first answer: what is wrong with the last prompt should not end a long work."""
    for prompt, origin in prompts.items():
        for sampler in samplers.values():
            try:
                sampler.check(prompt)
            except UserError as error:
                raise UserError(f"{origin}: {error}") from error


def _streamed(
    prompts: Sequence[Text], samplers: Mapping[str, LocalSampler], settings: SamplingSettings
) -> Iterator[Said]:
    console = make_console()
    for prompt in prompts:
        console.print(_asked(prompt), style="bold")
        for name, sampler in samplers.items():
            answer = speak(console, sampler.stream(prompt, settings), [])
            console.print()
            yield Said(prompt=prompt, model=name, answers=(answer,))


def _side_by_side(
    prompts: Sequence[Text], samplers: Mapping[str, LocalSampler], settings: SamplingSettings, n: int
) -> Iterator[Said]:
    console = make_console()
    for chosen in _chunks(prompts, max(1, AT_ONCE // n)):
        answers = {name: sampler.sample(chosen, settings, n=n) for name, sampler in samplers.items()}
        for p, prompt in enumerate(chosen):
            said = [Said(prompt=prompt, model=name, answers=tuple(of[p])) for name, of in answers.items()]
            console.print(_asked(prompt), style="bold")
            if len(said) == 1:
                _show_list(console, said[0].answers)
            else:
                _show_table(console, said)
            console.print()
            yield from said


def _chunks(prompts: Sequence[Text], size: int) -> Iterator[Sequence[Text]]:
    for start in range(0, len(prompts), size):
        yield prompts[start : start + size]


def _asked(prompt: Text) -> str:
    if isinstance(prompt, str) or len(prompt) == 1:
        return f"> {shown(words(prompt))}"
    return "\n".join(f"> {turn.role}: {shown(words((turn,)))}" for turn in prompt)


def _show_list(console: Console, answers: Sequence[Answer]) -> None:
    for number, answer in enumerate(answers, start=1):
        label = f"{number:>{len(str(len(answers)))}}  " if len(answers) > 1 else ""
        console.out(label, end="", style="cyan", highlight=False)
        console.out(shown(answer.text).replace("\n", "\n" + " " * len(label)), end="", highlight=False)
        console.print(mark_of(answer), style="dim")


def _show_table(console: Console, said: Sequence[Said]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text as Styled

    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, leading=1)
    for name in short_names([of.model for of in said]):
        table.add_column(name, overflow="fold", ratio=1)
    for row in zip(*(of.answers for of in said), strict=True):
        table.add_row(*(Styled(shown(a.text)).append(mark_of(a), style="dim") for a in row))
    console.print(table, soft_wrap=False)


@contextmanager
def _file(path: Path | None, seed: int) -> Iterator[Callable[[Said], None]]:
    """What takes the answers; with a path they are its rows once all are there."""
    if path is None:
        yield lambda said: None
        return
    count = 0

    def write(said: Said) -> None:
        nonlocal count
        count += len(said.answers)
        file.stream.writelines(_row(said, answer, seed) for answer in said.answers)

    with AtomicFile(path) as file:
        yield write
    print(f"{path}: {count} answers")


def _row(said: Said, answer: Answer, seed: int) -> bytes:
    completion = answer.text if isinstance(said.prompt, str) else assistant_says(answer.text)
    row = {
        "prompt": text_as_plain(said.prompt),
        "completion": text_as_plain(completion),
        "model": said.model,
        "seed": seed,
        "ended": answer.ended,
    }
    # A folder's name may hold bytes that are no UTF-8; JSON has an escape for them.
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
