"""``plaudit judge``: labels by models, and what a judge is worth on labels of people."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from plaudit.cli.parser import (
    Subparsers,
    add_row_options,
    given_path,
    integer,
    model_path,
    positive_integer,
    row_options,
)
from plaudit.errors import UserError
from plaudit.feedback.judges.modes import HOWS
from plaudit.wings import offered

Settings = TypeVar("Settings", bound="AskingSettings | InstructSettings")

if TYPE_CHECKING:
    from plaudit.data.judging import NoVerdict, Verdict
    from plaudit.data.records import Task
    from plaudit.evaluation.reward_models.pairs import ScoredPair
    from plaudit.feedback.asking import AskingSettings, JudgeRowsSettings
    from plaudit.feedback.instructing import InstructSettings
    from plaudit.feedback.row_judging import RowJudging

_EPILOG = """\
judges   openai:http://host:port/v1#model   a model behind a server
         model:DIR                          a chat model on this machine
         jury:FILE.yaml, spread:FILE.yaml   several judges: their log-odds averaged, or one for each task
         a ranker's or reward's folder, a rule, module:function of first and second
settings behind commas: openai:http://host:port/v1#model,how=letter,draws=5,price=0.15/0.6
how      letter   A or B by log-probs, in both orders (default)
         verdict  reasons, then A, B, tie or refuse
         reasons  reasons, then the letter; the chance is clamped to 0.40-0.60
         grade    reasons, then 1 to 5 for each answer by itself, by --rubric
         points   1 to 5 for each answer by itself, by --rubric
         answer   whether each answer is right, given the true one"""


def add_parser(subparsers: Subparsers) -> None:
    judge = subparsers.add_parser(
        "judge", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG
    )
    add = judge.add_argument
    add("rows", type=given_path, nargs="?", metavar="ROWS", help="comparisons or rankings, to be judged")
    add("--by", required=True, metavar="JUDGE", help="who judges: see below")
    add("--how", choices=HOWS, help="see below (default: letter)")
    add("--out", type=given_path, metavar="FILE", help="where rows go; of --card, its figures")
    add("--card", type=given_path, metavar="ROWS", help="labels of people: what the judge is worth on them")
    add("--calibrate", type=given_path, metavar="CARD", help="scale chances by the temperature of this card")
    add("--rubric", type=given_path, metavar="FILE", help="what points are given for: aspects with weights")
    add("--constitution", metavar="FILE", help="principles that say what is better, or ours")
    add("--principles", default="1", metavar="N", help="how many are drawn for a task, or all (default: 1)")
    add("--preamble", type=given_path, metavar="FILE", help="a text above every question: examples, say")
    add("--n", type=positive_integer, metavar="N", help="at most so many pairs or prompts, by chance")
    add("--seed", type=integer, default=0, help="of chance (default: 0)")
    add("--bootstrap", type=positive_integer, default=1000, help="of --card's intervals (default: 1000)")
    add_model_options(judge, "judge two answers of it to each prompt of ROWS")
    add("--against", nargs="+", metavar="WHO", default=(), help="whose the second is: policy, written, DIR")
    add_money_options(judge)
    add("--store", metavar="FILE", help="also keep each judgement as an event in this label store")
    add("--project", default="ai", metavar="NAME", help="of --store (default: ai)")
    add_row_options(add)


def add_model_options(parser: argparse.ArgumentParser, use: str) -> None:
    """Add the options of the model whose answers are drawn; ``use`` says what they are drawn for."""
    add = parser.add_argument
    add("--model", type=model_path, metavar="DIR", help=use)
    add("--temperature", type=float, default=1.0, help="of --model's answers (default: 1)")
    add("--max-tokens", type=positive_integer, default=64, help="of --model's answers (default: 64)")
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    add("--dtype", default="auto", help="auto, float32 or bfloat16 (default: auto)")


def add_money_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of what asking models may cost, and of how servers are asked."""
    add = parser.add_argument
    add("--most-money", type=float, metavar="X", help="stop before more is spent; needs prices")
    add("--price", metavar="IN/OUT", help="of a million tokens, questions/replies, as in 0.15/0.6")
    add("--estimate", action="store_true", help="say what it will cost, and ask nothing")
    add("--requests", type=positive_integer, metavar="N", help="requests at the same time (default: 8)")
    add("--token-from", metavar="VAR", help="environment variable with the server's token")
    add("--cache", type=given_path, metavar="DIR", help="where replies are kept (default: the user's cache)")


def settings_from(kind: type[Settings], args: argparse.Namespace, **given: Any) -> Settings:
    """The settings of a request: what is given, and every other one that an option is called as."""
    names = (part.name for part in fields(kind) if hasattr(args, part.name))
    options: dict[str, Any] = {name: getattr(args, name) for name in names}
    lists: dict[str, Any] = {name: tuple(value) for name, value in options.items() if isinstance(value, list)}
    return kind(**options | lists | given)


