"""``plaudit run``: the whole of RLHF in one command, from rows to a report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.numbers import count, whole
from plaudit.cli.parser import Verbs
from plaudit.cli.pipelines import copy_config, refuse_many_processes, stopped, telling
from plaudit.pipeline.shipped import DEFAULT

if TYPE_CHECKING:
    from plaudit.pipeline.course import Wish
    from plaudit.pipeline.folder import Folder
    from plaudit.pipeline.stage import Pipeline

_EPILOG = """\
Without CONFIG the embedded world's own pipeline runs: fine-tuning, comparisons, a reward model, DPO, GRPO
and PPO, their evaluation and a report, in some minutes on two cores. A finished stage is kept until its
settings or something above it changes; the same command goes on where it was stopped. docs/run.md"""


def add_parser(subparsers: Verbs) -> None:
    """Add ``run``."""
    run_ = subparsers.add_parser(
        "run",
        help="the whole of RLHF in one command: stages from rows to a report",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    add = run_.add_argument
    add("config", nargs="?", type=Path, metavar="CONFIG", help="YAML with stages (default: the world's own)")
    add("--out", type=Path, metavar="DIR", help="where all of it lies (default: runs/ and the config's name)")
    add("--from", dest="begin", metavar="STAGE", help="run this stage and all below it again")
    add(
        "--only", nargs="+", default=[], metavar="STAGE", help="run these stages, on what is there above them"
    )
    add("--fresh", action="store_true", help="keep nothing: run every stage again")
    add("--set", action="append", default=[], metavar="STAGE.SETTING=VALUE", help="beats the config")
    add("--seed", type=whole, help="of every stage that names none (default: the config's)")
    add("--jobs", type=count, metavar="N", help="stages side by side (default: the config's)")
    add("--dry-run", action="store_true", help="say what would run, why, and what it costs")
    add("--trace", metavar="STAGE", help="print where the result of a stage comes from, and run nothing")
    add("--show-default", action="store_true", help="print the pipeline that runs without CONFIG")
    add("--write", type=Path, metavar="FILE", help="write that pipeline to a file, to be changed")
    run_.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run what is to be run, and show what came of it."""
    if args.show_default or args.write is not None:
        return _show_default(args.write)
    refuse_many_processes("run")
    from plaudit.pipeline.reading import read_pipeline

    pipeline = read_pipeline(args.config or DEFAULT, changes=args.set, seed=args.seed, jobs=args.jobs)
    out = args.out or _usual_place(args.config, pipeline)
    if args.trace is not None:
        return _trace(pipeline, out, args.trace)
    if args.dry_run:
        return _look_ahead(pipeline, out, _wish(args))
    from plaudit.pipeline.running import StoppedError, run_pipeline

    try:
        with telling() as told:
            folder = run_pipeline(pipeline, out, _wish(args), told)
    except StoppedError as stop:
        return stopped(stop)
    _conclude(folder, pipeline)
    return 0


def _wish(args: argparse.Namespace) -> Wish:
    from plaudit.pipeline.course import Wish

    return Wish(begin=args.begin, only=tuple(args.only), fresh=args.fresh)


def _usual_place(config: Path | None, pipeline: Pipeline) -> Path:
    """A pipeline's own config, in its folder, runs where it lies."""
    if config is not None and config.name == "pipeline.yaml" and (config.parent / "stages").is_dir():
        return config.parent
    return Path("runs") / pipeline.name


def _show_default(target: Path | None) -> int:
    if target is None:
        print(DEFAULT.read_text("utf-8"), end="")
        return 0
    copy_config(DEFAULT, target)
    print(f"{target}: the world's pipeline; plaudit run {target} runs it")
    return 0


def _look_ahead(pipeline: Pipeline, out: Path, wish: Wish) -> int:
    from plaudit.pipeline.ahead import look_ahead

    for line in look_ahead(pipeline, out, wish):
        print(line)
    return 0


def _trace(pipeline: Pipeline, out: Path, name: str) -> int:
    from plaudit.pipeline.folder import Folder
    from plaudit.pipeline.standing import refuse_unknown
    from plaudit.pipeline.trace import traced

    refuse_unknown(pipeline, [name], "--trace")
    for line in traced(Folder(path=out.absolute()), pipeline, name):
        print(line)
    return 0


def _conclude(folder: Folder, pipeline: Pipeline) -> None:
    """The short table, the summary and the report."""
    from plaudit.cli.talking import make_console
    from plaudit.pipeline.summary import last_evaluation, table_of, write_summary

    write_summary(folder, pipeline)
    evaluated = last_evaluation(folder, pipeline)
    console = make_console()
    if evaluated is not None:
        console.print(table_of(evaluated[1]))
    from plaudit.reports.page import write_report

    console.print(f"The report: {write_report(folder.path)}")
