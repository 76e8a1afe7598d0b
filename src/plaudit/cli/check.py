"""``plaudit check``: a train command looked over before it is given; write check in place of train."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.cli.json_file import write_json
from plaudit.cli.options import add_options, read_config
from plaudit.cli.parser import Verbs
from plaudit.cli.talking import make_console
from plaudit.configs.suggest import did_you_mean
from plaudit.errors import UserError
from plaudit.recipes.methods import looked_at

if TYPE_CHECKING:
    from plaudit.checks.check import Check
    from plaudit.checks.checking import Finding

_EPILOG = """\
Every option is that of plaudit train METHOD; nothing is written, and --out may be left out. The exit
status is 1 when a check fails that is not named in --allow. docs/checks.md"""


def add_parser(subparsers: Verbs) -> None:
    """Add ``check`` and the methods that it knows."""
    check = subparsers.add_parser(
        "check",
        help="prove, before a run, that rows, model, reward and sampler are what you think",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    check.add_argument("--list", action=_List, nargs=0, help="list the checks, and exit")
    methods = check.add_subparsers(dest="method", required=True, metavar="METHOD")
    for name, config_type in looked_at().items():
        method = methods.add_parser(name, description=f"look plaudit train {name} over, and train nothing")
        method.fill = partial(_add_options, config_type=config_type)
    check.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look, print the table, write the file; 1 when something fails that may not."""
    from rich.text import Text

    from plaudit.checks.report import as_dict, failures, finding_table, left_aside
    from plaudit.recipes.checking import look
    from plaudit.recipes.kinds import kind_of

    chosen = _chosen(args.only or ())
    config: Any = read_config(looked_at()[args.method], args, fallback={("out",): Path("unwritten")})
    console = make_console()
    findings: list[Finding] = []
    with console.status("") as status:
        for one in look(config, kind_of(args.method, config), chosen):
            findings.append(one)
            status.update(f"{len(findings)} of {len(chosen)} checks")
    console.print(finding_table(findings))
    aside = left_aside(findings)
    if aside:
        console.print(f"Not applicable:\n{aside}\n", markup=False, highlight=False, style="dim")
    for text in (one.result.shown for one in findings):
        if text is not None:
            console.print(Text.from_ansi(text))
    said = failures(findings)
    if said:
        console.print(said, markup=False, highlight=False)
    console.print(_summary(findings))
    if args.json is not None:
        write_json(args.json, as_dict(findings))
    return 1 if any(one.stops for one in findings) else 0


def _add_options(parser: argparse.ArgumentParser, config_type: type) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found there")
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="these checks, and no others")
    add_options(parser, config_type)


def _chosen(only: list[str] | tuple[str, ...]) -> list[Check]:
    from plaudit.checks.table import CHECKS

    for name in only:
        if name not in CHECKS:
            hint = did_you_mean(name, CHECKS) or f"; they are {', '.join(CHECKS)}"
            raise UserError(f"--only {name}: there is no such check{hint}")
    return [check for name, check in CHECKS.items() if not only or name in only]


def _summary(findings: list[Finding]) -> str:
    counts = {word: sum(one.word == word for one in findings) for word in ("pass", "FAIL", "allowed")}
    rest = len(findings) - sum(counts.values())
    seconds = sum(one.seconds for one in findings)
    allowed = f", {counts['allowed']} allowed to fail" if counts["allowed"] else ""
    fail = f"{counts['FAIL']} fail" if counts["FAIL"] else "none fails"
    return f"{counts['pass']} checks pass, {fail}{allowed}, {rest} not applicable; {seconds:.1f} s"


class _List(argparse.Action):
    """Prints what is looked at."""

    def __call__(self, *_: Any) -> None:
        from plaudit.checks.table import CHECKS

        for name, check in CHECKS.items():
            print(f"{name}: {check.proves}")
        raise SystemExit(0)
