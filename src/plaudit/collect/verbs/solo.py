"""``plaudit collect FILE --out ROWS``: label alone, in the browser, at one's own machine."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from plaudit.cli.parser import (
    Subparsers,
    add_row_options,
    given_path,
    integer,
    model_path,
    positive_integer,
    row_options,
)
from plaudit.collect.project import KindName
from plaudit.errors import UserError

if TYPE_CHECKING:
    from plaudit.collect.app.solo import SoloWork
    from plaudit.collect.intake import Intake
    from plaudit.collect.project import Project

_ANSWERS = {"pair": 2, "rank": 4, "rate": 1}
_SOLO_KINDS = ("pair", "rank", "rate", "write", "steps")


VERB = "solo"
"""The verb that may be left out: ``plaudit collect pairs.jsonl --out labels.jsonl``."""


def add_parsers(verbs: Subparsers) -> None:
    """Add the verb."""
    solo = verbs.add_parser(VERB, help="label by yourself, in the browser: `plaudit collect FILE --out ROWS`")
    _add_options(solo.add_argument)
    solo.set_defaults(run_verb=_label_solo)


def _add_options(add: Any) -> None:
    add("rows", type=given_path, nargs="?", metavar="FILE", help="rows of any layout, or tasks")
    add("--out", type=given_path, required=True, metavar="ROWS", help="where labels go: .jsonl or .parquet")
    add("--as", dest="ask", choices=_SOLO_KINDS, help="what is asked (default: what the rows are)")
    add("--question", metavar="TEXT", help="what stands above every task")
    add("--guidelines", type=given_path, metavar="FILE", help="a text that says how to judge")
    add("--model", type=model_path, metavar="DIR", help="in place of FILE: who answers --prompts")
    add("--prompts", type=given_path, metavar="ROWS", help="rows with the prompts that the model answers")
    add("--answers", type=positive_integer, metavar="K", help="answers to each (default: 2; 4 to rank)")
    add("--tasks", type=positive_integer, metavar="N", help="at most so many of the prompts")
    add("--temperature", type=float, default=1.0, metavar="T", help="of the model's answers (default: 1)")
    add("--max-tokens", type=positive_integer, default=64, metavar="N", help="per answer (default: 64)")
    add("--seed", type=integer, default=0, metavar="N", help="of the model's answers (default: 0)")
    add("--port", type=integer, default=0, metavar="N", help="default: a free one")
    add("--no-browser", action="store_true", help="print the address and open nothing")
    add_row_options(add)


def _label_solo(args: argparse.Namespace) -> None:
    """Serve one person until Ctrl-C, then write the rows."""
    from plaudit.collect.app.server import serve
    from plaudit.collect.app.solo import export_solo, opened_solo
    from plaudit.data.write import check_output_path
    from plaudit.files.data_sets import snapshot_path

    _refuse_impossible(args)
    # Before anybody clicks: what cannot be written at the end is said now.
    check_output_path(args.out)
    project = _project(args)
    # Read before there is a store: a row that is refused leaves nothing behind.
    intake = None if args.rows is None else _read_rows(args, project)
    draw = None if args.model is None else _draw_words(args, project.ask)
    with opened_solo(args.out, project) as work:
        if intake is not None:
            work.people.ask(intake.bodies)
        # By the draw's name first: who comes back loads no model.
        elif draw is not None and work.people.requested(draw) is None:
            work.people.ask(_drawn_bodies(args, project.ask), draw=draw)
        solo = work.door()

        def ready(url: str) -> None:
            _announce(work, f"{url}/start/{solo.link.secret}", open_browser=not args.no_browser)

        serve(work.store, "127.0.0.1", args.port, ready, solo=solo)
        snapshot = export_solo(work, args.out)
        left = work.store.status(project.name).missing
    print()
    if snapshot is None:
        print(f"nothing was labelled yet; {args.out} is not written. The same command goes on")
        return
    print(f"{args.out}: {snapshot.rows} rows of {len({*snapshot.events})} labels; from where: ", end="")
    print(snapshot_path(args.out))
    print(f"{left} tasks are left; the same command goes on" if left else "every task has its label")


def _refuse_impossible(args: argparse.Namespace) -> None:
    if (args.rows is None) == (args.model is None):
        raise UserError("say what is to be labelled: either FILE, or --model DIR with --prompts ROWS")
    if (args.model is None) != (args.prompts is None):
        raise UserError("--model and --prompts go together: one answers, the others are answered")
    if args.model is not None and (args.ask or "pair") not in _ANSWERS:
        raise UserError(f"--as {args.ask}: answers of a model are compared: pair, rank or rate")
    if not 0 <= args.port <= 65_535:
        raise UserError(f"--port {args.port}: expected 0 to 65535")


def _project(args: argparse.Namespace) -> Project:
    from plaudit.collect.app.solo import project_solo
    from plaudit.collect.intake import kind_of_rows

    ask = args.ask
    if ask is None:
        ask = "pair" if args.rows is None else kind_of_rows(args.rows, args.format, row_options(args))
    if ask not in _SOLO_KINDS:
        raise UserError(
            f"{args.rows}: these are tasks to {ask}, which need a server to talk to; make a project with "
            "talks_to (`plaudit collect project FILE.yaml`) and serve it"
        )
    guidelines = ""
    if args.guidelines is not None:
        try:
            guidelines = args.guidelines.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise UserError(f"--guidelines {args.guidelines}: it cannot be read ({error})") from error
    assert ask in get_args(KindName)
    return project_solo(ask, args.question, guidelines)


def _read_rows(args: argparse.Namespace, project: Project) -> Intake:
    from plaudit.collect.intake import read_intake

    intake = read_intake(args.rows, project, format=args.format, options=row_options(args))
    print(intake.sentence)
    for reason, count in intake.left_out.items():
        print(f"{args.rows}: {count} × {reason} left out")
    return intake


def _draw_words(args: argparse.Namespace, ask: str) -> str:
    """What the answers of a model are known by, with names of the hub looked up."""
    from plaudit.collect.log import digest
    from plaudit.engine.run_folder import hash_path
    from plaudit.files import hub

    args.prompts = hub.local_path(args.prompts, "dataset", split=row_options(args).split)
    for option, path in (("--model", args.model), ("--prompts", args.prompts)):
        if not path.exists():
            raise UserError(f"{option} {path}: there is no such file or folder")
    names = ("answers", "tasks", "temperature", "max_tokens", "seed", "columns", "leave_out")
    # By content: a folder that was moved draws nothing anew, one that was trained on does.
    contents = {"model": hash_path(args.model), "prompts": hash_path(args.prompts)}
    return digest({**contents, "ask": ask, **{name: getattr(args, name) for name in names}})


def _drawn_bodies(args: argparse.Namespace, ask: str) -> list[dict[str, Any]]:
    import tempfile

    from plaudit.collect.asking import task_body
    from plaudit.collect.drawing import Draw, draw_tasks
    from plaudit.rollouts.sampler import SamplingSettings

    draw = Draw(
        model=args.model,
        prompts=args.prompts,
        sampling=SamplingSettings(temperature=args.temperature, max_tokens=args.max_tokens, seed=args.seed),
        answers=args.answers or _ANSWERS[ask],
        n=args.tasks,
        read_options=row_options(args),
    )
    with tempfile.TemporaryDirectory() as folder:
        tasks, notes = draw_tasks(draw, Path(folder))
    for note in notes:
        print(note)
    source = {"model": str(args.model), "temperature": args.temperature, "seed": args.seed}
    return [task_body(task, kind=ask, source=source, origin=task.metadata["origin"]) for task in tasks]


def _announce(work: SoloWork, url: str, *, open_browser: bool) -> None:
    status = work.store.status(work.project.name)
    done = f", {status.labels} labelled already" if status.labels else ""
    print(f"{status.wanted} tasks{done}. Label them in the browser, at this machine alone:")
    print(f"  {url}")
    # Flushed, as a script that started this waits for the address above.
    print(
        "Ctrl-C when you have done enough: the rows are written then, and the same command goes on",
        flush=True,
    )
    if open_browser and _has_screen():
        webbrowser.open(url)


def _has_screen() -> bool:
    """Whether there is a window to open: in a bare terminal a text browser would take the screen."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
