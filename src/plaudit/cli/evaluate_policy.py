"""``plaudit eval policy``: how good policies are, beside each other, and how far they went for it."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.cli.numbers import count, whole
from plaudit.cli.options import HelpAll
from plaudit.cli.parser import Verbs
from plaudit.cli.talking import make_console, short_names
from plaudit.errors import UserError
from plaudit.world.prompts import SPLITS

if TYPE_CHECKING:
    from plaudit.evaluation.policies.choices import Closed
    from plaudit.evaluation.policies.drawn import Asked, Drawing
    from plaudit.evaluation.policies.evaluate import EvaluationSettings, Witnesses
    from plaudit.rewards.reward import Reward

PROMPTS = 200
"""Of the world, unless another number is asked for."""
_CHOICES = "questions with all their answers, to see how sure and how often right (default: the world's)"
_EPILOG = """\
preferred   the mean chance of being the better answer; a tie counts one half
at equal …  what that would be if both answers were as long, or as ornate, as each other
KL          how far a policy went from the first --against, in nats; measured on its own answers
calibration how often right, and how sure, of closed questions: {"prompt", "choices", "right"}
intervals   95 %, from prompts drawn anew
judges      gold (with --world), a reward's folder, a rule, module:function of first and second,
            openai:http://host:port/v1#model"""


