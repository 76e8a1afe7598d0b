"""``plaudit check``: a train command looked over before it is given; write check in place of train."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.cli.parser import Subparsers, add_method_options, read_config, refuse_missing_inputs, write_json
from plaudit.cli.sample import make_console
from plaudit.methods.registry import preflight_methods

if TYPE_CHECKING:
    from plaudit.preflight.check import Check, Finding

_EPILOG = """\
Every option is that of plaudit train METHOD; nothing is written, and --out may be left out. The exit
status is 1 when a check fails that is not named in --allow. docs/checks.md"""


def add_parser(subparsers: Subparsers) -> None:
    check = subparsers.add_parser(
        "check", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG
    )
    check.add_argument("--list", action=_ListChecks, nargs=0, help="list the checks, and exit")
    methods = check.add_subparsers(dest="method", required=True, metavar="METHOD")
    for name in preflight_methods():
        method = methods.add_parser(name, description=f"look plaudit train {name} over, and train nothing")
        method.add_options_on_use = partial(_add_options, method=name)
    check.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the checks, print the table, write the file; 1 when a check fails that may not."""
    config: Any = read_config(args.config_type, args, fallback={("out",): Path("unwritten")})
    refuse_missing_inputs(config)
    from rich.text import Text

    from plaudit.methods.named_runs import preflight_findings
    from plaudit.preflight.report import as_dict, failures_text, finding_table, not_applicable_text

    selected = _selected_checks(args.only or ())
    console = make_console()
    findings: list[Finding] = []
    with console.status("") as status:
        for finding in preflight_findings(args.method, config, selected):
            findings.append(finding)
            status.update(f"{len(findings)} of {len(selected)} checks")
    console.print(finding_table(findings))
    not_applicable = not_applicable_text(findings)
    if not_applicable:
        console.print(f"Not applicable:\n{not_applicable}\n", markup=False, highlight=False, style="dim")
    for text in (finding.result.rendered_rows for finding in findings):
        if text is not None:
            console.print(Text.from_ansi(text))
    failure_text = failures_text(findings)
    if failure_text:
        console.print(failure_text, markup=False, highlight=False)
    console.print(_summary_line(findings))
    if args.json is not None:
        write_json(args.json, as_dict(findings))
    return 1 if any(finding.blocks_run for finding in findings) else 0


def _add_options(parser: argparse.ArgumentParser, words: Sequence[str], *, method: str) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found there")
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="these checks, and no others")
    add_method_options(parser, words, method=method)


def _selected_checks(only: list[str] | tuple[str, ...]) -> list[Check]:
    from plaudit.preflight.check import refuse_unknown_checks
    from plaudit.preflight.checks import CHECKS

    refuse_unknown_checks("--only", only, CHECKS)
    return [check for name, check in CHECKS.items() if not only or name in only]


def _summary_line(findings: list[Finding]) -> str:
    counts = {
        word: sum(finding.verdict == word for finding in findings)
        for word in ("pass", "warn", "FAIL", "allowed")
    }
    rest = len(findings) - sum(counts.values())
    seconds = sum(finding.seconds for finding in findings)
    allowed = f", {counts['allowed']} allowed to fail" if counts["allowed"] else ""
    fail = f"{counts['FAIL']} fail" if counts["FAIL"] else "none fails"
    warn = f", {counts['warn']} worth a look" if counts["warn"] else ""
    return f"{counts['pass']} checks pass, {fail}{warn}{allowed}, {rest} not applicable; {seconds:.1f} s"


class _ListChecks(argparse.Action):
    def __call__(self, *_: Any) -> None:
        from plaudit.preflight.checks import CHECKS

        for name, check in CHECKS.items():
            print(f"{name}: {check.texts['proves']}")
        raise SystemExit(0)
