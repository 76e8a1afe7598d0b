"""What policies were able to do before, and no longer are: the alignment tax on the console."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from plaudit.evaluation.policies.drawn import Asked
    from plaudit.evaluation.policies.evaluate import EvaluationSettings
    from plaudit.evaluation.policies.harness import Harness
    from plaudit.evaluation.policies.tax import Item, Tax
    from plaudit.evaluation.result import Estimate
    from plaudit.rewards.reward import Reward

FILE = "tax.json"
"""What became of each task, by policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    """Questions with right answers, and the rule that knows them.

    Example: ``batteries(["sums.jsonl:number"])[0].name``
    """

    name: str
    """What tables call it."""
    asked: tuple[Asked, ...]
    """The questions."""
    rule: Reward
    """What scores answers."""


def batteries(words: Sequence[str]) -> tuple[Battery, ...]:
    """The batteries of ``FILE:RULE``, every file and rule looked at."""
    from plaudit.evaluation.policies.drawn import asked_of
    from plaudit.rewards.named import reward_named
    from plaudit.sources.read import read_records

    found: list[Battery] = []
    for word in words:
        file, _, rule = word.partition(":")
        if not rule or not Path(file).is_file():
            raise UserError(f"--tax {word}: give a file and a rule, as in --tax sums.jsonl:number")
        asked = asked_of(read_records(file).records)
        found.append(Battery(name=f"{Path(file).stem} ({rule})", asked=asked, rule=reward_named(rule)))
    return tuple(found)


def harness_of(args: argparse.Namespace) -> Harness | None:
    """What lm-evaluation-harness is to ask, where it is to ask anything."""
    if args.tasks_folder is not None and not args.tasks:
        raise UserError("--tasks-folder says where tasks are; name them with --tasks")
    if not args.tasks:
        return None
    from plaudit.evaluation.policies.harness import Harness
    from plaudit.models.device import device_of

    if find_spec("lm_eval") is None:
        raise UserError('--tasks needs lm-evaluation-harness: pip install "plaudit[tax]"')
    return Harness(
        tasks=tuple(args.tasks), folder=args.tasks_folder, device=str(device_of(args.device)), limit=args.n
    )


def tell_taxes(
    args: argparse.Namespace,
    models: Mapping[str, Path],
    settings: EvaluationSettings,
    console: Console,
) -> None:
    """Ask the reference and all others, print the changes, write them where --out is."""
    from plaudit.evaluation.policies.harness import harness_items
    from plaudit.evaluation.policies.tax import paired
    from plaudit.rewards.folder import model_folder

    if not (args.tax or args.tasks):
        return
    tasks, harness = batteries(args.tax), harness_of(args)
    before = settings.against[0] if settings.against else next(iter(models))
    asked = {name: _items(folder, tasks, settings) for name, folder in models.items()}
    if harness is not None:
        for name, folder in models.items():
            console.print(f"lm-evaluation-harness asks {name} …", style="dim")
            asked[name] += harness_items(model_folder(folder), harness)
    found = {
        name: paired(asked[before], items, settings.resampling)
        for name, items in asked.items()
        if name != before
    }
    _print(before, found, console)
    if args.out is not None:
        _write(args.out / FILE, before, found)
        console.print(str(args.out / FILE))


def _items(folder: Path, tasks: Sequence[Battery], settings: EvaluationSettings) -> list[Item]:
    from plaudit.evaluation.policies.drawn import load_speaker
    from plaudit.evaluation.policies.tax import asked_items

    speaker = load_speaker(folder, settings.drawing)
    most = settings.drawing.sampling.max_tokens
    return [
        item
        for task in tasks
        for item in asked_items(task.name, speaker, task.asked, task.rule, max_tokens=most)
    ]


def _print(before: str, found: Mapping[str, Sequence[Tax]], console: Console) -> None:
    from plaudit.cli.evaluate_table import table

    for name, taxes in found.items():
        rows = [
            (
                one.task,
                [*_both(one), _points(one.change), f"{one.gained} / {one.lost}"],
            )
            for one in taxes
        ]
        heads = [before, name, "change", "gained / lost"]
        table(
            f"What {name} can do that {before} could: likeliest answers, item by item", rows, heads, console
        )


def _both(tax: Tax) -> list[str]:
    return [f"{100 * one.value:.1f} %" for one in (tax.before, tax.after)]


def _points(change: Estimate) -> str:
    if change.low is None or change.high is None:
        return f"{100 * change.value:+.1f}"
    return f"{100 * change.value:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f})"


def _write(path: Path, before: str, found: Mapping[str, Sequence[Tax]]) -> None:
    from plaudit.sources.atomic import AtomicFile

    rows = [
        {"policy": name, "against": before, **asdict(tax)} for name, taxes in found.items() for tax in taxes
    ]
    with AtomicFile(path) as file:
        file.stream.write(json.dumps(rows, ensure_ascii=False, indent=2, allow_nan=False).encode() + b"\n")
