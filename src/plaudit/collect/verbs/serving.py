"""``plaudit collect serve``, and ``plaudit collect FILE --out ROWS`` for one person at their own machine."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from plaudit.cli.parser import row_options
from plaudit.collect.adding import set_project
from plaudit.collect.app.pages import OnceLink, Solo
from plaudit.collect.app.server import LOOPBACK, serve
from plaudit.collect.asking import People, task_body
from plaudit.collect.export import EmptyExportError, Snapshot, export
from plaudit.collect.intake import Intake, kind_of_rows, read_intake
from plaudit.collect.kinds import KINDS, USUAL
from plaudit.collect.log import digest
from plaudit.collect.people import issue_token, revoke
from plaudit.collect.progress import project_people, project_status
from plaudit.collect.project import Project
from plaudit.collect.store import LabelStore, open_store
from plaudit.collect.verbs.store import opened, print_intake
from plaudit.data.fields import join_names
from plaudit.data.write import check_output_path
from plaudit.errors import UserError
from plaudit.evaluation.policies import POLICY
from plaudit.files import hub
from plaudit.files.data_sets import snapshot_path

_DRAWN = {kind.name: kind.drawn for kind in KINDS.values() if kind.drawn}
"""How many answers of a model to each prompt are judged, by kind."""


def label_solo(args: argparse.Namespace) -> None:
    """Serve one person until Ctrl-C, then write the rows."""
    _refuse_impossible(args)
    # Before anybody clicks: what cannot be written at the end is said now.
    check_output_path(args.out)
    project = _project(args)
    # Read before there is a store: a row that is refused leaves nothing behind.
    intake = None if args.rows is None else _read_rows(args, project)
    draw = None if args.model is None else _draw_words(args, project.ask)
    with opened_solo(args.out, project) as work:
        if intake is not None:
            intake.pictures.keep(work.store, project.name)
            work.people.ask(intake.bodies)
        # By the draw's name first: who comes back loads no model.
        elif draw is not None and work.people.requested(draw) is None:
            work.people.ask(_drawn_bodies(args, project.ask), draw=draw)
        solo = work.door()

        def ready(url: str) -> None:
            _announce(work, f"{url}/start/{solo.link.secret}", open_browser=not args.no_browser)

        serve(work.store, "127.0.0.1", args.port, ready, solo=solo)
        snapshot = export_solo(work, args.out)
        left = work.store.read(project_status, project.name).missing
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
    if args.model is not None and (args.ask or USUAL) not in _DRAWN:
        raise UserError(f"--as {args.ask}: answers of a model are compared: {', '.join(_DRAWN)}")
    _refuse_port(args.port)


def _refuse_port(port: int) -> None:
    if not 0 <= port <= 65_535:
        raise UserError(f"--port {port}: expected 0 to 65535")


def _project(args: argparse.Namespace) -> Project:
    ask = args.ask
    if ask is None:
        ask = USUAL if args.rows is None else kind_of_rows(args.rows, args.format, row_options(args))
    if KINDS[ask].conversation is not None:
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
    # The settings for one person: every task once, and nobody else to agree with.
    project = Project(name=PROJECT, ask=ask, guidelines=guidelines)
    words = KINDS[ask].solo_question if args.question is None else args.question
    return project if words is None else replace(project, question=words)


def _read_rows(args: argparse.Namespace, project: Project) -> Intake:
    intake = read_intake(args.rows, project, format=args.format, options=row_options(args))
    print_intake(args.rows, intake)
    return intake


def _draw_words(args: argparse.Namespace, ask: str) -> str:
    """What the answers of a model are known by, with names of the hub looked up."""
    from plaudit.engine.run_folder import hash_path

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

    from plaudit.collect.drawing import Draw, draw_tasks
    from plaudit.rollouts.sampler import SamplingSettings

    draw = Draw(
        model=args.model,
        prompts=args.prompts,
        sampling=SamplingSettings(temperature=args.temperature, max_tokens=args.max_tokens, seed=args.seed),
        answers=args.answers or _DRAWN[ask],
        against=tuple(args.against or (POLICY,)),
        n=args.tasks,
        read_options=row_options(args),
    )
    with tempfile.TemporaryDirectory() as folder:
        tasks, notes = draw_tasks(draw, Path(folder))
    for note in notes:
        print(note)
    source = {"model": str(args.model), "temperature": args.temperature, "seed": args.seed}
    own: dict[str, Any] = {"kind": ask, "source": source}
    return [task_body(task, **{**own, **task.metadata}) for task in tasks]


def _announce(work: SoloWork, url: str, *, open_browser: bool) -> None:
    status = work.store.read(project_status, work.project.name)
    done = f", {status.labels} labelled already" if status.labels else ""
    print(f"{status.wanted} tasks{done}. Label them in the browser, at this machine alone:")
    print(f"  {url}")
    # Flushed, as a script that started this waits for the address above.
    print(
        "Ctrl-C when you have done enough: the rows are written then, and the same command goes on",
        flush=True,
    )
    # Whether there is a window to open: in a bare terminal a text browser would take the screen.
    if open_browser and (
        sys.platform in ("darwin", "win32")
        or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    ):
        webbrowser.open(url)


def serve_people(args: argparse.Namespace) -> None:
    if args.behind is not None and not args.behind.removeprefix("https://").strip("/"):
        raise UserError(
            f"--behind {args.behind}: expected the address of a proxy, https://labels.example.org"
        )
    if args.behind is not None and not args.behind.startswith("https://"):
        raise UserError(f"--behind {args.behind}: expected https://…, as tokens must not travel in the clear")
    if args.host not in LOOPBACK and args.behind is None:
        raise UserError(
            f"--host {args.host}: other machines could read tokens and answers on the way. Put a proxy that "
            "encrypts in front and say its address with --behind https://…, or leave out --host"
        )
    if args.behind is not None and urlsplit(args.behind).path.strip("/"):
        raise UserError(
            f"--behind {args.behind}: expected an address without a path; the pages stand at its root"
        )
    _refuse_port(args.port)
    with opened(args) as store:

        def ready(url: str) -> None:
            behind = "" if args.behind is None else f", for people {args.behind}"
            print(f"{store.where}: serving {join_names(store.projects()) or 'no project'} at {url}{behind}")
            # Flushed, as a script that started this waits for the address above.
            print("Ctrl-C ends it; everything acknowledged is on the disk", flush=True)

        serve(store, args.host, args.port, ready, behind=args.behind)


NAME = "you"
"""What the store calls whoever labels alone."""
PROJECT = "solo"
"""The project of a store that one person works in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloWork:
    people: People
    """Asks that person, and nobody else."""
    project: Project
    pseudonym: str

    @property
    def store(self) -> LabelStore:
        return self.people.store

    def door(self) -> Solo:
        return Solo(project=self.project.name, pseudonym=self.pseudonym, link=OnceLink.new())


