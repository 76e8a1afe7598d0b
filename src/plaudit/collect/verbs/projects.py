"""``plaudit collect project``, ``add`` and ``status``: what people are asked, and how far they are."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.cli.parser import Subparsers, add_row_options, given_path, row_options
from plaudit.collect.adding import add_tasks, set_project
from plaudit.collect.answering import take_in
from plaudit.collect.progress import project_status, project_tasks
from plaudit.collect.verbs.opening import ACTOR, add_project_option, add_store_option, opened, project_name
from plaudit.data.fields import join_names, shorten

if TYPE_CHECKING:
    from plaudit.collect.intake import Intake, Known
    from plaudit.collect.progress import Status
    from plaudit.collect.project import Project
    from plaudit.collect.store import LabelStore


def add_parsers(verbs: Subparsers) -> None:
    """Add the verbs."""
    project = verbs.add_parser("project", help="make or change a project, with its gold and qualifying rows")
    project.add_argument("file", type=given_path, metavar="FILE.yaml", help="its settings")
    add_store_option(project)
    project.set_defaults(run_verb=_set_project)
    add = verbs.add_parser("add", help="add tasks, or what people filled in in a file of train rlhf")
    _add_add_options(add)
    add_project_option(add)
    add.set_defaults(run_verb=_add)
    status = verbs.add_parser("status", help="say how far a project is")
    status.add_argument("--json", action="store_true", help="print one JSON object")
    add_project_option(status)
    status.set_defaults(run_verb=_status)


def _add_add_options(add: argparse.ArgumentParser) -> None:
    add.add_argument("rows", type=given_path, nargs="+", metavar="ROWS", help="rows of any layout, or tasks")
    known = add.add_mutually_exclusive_group()
    known.add_argument(
        "--gold", action="store_true", help="what the rows prefer is right: mixed in as a check"
    )
    known.add_argument("--qualify", action="store_true", help="as --gold, but asked before all other work")
    add_row_options(add.add_argument)


def _set_project(args: argparse.Namespace) -> None:
    from plaudit.collect.intake import read_intake
    from plaudit.collect.project import read_project

    project = read_project(args.file)
    # All is read before anything is written: a bad row leaves no project without its items.
    known = list[tuple["Known", "Intake"]]()
    if project.gold_rows is not None:
        known.append(("gold", read_intake(Path(project.gold_rows), project, "gold")))
    if project.qualify_rows is not None:
        known.append(("qualify", read_intake(Path(project.qualify_rows), project, "qualify")))
    with opened(args, create=True) as store:
        before = store.project(project.name) if project.name in store.projects() else None
        # The same settings make no event, so that a script may run this again and again.
        if before != project:
            store.write(set_project, project, actor=ACTOR)
        for line in _changes(before, project):
            print(f"{store.where}: {line}")
        for purpose, intake in known:
            added = store.write(add_tasks, project.name, intake.bodies, actor=ACTOR)
            there = f", {added.repeated} were there already" if added.repeated else ""
            print(f"{store.where}: {added.added} {_ITEMS[purpose]} added to {project.name}{there}")
        for note in _qualification_notes(store, project):
            print(note)


_ITEMS: Mapping[Known | None, str] = {None: "tasks", "gold": "gold items", "qualify": "qualifying items"}


def _changes(before: Project | None, now: Project) -> Iterator[str]:
    """What is new about a project, a line each."""
    if before is None:
        yield f"project {now.name} made: it asks for {now.ask}, {now.overlap} of each task"
        return
    if before == now:
        yield f"project {now.name} is set so already; nothing changed"
    for name, value in asdict(now).items():
        old = getattr(before, name)
        if old != value:
            yield f"project {now.name}: {name}: {_setting_text(name, old)} → {_setting_text(name, value)}"


def _setting_text(name: str, value: object) -> str:
    from plaudit.collect.project import Project, guidelines_version

    if name == "guidelines":
        version = guidelines_version(Project(name="p", guidelines=str(value)))
        return f"version {version}" if version else "none"
    if isinstance(value, tuple):
        return shorten(", ".join(map(str, value))) or "none"
    return "not set" if value is None else shorten(str(value))


def _qualification_notes(store: LabelStore, project: Project) -> Iterator[str]:
    """What keeps everybody from qualifying, where something does."""
    from plaudit.collect.assigning import wilson_lower

    if project.qualify_n == 0:
        return
    most = wilson_lower(project.qualify_n, project.qualify_n)
    if most < project.qualify_floor:
        yield (
            f"Nobody can qualify: even {project.qualify_n} right ones of {project.qualify_n} say only "
            f"{most:.2f} for certain, and the floor is {project.qualify_floor:g}. Ask for more, or lower it"
        )
    there = sum(1 for item in _items(store, project.name) if item["purpose"] == "qualify")
    if there < project.qualify_n:
        yield (
            f"Nobody can qualify yet: {project.qualify_n} qualifying items are asked for, and {there} are "
            "there. Add more with `plaudit collect add ROWS --qualify`"
        )


def _items(store: LabelStore, project: str) -> Iterator[dict[str, Any]]:
    after = 0
    while page := store.read(project_tasks, project, "item", after=after):
        yield from page
        after = page[-1]["seq"]


def _add(args: argparse.Namespace) -> None:
    from plaudit.collect.intake import read_intake

    known = "gold" if args.gold else "qualify" if args.qualify else None
    with opened(args) as store:
        project = store.project(project_name(store, args.project))
        options = row_options(args)
        # All files are read before anything of them is written.
        intakes = [
            read_intake(path, project, known, format=args.format, options=options) for path in args.rows
        ]
        for path, intake in zip(args.rows, intakes, strict=True):
            print(intake.sentence)
            for reason, count in intake.left_out.items():
                print(f"{path}: {count} × {reason} left out")
            added, taken = store.write(take_in, project.name, intake.bodies, intake.given, actor=ACTOR)
            there = f", {added.repeated} were there already" if added.repeated else ""
            print(f"{path}: {added.added} {_ITEMS[known]} added to {project.name}{there}")
            if intake.given:
                print(f"{path}: {_taken_words(taken)}")


def _taken_words(taken: Any) -> str:
    whose = join_names(taken.people)
    words = [f"{taken.taken} answers of {whose} taken in"]
    words += [f"{taken.repeated} were taken in before"] if taken.repeated else []
    words += [f"{taken.surplus} of them beyond what their tasks want (surplus)"] if taken.surplus else []
    return ", ".join(words)


def _status(args: argparse.Namespace) -> None:
    with opened(args) as store:
        name = project_name(store, args.project)
        status, project = store.read(project_status, name), store.project(name)
        where = store.where
    if args.json:
        print(json.dumps({**asdict(status), "done": status.done}))
        return
    print(f"{name} asks for {project.ask}; {where} at event {status.seq}")
    for head, line in _status_lines(status):
        print(f"  {head:<8} {line}")


def _status_lines(status: Status) -> Iterator[tuple[str, str]]:
    words = {
        "open": "open",
        "done": "done",
        "review": "for a reviewer",
        "adjudicated": "decided by a reviewer",
        "closed": "closed",
        "item": "with a known answer",
    }
    yield "tasks", _counts({words.get(state, state): count for state, count in status.tasks.items()})
    labels = {"held now": status.leased, "surplus": status.surplus, "of items": status.items}
    missing = f"{status.labels} of {status.wanted}, {status.missing} missing"
    yield "labels", "; ".join([missing, *(f"{count} {word}" for word, count in labels.items() if count)])
    yield "people", _counts(status.people)
    if status.skipped:
        yield "skipped", f"{status.skipped} given back"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counts.items()) or "none"
