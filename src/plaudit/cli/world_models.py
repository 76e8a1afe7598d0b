"""``plaudit world base``, ``build`` and ``score``: the base model, and what models are worth in the world."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.numbers import count, whole
from plaudit.cli.parser import Verbs
from plaudit.cli.talking import add_model_options, load_samplers, settings_of, short_names
from plaudit.sources.atomic import AtomicFile
from plaudit.sources.write import check_target
from plaudit.world.prompts import SPLITS
from plaudit.world.shipped import SHIPPED, base_folder

if TYPE_CHECKING:
    from plaudit.world.measure import Scored, Standing


def add_parsers(verbs: Verbs) -> None:
    """Add ``world base``, ``world build`` and ``world score``."""
    verbs.add_parser("base", help="print where the shipped base model lies")
    build = verbs.add_parser("build", help="train the base model again, from a seed: a few minutes")
    build.add_argument("--out", type=Path, required=True, metavar="DIR", help="where its run lies")
    build.add_argument("--seed", type=whole, default=0, help="default: 0")
    build.add_argument(
        "--epochs", type=float, default=10.0, help="how often it reads the corpus (default: 10)"
    )
    score = verbs.add_parser("score", help="the true utility of models' answers, by category")
    add_model_options(score, max_tokens=64, default=SHIPPED)
    score.add_argument("--n", type=count, default=400, help="how many answers (default: 400)")
    score.add_argument("--split", choices=SPLITS, default="test", help="default: test")
    score.add_argument("--out", type=Path, metavar="FILE", help="write every answer with its parts as JSONL")


def base(args: argparse.Namespace) -> int:
    """Print the folder: for ``--model $(plaudit world base)``."""
    del args
    print(base_folder())
    return 0


def build(args: argparse.Namespace) -> int:
    """Train it again."""
    from plaudit.world.base import build_base

    model = build_base(args.out, seed=args.seed, epochs=args.epochs)
    print(f"{model}: the base model")
    return 0


def score(args: argparse.Namespace) -> int:
    """Ask every model the same, and print the table."""
    from plaudit.world.measure import answered, standings

    if args.out is not None:
        check_target(args.out)
    args.model = args.model or [base_folder()]
    settings = settings_of(args)
    scored = {
        name: answered(sampler, settings, n=args.n, split=args.split)
        for name, sampler in load_samplers(args).items()
    }
    named = dict(zip(short_names(list(scored)), scored.values(), strict=True))
    _print({name: standings(answers) for name, answers in named.items()}, args)
    _print_duels(named)
    if args.out is not None:
        lines = [_line(name, one) for name, answers in scored.items() for one in answers]
        with AtomicFile(args.out) as file:
            file.stream.writelines(lines)
        print(f"{args.out}: {len(lines)} answers")
    return 0


def _print(found: Mapping[str, Mapping[str, Standing]], args: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    answers = next(iter(found.values()))["all"].answers
    how = "greedy" if args.temperature == 0 else f"temperature {args.temperature:g}"
    print(f"True utility on the {args.split} split, {how}, {answers} answers each; the best possible is 1.")
    table = Table()
    table.add_column("category")
    for name in found:
        table.add_column(name, justify="right")
    first: Sequence[str] = list(next(iter(found.values())))
    for category in first:
        cells = (standing[category] for standing in found.values())
        table.add_row(category, *(f"{cell.mean:.2f} ± {cell.error:.2f}" for cell in cells))
    Console().print(table)


def _print_duels(named: Mapping[str, Sequence[Scored]]) -> None:
    """Each model against the first one."""
    from plaudit.world.measure import duel

    (first, theirs), *others = named.items()
    for name, mine in others:
        found = duel(mine, theirs)
        print(
            f"{name} against {first}: better {found.won:,} times, worse {found.lost:,}, of equal worth "
            f"{found.tied:,}: {found.share:.0%} of those that differ"
        )


def _line(model: str, one: Scored) -> bytes:
    from dataclasses import asdict

    from plaudit.records.dicts import text_as_plain

    row = {
        "model": model,
        "category": one.question.category,
        "prompt": text_as_plain(one.question.messages),
        "completion": one.answer.text,
        "utility": round(one.gold.utility, 4),
        **asdict(one.gold),
    }
    return json.dumps(row).encode() + b"\n"
