"""``plaudit train``: one verb for each way to learn.

``plaudit train --list``: the algorithms that are rows of tables, from the tables in the code.
"""

import argparse
import sys
import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from plaudit.cli.parser import Subparsers, add_method_options, read_config, refuse_missing_inputs
from plaudit.methods.iterative.algorithms import ITERATIVE_ALGORITHMS, LoopAlgorithm
from plaudit.methods.policy.algorithms import POLICY_ALGORITHMS
from plaudit.methods.policy.cells import describe_cells as describe_policy_cells
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS
from plaudit.methods.preference.cells import describe_cells
from plaudit.methods.registry import METHODS, TABLES, run_method

PREFERENCE_LEGEND = (
    "h = Δ_w − Δ_l, Δ = log π(y|x) − log π_ref(y|x), of a preferred answer w and another one l; without a",
    "reference Δ = log π(y|x). pairs: comparisons and rankings. thumbs: single answers, good or bad.",
    "Settings are given as --beta 0.05; plaudit train NAME --help-all shows the cells that any takes.",
    "An algorithm of your own: plaudit train preference --algorithm mine.py:name.",
)
POLICY_LEGEND = (
    "Policy optimisation: draw answers, score them, move to those better than expected (docs/policy.md).",
    "r is π / π_old or the reward, A the advantage. Settings are given as --kl-coef 0.05,",
    "and plaudit train NAME --help-all shows the cells that any takes, with what they read.",
    "An algorithm of your own: plaudit train policy --algorithm mine.py:name.",
)
LOOP_LEGEND = (
    "Loops that make their own rows: draw answers, score them, choose, train, and again (docs/loops.md).",
    "r is the reward. Settings: --loop.answers 8; a preference algorithm's: --preference.beta 0.05.",
)
SettingValue = int | float | str | tuple[str, ...] | tuple[float, ...]


def print_algorithms() -> None:
    """Each algorithm with its loss, its data, its cells and where it is from; and what the letters mean."""
    for facts in PREFERENCE_ALGORITHMS.values():
        cells = f"{facts.data} · {describe_cells(facts.function())}"
        _print_row(facts, cells)
    print("\n" + "\n".join(PREFERENCE_LEGEND))
    print("\n" + "\n".join(POLICY_LEGEND) + "\n")
    for row in POLICY_ALGORITHMS.values():
        cells = describe_policy_cells(row.function())
        _print_row(row, cells)
    print("\n" + "\n".join(LOOP_LEGEND) + "\n")
    for loop in ITERATIVE_ALGORITHMS.values():
        _print_row(loop, loop.cells)


def format_settings(defaults: Mapping[str, SettingValue | None]) -> str:
    """A row's own settings with their values.

    >>> format_settings({"beta": 0.1, "mix": ("dpo=0.8", "bco-pair=0.2")})
    'beta 0.1, mix dpo=0.8 bco-pair=0.2'
    """
    given = {name: value for name, value in defaults.items() if value is not None}
    return ", ".join(f"{name} {_format_value(value)}" for name, value in given.items())


def _print_row(facts: Any, cells: str) -> None:
    print(f"{facts.name:18} {facts.formula}")
    print(f"{'':18} {cells} · {format_settings(facts.defaults)}")
    print(f"{'':18} {facts.paper}")


def _format_value(value: SettingValue) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(_format_value(item) for item in value)
    return f"{value:g}" if isinstance(value, int | float) else value


def _loop_help(facts: LoopAlgorithm) -> str:
    settings = ", ".join(f"--loop.{setting}" for setting in format_settings(facts.defaults).split(", "))
    return f"draw answers and learn from them: {facts.formula}. {facts.paper}. Its own settings: {settings}"


_HELP_BUILDERS: tuple[Callable[[Any], str], ...] = (
    lambda facts: f"learn a policy from {facts.data}: {facts.formula}. {facts.paper}.",
    lambda facts: f"improve a policy by a reward: {facts.formula}. {facts.paper}.",
    _loop_help,
)
"""From an algorithm's facts to its help, for each of the tables."""


def add_parser(subparsers: Subparsers) -> None:
    epilog = "plaudit train --list says what these are. " + " ".join(
        f"{table.title}: {', '.join(table.rows)}." for table in TABLES
    )
    train = subparsers.add_parser("train", epilog=epilog, formatter_class=_UnbrokenNamesFormatter)
    train.add_argument("--list", action=_ListAlgorithms, nargs=0, help="list the algorithms, and exit")
    methods = train.add_subparsers(dest="method", required=True, metavar="METHOD")
    for name, (_, text, _) in METHODS.items():
        parser = methods.add_parser(name, help=text, description=text)
        parser.add_options_on_use = partial(add_method_options, method=name)
    for table, build_help in zip(TABLES, _HELP_BUILDERS, strict=True):
        for name, facts in table.rows.items():
            # Without ``help`` argparse does not list it: dozens more would hide the ten above.
            parser = methods.add_parser(name, description=build_help(facts))
            parser.add_options_on_use = partial(add_method_options, method=name)
    train.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    config: Any = read_config(args.config_type, args)
    refuse_missing_inputs(config)
    from plaudit.engine.distributed import is_first_process
    from plaudit.engine.step import InterruptedRunError

    try:
        summary = run_method(args.method, config)
    except InterruptedRunError as stop:
        if is_first_process():
            print(f"plaudit: {stop}; the same command goes on from here", file=sys.stderr)
        # As a shell reports a program that a signal ended.
        return 128 + stop.signum
    if summary is not None:
        model = config.out / "model"
        print(f"The model is in {model if model.is_dir() else config.out}")
    return 0


class _UnbrokenNamesFormatter(argparse.HelpFormatter):
    """Breaks no name at its hyphen, so that it can be searched for and copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        normalised = " ".join(text.split())
        return textwrap.fill(
            normalised, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )


class _ListAlgorithms(argparse.Action):
    def __call__(self, *_: Any) -> None:
        print_algorithms()
        raise SystemExit(0)
