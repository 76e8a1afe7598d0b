"""``plaudit world base``, ``build`` and ``score``: the base model, and what models are worth in the world."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.numbers import count, whole
from plaudit.cli.parser import Verbs
from plaudit.cli.talking import short_names
from plaudit.sources.write import check_target
from plaudit.world.prompts import SPLITS

if TYPE_CHECKING:
    from plaudit.world.measure import Scored, Standing


def add_parsers(verbs: Verbs) -> None:
    """Add ``world base``, ``world build`` and ``world score``."""
    verbs.add_parser("base", help="print where the shipped base model lies")
    build = verbs.add_parser("build", help="train the base model again, from a seed: a few minutes")
    build.add_argument("--out", type=Path, required=True, metavar="DIR", help="where its run lies")
    build.add_argument("--seed", type=whole, default=0, help="default: 0")
    build.add_argument("--epochs", type=float, help="how often it reads the corpus (default: 10)")
    score = verbs.add_parser("score", help="the true utility of models' answers, by category")
    score.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a model folder; may be given more than once (default: the shipped base model)",
    )
    score.add_argument("--n", type=count, default=400, help="how many answers (default: 400)")
    score.add_argument("--split", choices=SPLITS, default="test", help="default: test")
    score.add_argument("--temperature", type=float, default=1.0, help="0 is greedy (default: 1)")
    score.add_argument("--max-tokens", type=count, default=64, help="the longest answer (default: 64)")
    score.add_argument("--seed", type=whole, default=0, help="default: 0")
    score.add_argument("--out", type=Path, metavar="FILE", help="write every answer with its parts as JSONL")


def base(args: argparse.Namespace) -> int:
    """Print the folder: for ``--model $(plaudit world base)``."""
    del args
    from plaudit.world.shipped import base_folder

    print(base_folder())
    return 0


def build(args: argparse.Namespace) -> int:
    """Train it again."""
    from plaudit.world.base import EPOCHS, build_base

    model = build_base(args.out, seed=args.seed, epochs=args.epochs or EPOCHS)
    print(f"{model}: the base model")
    return 0


def score(args: argparse.Namespace) -> int:
    """Ask every model the same, and print the table."""
    from plaudit.rollouts.local import LocalSampler
    from plaudit.rollouts.sampling import SamplingSettings
    from plaudit.world.measure import answered, standings
    from plaudit.world.shipped import base_folder

    if args.out is not None:
        check_target(args.out)
    settings = SamplingSettings(temperature=args.temperature, max_tokens=args.max_tokens, seed=args.seed)
    folders: list[Path] = args.model or [base_folder()]
    scored = {
        folder: answered(LocalSampler(folder), settings, n=args.n, split=args.split) for folder in folders
    }
    names = short_names(folders)
    _print({name: standings(scored[folder]) for name, folder in zip(names, folders, strict=True)}, args)
    if args.out is not None:
        lines = [_line(folder, one) for folder, answers in scored.items() for one in answers]
        args.out.write_text("".join(lines), encoding="utf-8")
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


def _line(folder: Path, one: Scored) -> str:
    from dataclasses import asdict

    from plaudit.records.dicts import text_as_plain

    row = {
        "model": str(folder),
        "category": one.question.category,
        "prompt": text_as_plain(one.question.messages),
        "completion": one.answer.text,
        "utility": round(one.gold.utility, 4),
        **asdict(one.gold),
    }
    return json.dumps(row, ensure_ascii=False) + "\n"
