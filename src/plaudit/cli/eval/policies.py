"""``plaudit eval policy``: how good policies are, beside each other, and how far they went for it.

What policies were able to do before, and no longer are: the alignment tax on the console.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.cli import parser
from plaudit.cli.sample import make_console, short_names
from plaudit.errors import UserError
from plaudit.evaluation.policies import SPLITS, WORLD, WORLD_PROMPTS, WRITTEN
from plaudit.files import hub

if TYPE_CHECKING:
    from rich.console import Console

    from plaudit.evaluation.policies.alignment_tax import HarnessTasks, TaskChange, TaskItem
    from plaudit.evaluation.policies.evaluate import EvaluationSettings
    from plaudit.evaluation.policies.generate import Contestant, EvaluationPrompt
    from plaudit.evaluation.stats import Estimate
    from plaudit.rewards.base import Reward

BOOTSTRAP_HELP = "how often prompts are drawn anew (default: 1000)"
_CHOICES_HELP = "questions with all their answers, to see how sure and how often right (default: the world's)"
_POLICY_HELP = "a prompted policy: NAME=DIR,system=TEXT or FILE,shots=FILE of demonstrations; may be repeated"
_EPILOG = """\
win rate    the mean chance of being the better answer; a tie counts one half
at equal …  what that would be if both answers were as long, or as ornate, as each other
KL          how far a policy went from the first --against, in nats; measured on its own answers
calibration how often right, and how sure, of closed questions: {"prompt", "choices", "right"}
intervals   95 %, from prompts drawn anew
judges      gold (with --world), a reward's folder, a rule, module:function of first and second,
            openai:http://host:port/v1#model"""


def add_parser(verbs: parser.Subparsers) -> None:
    policy_help = "win rates, KL, diversity, true worth; several policies side by side"
    policy = verbs.add_parser(
        "policy", help=policy_help, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG
    )
    add = policy.add_argument
    models_help = "folders of runs or of language models, or written: the rows' own"
    add("models", nargs="*", metavar="MODEL", help=models_help)
    add("--policy", action="append", default=[], metavar="NAME=DIR,…", help=_POLICY_HELP)
    add("--against", action="append", default=[], metavar="NAME", help="compare with it (default: the first)")
    _add_prompt_options(policy)
    answers_help = "to each prompt, with each seed (default: 1)"
    add("--answers", type=parser.positive_integer, default=1, help=answers_help)
    add("--seeds", type=parser.positive_integer, default=1, help="how many, counted from --seed (default: 1)")
    add("--seed", type=parser.integer, default=0, help="of chance (default: 0)")
    add("--temperature", type=float, default=1.0, help="0 is the likeliest token every time (default: 1)")
    add("--max-tokens", type=parser.positive_integer, default=64, help="where an answer is cut (default: 64)")
    add("--judge", action="append", default=[], metavar="WHO", help="who compares answers; may be repeated")
    add("--reward", type=parser.model_path, metavar="DIR", help="a learnt reward, shown beside")
    best_of_help = "of N answers of the reference --reward takes the best"
    add("--best-of", type=parser.positive_integer, metavar="N", help=best_of_help)
    tax_help = "prompts with answers and a rule: what became of it since the first --against; may be repeated"
    add("--right", metavar="RULE", help="a rule that says which answers are right: pass@k, with --answers")
    add("--tax", action="append", default=[], metavar="FILE:RULE", help=tax_help)
    add("--out", type=Path, metavar="DIR", help="write policies.json and answers.jsonl there")
    _add_advanced_options(policy)


def _add_prompt_options(policy: argparse.ArgumentParser) -> None:
    add = policy.add_argument
    add("--prompts", type=Path, metavar="FILE", help="rows of any kind: their prompts are asked")
    add("--world", action="store_true", help="ask the world's prompts, whose answers have a true worth")
    add("--choices", type=Path, metavar="FILE", help=_CHOICES_HELP)
    add("--split", choices=SPLITS, default="test", help="of the world (default: test)")
    n_help = f"at most so many prompts, by chance (of the world: {WORLD_PROMPTS})"
    add("--n", type=parser.positive_integer, help=n_help)


