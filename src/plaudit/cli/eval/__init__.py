"""``plaudit eval``: how good a reward model is, beside what its annotators leave room for; and policies."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.eval import policies
from plaudit.cli.parser import Subparsers, integer, positive_integer
from plaudit.cli.sample import make_console, short_names
from plaudit.errors import UserError
from plaudit.files import hub

if TYPE_CHECKING:
    from plaudit.evaluation.reward_models.evaluate import EvaluatedReward
    from plaudit.rewards.base import Reward

_EPILOG = """\
accuracy     how often the preferred answer has the higher reward; equal rewards count one half
ceiling      what the best of models could reach, since annotators disagree
calibration  whether σ(r₁ − r₂) is the chance that the first answer is preferred
probes       what the model prefers beyond what its annotators do; --world asks it at equal worth
intervals    95 %, from prompts drawn anew"""


def add_parser(subparsers: Subparsers) -> None:
    """Add ``eval reward`` and ``eval policy``."""
    evaluate = subparsers.add_parser("eval")
    verbs = evaluate.add_subparsers(dest="eval_verb", required=True, metavar="reward|policy")
    policies.add_parser(verbs)
    reward = verbs.add_parser(
        "reward",
        help="accuracy, calibration, bias, best-of-n, public benchmarks",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    add = reward.add_argument
    add(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a run's or a model's folder, an ensemble, a rule (length:1-20 …), module:function, or gold",
    )
    add("--data", type=Path, required=True, metavar="FILE", help="comparisons or rankings, of any layout")
    add("--format", metavar="NAME", help="do not guess the layout (plaudit data inspect names them)")
    add("--threshold", type=float, default=0.01, help="share of bad rows (default: 0.01)")
    add("--n", type=positive_integer, metavar="N", help="at most so many records, drawn by chance")
    add("--out", type=Path, metavar="DIR", help="write summary.json, scores.jsonl and report.html there")
    add(
        "--bootstrap",
        type=positive_integer,
        default=1000,
        help="how often prompts are drawn anew (default: 1000)",
    )
    add("--seed", type=integer, default=0, help="default: 0")
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    add("--dtype", default="auto", help="auto, float32 or bfloat16 (default: auto)")
    add("--world", action="store_true", help="the prompts are the world's: compare with the true utility too")
    add(
        "--best-of",
        type=positive_integer,
        metavar="N",
        help="with --world: answers to choose from (default: 16)",
    )
    evaluate.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Evaluate every model on the same pairs, print the tables, write the files."""
    if args.eval_verb == "policy":
        return policies.run(args)
    _check_arguments(args)
    from plaudit.cli.eval.tables import print_reward_tables
    from plaudit.evaluation.reward_models.evaluate import evaluate_reward, read_reward_data
    from plaudit.evaluation.stats import Resampling
    from plaudit.files.atomic import make_output_folder
    from plaudit.report.reward_models.page import write_reward_evaluations

    resampling = Resampling(times=args.bootstrap, seed=args.seed)
    if args.out is not None:
        make_output_folder(args.out)
    args.models = [str(hub.local_path(model, "model")) for model in args.models]
    for model in args.models:
        _check_model(model)
    source = read_reward_data(
        args.data, format=args.format, threshold=args.threshold, n=args.n, seed=args.seed
    )
    evidence = source.data
    console = make_console()
    for sentence in source.notes:
        console.print(sentence)
    if args.world:
        from plaudit.world.exam import add_world_knowledge

        evidence = add_world_knowledge(evidence, answers=args.best_of or 16, resampling=resampling)
    evaluations: list[EvaluatedReward] = []
    for model, name in zip(args.models, _display_names(args.models), strict=True):
        evaluated = evaluate_reward(_load_reward(model, args), evidence, resampling)
        evaluations.append(replace(evaluated, evaluation=replace(evaluated.evaluation, model=name)))
    print_reward_tables([evaluation.evaluation for evaluation in evaluations], console)
    if args.out is not None:
        console.print(", ".join(str(path) for path in write_reward_evaluations(evaluations, args.out)))
    return 0


def _check_arguments(args: argparse.Namespace) -> None:
    repeated = {model for model in args.models if args.models.count(model) > 1}
    if repeated:
        raise UserError(
            f"{min(repeated)} is given {args.models.count(min(repeated))} times; name each model once"
        )
    if args.best_of is not None and not args.world:
        raise UserError("--best-of needs the true utility of answers: it goes with --world")
    if args.bootstrap < 2:
        raise UserError(f"--bootstrap {args.bootstrap}: expected 2 or more, 1000 for a steady interval")


def _display_names(models: list[str]) -> list[str]:
    """What tells the models apart; functions and gold are called what they are called."""
    folders = [model for model in models if not _is_named_reward(model)]
    short = dict(zip(folders, short_names(folders) if folders else (), strict=True))
    names = [short.get(model, model) for model in models]
    return names if len(set(names)) == len(names) else models


def _is_named_reward(model: str) -> bool:
    """Whether a model is no folder but a rule, a server, a function or the truth."""
    return not Path(model).exists() and (model == "gold" or ":" in model)


def _check_model(model: str) -> None:
    """Complain before anything is read or scored, so that the last of several models costs no time."""
    from plaudit.rewards.load import check_reward
    from plaudit.rewards.registry import resolve_reward

    if not _is_named_reward(model):
        if not Path(model).exists():
            raise UserError(
                f"{model}: there is no such folder; a MODEL is a folder, a rule, module:function or gold"
            )
        check_reward(Path(model))
    elif model != "gold":
        resolve_reward(model)


def _load_reward(model: str, args: argparse.Namespace) -> Reward:
    if not _is_named_reward(model):
        from plaudit.rewards.load import load_reward

        return load_reward(Path(model), device=args.device, dtype=args.dtype)
    if model == "gold":
        from plaudit.world.exam import gold_scorer

        return gold_scorer()
    from plaudit.rewards.registry import resolve_reward

    return resolve_reward(model)