def run(args: argparse.Namespace) -> int:
    from plaudit.data.write import check_output_path
    from plaudit.rewards.comparing import GOLD, PEOPLE

    if (args.rows is None) == (args.card is None):
        raise UserError("give ROWS to be judged, or --card ROWS of people to say what the judge is worth")
    if args.card is not None and (args.calibrate or args.store or args.model):
        raise UserError("--card only measures: leave out --calibrate, --store and --model")
    if args.card is None and args.out is None and not args.estimate:
        raise UserError("--out FILE: say where the rows go")
    if args.by.partition(":")[0] in (GOLD, PEOPLE):
        raise UserError(f"--by {args.by}: name a model; people answer in plaudit collect")
    if args.card is None and args.out is not None:
        check_output_path(args.out)
    if args.card is not None:
        _make_card(args)
    else:
        _judge_rows(args)
    return 0


def _settings(args: argparse.Namespace) -> JudgeRowsSettings:
    from plaudit.feedback.asking import JudgeRowsSettings
    from plaudit.feedback.judges.words import parse_principles

    return settings_from(
        JudgeRowsSettings,
        args,
        prompts=None if args.model is None else args.rows,
        # Of a card it is labels of people that are judged once more.
        data=(args.rows or args.card) if args.model is None else None,
        principles=parse_principles(args.principles),
    )


def _judge_rows(args: argparse.Namespace) -> None:
    from plaudit.feedback.row_judging import prepare_judging, write_judged_rows

    ready = prepare_judging(_settings(args), layout=args.format)
    if ready.singly and args.store is not None:
        raise UserError("--store keeps judgements of pairs; points of single answers are rows alone")
    # Flushed: whoever waits for a long run sees first what it will be.
    print("\n".join((*ready.notes, ready.estimate())), flush=True)
    if args.estimate:
        return
    if args.store is None:
        judged = ready.run()
        write_judged_rows(judged, args.out)
        print(f"{args.out}: {len(judged.rows)} rows by {ready.judging.actor}")
    else:
        found = ready.outcomes()
        judged = ready.rows(found)
        _store(args, ready, found)
    print("\n".join((*judged.sentences, *ready.end_notes)))


def _store(args: argparse.Namespace, ready: RowJudging, found: Sequence[Verdict | NoVerdict]) -> None:
    from plaudit.feedback.row_judging import cost_of

    costs = (cost_of(ready.judge, task, args.seed) for task in ready.tasks)
    judged = zip(ready.tasks, found, costs, strict=True)
    store_judgements = offered("store_judgements", of="collect")
    for sentence in store_judgements(args.store, args.project, ready.judging, judged, args.out):
        print(sentence)


def _make_card(args: argparse.Namespace) -> None:
    from plaudit.cli.eval.tables import print_card
    from plaudit.cli.sample import make_console
    from plaudit.evaluation.policies.judge import check_judge, judge_notes
    from plaudit.evaluation.policies.judge_card import judge_card, write_card
    from plaudit.evaluation.stats import Resampling
    from plaudit.feedback.row_judging import estimate_sentence
    from plaudit.rewards.comparing import in_both_orders, judge_named

    if args.bootstrap < 2:
        raise UserError(f"--bootstrap {args.bootstrap}: expected 2 or more, 1000 for a steady interval")
    check_judge(args.by, has_gold=False)
    settings = _settings(args).judge_settings()
    judge = in_both_orders(judge_named(args.by, settings))
    pairs = _pairs_of_people(args)
    if args.estimate:
        # A card asks with the seed 0 (agreement_with_people).
        print(estimate_sentence(judge, _decided_tasks(pairs), 0))
        return
    card, _ = judge_card(judge, pairs, Resampling(times=args.bootstrap, seed=args.seed))
    print_card(card, make_console())
    for note in (*judge_notes(judge), *settings.purse.sentences):
        print(note)
    if args.out is not None:
        write_card(card, args.out)
        print(f"{args.out}: the card of {card.judge} {card.version}")


def _pairs_of_people(args: argparse.Namespace) -> list[ScoredPair]:
    from collections import defaultdict

    from plaudit.data.read import read_records
    from plaudit.data.records import Comparison, Ranking
    from plaudit.data.transforms import measured_only, some_of
    from plaudit.evaluation.reward_models.pairs import scored_pairs

    found = read_records(args.card, format=args.format, options=row_options(args))
    print(found.format_sentence)
    records = [record for record in found.records if isinstance(record, Comparison | Ranking)]
    if any(record.group == "ai" for record in records):
        raise UserError(f"{args.card}: rows of models (group ai) are among these; a card is made on people's")
    records, chosen = measured_only(records)
    for note in chosen:
        print(note)
    # Judges score nothing: the pairs are wanted for what people said of them.
    pairs = some_of(list(scored_pairs(records, defaultdict(lambda: None))), args.n, f"pairs {args.seed}")
    if not pairs:
        raise UserError(f"{args.card}: there are no comparisons or rankings of people in it")
    return pairs


def _decided_tasks(pairs: Sequence[ScoredPair]) -> list[Task]:
    from plaudit.data.records import Task

    return [
        Task(prompt=pair.prompt, answers=pair.answers, ended=(True, True), category=pair.category)
        for pair in pairs
        if pair.p_first != 0.5
    ]
