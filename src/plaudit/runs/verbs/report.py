"""``plaudit report``: the page of a run, written again; or one page that compares several."""

import argparse
import math
import time
from pathlib import Path

from plaudit.cli.parser import Subparsers
from plaudit.errors import UserError
from plaudit.files import atomic

_COMPARISON = "comparison.html"
_EPILOG = """\
A RUN is the folder of a pipeline (plaudit run), of a training run (plaudit train), or of an evaluation
(plaudit eval policy --out). It may be unfinished: the page shows what is there, and with --watch it is
written again, and the browser loads it again, until all have ended. docs/report.md"""


def add_parser(subparsers: Subparsers) -> None:
    report = subparsers.add_parser(
        "report", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG
    )
    report.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a folder")
    help_text = f"where to write (default: report.html in RUN; of several, {_COMPARISON} here)"
    report.add_argument("--out", type=Path, metavar="FILE", help=help_text)
    help_text = "write it again every so many seconds, until the runs have ended"
    report.add_argument("--watch", type=float, metavar="SECONDS", help=help_text)


def run(args: argparse.Namespace) -> int:
    for folder in args.runs:
        if not folder.is_dir():
            raise UserError(f"{folder}: there is no such folder. Name the folder that was `--out`.")
    if args.out is not None and args.out.is_dir():
        raise UserError(
            f"--out {args.out}: a folder; name the file to write, such as {args.out / 'report.html'}"
        )
    if args.watch is not None and not args.watch > 0:
        raise UserError(f"--watch {args.watch:g}: give the seconds between two pages, such as --watch 10")
    print(path := _write(args.runs, args.out), flush=True)
    while args.watch and not _have_ended(args.runs):
        again = f'<meta http-equiv="refresh" content="{math.ceil(args.watch)}">'
        atomic.write_text(path, path.read_text("utf-8").replace("<title>", f"{again}<title>", 1))
        time.sleep(args.watch)
        _write(args.runs, args.out)
    return 0


def _have_ended(runs: list[Path]) -> bool:
    from plaudit.runs.report.compare import read_runs

    return all(run.pipeline.finished for run in read_runs(runs))


def _write(runs: list[Path], out: Path | None) -> Path:
    if len(runs) > 1:
        from plaudit.runs.report.compare import write_comparison

        return write_comparison(runs, out or Path(_COMPARISON))
    from plaudit.runs.report.pipeline.page import write_folder_report

    return write_folder_report(runs[0], out)
