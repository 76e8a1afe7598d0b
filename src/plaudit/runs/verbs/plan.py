"""``plaudit plan``: what a train command will cost; write plan in place of train."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.cli.parser import (
    Subparsers,
    add_method_options,
    positive_integer,
    read_config,
    refuse_missing_inputs,
    write_json,
)
from plaudit.cli.sample import make_console
from plaudit.errors import UserError
from plaudit.files.atomic import write_text
from plaudit.methods.registry import preflight_methods, with_local_inputs
from plaudit.wings import everything

if TYPE_CHECKING:
    from plaudit.methods.config import RunConfig
    from plaudit.runs.planner.cost import PlanRequest, RunCost, Split
    from plaudit.runs.planner.schedule import StatedLengths
    from plaudit.runs.planner.throughput import Throughput

GPU_NAMES = ("a100-40", "a100-80", "b200", "h100", "h200", "l40s", "rtx4090")
"""The GPUs of `plaudit.runs.planner.machine`, which would have torch loaded for the help."""
_EPILOG = """\
Every option is that of plaudit train METHOD; nothing is written, and --out may be left out. A model folder
may hold config.json alone. The exit status is 1 when the run does not fit. labels plans the work of people.
docs/plan.md"""


def add_parser(subparsers: Subparsers) -> None:
    plan = subparsers.add_parser("plan", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG)
    methods = plan.add_subparsers(dest="method", required=True, metavar="METHOD")
    for name in preflight_methods():
        method = methods.add_parser(name, description=f"plan plaudit train {name}, and train nothing")
        method.add_options_on_use = partial(_add_options, method=name)
    for verb in everything("plans").values():
        import_module(verb.module).add_parser(methods)


def run(args: argparse.Namespace) -> int:
    if args.method in everything("plans"):
        return import_module(everything("plans")[args.method].module).run(args)
    # --out has no default, and nothing is written: any name will do.
    method_config: Any = read_config(args.config_type, args, fallback={("out",): Path("unplanned")})
    refuse_missing_inputs(method_config)
    # Before what takes long: libraries, and for a large model a step of it without numbers.
    print("plaudit: counting what the run will hold, and taking a step of it …", file=sys.stderr, flush=True)
    from plaudit.runs.planner.cost import (
        estimate_cost,
        estimate_times,
        recomputed_where_needed,
        resolve_run,
        with_measured_peak,
        with_process_memory,
    )
    from plaudit.runs.planner.render import plan_as_dict, split_sentences
    from plaudit.runs.planner.suggestions import smallest_suggestion, suggest

    planned = _planned(args, resolve_run(args.method, with_local_inputs(method_config)))
    cost = recomputed_where_needed(estimate_cost(planned))
    cost, split = _shared_with_servers(args, cost)
    cost = with_process_memory(cost, _process_memory(planned.machine.device_kind))
    pace = None if args.servers else _pace(args, cost)
    cost = with_measured_peak(cost, pace)
    durations = None if pace is None else estimate_times(cost, pace)
    suggestions = () if cost.fits else suggest(cost)
    _print_plan(cost, [*split_sentences(cost, split)] if split else _time_lines(durations, pace))
    if not cost.fits:
        least = None if suggestions else smallest_suggestion(cost)
        _print_suggestions(suggestions, least, planned.machine.memory)
    if args.json is not None:
        write_json(args.json, plan_as_dict(cost, durations, pace, suggestions, split))
    _write_job(args, method_config, cost.request.machine.ranks)
    return 0 if cost.fits else 1


def _write_job(args: argparse.Namespace, config: RunConfig, trainers: int) -> None:
    """Show the files by which a scheduler starts the run, and write them where that is asked for."""
    from plaudit.runs.planner.jobs import Job

    if args.scheduler is None:
        if args.write is not None or args.nodes > 1:
            raise UserError("--write and --nodes are of a job: say for which scheduler (--for)")
        return
    if str(config.out) == "unplanned":
        raise UserError("--for writes a job of a run: say where it is kept (--out)")
    job = Job(
        method=args.method,
        config=config,
        trainers=trainers,
        servers=args.servers or 0,
        machines=args.nodes,
        gpu=args.gpu,
        folder=args.write,
    )
    files = {(args.write or Path()) / name: text for name, text in job.files(args.scheduler).items()}
    for path, text in files.items():
        print(f"\n── {path}\n{text}", end="")
    if args.write is None:
        print("\nplaudit: --write FOLDER writes them", file=sys.stderr)
        return
    if changed := [path for path, text in files.items() if path.exists() and path.read_text("utf-8") != text]:
        raise UserError(f"{changed[0]} is there already, and another one: name another folder (--write)")
    args.write.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        write_text(path, text)


def _shared_with_servers(args: argparse.Namespace, cost: RunCost) -> tuple[RunCost, Split | None]:
    from plaudit.runs.planner.cost import split_of

    if args.gpus is not None and not args.servers and draws(cost.request.config):
        cost, split = _split_cost(cost, args.gpus)
        args.servers = split.servers
        return cost, split
    split = args.servers and args.gpu and split_of(cost, cost.request.machine.ranks, args.servers)
    return cost, split or None


def _split_cost(cost: RunCost, gpus: int) -> tuple[RunCost, Split]:
    """The cost of the trainers of the quickest way to share GPUs with servers in which they fit."""
    from plaudit.runs.planner.cost import estimate_cost, recomputed_where_needed, split_request, splits
    from plaudit.runs.planner.render import split_table

    if gpus < 2:
        raise UserError(f"--gpus {gpus} shares GPUs between learning and servers that draw: give 2 or more")
    ways, console = splits(cost, gpus), make_console()
    console.print(split_table(ways))
    trained, split = cost, ways[0]
    for split in sorted(ways, key=lambda split: split.seconds):
        trained = recomputed_where_needed(estimate_cost(split_request(cost.request, split)))
        if trained.fits:
            break
    else:
        console.print(f"no way to share {gpus} of them fits; the slowest one's trainers:", markup=False)
        return trained, split
    words = f"the quickest that fits: {split.trainers} learn, {split.servers} draw: {split.words}"
    console.print(words, markup=False, highlight=False, soft_wrap=True)
    return trained, split


def _add_options(parser: argparse.ArgumentParser, words: Sequence[str], *, method: str) -> None:
    group = parser.add_argument_group("plan")
    add, count = group.add_argument, positive_integer
    add("--machine-memory", metavar="SIZE", help="memory of one process, as 24GiB; none: what is here")
    names = f"a GPU by name: {', '.join(GPU_NAMES)}"
    add("--gpu", choices=sorted(GPU_NAMES), metavar="NAME", help=names)
    add("--on", choices=("cpu", "cuda"), help="what that machine computes on; none: as here")
    add("--ranks", type=count, default=1, metavar="N", help="processes that share the work")
    add("--gpus", type=count, metavar="N", help="so many of --gpu, shared by trainers and servers")
    add("--servers", type=count, metavar="N", help="servers that draw for --ranks that learn")
    add("--nodes", type=count, default=1, metavar="N", help="machines that these are spread over")
    schedulers = ("slurm", "ray", "kubernetes", "skypilot")
    add("--for", dest="scheduler", choices=schedulers, help="show the files by which this starts the run")
    add("--write", type=Path, metavar="FOLDER", help="and write them there")
    add("--disk-rate", default="1GB", metavar="SIZE", help="what a process reads and writes a second (1GB)")
    add("--prompt-tokens", type=count, metavar="N", help="length of prompts, without a tokenizer")
    add("--answer-tokens", type=count, metavar="N", help="length of answers, without a tokenizer")
    add("--tokens-per-second", type=float, metavar="X", help="the pace of one process, not measured")
    add("--no-measure", action="store_true", help="take no step: say nothing of time")
    add("--json", type=Path, metavar="FILE", help="write the plan there")
    add_method_options(parser, words, method=method)


def _served(config: RunConfig, servers: int) -> RunConfig:
    """The run whose answers so many servers draw."""
    if not draws(config):
        raise UserError(
            f"--servers {servers}: this method draws no answers, so that servers have nothing to do"
        )
    return replace(config, sampler="http://server-1:8000")  # pyright: ignore[reportCallIssue]


def draws(config: RunConfig) -> bool:
    from plaudit.methods.policy.config import PolicyConfig

    return isinstance(config, PolicyConfig)


def _planned(args: argparse.Namespace, config: RunConfig) -> PlanRequest:
    from plaudit.runs.planner.cost import PlanRequest
    from plaudit.runs.planner.machine import parse_bytes, this_machine
    from plaudit.runs.planner.schedule import planned_rows

    config = _served(config, args.servers) if args.servers else config
    memory = None if args.machine_memory is None else parse_bytes(args.machine_memory)
    if args.gpus is not None and args.gpu is None:
        raise UserError(f"--gpus {args.gpus}: say which, by --gpu NAME")
    if args.gpus is not None and (args.servers or not draws(config)):
        args.ranks = args.gpus - (args.servers or 0)
        if args.ranks < 1:
            raise UserError(f"--servers {args.servers} of --gpus {args.gpus}: none is left that learns")
    machine = this_machine(config.device, device_kind=args.on, memory=memory, ranks=args.ranks, gpu=args.gpu)
    machine = replace(machine, disk_rate=parse_bytes(args.disk_rate, "--disk-rate"))
    rows = planned_rows(args.method, config, _lengths(args))
    return PlanRequest(method=args.method, config=config, rows=rows, machine=machine, process=0)


def _process_memory(where: str) -> int:
    """What Python and its libraries take by now, where models lie in the same memory."""
    from plaudit.engine.metrics import measure_memory

    return int((measure_memory().now or 0.0) * 1024 * 1024) if where == "cpu" else 0


def _lengths(args: argparse.Namespace) -> StatedLengths | None:
    from plaudit.runs.planner.schedule import StatedLengths

    if args.prompt_tokens is None and args.answer_tokens is None:
        return None
    if args.prompt_tokens is None or args.answer_tokens is None:
        raise UserError("say both --prompt-tokens and --answer-tokens, or neither")
    return StatedLengths(prompt=args.prompt_tokens, answer=args.answer_tokens)


def _pace(args: argparse.Namespace, cost: RunCost) -> Throughput | None:
    from plaudit.models.load import has_weights
    from plaudit.runs.planner.cost import estimated_throughput
    from plaudit.runs.planner.throughput import Throughput, measure_throughput

    if args.tokens_per_second is not None:
        if not args.tokens_per_second > 0:
            raise UserError(f"--tokens-per-second is above 0, not {args.tokens_per_second:g}")
        return Throughput(tokens=args.tokens_per_second)
    config = cost.request.config
    # A pace that is measured here says nothing of another machine, or of rows that are only stated.
    if args.gpu is not None and not args.no_measure:
        return estimated_throughput(cost)
    is_this_machine = args.on is None and args.machine_memory is None and args.prompt_tokens is None
    if args.no_measure or not is_this_machine or not cost.fits or not has_weights(config.model):
        return None
    console, what = make_console(), "measuring some steps"
    if not console.is_terminal:
        print(f"plaudit: {what} …", file=sys.stderr, flush=True)
    with console.status(what):
        return measure_throughput(args.method, config, cost.roles.reference_kind)


def _time_lines(durations: Any, pace: Throughput | None) -> list[str]:
    from plaudit.runs.planner.render import time_sentences

    if pace is None:
        return ["time: not measured; say --tokens-per-second, or plan on the machine itself with the weights"]
    return [*time_sentences(durations, pace)]


def _print_plan(cost: RunCost, time_lines: list[str]) -> None:
    from plaudit.runs.planner import render

    console = make_console()
    say = partial(console.print, markup=False, highlight=False)
    for line in (*cost.request.rows.notes, *render.schedule_sentences(cost), *time_lines):
        say(line)
    console.print(render.memory_table(cost))
    console.print(render.disk_table(cost))
    console.print(render.transfer_table(cost))
    for unknown in cost.roles.unsized_rewards:
        say(f"{unknown}: what it takes itself is not counted")
    say(render.fit_sentence(cost))


def _print_suggestions(suggestions: Any, least_cost: Any, memory: int) -> None:
    from plaudit.runs.planner.render import SUGGESTIONS_FOLLOW, suggestion_sentences

    console = make_console()
    if suggestions:
        console.print(SUGGESTIONS_FOLLOW)
    for line in suggestion_sentences(suggestions, least_cost, memory):
        console.print(line, markup=False, highlight=False)
