"""``plaudit judge``: labels by models, and what a judge is worth on labels of people."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
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
from plaudit.judges.words import HOWS

if TYPE_CHECKING:
    from plaudit.data.judging import Judge, NoVerdict, Task, Verdict
    from plaudit.data.records import Record
    from plaudit.judges.model_judge import ModelJudge
    from plaudit.judges.money import Purse
    from plaudit.labelling.judging import Judging
    from plaudit.methods.judged_rows import JudgedRows
    from plaudit.rewards.comparing import JudgeSettings

_EPILOG = """\
judges   openai:http://host:port/v1#model   a model behind a server
         model:DIR                          a chat model on this machine
         jury:FILE.yaml, spread:FILE.yaml   several judges: their log-odds averaged, or one for each task
         a ranker's or reward's folder, a rule, module:function of first and second
settings behind commas: openai:http://host:port/v1#model,how=letter,draws=5,price=0.15/0.6
how      letter   A or B by log-probs, in both orders (default)
         verdict  reasons, then A, B, tie or refuse
         reasons  reasons, then the letter; the chance is clamped to 0.40-0.60
         points   1 to 5 for each answer by itself, by --rubric
         answer   whether each answer is right, given the true one"""


def add_parser(subparsers: Subparsers) -> None:
    """Add ``judge``."""
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
    add("--n", type=positive_integer, metavar="N", help="at most so many pairs or prompts, by chance")
    add("--seed", type=integer, default=0, help="of chance (default: 0)")
    add("--bootstrap", type=positive_integer, default=1000, help="of --card's intervals (default: 1000)")
    add_model_options(judge, "judge two answers of it to each prompt of ROWS")
    add_money_options(judge)
    add("--store", metavar="FILE", help="also keep each judgement as an event in this label store")
    add("--project", default="ai", metavar="NAME", help="of --store (default: ai)")
    add_row_options(add)
    judge.set_defaults(run=run)


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


def run(args: argparse.Namespace) -> int:
    """Judge rows, or make the card of a judge."""
    _check(args)
    from plaudit.evaluation.policies.judge import check_judge
    from plaudit.judges.money import Purse
    from plaudit.rewards.comparing import in_both_orders, judge_named

    check_judge(args.by, has_gold=False)
    purse = Purse(args.most_money)
    judge = in_both_orders(judge_named(args.by, _settings(args, purse)))
    if args.card is not None:
        _print_card(args, judge, purse)
    else:
        _judge_rows(args, judge, purse)
    return 0


def _check(args: argparse.Namespace) -> None:
    from plaudit.data.write import check_output_path
    from plaudit.rewards.comparing import GOLD, PEOPLE

    if (args.rows is None) == (args.card is None):
        raise UserError("give ROWS to be judged, or --card ROWS of people to say what the judge is worth")
    if args.card is not None and (args.calibrate or args.store or args.model):
        raise UserError("--card only measures: leave out --calibrate, --store and --model")
    if args.card is None and args.out is None and not args.estimate:
        raise UserError("--out FILE: say where the rows go")
    if args.by in (GOLD, PEOPLE):
        raise UserError(f"--by {args.by}: name a model; people answer in plaudit collect")
    if args.card is None and args.out is not None:
        check_output_path(args.out)


def _settings(args: argparse.Namespace, purse: Purse) -> JudgeSettings:
    from plaudit.judges.money import parse_prices
    from plaudit.judges.posting import RetryPolicy
    from plaudit.judges.words import HowToAsk
    from plaudit.rewards.comparing import JudgeSettings

    ask = HowToAsk(
        how=args.how or ("points" if args.rubric else "letter"),
        rubric=args.rubric,
        price=None if args.price is None else parse_prices(args.price),
        requests=args.requests,
    )
    return JudgeSettings(
        device=args.device,
        dtype=args.dtype,
        retry_policy=RetryPolicy(token_from=args.token_from),
        cache=args.cache,
        soft=True,
        ask=ask,
        purse=purse,
    )


def _judge_rows(args: argparse.Namespace, judge: Judge, purse: Purse) -> None:
    from plaudit.evaluation.policies.judge import family_note
    from plaudit.judges.model_judge import ModelJudge
    from plaudit.methods.judged_rows import answer_tasks_of, pair_tasks, rated_rows, refuse_other_rows

    records = _read(args, args.rows)
    # Single answers can be rated by whoever gives points; pairs are compared by anybody.
    singly = (
        isinstance(judge, ModelJudge)
        and judge.how in ("points", "answer")
        and args.model is None
        and not pair_tasks(records[:50])
    )
    if args.model is not None:
        if note := family_note(args.by, judge.name, {str(args.model): args.model}):
            print(note)
        tasks = _drawn(args, records)
    else:
        refuse_other_rows(records, singly=singly)
        tasks = _some(answer_tasks_of(records) if singly else pair_tasks(records), args)
    judging = _judging(judge)
    _print_estimate(judge, tasks, args.seed)
    if args.estimate:
        return
    if singly:
        assert isinstance(judge, ModelJudge)
        _refuse_store(args)
        _write(args, rated_rows(judge, tasks, judging.actor), judging)
    else:
        _compare(args, judge, tasks, judging)
    _print_end(judge, purse)


def _compare(args: argparse.Namespace, judge: Judge, tasks: Sequence[Task], judging: Judging) -> None:
    from plaudit.data.judging import outcomes
    from plaudit.evaluation.policies.judge_card import calibrated, read_card
    from plaudit.methods.judged_rows import judged_rows

    temperature = None if args.calibrate is None else read_card(args.calibrate, judge).temperature
    # Before anything is asked, and paid for.
    if args.calibrate is not None and temperature is None:
        raise UserError(f"{args.calibrate}: this card has no temperature: too few pairs, or sides alone")
    found = outcomes(judge, tasks, args.seed)
    if temperature is not None:
        found = [calibrated(outcome, temperature) for outcome in found]
        judging = replace(judging, sampling={**judging.sampling, "calibrated": temperature})
        judging = replace(judging, version=f"{judging.version}+T{temperature:.3g}")
    rows = judged_rows(tasks, found, judging.actor)
    if args.store is None:
        _write(args, rows, judging)
    else:
        _store(args, judge, judging, list(zip(tasks, found, strict=True)))
    _print_rows(rows)


def _write(args: argparse.Namespace, judged: JudgedRows, judging: Judging) -> None:
    from plaudit.data.write import write_records

    if not judged.rows:
        reasons = ", ".join(f"{count} {why}" for why, count in judged.failures.items())
        raise UserError(f"nothing was said of any pair, so there are no rows ({reasons or 'no pairs'})")
    write_records(judged.rows, args.out)
    print(f"{args.out}: {len(judged.rows)} rows by {judging.actor}")


def _store(
    args: argparse.Namespace,
    judge: Judge,
    judging: Judging,
    found: Sequence[tuple[Task, Verdict | NoVerdict]],
) -> None:
    from plaudit.labelling.judging import Judged, export_judgements, record_judgements
    from plaudit.labelling.store import open_store

    judged = list[Judged]()
    for task, outcome in found:
        costs = [model.spent(task) for model, own in _models_in(judge, [task], args.seed) if own]
        tokens, price = sum(tokens for tokens, _ in costs), sum(price for _, price in costs)
        judged.append(Judged(task=task, outcome=outcome, cost={"tokens": tokens, "price": price}))
    with closing(open_store(args.store, create=True)) as store:
        recorded = record_judgements(store, args.project, judging, judged)
        there = f", {recorded.repeated} were there already" if recorded.repeated else ""
        print(f"{store.where}: {recorded.added} judgements by {judging.actor} in {args.project}{there}")
        snapshot = export_judgements(store, args.project, judging, recorded.tasks, args.out)
    print(f"{args.out}: {snapshot.rows} rows by {judging.actor}, as of event {snapshot.seq}")


def _judging(judge: Judge) -> Judging:
    from plaudit.evaluation.policies.judge_card import version_of
    from plaudit.judges.model_judge import ModelJudge
    from plaudit.labelling.judging import Judging

    sampling: dict[str, Any] = {}
    if isinstance(judge, ModelJudge):
        names = ("draws", "temperature", "max_tokens", "clamp", "points")
        sampling = {"how": judge.how, **{name: getattr(judge.ask, name) for name in names}}
    return Judging(judge=judge.name, version=version_of(judge), sampling=sampling)


def _read(args: argparse.Namespace, path: Path) -> Sequence[Record]:
    from plaudit.data.read import read_records

    found = read_records(path, format=args.format, options=row_options(args))
    print(found.format_sentence)
    return found.records


def _drawn(args: argparse.Namespace, records: Sequence[Record]) -> list[Task]:
    from plaudit.methods.judged_rows import drawn_tasks
    from plaudit.rollouts.build import sampler_of_folder
    from plaudit.rollouts.sampler import SamplingSettings

    settings = SamplingSettings(temperature=args.temperature, max_tokens=args.max_tokens, seed=args.seed)
    sampler = sampler_of_folder(args.model, device=args.device)
    tasks, same = drawn_tasks(sampler, records, settings, n=args.n)
    if same:
        print(f"{same} prompts are left out, since both answers read the same")
    if not tasks:
        raise UserError("no prompt has two different answers; raise --temperature")
    return tasks


_Item = TypeVar("_Item")


def _some(items: list[_Item], args: argparse.Namespace) -> list[_Item]:
    """At most ``--n`` of these, by chance, in their order."""
    if args.n is None or args.n >= len(items):
        return items
    chosen = sorted(random.Random(f"pairs {args.seed}").sample(range(len(items)), args.n))
    return [items[place] for place in chosen]


def _models_in(judge: Judge, tasks: Sequence[Task], seed: int) -> list[tuple[ModelJudge, Sequence[Task]]]:
    """The models that are asked in words, each with the tasks that it is asked about."""
    from plaudit.judges.jury import Jury, Spread
    from plaudit.judges.model_judge import ModelJudge

    members: list[tuple[Judge, Sequence[Task]]] = [(judge, tasks)]
    if isinstance(judge, Jury):
        members = [(member, tasks) for member in judge.judges]
    elif isinstance(judge, Spread):
        members = [
            (member, [task for task in tasks if judge.turn(task, seed) == place])
            for place, member in enumerate(judge.judges)
        ]
    return [(member, own) for member, own in members if isinstance(member, ModelJudge)]


def _print_estimate(judge: Judge, tasks: Sequence[Task], seed: int) -> None:
    from plaudit.judges.money import total_estimate

    estimates = [model.estimate(own) for model, own in _models_in(judge, tasks, seed)]
    if estimates:
        # Flushed: whoever waits for a long run sees first what it will be.
        print(f"{judge.name}: {total_estimate(estimates).sentence()}", flush=True)
    else:
        print(f"{judge.name}: {len(tasks):,} pairs, by no model that is asked in words")


def _print_rows(judged: JudgedRows) -> None:
    if judged.ordered:
        agree = 1 - judged.contradictory / judged.ordered
        first = f"{judged.first_shown / judged.preferring:.1%}" if judged.preferring else "–"
        print(f"both orders agree on {agree:.1%}; shown first preferred in {first} of readings")
    failures = sum(judged.failures.values())
    reasons = ", ".join(f"{count} {why}" for why, count in sorted(judged.failures.items()))
    print(f"{judged.ties} ties; no verdict on {failures}{f': {reasons}' if reasons else ''}")


def _print_end(judge: Judge, purse: Purse) -> None:
    from plaudit.evaluation.policies.judge import judge_notes

    for note in judge_notes(judge):
        print(note)
    if purse.tokens:
        money = f", {purse.spent:.4g} spent in all" if purse.spent else ""
        print(f"{purse.tokens:,} tokens{money}")


def _refuse_store(args: argparse.Namespace) -> None:
    if args.store is not None:
        raise UserError("--store keeps judgements of pairs; points of single answers are rows alone")


def _print_card(args: argparse.Namespace, judge: Judge, purse: Purse) -> None:
    from collections import defaultdict

    from plaudit.cli.eval.tables import print_card
    from plaudit.cli.sample import make_console
    from plaudit.data.judging import Task
    from plaudit.data.records import Comparison, Ranking
    from plaudit.evaluation.policies.judge_card import judge_card, write_card
    from plaudit.evaluation.reward_models.pairs import scored_pairs
    from plaudit.evaluation.stats import Resampling

    if args.bootstrap < 2:
        raise UserError(f"--bootstrap {args.bootstrap}: expected 2 or more, 1000 for a steady interval")
    records = [record for record in _read(args, args.card) if isinstance(record, Comparison | Ranking)]
    if any(record.group == "ai" for record in records):
        raise UserError(f"{args.card}: rows of models (group ai) are among these; a card is made on people's")
    # Judges score nothing: the pairs are wanted for what people said of them.
    pairs = _some(list(scored_pairs(records, defaultdict(lambda: None))), args)
    if not pairs:
        raise UserError(f"{args.card}: there are no comparisons or rankings of people in it")
    if args.estimate:
        decided = [pair for pair in pairs if pair.p_first != 0.5]
        tasks = [Task(prompt=p.prompt, answers=p.answers, ended=(True, True)) for p in decided]
        # A card asks with the seed 0 (agreement_with_people).
        _print_estimate(judge, tasks, 0)
        return
    card, _ = judge_card(judge, pairs, Resampling(times=args.bootstrap, seed=args.seed))
    print_card(card, make_console())
    _print_end(judge, purse)
    if args.out is not None:
        write_card(card, args.out)
        print(f"{args.out}: the card of {card.judge} {card.version}")