def _add_advanced_options(policy: argparse.ArgumentParser) -> None:
    def add_hidden(*names: str, help: str, **settings: Any) -> tuple[argparse.Action, str]:
        return policy.add_argument(*names, help=argparse.SUPPRESS, **settings), help

    pass_help = "the k of pass@k; may be repeated (default: 1, 2, 4 … up to --answers)"
    tasks_help = "as --tax, by tasks of lm-eval, --n items of each; may be repeated"
    people_help = "comparisons by people of some of these answers: correct the judges"
    token_help = "environment variable with the token of an openai: judge"
    hidden = [
        *parser.add_row_options(add_hidden),
        add_hidden("--bootstrap", type=parser.positive_integer, default=1000, help=BOOTSTRAP_HELP),
        add_hidden("--device", default="auto", help="auto, cpu or cuda (default: auto)"),
        add_hidden("--dtype", default="auto", help="auto, float32 or bfloat16 (default: auto)"),
        add_hidden("--tasks", action="append", default=[], metavar="NAME", help=tasks_help),
        add_hidden("--tasks-folder", type=Path, metavar="DIR", help="where your own tasks of lm-eval are"),
        add_hidden("--people", type=parser.given_path, metavar="ROWS", help=people_help),
        add_hidden(
            "--card", type=parser.given_path, action="append", default=[], help="of a judge: correct it"
        ),
        add_hidden("--token-from", metavar="VAR", help=token_help),
        add_hidden("--pass-at", type=parser.positive_integer, action="append", default=[], help=pass_help),
    ]
    policy.add_argument("--help-all", action=parser.HelpAll, hidden=hidden, help="show every option and exit")


def run(args: argparse.Namespace) -> int:
    _check_arguments(args)
    parser.refuse_missing_models(*(model for model in args.models if model != WRITTEN))
    args.models = [model if model == WRITTEN else hub.local_word(model, "model") for model in args.models]
    args.judge = [hub.local_word(judge, "model") for judge in args.judge]
    from plaudit.cli.eval.tables import print_policy_tables
    from plaudit.evaluation.policies.evaluate import check_policies, evaluate_policies
    from plaudit.evaluation.policies.judge import check_judge
    from plaudit.evaluation.policies.result import write_policy_evaluation
    from plaudit.evaluation.run import requested_prompts, requested_scorers
    from plaudit.files.atomic import make_output_folder

    models = _contestants_by_name(args)
    settings = _evaluation_settings(args, models)
    for word in args.judge:
        check_judge(word, has_gold=args.world)
    _check_taxed(args, models, settings)
    # Both for their faults alone: a bad file should not come to light after hours of sampling.
    read_tax_tasks(args.tax)
    lm_eval_harness(args)
    prompts = requested_prompts(args, parser.row_options(args), args.format)
    check_policies(models, prompts, settings)
    # Made now: a folder that cannot be written should not cost the whole evaluation.
    if args.out is not None:
        make_output_folder(args.out)
    console = make_console()
    judges = args.judge or (["gold"] if args.world else [str(args.reward)] if args.reward else [])
    evaluation = evaluate_policies(
        models,
        prompts,
        requested_scorers(args, WORLD if args.world else None, judges),
        settings,
        on_progress=lambda sentence: console.print(f"{sentence} …", style="dim"),
    )
    evaluation = replace(evaluation, notes=(*_trained_prompts_notes(args, models), *evaluation.notes))
    print_policy_tables(evaluation, console)
    report_alignment_tax(args, models, settings, console)
    if args.out is not None:
        console.print(", ".join(str(path) for path in write_policy_evaluation(evaluation, args.out)))
    return 0


def _trained_prompts_notes(args: argparse.Namespace, models: Mapping[str, Contestant]) -> Iterator[str]:
    from plaudit.config import load_yaml
    from plaudit.engine.run_folder import hash_path, read_lineage
    from plaudit.rewards.load import model_folder

    if args.prompts is None:
        return
    content = hash_path(hub.local_path(args.prompts, "dataset", split=parser.row_options(args).split))
    for name, contestant in models.items():
        folder = None if contestant.folder is None else model_folder(contestant.folder)
        origin = None if folder is None else folder.absolute().parent / "lineage.json"
        if origin is None or not origin.is_file():
            continue
        # Held-out rows are in a lineage as well, and were not learnt.
        config = origin.with_name("config.yaml")
        held_out = load_yaml(config)[0].get("held_out") if config.is_file() else None
        if content in {seal for name, seal in read_lineage(origin).data.items() if name != held_out}:
            yield (
                f"{name} was trained on {args.prompts}, whose prompts are asked here: what it learnt by "
                "heart looks like a better policy; ask prompts that it has not seen"
            )