@contextmanager
def opened_solo(out: Path, project: Project) -> Iterator[SoloWork]:
    """The store next to an output, made or gone on with."""
    # Where the labels of an output lie until they are exported.
    name = out.name
    for ending in (".gz", ".jsonl", ".parquet", ".json"):
        name = name.removesuffix(ending)
    where = out.with_name(f"{name}.db")
    with closing(open_store(where, create=True)) as store:
        _refuse_other_work(store, where, project)
        if PROJECT not in store.projects() or store.project(PROJECT) != project:
            store.write(set_project, project, actor=NAME)
        people = People(store=store, project=PROJECT)
        yield SoloWork(people=people, project=project, pseudonym=_person(store))


def _refuse_other_work(store: LabelStore, where: Path, project: Project) -> None:
    names = store.projects()
    if names and names != [PROJECT]:
        raise UserError(
            f"{where}: it is the store of a team ({', '.join(names)}); serve it with `plaudit collect serve "
            f"--store {where}`, or name another --out"
        )
    if names and store.project(PROJECT).ask != project.ask:
        raise UserError(
            f"{where}: its tasks are to {store.project(PROJECT).ask}, and now {project.ask} is wanted; say "
            f"--as {store.project(PROJECT).ask}, or name another --out"
        )


def _person(store: LabelStore) -> str:
    for row in store.read(project_people, PROJECT):
        if row["person"] == NAME:
            return row["pseudonym"]
    joined = store.write(issue_token, PROJECT, "reviewer", name=NAME)
    # The browser has a session; nobody uses the token.
    store.write(revoke, PROJECT, joined.pseudonym, actor=joined.pseudonym)
    return joined.pseudonym


def export_solo(work: SoloWork, out: Path) -> Snapshot | None:
    """Write what was labelled so far; None where that is nothing."""
    try:
        return export(work.store, work.project.name, out, actor=NAME)
    except EmptyExportError:
        return None
