"""``plaudit world``: rows, annotators, scores and the base model of the embedded world."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.parser import Subparsers, integer, model_path, positive_integer
from plaudit.cli.sample import add_model_options, load_samplers, make_console, sampling_settings, short_names
from plaudit.config import did_you_mean, nearest_word
from plaudit.data.records import plain_text
from plaudit.data.write import check_output_path
from plaudit.errors import UserError
from plaudit.files.atomic import AtomicFile
from plaudit.lab.world import SHIPPED_MODEL_FOLDER, base_model_folder
from plaudit.lab.world.annotators import ASPECTS, POOLS, TRUE_ANNOTATOR, Agreement, agreement, annotator_pool
from plaudit.lab.world.demonstrators import DEMONSTRATORS, WrittenWorth, demonstrator_pool, written_worth
from plaudit.lab.world.prompts import SPLITS, question_of_prompt, questions_of
from plaudit.lab.world.questions import CATEGORIES
from plaudit.lab.world.wanted import CRITIQUE_KIND, RECORD_KINDS, RowRequest, write_requested_rows

if TYPE_CHECKING:
    from plaudit.lab.world.exam import MeanUtility, ScoredAnswer


def add_parsers(verbs: Subparsers) -> None:
    base = verbs.add_parser("base", help="print where the shipped base model lies")
    base.set_defaults(run=print_base_folder)
    score = verbs.add_parser("score", help="the true utility of models' answers, by category")
    score.set_defaults(run=score_models)
    add_model_options(score, max_tokens=64, default=SHIPPED_MODEL_FOLDER)
    score.add_argument("--n", type=positive_integer, default=400, help="how many answers (default: 400)")
    score.add_argument("--split", choices=SPLITS, default="test", help="default: test")
    _add_category_option(score)
    score.add_argument("--out", type=Path, metavar="FILE", help="write every answer with its parts as JSONL")


def print_base_folder(args: argparse.Namespace) -> int:
    print(base_model_folder())
    return 0


def score_models(args: argparse.Namespace) -> int:
    """Let every model answer the same prompts, and print the table of true utility."""
    from plaudit.lab.world.exam import mean_utilities, score_model_answers

    if args.out is not None:
        check_output_path(args.out)
    args.model = args.model or [base_model_folder()]
    settings = sampling_settings(args)
    categories = tuple(dict.fromkeys(args.category or CATEGORIES))
    scored = {
        name: score_model_answers(sampler, settings, n=args.n, split=args.split, categories=categories)
        for name, sampler in load_samplers(args).items()
    }
    answers_by_name = dict(zip(short_names(list(scored)), scored.values(), strict=True))
    standings = {name: mean_utilities(answers) for name, answers in answers_by_name.items()}
    print_standings(standings, split=args.split, temperature=args.temperature)
    _print_duels(answers_by_name)
    if args.out is not None:
        lines = [_answer_line(name, answer) for name, answers in scored.items() for answer in answers]
        with AtomicFile(args.out) as file:
            file.stream.writelines(lines)
        print(f"{args.out}: {len(lines)} answers")
    return 0


def print_standings(
    standings_by_model: Mapping[str, Mapping[str, MeanUtility]], *, split: str, temperature: float
) -> None:
    """True utilities by category, at most four models beside each other."""
    from rich.table import Column, Table

    answers = next(iter(standings_by_model.values()))["all"].answers
    how = "greedy" if temperature == 0 else f"temperature {temperature:g}"
    print(f"True utility on the {split} split, {how}, {answers} answers each; the best possible is 1.")
    categories = next(iter(standings_by_model.values()))
    for start in range(0, len(standings_by_model), _ABREAST):
        some = list(standings_by_model)[start : start + _ABREAST]
        table = Table("category", *(Column(name, justify="right") for name in some))
        for category in categories:
            cells = (standings_by_model[name][category] for name in some)
            table.add_row(category, *(f"{cell.mean:.2f} ± {cell.error:.2f}" for cell in cells))
        make_console().print(table)


def _print_duels(named: Mapping[str, Sequence[ScoredAnswer]]) -> None:
    from plaudit.lab.world.exam import compare_models

    (first, first_answers), *others = named.items()
    for name, answers in others:
        duel_result = compare_models(answers, first_answers)
        print(
            f"{name} against {first}: better {duel_result.won:,} times, worse {duel_result.lost:,}, "
            f"of equal worth {duel_result.tied:,}: {duel_result.win_share:.0%} of those that differ"
        )


def _answer_line(model: str, scored: ScoredAnswer) -> bytes:
    from dataclasses import asdict

    from plaudit.data.records import text_to_json

    row = {
        "model": model,
        "category": scored.question.category,
        "prompt": text_to_json(scored.question.messages),
        "completion": scored.answer.text,
        "utility": round(scored.gold.utility, 4),
        **asdict(scored.gold),
    }
    return json.dumps(row).encode() + b"\n"


_ABREAST = 4  # Models beside each other in 80 columns.
_COLUMNS = """\
with gold     of the preferences, how many are for the answer of the higher true utility
among itself  how often a preference is shared by another annotator who is not undecided
ceiling       the accuracy that no reward model can pass on this pool's preferences
ties          verdicts that prefer nothing
longer, first how many preferences are for the longer answer, and for the one that is shown first"""
_POOL_NAMES = ", ".join(POOLS)
_DEMONSTRATOR_NAMES = ", ".join(DEMONSTRATORS)


def add_parser(subparsers: Subparsers) -> None:
    world = subparsers.add_parser("world")
    verbs = world.add_subparsers(
        dest="world_verb", required=True, metavar="make|annotators|demonstrators|annotate|gold|base|score"
    )
    _add_make_verb(verbs)
    judges = verbs.add_parser(
        "annotators",
        help="how far each pool agrees with the truth and with itself",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_COLUMNS,
    )
    judges.set_defaults(run=_print_annotators)
    add = judges.add_argument
    add("pools", nargs="*", type=_pool_name, metavar="POOL", help=f"{_POOL_NAMES} (default: all)")
    add("--per-person", action="store_true", help="also show every annotator of a pool")
    add("--n", type=positive_integer, default=400, help="pairs of answers to judge (default: 400)")
    add("--split", choices=SPLITS, default="test", help="default: test")
    add("--seed", type=integer, default=0, help="default: 0")
    _add_demonstrators_verb(verbs)
    _add_annotate_verb(verbs)
    gold = verbs.add_parser("gold", help="the true utility of an answer, part by part")
    gold.set_defaults(run=_print_gold)
    gold.add_argument("prompt", metavar="PROMPT", help="a prompt of the world; turns are parted by lines")
    gold.add_argument("answer", metavar="ANSWER", help="an answer to it")
    add_parsers(verbs)


def run(args: argparse.Namespace) -> int:
    return args.run(args)


def _add_make_verb(verbs: Subparsers) -> None:
    make = verbs.add_parser("make", help="write rows of the world to a file")
    make.set_defaults(run=_make_rows)
    kinds = (*RECORD_KINDS, CRITIQUE_KIND)
    add = make.add_argument
    add("kind", choices=kinds, metavar="KIND", help=", ".join(kinds))
    add("--out", type=Path, required=True, metavar="FILE", help=".jsonl, .jsonl.gz or .parquet")
    add("--n", type=positive_integer, help="rows (default: 1000; of prompts, all there are)")
    add("--annotators", type=_pool_name, metavar="POOL", help=f"who judges: {_POOL_NAMES} (default: crowd)")
    writers = f"who writes demonstrations: {_DEMONSTRATOR_NAMES} (default: authors)"
    add("--demonstrators", type=_demonstrators_name, metavar="POOL", help=writers)
    add("--aspect", choices=ASPECTS, metavar="PART", help=f"judge this alone: {', '.join(ASPECTS)}")
    model_help = "judge the answers of this model (default: answers in the manner of the base corpus)"
    add("--model", type=model_path, metavar="DIR", help=model_help)
    add("--temperature", type=float, help="of the model's answers (default: 1)")
    add("--split", choices=SPLITS, help="default: train")
    _add_category_option(make)
    add("--answers", type=integer, metavar="K", help="answers in a ranking, 2 to 9 (default: 4)")
    add("--device", default="auto", help="for --model: auto, cpu or cuda (default: auto)")
    add("--seed", type=integer, default=0, help="default: 0")


def _add_category_option(parser: argparse.ArgumentParser) -> None:
    names = f"{', '.join(CATEGORIES)} (default: all of these)"
    parser.add_argument("--category", nargs="+", choices=CATEGORIES, metavar="NAME", help=names)


def _make_rows(args: argparse.Namespace) -> int:
    names = ("n", "annotators", "demonstrators", "aspect", "model", "temperature", "split", "answers")
    given = {name: getattr(args, name) for name in (*names, "device", "seed")}
    wanted = RowRequest(make=args.kind, category=tuple(args.category or ()), **given)
    made, *more = write_requested_rows(wanted, args.out)
    print(f"{args.out}: {made}", *more, sep="\n")
    return 0


def _print_annotators(args: argparse.Namespace) -> int:
    from plaudit.lab.world import making

    pairs = making.answer_tasks(args.n, answers=2, split=args.split, seed=args.seed)
    print(f"{args.n} pairs of answers from the {args.split} split")
    print(_table_line("pool", "people", "with gold", "among itself", "ceiling", "ties", "longer", "first"))
    print(_agreement_line(agreement("(the truth)", [TRUE_ANNOTATOR], pairs)))
    for name in args.pools or POOLS:
        judges = annotator_pool(name)
        print(_agreement_line(agreement(name, judges, pairs)))
        for judge in judges if args.per_person else ():
            print(_agreement_line(agreement(f"  {judge.name}", [judge], pairs)))
    return 0


def _add_demonstrators_verb(verbs: Subparsers) -> None:
    people = verbs.add_parser("demonstrators", help="what the answers that each pool writes are truly worth")
    people.set_defaults(run=_print_demonstrators)
    add = people.add_argument
    names = f"{_DEMONSTRATOR_NAMES} (default: all)"
    add("pools", nargs="*", type=_demonstrators_name, metavar="POOL", help=names)
    add("--per-person", action="store_true", help="also show everybody of a pool")
    add("--n", type=positive_integer, default=400, help="prompts that each of them answers (default: 400)")
    add("--split", choices=SPLITS, default="train", help="default: train")
    add("--seed", type=integer, default=0, help="default: 0")


def _print_demonstrators(args: argparse.Namespace) -> int:
    from itertools import islice

    from plaudit.lab.world.making import endless_questions

    prompts_of_split = list(islice(endless_questions(args.split, args.seed), args.n))
    print(f"{args.n} prompts of the {args.split} split, each answered by all; the best possible is 1")
    print(f"{'pool':14}{'people':>6}{'true worth':>15}{'perfect':>9}{'words':>7}")
    for name in args.pools or DEMONSTRATORS:
        people = demonstrator_pool(name)
        print(_worth_line(written_worth(name, people, prompts_of_split, seed=args.seed)))
        for person in people if args.per_person else ():
            print(_worth_line(written_worth(f"  {person.name}", [person], prompts_of_split, seed=args.seed)))
    return 0


def _worth_line(worth: WrittenWorth) -> str:
    mean = f"{worth.mean:.3f} ± {worth.error:.3f}"
    return f"{worth.name:14}{worth.people:>6}{mean:>15}{worth.best:>9.1%}{worth.words:>7.1f}"


def _add_annotate_verb(verbs: Subparsers) -> None:
    annotate = verbs.add_parser("annotate", help="let simulated people label in a store that is served")
    annotate.set_defaults(run=_annotate)
    add = annotate.add_argument
    add("url", metavar="URL", help="where plaudit collect serve listens")
    add("--invite", required=True, metavar="SECRET", help="an invite with a use for each of the people")
    add("--pool", type=_pool_name, default="crowd", metavar="POOL", help=f"{_POOL_NAMES} (default: crowd)")
    add("--seed", type=integer, default=0, help="of what they say (default: 0)")
    add("--names", default="", metavar="PREFIX", help="put before their names: a second pool of one kind")
    add("--most", type=positive_integer, metavar="N", help="labels that each gives at most (default: no end)")
    add("--speed", type=float, default=0.0, help="times faster than people read (default: 0, no waiting)")
    twice = "of answers that are sent twice (default: 0)"
    add("--twice", type=float, default=0.0, metavar="SHARE", help=twice)
    leaves = "of tasks that somebody leaves with, to come back later (default: 0)"
    add("--vanish", type=float, default=0.0, metavar="SHARE", help=leaves)
    away = "tasks that each of the others is given meanwhile (default: 3)"
    add("--away", type=integer, default=3, help=away)
    add("--skip", type=float, default=0.0, metavar="SHARE", help="of tasks that are given back (default: 0)")


def _annotate(args: argparse.Namespace) -> int:
    from plaudit.lab.world.online import Habits, annotate

    names = ("speed", "twice", "vanish", "away", "skip", "most")
    habits = Habits(**{name: getattr(args, name) for name in names})
    work = annotate(args.url, args.invite, args.pool, seed=args.seed, habits=habits, names=args.names)
    each = ", ".join(f"{name} {count}" for name, count in work.labels.items())
    print(f"{sum(work.labels.values())} labels by {len(work.labels)} people of {args.pool}: {each}")
    for what, count in {**work.counts, **{f"stopped: {why}": n for why, n in work.stopped.items()}}.items():
        if count:
            print(f"{what}: {count}")
    return 0


def _agreement_line(agreement: Agreement) -> str:
    names = ("with_gold", "among_itself", "ceiling", "ties", "longer", "first")
    shares = (getattr(agreement, name) for name in names)
    cells = ("–" if share is None else f"{share:.1%}" for share in shares)
    return _table_line(agreement.name, str(agreement.annotators), *cells)


def _table_line(name: str, *cells: str) -> str:
    widths = (6, 11, 14, 9, 7, 8, 7)
    return f"{name:14}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _print_gold(args: argparse.Namespace) -> int:
    from plaudit.lab.world.gold import judge_answer

    world_prompts = {plain_text(question.messages) for question in questions_of(CATEGORIES)}
    if args.prompt not in world_prompts:
        near = nearest_word(args.prompt, sorted(world_prompts))
        hint = f"did you mean {near!r}?" if near else "plaudit world make prompts writes them to a file"
        raise UserError(f"the world has no such prompt: {args.prompt!r}; {hint}")
    question = question_of_prompt(args.prompt)
    utility = judge_answer(question, args.answer)
    for part in ("helpful", "honest", "harmless", "concise", "plain", "ended"):
        print(f"{part:9} {getattr(utility, part):.2f}")
    print(f"{'utility':9} {utility.utility:.2f}   ({question.category}; the best answer: {question.best})")
    return 0


def _name_of(people: Collection[str], word: str) -> str:
    if word not in people:
        hint = did_you_mean(word, people) or f"; choose from {', '.join(people)}"
        raise argparse.ArgumentTypeError(f"there is no {word!r}{hint}")
    return word


_pool_name = partial(_name_of, POOLS)
_demonstrators_name = partial(_name_of, DEMONSTRATORS)