def add_parser(verbs: Verbs) -> None:
    """Add ``eval policy``."""
    policy = verbs.add_parser(
        "policy",
        help="win rates, KL, diversity, true worth; several policies side by side",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    add = policy.add_argument
    add("models", nargs="+", metavar="MODEL", help="folders of runs or of language models")
    add("--against", action="append", default=[], metavar="NAME", help="compare with it (default: the first)")
    add("--prompts", type=Path, metavar="FILE", help="rows of any kind: their prompts are asked")
    add("--world", action="store_true", help="ask the world's prompts, whose answers have a true worth")
    add("--choices", type=Path, metavar="FILE", help=_CHOICES)
    add("--split", choices=SPLITS, default="test", help="of the world (default: test)")
    add("--n", type=count, help=f"at most so many prompts, by chance (of the world: {PROMPTS})")
    add("--answers", type=count, default=1, help="to each prompt, with each seed (default: 1)")
    add("--seeds", type=count, default=1, help="how many, counted from --seed (default: 1)")
    add("--seed", type=whole, default=0, help="of chance (default: 0)")
    add("--temperature", type=float, default=1.0, help="0 is the likeliest token every time (default: 1)")
    add("--max-tokens", type=count, default=64, help="where an answer is cut (default: 64)")
    add("--judge", action="append", default=[], metavar="WHO", help="who compares answers; may be repeated")
    add("--reward", type=Path, metavar="DIR", help="a learnt reward, shown beside")
    add("--best-of", type=count, metavar="N", help="of N answers of the reference --reward takes the best")
    tax = "prompts with answers and a rule: what became of it since the first --against; may be repeated"
    add("--tax", action="append", default=[], metavar="FILE:RULE", help=tax)
    add("--tasks", action="append", default=[], metavar="NAME", help="the same by lm-eval, --n items")
    add("--out", type=Path, metavar="DIR", help="write policies.json and answers.jsonl there")
    _add_rare(policy)


def _add_rare(policy: argparse.ArgumentParser) -> None:
    """Options that few need, in the help that shows everything."""

    def rare(*names: str, help: str, **settings: Any) -> tuple[argparse.Action, str]:
        return policy.add_argument(*names, help=argparse.SUPPRESS, **settings), help

    times = "how often prompts are drawn anew (default: 1000)"
    token = "environment variable with the token of an openai: judge"
    hidden = [
        rare("--bootstrap", type=count, default=1000, help=times),
        rare("--device", default="auto", help="auto, cpu or cuda (default: auto)"),
        rare("--dtype", default="auto", help="auto, float32 or bfloat16 (default: auto)"),
        rare("--tasks-folder", type=Path, metavar="DIR", help="where your own tasks of lm-eval are"),
        rare("--token-from", metavar="VAR", help=token),
    ]
    policy.add_argument("--help-all", action=HelpAll, hidden=hidden, help="show every option and exit")


def run(args: argparse.Namespace) -> int:
    """Ask, score, compare, print the tables, write the files."""
    _check(args)
    from plaudit.cli.evaluate_policy_table import print_tables
    from plaudit.cli.evaluate_tax import batteries, harness_of, tell_taxes
    from plaudit.evaluation.files import make_folder
    from plaudit.evaluation.policies.evaluate import check_policies, evaluate_policies
    from plaudit.evaluation.policies.files import write_results
    from plaudit.evaluation.policies.judging import check_judge

    models = _named(args.models)
    settings = _settings(args, models)
    for word in args.judge:
        check_judge(word, gold=args.world)
    batteries(args.tax)
    harness_of(args)
    asked = _asked(args)
    check_policies(models, asked, settings)
    if args.out is not None:
        make_folder(args.out)
    console = make_console()
    found = evaluate_policies(
        models,
        asked,
        _witnesses(args),
        settings,
        say=lambda sentence: console.print(f"{sentence} …", style="dim"),
    )
    print_tables(found, console)
    tell_taxes(args, models, settings, console)
    if args.out is not None:
        console.print(", ".join(str(path) for path in write_results(found, args.out)))
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.world == (args.prompts is not None):
        raise UserError("give either --world, for the world's prompts, or --prompts FILE")
    if args.bootstrap < 2:
        raise UserError(f"--bootstrap {args.bootstrap}: expected 2 or more, 1000 for a steady interval")
    if args.best_of is not None and not (args.world and args.reward):
        raise UserError("--best-of needs a reward that chooses (--reward DIR) and the true worth (--world)")
    for option in ("models", "judge"):
        given = getattr(args, option)
        twice = next((one for one in given if given.count(one) > 1), None)
        if twice is not None:
            raise UserError(f"{twice} is given {given.count(twice)} times; name each once")


def _named(models: Sequence[str]) -> dict[str, Path]:
    folders = [Path(model) for model in models]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UserError("two of the folders are the same; name each policy once")
    return dict(zip(short_names(folders), folders, strict=True))


def _settings(args: argparse.Namespace, models: dict[str, Path]) -> EvaluationSettings:
    from plaudit.evaluation.policies.evaluate import EvaluationSettings
    from plaudit.evaluation.resample import Resampling

    folders = {str(folder): name for name, folder in models.items()}
    return EvaluationSettings(
        drawing=_drawing(args),
        against=tuple(dict.fromkeys(folders.get(str(name), str(name)) for name in args.against)),
        resampling=Resampling(times=args.bootstrap, seed=args.seed),
        best_of=args.best_of or 0,
        closed=_closed(args),
    )


def _drawing(args: argparse.Namespace) -> Drawing:
    from plaudit.evaluation.policies.drawn import Drawing
    from plaudit.rollouts.sampling import SamplingSettings

    return Drawing(
        sampling=SamplingSettings(temperature=args.temperature, max_tokens=args.max_tokens),
        answers=args.answers,
        seeds=tuple(range(args.seed, args.seed + args.seeds)),
        device=args.device,
        dtype=args.dtype,
    )


def _asked(args: argparse.Namespace) -> tuple[Asked, ...]:
    if args.world:
        from plaudit.world.exam import exam

        return exam(args.n or PROMPTS, split=args.split, seed=args.seed)
    from plaudit.evaluation.policies.drawn import asked_of
    from plaudit.sources.read import read_records

    asked = asked_of(read_records(args.prompts).records)
    if args.n is None or args.n >= len(asked):
        return asked
    chosen = sorted(random.Random(f"prompts {args.seed}").sample(range(len(asked)), args.n))
    return tuple(asked[place] for place in chosen)


def _closed(args: argparse.Namespace) -> tuple[Closed, ...]:
    if args.choices is not None:
        from plaudit.evaluation.policies.choices import read_choices

        return read_choices(args.choices)
    if not args.world:
        return ()
    from plaudit.world.exam import MOST_CLOSED, closed_exam

    return closed_exam(min(args.n or PROMPTS, MOST_CLOSED), split=args.split, seed=args.seed)


def _witnesses(args: argparse.Namespace) -> Witnesses:
    from plaudit.evaluation.policies.evaluate import Witnesses
    from plaudit.evaluation.policies.judging import GOLD, JudgeSettings, judge_named
    from plaudit.rewards.folder import load_reward
    from plaudit.rewards.posting import Manners

    known: dict[str, Reward] = {}
    if args.world:
        from plaudit.world.exam import truth

        known[GOLD] = truth()
    if args.reward is not None:
        known[str(args.reward)] = load_reward(args.reward, device=args.device, dtype=args.dtype)
    settings = JudgeSettings(
        device=args.device, dtype=args.dtype, manners=Manners(token_from=args.token_from)
    )
    words = args.judge or ([GOLD] if args.world else [str(args.reward)] if args.reward else [])
    return Witnesses(
        gold=known.get(GOLD),
        reward=known.get(str(args.reward)),
        judges={word: judge_named(word, known, settings) for word in words},
    )
