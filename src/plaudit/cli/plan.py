"""``plaudit plan``: what a train command will cost; write plan in place of train."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.cli.json_file import write_json
from plaudit.cli.numbers import count
from plaudit.cli.options import add_options, read_config
from plaudit.cli.parser import Verbs
from plaudit.cli.talking import make_console
from plaudit.errors import UserError
from plaudit.recipes.methods import looked_at

if TYPE_CHECKING:
    from plaudit.recipes.config import RunConfig
    from plaudit.recipes.planning.pace import Pace
    from plaudit.recipes.planning.price import Planned, Price
    from plaudit.recipes.planning.rows import Lengths

_EPILOG = """\
Every option is that of plaudit train METHOD; nothing is written, and --out may be left out. A model folder
may hold config.json alone. The exit status is 1 when the run does not fit. docs/plan.md"""


def add_parser(subparsers: Verbs) -> None:
    """Add ``plan`` and the methods that it knows."""
    plan = subparsers.add_parser(
        "plan",
        help="say what a run will cost before it begins: steps, memory, time and disk",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    methods = plan.add_subparsers(dest="method", required=True, metavar="METHOD")
    for name, config_type in looked_at().items():
        method = methods.add_parser(name, description=f"plan plaudit train {name}, and train nothing")
        method.fill = partial(_add_options, config_type=config_type)
    plan.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Say what it costs; 1 when it does not fit."""
    from plaudit.recipes.planning.nearest import least, nearest
    from plaudit.recipes.planning.price import as_measured, as_run, at_home, price, times
    from plaudit.recipes.planning.words import as_dict

    said: Any = read_config(looked_at()[args.method], args, fallback={("out",): Path("unplanned")})
    config = as_run(args.method, said)
    planned = _planned(args, config)
    found = at_home(price(planned), _process(planned.machine.where))
    pace = _pace(args, found)
    found = as_measured(found, pace)
    spent = None if pace is None else times(found, pace)
    offers = () if found.fits else nearest(found)
    _print(found, _time_lines(spent, pace))
    if not found.fits:
        _print_offers(offers, None if offers else least(found), planned.machine.memory)
    if args.json is not None:
        write_json(args.json, as_dict(found, spent, pace, offers))
    return 0 if found.fits else 1


def _add_options(parser: argparse.ArgumentParser, config_type: type) -> None:
    own = parser.add_argument_group("plan")
    own.add_argument(
        "--machine-memory", metavar="SIZE", help="memory of one process, as 24GiB; none: what is here"
    )
    own.add_argument("--on", choices=("cpu", "cuda"), help="what that machine computes on; none: as here")
    own.add_argument("--ranks", type=count, default=1, metavar="N", help="processes that share the work")
    own.add_argument(
        "--prompt-tokens", type=count, metavar="N", help="length of prompts, without a tokenizer"
    )
    own.add_argument(
        "--answer-tokens", type=count, metavar="N", help="length of answers, without a tokenizer"
    )
    own.add_argument(
        "--tokens-per-second", type=float, metavar="X", help="the pace of one process, not measured"
    )
    own.add_argument("--no-measure", action="store_true", help="take no step: say nothing of time")
    own.add_argument("--json", type=Path, metavar="FILE", help="write the plan there")
    add_options(parser, config_type)


def _planned(args: argparse.Namespace, config: RunConfig) -> Planned:
    from plaudit.recipes.planning.machine import bytes_in, this_machine
    from plaudit.recipes.planning.price import Planned
    from plaudit.recipes.planning.rows import planned_rows

    memory = None if args.machine_memory is None else bytes_in(args.machine_memory)
    machine = this_machine(config.device, where=args.on, memory=memory, ranks=args.ranks)
    rows = planned_rows(args.method, config, _lengths(args))
    return Planned(method=args.method, config=config, rows=rows, machine=machine, process=0)


def _process(where: str) -> int:
    """What Python and its libraries take by now, where models lie in the same memory."""
    from plaudit.training.flops import memory_mib

    return int((memory_mib().now or 0.0) * 1024 * 1024) if where == "cpu" else 0


def _lengths(args: argparse.Namespace) -> Lengths | None:
    from plaudit.recipes.planning.rows import Lengths

    if args.prompt_tokens is None and args.answer_tokens is None:
        return None
    if args.prompt_tokens is None or args.answer_tokens is None:
        raise UserError("say both --prompt-tokens and --answer-tokens, or neither")
    return Lengths(prompt=args.prompt_tokens, answer=args.answer_tokens)


def _pace(args: argparse.Namespace, found: Price) -> Pace | None:
    """What was said, or what is measured where the model is there and fits."""
    from plaudit.models.files import has_weights
    from plaudit.recipes.planning.pace import Pace, measured

    if args.tokens_per_second is not None:
        if not args.tokens_per_second > 0:
            raise UserError(f"--tokens-per-second is above 0, not {args.tokens_per_second:g}")
        return Pace(tokens=args.tokens_per_second)
    config = found.planned.config
    here = args.on is None and args.machine_memory is None and args.prompt_tokens is None
    if args.no_measure or not here or not found.fits or not has_weights(config.model):
        return None
    with make_console().status("measuring some steps"):
        return measured(args.method, config, found.roles.reference)


def _time_lines(spent: Any, pace: Pace | None) -> list[str]:
    from plaudit.recipes.planning.words import time_in_words

    if pace is None:
        return ["time: not measured; say --tokens-per-second, or plan on the machine itself with the weights"]
    return [*time_in_words(spent, pace)]


def _print(found: Price, time_lines: list[str]) -> None:
    from plaudit.recipes.planning.words import disk_table, memory_table, sentences, verdict

    console = make_console()
    lines = [*found.planned.rows.notes, *sentences(found), *time_lines]
    for line in lines:
        console.print(line, markup=False, highlight=False)
    console.print(memory_table(found))
    console.print(disk_table(found))
    for unknown in found.roles.unknown:
        console.print(f"{unknown}: what it takes itself is not counted", markup=False, highlight=False)
    console.print(verdict(found), markup=False, highlight=False)


def _print_offers(offers: Any, most: Any, room: int) -> None:
    from plaudit.recipes.planning.words import offers_in_words

    console = make_console()
    if offers:
        console.print(
            "these would, nearest first; those that leave the gradient as it is come before others:"
        )
    for line in offers_in_words(offers, most, room):
        console.print(line, markup=False, highlight=False)
