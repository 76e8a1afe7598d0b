"""``plaudit eval``: how good a reward model is, beside what its annotators leave room for; and policies."""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli import parser
from plaudit.cli.eval import policies
from plaudit.cli.sample import make_console, short_names
from plaudit.errors import UserError
from plaudit.files import hub
from plaudit.wings import offered

if TYPE_CHECKING:
    from rich.console import Console

    from plaudit.evaluation.reward_models.evaluate import RewardEvaluationData
    from plaudit.evaluation.stats import Resampling

_EPILOG = """\
accuracy     how often the preferred answer has the higher reward; equal rewards count one half
ceiling      what the best of models could reach, since annotators disagree
calibration  whether σ(r₁ − r₂) is the chance that the first answer is preferred
probes       what the model prefers beyond what its annotators do; --world asks it at equal worth
intervals    95 %, from prompts drawn anew"""


def add_parser(subparsers: parser.Subparsers) -> None:
    evaluate = subparsers.add_parser("eval")
    verbs = evaluate.add_subparsers(dest="eval_verb", required=True, metavar="reward|policy")
    policies.add_parser(verbs)
    reward_help = "accuracy, calibration, bias, best-of-n, public benchmarks"
    reward = verbs.add_parser(
        "reward", help=reward_help, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG
    )
    add = reward.add_argument
    add(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a run's or a model's folder, an ensemble, a rule (length:1-20 …), module:function, gold, or a "
        "judge that compares: a function of first and second, openai:http://host:port/v1#model",
    )
    add("--data", type=Path, required=True, metavar="FILE", help="comparisons or rankings, of any layout")
    parser.add_row_options(add)
    add("--threshold", type=float, default=0.01, help="share of bad rows (default: 0.01)")
    add("--n", type=parser.positive_integer, metavar="N", help="at most so many records, drawn by chance")
    add("--out", type=Path, metavar="DIR", help="write summary.json, scores.jsonl and report.html there")
    add("--bootstrap", type=parser.positive_integer, default=1000, help=policies.BOOTSTRAP_HELP)
    add("--seed", type=parser.integer, default=0, help="default: 0")
    add("--token-from", metavar="VAR", help="environment variable with the token of an openai: judge")
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    add("--dtype", default="auto", help="auto, float32 or bfloat16 (default: auto)")
    _add_knowledge_options(reward)
    evaluate.set_defaults(run=run)


def _add_knowledge_options(reward: argparse.ArgumentParser) -> None:
    add = reward.add_argument
    trained_on_help = "what they learnt from: tell people in it from people whose labels they never saw"
    add("--trained-on", type=Path, metavar="ROWS", help=trained_on_help)
    add("--world", action="store_true", help="the prompts are the world's: compare with the true utility too")
    best_of_help = "with --world: answers to choose from (default: 16)"
    add("--best-of", type=parser.positive_integer, metavar="N", help=best_of_help)


def run(args: argparse.Namespace) -> int:
    if args.eval_verb == "policy":
        return policies.run(args)
    _check_arguments(args)
    # A word without a slash may be a rule.
    parser.refuse_missing_models(*(model for model in args.models if "/" in model))
    from plaudit.evaluation.reward_models.evaluate import read_reward_data
    from plaudit.evaluation.stats import Resampling
    from plaudit.files.atomic import make_output_folder

    resampling = Resampling(times=args.bootstrap, seed=args.seed)
    if args.out is not None:
        make_output_folder(args.out)
    args.models = [hub.local_word(model, "model") for model in args.models]
    for model in args.models:
        _check_model(model)
    options = parser.row_options(args)
    evidence, notes = read_reward_data(
        args.data, format=args.format, threshold=args.threshold, n=args.n, seed=args.seed, options=options
    )
    console = make_console()
    for sentence in notes:
        console.print(sentence)
    judges = [model for model in args.models if _is_judge(model)]
    if rewards := [model for model in args.models if model not in judges]:
        _evaluate_rewards(rewards, evidence, resampling, args, console)
    if judges:
        _evaluate_judges(judges, evidence, resampling, args, console)
    return 0


def _evaluate_rewards(
    words: list[str],
    evidence: RewardEvaluationData,
    resampling: Resampling,
    args: argparse.Namespace,
    console: Console,
) -> None:
    from plaudit.cli.eval.tables import print_reward_tables
    from plaudit.evaluation.reward_models.evaluate import annotators_of
    from plaudit.evaluation.run import evaluated_rewards

    if args.trained_on is not None:
        evidence = replace(evidence, learnt_from=annotators_of(args.trained_on, threshold=args.threshold))
    if args.world:
        from plaudit.evaluation.prompt_sets import prompt_set

        evidence = prompt_set().knowledge(evidence, answers=args.best_of or 16, resampling=resampling)
    names = dict(zip(words, _display_names(words), strict=True))
    evaluations = evaluated_rewards(names, evidence, resampling, device=args.device, dtype=args.dtype)
    print_reward_tables([evaluation.evaluation for evaluation in evaluations], console)
    if args.out is not None:
        written = offered("reward_pages")(evaluations, args.out)
        console.print(", ".join(str(path) for path in written))


def _evaluate_judges(
    words: list[str],
    evidence: RewardEvaluationData,
    resampling: Resampling,
    args: argparse.Namespace,
    console: Console,
) -> None:
    """Print how far judges that compare agree with people, and write it and every verdict to --out."""
    from plaudit.cli.eval.tables import print_agreement
    from plaudit.evaluation.policies.judge import judge_notes
    from plaudit.evaluation.policies.result import write_agreements
    from plaudit.evaluation.reward_models.accuracy import accuracy_ceiling
    from plaudit.evaluation.reward_models.pairs import scored_pairs
    from plaudit.evaluation.run import judge_agreements

    judges, found = judge_agreements(words, evidence.records, args, resampling)
    pairs = scored_pairs(evidence.records, defaultdict(lambda: None))
    contests = [contest for contest, _ in found]
    print_agreement(pairs, contests, evidence.ceiling or accuracy_ceiling(pairs, resampling), console)
    for note in (*evidence.notes, *dict.fromkeys(note for judge in judges for note in judge_notes(judge))):
        console.print(note)
    if args.out is not None:
        console.print(", ".join(str(path) for path in write_agreements(found, args.out)))


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
    folders = [model for model in models if not _is_named_reward(model)]
    short = dict(zip(folders, short_names(folders) if folders else (), strict=True))
    names = [short.get(model, model) for model in models]
    return names if len(set(names)) == len(names) else models


def _is_named_reward(model: str) -> bool:
    """Whether a model is no folder but a rule, a server, a function or the truth."""
    return not Path(model).exists() and (model == "gold" or ":" in model)


def _is_judge(model: str) -> bool:
    from plaudit.rewards.comparing import compares_pairs

    return _is_named_reward(model) and compares_pairs(model)


def _check_model(model: str) -> None:
    """Complain before anything is read or scored, so that the last of several models costs no time."""
    from plaudit.evaluation.policies.judge import check_judge
    from plaudit.rewards.load import check_reward
    from plaudit.rewards.registry import resolve_reward

    if _is_judge(model):
        check_judge(model, has_gold=False)
    elif not _is_named_reward(model):
        if not Path(model).exists():
            raise UserError(
                f"{model}: there is no such folder; a MODEL is a folder, a rule, module:function or gold"
                f"{hub.name_hint(model)}"
            )
        check_reward(Path(model))
    elif model != "gold":
        resolve_reward(model)