def _check_arguments(args: argparse.Namespace) -> None:
    if args.world == (args.prompts is not None):
        raise UserError("give either --world, for the world's prompts, or --prompts FILE")
    if args.bootstrap < 2:
        raise UserError(f"--bootstrap {args.bootstrap}: expected 2 or more, 1000 for a steady interval")
    if args.best_of is not None and not (args.world and args.reward):
        raise UserError("--best-of needs a reward that chooses (--reward DIR) and the true worth (--world)")
    if args.pass_at and args.right is None:
        raise UserError("--pass-at needs a rule that says which answers are right: --right RULE")
    if not (args.models or args.policy):
        raise UserError(
            "name a policy: a MODEL, the folder of a run or a language model, or --policy NAME=DIR"
        )
    for option in ("models", "judge"):
        values = getattr(args, option)
        repeated = next((value for value in values if values.count(value) > 1), None)
        if repeated is not None:
            raise UserError(f"{repeated} is given {values.count(repeated)} times; name each once")


def _contestants_by_name(args: argparse.Namespace) -> dict[str, Contestant]:
    from plaudit.evaluation.policies.generate import Contestant, prompted_policy

    folders = [Path(model) for model in args.models if model != WRITTEN]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UserError("two of the folders are the same; name each policy once")
    names = iter(short_names(folders) if folders else ())
    contestants: dict[str, Contestant] = {}
    for model in args.models:
        if model != WRITTEN:
            contestants[next(names)] = Contestant(folder=Path(model))
            continue
        if Path(WRITTEN).exists():
            raise UserError(
                f"{WRITTEN} is the word for the rows' own answers: give the folder as ./{WRITTEN}"
            )
        if args.world:
            raise UserError(
                f"{WRITTEN}: the world's prompts hold no answers; give rows that do, --prompts FILE"
            )
        contestants[WRITTEN] = Contestant(folder=None)
    for word in args.policy:
        name, contestant = prompted_policy(word)
        if name in contestants:
            raise UserError(f"--policy {word}: {name} is there already; give it another name")
        contestants[name] = contestant
    return contestants


def _evaluation_settings(args: argparse.Namespace, models: Mapping[str, Contestant]) -> EvaluationSettings:
    from plaudit.evaluation.run import requested_choices, requested_settings

    # --against may name a policy by its folder or as the tables do.
    folders = {
        str(model.folder): name for name, model in models.items() if model.folder and not model.has_context
    }
    against = {str(hub.local_path(name, "model")): str(name) for name in args.against}
    names = tuple(dict.fromkeys(folders.get(folder, name) for folder, name in against.items()))
    return requested_settings(args, names, requested_choices(args), args.best_of or 0)


TAX_FILE = "tax.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxTask:
    """A set of prompts with right answers, and the reward rule that checks them."""

    name: str
    prompts: tuple[EvaluationPrompt, ...]
    rule: Reward


def read_tax_tasks(words: Sequence[str]) -> tuple[TaxTask, ...]:
    """The batteries of ``TAX_FILE:RULE``, every file and rule looked at."""
    from plaudit.data.read import read_records
    from plaudit.evaluation.policies.generate import evaluation_prompts
    from plaudit.rewards.registry import resolve_reward

    tasks: list[TaxTask] = []
    for word in words:
        file, _, rule = word.partition(":")
        if not rule or not Path(file).is_file():
            raise UserError(f"--tax {word}: give a file and a rule, as in --tax sums.jsonl:number")
        prompts = evaluation_prompts(read_records(file).records)
        tasks.append(TaxTask(name=f"{Path(file).stem} ({rule})", prompts=prompts, rule=resolve_reward(rule)))
    return tuple(tasks)


