"""``plaudit world``: rows, annotators, scores and the base model of the embedded world."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from plaudit.cli import world_models
from plaudit.cli.numbers import count, whole
from plaudit.cli.parser import Verbs
from plaudit.configs.suggest import did_you_mean, nearest
from plaudit.errors import UserError
from plaudit.records.messages import words
from plaudit.world.annotators import PARTS
from plaudit.world.pools import POOLS, TRUTH, Agreement, agreement, pool
from plaudit.world.prompts import SPLITS, question_of, questions
from plaudit.world.questions import CATEGORIES
from plaudit.world.wanted import CRITIQUES, KINDS, WantedRows, write_wanted

_COLUMNS = """\
with gold     of the preferences, how many are for the answer of the higher true utility
among itself  how often a preference is shared by another annotator who is not undecided
ceiling       the accuracy that no reward model can pass on this pool's preferences
ties          verdicts that prefer nothing
longer, first how many preferences are for the longer answer, and for the one that is shown first"""
_POOLS = ", ".join(POOLS)


def add_parser(subparsers: Verbs) -> None:
    """Add ``world make``, ``annotators``, ``gold``, and the verbs about models."""
    world = subparsers.add_parser("world", help="the embedded world: rows, annotators, gold, base model")
    verbs = world.add_subparsers(
        dest="world_verb", required=True, metavar="make|annotators|gold|base|build|score"
    )
    _add_make(verbs)
    judges = verbs.add_parser(
        "annotators",
        help="how far each pool agrees with the truth and with itself",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_COLUMNS,
    )
    judges.add_argument("pools", nargs="*", type=_pool, metavar="POOL", help=f"{_POOLS} (default: all)")
    judges.add_argument("--per-person", action="store_true", help="also show every annotator of a pool")
    judges.add_argument("--n", type=count, default=400, help="pairs of answers to judge (default: 400)")
    judges.add_argument("--split", choices=SPLITS, default="test", help="default: test")
    judges.add_argument("--seed", type=whole, default=0, help="default: 0")
    gold = verbs.add_parser("gold", help="the true utility of an answer, part by part")
    gold.add_argument(
        "prompt", metavar="PROMPT", help="one of the world's prompts; turns are parted by lines"
    )
    gold.add_argument("answer", metavar="ANSWER", help="an answer to it")
    world_models.add_parsers(verbs)
    world.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb that was asked for."""
    verbs: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "make": _make,
        "annotators": _annotators,
        "gold": _gold,
        "base": world_models.base,
        "build": world_models.build,
        "score": world_models.score,
    }
    return verbs[args.world_verb](args)


def _add_make(verbs: Verbs) -> None:
    make = verbs.add_parser("make", help="write rows of the world to a file")
    kinds = (*KINDS, CRITIQUES)
    make.add_argument("kind", choices=kinds, metavar="KIND", help=", ".join(kinds))
    make.add_argument("--out", type=Path, required=True, metavar="FILE", help=".jsonl, .jsonl.gz or .parquet")
    make.add_argument("--n", type=count, help="how many rows (default: 1000; of prompts, all that there are)")
    make.add_argument(
        "--annotators", type=_pool, metavar="POOL", help=f"who judges: {_POOLS} (default: crowd)"
    )
    parts = ", ".join(PARTS)
    make.add_argument("--asked", choices=PARTS, metavar="PART", help=f"judge this alone: {parts}")
    make.add_argument(
        "--model",
        type=Path,
        metavar="DIR",
        help="judge the answers of this model (default: answers in the manner of the base corpus)",
    )
    make.add_argument("--split", choices=SPLITS, help="default: train")
    make.add_argument(
        "--category",
        nargs="+",
        choices=CATEGORIES,
        metavar="NAME",
        help=f"{', '.join(CATEGORIES)} (default: all of them in turn)",
    )
    make.add_argument("--answers", type=whole, metavar="K", help="answers in a ranking, 2 to 9 (default: 4)")
    make.add_argument("--seed", type=whole, default=0, help="default: 0")


def _make(args: argparse.Namespace) -> int:
    wanted = WantedRows(
        make=args.kind,
        n=args.n,
        annotators=args.annotators,
        asked=args.asked,
        model=args.model,
        split=args.split,
        category=tuple(args.category or ()),
        answers=args.answers,
        seed=args.seed,
    )
    print(f"{args.out}: {wanted.sentence(write_wanted(wanted, args.out))}")
    return 0


def _annotators(args: argparse.Namespace) -> int:
    from plaudit.world import making

    pairs = making.tasks(args.n, answers=2, split=args.split, seed=args.seed)
    print(f"{args.n} pairs of answers from the {args.split} split")
    print(_line("pool", "people", "with gold", "among itself", "ceiling", "ties", "longer", "first"))
    print(_cells(agreement("(the truth)", [TRUTH], pairs)))
    for name in args.pools or POOLS:
        judges = pool(name)
        print(_cells(agreement(name, judges, pairs)))
        for judge in judges if args.per_person else ():
            print(_cells(agreement(f"  {judge.name}", [judge], pairs)))
    return 0


def _cells(found: Agreement) -> str:
    shares = (found.with_gold, found.among_itself, found.ceiling, found.ties, found.longer, found.first)
    return _line(
        found.name,
        str(found.annotators),
        *("–" if share is None else f"{share:.1%}" for share in shares),
    )


def _line(name: str, *cells: str) -> str:
    widths = (6, 11, 14, 9, 7, 8, 7)
    return f"{name:14}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _gold(args: argparse.Namespace) -> int:
    from plaudit.world.gold import judge

    known = {words(question.messages) for question in questions()}
    if args.prompt not in known:
        near = nearest(args.prompt, sorted(known))
        hint = f"did you mean {near!r}?" if near else "plaudit world make prompts writes them to a file"
        raise UserError(f"the world has no such prompt: {args.prompt!r}; {hint}")
    question = question_of(args.prompt)
    gold = judge(question, args.answer)
    for part in ("helpful", "honest", "harmless", "concise", "plain", "ended"):
        print(f"{part:9} {getattr(gold, part):.2f}")
    print(f"{'utility':9} {gold.utility:.2f}   ({question.category}; the best answer: {question.best})")
    return 0


def _pool(word: str) -> str:
    if word not in POOLS:
        hint = did_you_mean(word, POOLS) or f"; choose from {_POOLS}"
        raise argparse.ArgumentTypeError(f"there is no {word!r}{hint}")
    return word
