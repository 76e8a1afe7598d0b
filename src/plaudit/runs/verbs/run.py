"""What the commands that run pipelines share: progress, stops by a signal, copies of configs.

``plaudit run``: the whole of RLHF in one command, from rows to a report.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.parser import Subparsers, integer, positive_integer
from plaudit.errors import UserError, WaitingError
from plaudit.runs.pipeline.read import SHIPPED, config_path
from plaudit.wings import offered

if TYPE_CHECKING:
    from plaudit.runs.pipeline.run import Attendant, ProgressReporter, StoppedError
    from plaudit.runs.pipeline.spec import Pipeline
    from plaudit.runs.pipeline.workers import Crew


@contextlib.contextmanager
def progress_reporter() -> Iterator[ProgressReporter]:
    """A reporter that prints lines to stderr and, on a terminal, a status line of what runs just now."""
    from rich.console import Console

    from plaudit.engine.sinks.console import is_live
    from plaudit.runs.pipeline.run import ProgressReporter

    console = Console(stderr=True, file=sys.stderr, highlight=False, markup=False, soft_wrap=True)
    if not is_live(console, os.environ):
        yield ProgressReporter(message=console.print)
        return
    with console.status("") as status:
        yield ProgressReporter(message=console.print, status=status.update)


def report_stopped(stop: StoppedError) -> int:
    """Print which signal stopped the command; returns the exit code for that signal."""
    print(f"plaudit: {stop}; the same command goes on from here", file=sys.stderr)
    return 128 + stop.signum


def crew_of_starter() -> AbstractContextManager[Crew | None]:
    """The processes that torchrun or another starter began, led by the first one; None without a starter."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return contextlib.nullcontext()
    from plaudit.runs.pipeline.workers import leading

    return leading()


def copy_config(config: Path, target: Path) -> None:
    if target.exists():
        raise UserError(f"{target}: something is there already; name a new file")
    try:
        target.write_text(config.read_text("utf-8"), "utf-8")
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror})") from error


_EPILOG = """\
Without CONFIG the embedded world's own pipeline runs: fine-tuning, comparisons, a reward model, DPO, GRPO
and PPO, their evaluation and a report, in some minutes on two cores. A finished stage is kept until its
settings or something above it changes; the same command goes on where it was stopped. docs/run.md

Pipelines that come with plaudit are named by a word, where no such file exists:
  default          the above
  constitutional   from a base model, prompts and a constitution alone: revisions, fine-tuning on them,
                   comparisons by the constitution, a reward, a policy; docs/constitutional.md
  pictures         a small model that sees, and what fine-tuning, a reward, DPO, mDPO and GRPO make of what
                   it invents; docs/pictures.md"""


def add_parser(subparsers: Subparsers) -> None:
    run_parser = subparsers.add_parser(
        "run", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG
    )
    add = run_parser.add_argument
    config_help = "YAML with stages, or a word (default: the world's own)"
    add("config", nargs="?", type=Path, metavar="CONFIG", help=config_help)
    add("--out", type=Path, metavar="DIR", help="where all of it lies (default: runs/ and the config's name)")
    add("--from", dest="begin", metavar="STAGE", help="run this stage and all below it again")
    add("--only", nargs="+", default=[], metavar="STAGE", help="run these, on what is there above them")
    add("--fresh", action="store_true", help="keep nothing: run every stage again")
    add("--set", action="append", default=[], metavar="STAGE.SETTING=VALUE", help="beats the config")
    add("--seed", type=integer, help="of every stage that names none (default: the config's)")
    add("--device", metavar="NAME", help="of every stage that names none: auto, cpu, cuda, cuda:1 …")
    add("--helper", metavar="WORD", help="who judges, revises, attacks: openai:http://host/v1#model, …")
    add("--jobs", type=positive_integer, metavar="N", help="stages side by side (default: the config's)")
    processes_help = "processes of each stage, as torchrun would start them (default: the config's)"
    add("--processes", type=positive_integer, metavar="N", help=processes_help)
    wait_help = "where people are to answer, let them do so on this machine, and go on when they have"
    add("--wait", action="store_true", help=wait_help)
    add("--dry-run", action="store_true", help="say what would run, why, and what it costs")
    add("--trace", metavar="STAGE", help="print where the result of a stage comes from, and run nothing")
    add("--show-default", action="store_true", help="print the pipeline of the word, or that without CONFIG")
    add("--write", type=Path, metavar="FILE", help="write that pipeline to a file, to be changed")