def lm_eval_harness(args: argparse.Namespace) -> HarnessTasks | None:
    """What lm-evaluation-harness is to ask, where it is to ask anything."""
    if args.tasks_folder is not None and not args.tasks:
        raise UserError("--tasks-folder says where tasks are; name them with --tasks")
    if not args.tasks:
        return None
    from plaudit.evaluation.policies.alignment_tax import HarnessTasks
    from plaudit.models.load import device_of

    if find_spec("lm_eval") is None:
        raise UserError('--tasks needs lm-evaluation-harness: pip install "plaudit[tax]"')
    device = str(device_of(args.device))
    return HarnessTasks(tasks=tuple(args.tasks), folder=args.tasks_folder, device=device, limit=args.n)


def _check_taxed(
    args: argparse.Namespace, models: Mapping[str, Contestant], settings: EvaluationSettings
) -> None:
    if not (args.tax or args.tasks):
        return
    reference = settings.against[0] if settings.against else next(iter(models))
    if reference in models and models[reference].folder is None:
        raise UserError(
            "--tax measures what is lost since the reference: name a model first, or with --against"
        )
    prompted = [name for name, model in models.items() if model.has_context]
    if args.tasks and prompted:
        raise UserError(
            f"--tasks asks a model as it is, without the prompt of {prompted[0]}; use --tax FILE:RULE"
        )


def report_alignment_tax(
    args: argparse.Namespace, models: Mapping[str, Contestant], settings: EvaluationSettings, console: Console
) -> None:
    """Evaluate all policies on the tasks, print the changes since the reference, write them to --out."""
    from plaudit.evaluation.policies.alignment_tax import paired_changes, run_harness
    from plaudit.files.atomic import write_json
    from plaudit.rewards.load import model_folder

    if not (args.tax or args.tasks):
        return
    tasks, harness = read_tax_tasks(args.tax), lm_eval_harness(args)
    reference = settings.against[0] if settings.against else next(iter(models))
    # Written answers lost nothing.
    folders = {name: model.folder for name, model in models.items() if model.folder is not None}
    items_by_policy = {name: _evaluate_tasks(models[name], tasks, settings) for name in folders}
    if harness is not None:
        for name, folder in folders.items():
            console.print(f"lm-evaluation-harness asks {name} …", style="dim")
            items_by_policy[name] += run_harness(model_folder(folder), harness)
    taxes = {
        name: paired_changes(items_by_policy[reference], items, settings.resampling)
        for name, items in items_by_policy.items()
        if name != reference
    }
    _print_taxes(reference, taxes, console)
    if args.out is not None:
        rows = [
            {"policy": name, "against": reference, **asdict(tax)}
            for name, changes in taxes.items()
            for tax in changes
        ]
        write_json(args.out / TAX_FILE, rows)
        console.print(str(args.out / TAX_FILE))


def _evaluate_tasks(
    contestant: Contestant, tasks: Sequence[TaxTask], settings: EvaluationSettings
) -> list[TaskItem]:
    from plaudit.evaluation.policies.alignment_tax import items_from_prompts
    from plaudit.evaluation.policies.generate import load_policy_folder

    policy = load_policy_folder(contestant, settings.drawing)
    max_tokens = settings.drawing.sampling.max_tokens
    return [
        item
        for task in tasks
        for item in items_from_prompts(task.name, policy, task.prompts, task.rule, max_tokens=max_tokens)
    ]


def _print_taxes(
    reference: str, taxes_by_policy: Mapping[str, Sequence[TaskChange]], console: Console
) -> None:
    from plaudit.cli.eval.tables import print_table

    for name, taxes in taxes_by_policy.items():
        rows: list[tuple[str, list[str]]] = []
        for tax in taxes:
            shares = [f"{100 * estimate.value:.1f} %" for estimate in (tax.before, tax.after)]
            rows.append((tax.task, [*shares, _format_change(tax.change), f"{tax.gained} / {tax.lost}"]))
        title = f"What {name} can do that {reference} could: likeliest answers, item by item"
        print_table(title, rows, [reference, name, "change", "gained / lost"], console)


def _format_change(change: Estimate) -> str:
    if change.low is None or change.high is None:
        return f"{100 * change.value:+.1f}"
    return f"{100 * change.value:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f})"
