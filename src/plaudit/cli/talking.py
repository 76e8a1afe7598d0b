"""What the commands that let models speak share: their options, the models, how an answer is shown."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.numbers import whole
from plaudit.errors import UserError
from plaudit.rollouts.sampling import Answer, SamplingSettings
from plaudit.world.shipped import SHIPPED

if TYPE_CHECKING:
    from rich.console import Console

    from plaudit.rollouts.local import LocalSampler


def add_model_options(
    parser: argparse.ArgumentParser, *, max_tokens: int, default: Path | None = None
) -> None:
    """What every command that lets models speak can be told; without a default it must be told a model."""
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        required=default is None,
        metavar="DIR",
        help="a Hugging Face folder; repeat it to see models side by side"
        + ("" if default is None else " (default: the world's base model)"),
    )
    _add_sampling_options(parser, max_tokens)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")


def _add_sampling_options(parser: argparse.ArgumentParser, max_tokens: int) -> None:
    add = parser.add_argument
    add("--temperature", type=float, default=1.0, help="0 is the likeliest token every time (default: 1)")
    add("--top-k", type=whole, default=0, help="draw from so many of the likeliest tokens (default: 0, all)")
    add("--top-p", type=float, default=1.0, help="draw from the likeliest of this probability (default: 1)")
    add(
        "--min-p",
        type=float,
        default=0.0,
        help="draw from tokens so likely beside the likeliest (default: 0)",
    )
    add("--stop", action="append", default=[], metavar="TEXT", help="where an answer ends; may be repeated")
    add("--max-tokens", type=whole, default=max_tokens, help=f"where one is cut (default: {max_tokens})")
    add("--seed", type=whole, default=0, help="the same seed gives the same answers (default: 0)")


def settings_of(args: argparse.Namespace) -> SamplingSettings:
    """The settings that were asked for."""
    return SamplingSettings(
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        max_tokens=args.max_tokens,
        stop=tuple(args.stop),
        seed=args.seed,
    )


def load_samplers(args: argparse.Namespace) -> dict[str, LocalSampler]:
    """The models, by the names that they were given by."""
    names = Counter(str(model) for model in args.model)
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise UserError(f"--model {twice[0]} is given {names[twice[0]]} times; name each model once")
    from plaudit.rollouts.local import LocalSampler

    return {str(model): LocalSampler(model, device=args.device) for model in args.model}


def short_names(folders: Sequence[str | Path]) -> list[str]:
    """What tells the folders apart, for the heads of columns: of two models in run folders, the runs' names.

    >>> short_names(["runs/first/model", "runs/second/model"]), short_names(["runs/first"])
    (['first', 'second'], ['first'])
    """
    whole = [Path(folder).resolve() for folder in folders]
    for back in range(1, min(len(folder.parts) for folder in whole)):
        names = ["base" if folder == SHIPPED.resolve() else folder.parts[-back] for folder in whole]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def make_console() -> Console:
    """Standard output with colours where it is a terminal; nothing that a model says is taken for markup."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def shown(text: str) -> str:
    """The text without anything that a terminal would obey.

    >>> shown("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def mark_of(answer: Answer) -> str:
    """What is to be said of an answer beside its words: that it has none, or that it was cut."""
    if not answer.ended:
        return f" … (cut after {answer.tokens} tokens)"
    return "" if answer.text.strip() else "(nothing)"


def speak(console: Console, pieces: Generator[str, None, Answer], heard: list[str]) -> Answer:
    """Show an answer while it comes; ``heard`` has what came so far, also where Ctrl-C ends it."""
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            answer: Answer = end.value
            console.print(mark_of(answer), style="dim")
            return answer
        console.out(shown(piece), end="", highlight=False)
        heard.append(piece)