def run(args: argparse.Namespace) -> int:
    if args.show_default or args.write is not None:
        return _show_shipped(args.config, args.write)
    with crew_of_starter() as crew:
        return _run_config(args, crew)


def _run_config(args: argparse.Namespace, crew: Crew | None) -> int:
    from plaudit.runs.pipeline import begin_loading
    from plaudit.runs.pipeline.read import read_pipeline
    from plaudit.runs.pipeline.store import read_hub_names

    def folder_of(name: str) -> Path:
        return args.out or _default_folder(args.config, name)

    without_running = args.trace or args.dry_run
    pipeline = read_pipeline(
        config_path(args.config),
        changes=args.set,
        **{name: getattr(args, name) for name in ("seed", "device", "jobs", "processes", "helper")},
        recorded=lambda name: {} if args.fresh else read_hub_names(folder_of(name)),
        on_head=lambda head: (
            None if without_running or max(head.jobs, head.processes or 1) == 1 else begin_loading()
        ),
    )
    out = folder_of(pipeline.name)
    if args.trace is not None:
        return _print_trace(pipeline, out, args.trace)
    from plaudit.runs.pipeline.run import StageSelection, StoppedError, dry_run, run_pipeline

    selection = StageSelection(from_stage=args.begin, only=tuple(args.only), fresh=args.fresh)
    if args.dry_run:
        return _print_lines(dry_run(pipeline, out, selection))
    try:
        with progress_reporter() as reporter, _attendant(args, out, reporter) as attendant:
            folder = run_pipeline(pipeline, out, selection, reporter, attendant=attendant, crew=crew)
    except StoppedError as stop:
        return report_stopped(stop)
    except WaitingError as waiting:
        if not args.fresh:
            raise
        raise WaitingError(f"{waiting}, without --fresh, which begins anew", *waiting.waits) from waiting
    _report_results(folder.path)
    return 0


def _attendant(
    args: argparse.Namespace, out: Path, reporter: ProgressReporter
) -> AbstractContextManager[Attendant | None]:
    """Who lets people answer while the pipeline waits; nobody without ``--wait``."""
    if not args.wait:
        return contextlib.nullcontext()
    return offered("attending")(out.absolute(), reporter.message)


def _default_folder(config: Path | None, name: str) -> Path:
    """A pipeline's own config, in its folder, runs where it lies."""
    if config is not None and config.name == "pipeline.yaml" and (config.parent / "stages").is_dir():
        return config.parent
    return Path("runs") / name


def _show_shipped(config: Path | None, target: Path | None) -> int:
    word = "default" if config is None else str(config)
    if word not in SHIPPED:
        raise UserError(f"{word}: comes not with plaudit; there is {', '.join(SHIPPED)}")
    if target is None:
        print(SHIPPED[word].read_text("utf-8"), end="")
        return 0
    copy_config(SHIPPED[word], target)
    own = "the world's pipeline" if word == "default" else f"the pipeline {word}"
    print(f"{target}: {own}; plaudit run {target} runs it")
    return 0


def _print_trace(pipeline: Pipeline, out: Path, name: str) -> int:
    from plaudit.runs.pipeline.status import refuse_unknown_stages
    from plaudit.runs.report.pipeline.data import read_pipeline_folder
    from plaudit.runs.report.pipeline.page import trace_lines

    refuse_unknown_stages(pipeline, [name], "--trace")
    return _print_lines(trace_lines(read_pipeline_folder(out.absolute()), name))


def _print_lines(lines: Iterable[str]) -> int:
    for line in lines:
        print(line)
    return 0


def _report_results(folder: Path) -> None:
    from plaudit.cli.sample import make_console
    from plaudit.runs.report.pipeline.data import read_pipeline_folder
    from plaudit.runs.report.pipeline.glance import opening_sentence
    from plaudit.runs.report.pipeline.page import summary_table, write_report, write_summary

    pipeline, console = read_pipeline_folder(folder), make_console()
    write_summary(pipeline)
    if pipeline.evaluation is not None:
        console.print(summary_table(pipeline.evaluation))
    if sentence := opening_sentence(pipeline):
        console.print(f"\n{sentence}")
    console.print(f"The report: {write_report(folder, pipeline=pipeline)}")
