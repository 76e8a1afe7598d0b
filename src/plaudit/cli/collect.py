"""``plaudit collect``: labels by people: a store, its tasks, those who answer, and rows out of it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.cli.parser import (
    Subparsers,
    add_row_options,
    given_path,
    integer,
    positive_integer,
    row_options,
)
from plaudit.config import did_you_mean
from plaudit.data.fields import join_names, shorten
from plaudit.errors import UserError

if TYPE_CHECKING:
    from plaudit.labelling.export import Snapshot
    from plaudit.labelling.intake import Intake, Known
    from plaudit.labelling.log import Event
    from plaudit.labelling.progress import Status
    from plaudit.labelling.project import Project
    from plaudit.labelling.store import LabelStore

ACTOR = "command-line"
"""What the log calls whoever works on a store by this command."""
_STORE = "labels.db"
_EXTRAS = {"sqlalchemy": "collect", "starlette": "collect", "uvicorn": "collect", "pg8000": "postgres"}


def add_parser(subparsers: Subparsers) -> None:
    """Add ``collect`` with its verbs."""
    collect = subparsers.add_parser("collect")
    verbs = collect.add_subparsers(dest="collect_verb", required=True, title="verbs", metavar="VERB")

    project = verbs.add_parser("project", help="make or change a project, with its gold and qualifying rows")
    project.add_argument("file", type=given_path, metavar="FILE.yaml", help="its settings")
    add = verbs.add_parser("add", help="add tasks, or what people filled in in a file of train rlhf")
    _add_add_options(add)
    invite = verbs.add_parser("invite", help="let somebody in")
    _add_invite_options(invite)
    serve = verbs.add_parser("serve", help="let people answer over HTTP")
    _add_serve_options(serve)
    status = verbs.add_parser("status", help="say how far a project is")
    status.add_argument("--json", action="store_true", help="print one JSON object")
    export = verbs.add_parser("export", help="write labels as rows for training, with their snapshot")
    _add_export_options(export)
    trace = verbs.add_parser("trace", help="from a row back to what people did, or from there to rows")
    _add_trace_options(trace)
    check = verbs.add_parser("check", help="look whether a store is whole and nothing in it was altered")
    check.add_argument("--rebuild", action="store_true", help="first make all tables anew from the log")
    backup = verbs.add_parser("backup", help="copy a store while it is in use; a copy is a store")
    backup.add_argument("target", metavar="TARGET", help="a new file, or the address of an empty database")
    for verb in (project, add, invite, serve, status, export, trace, check, backup):
        verb.add_argument(
            "--store",
            default=_STORE,
            metavar="FILE",
            help=f"where labels lie; or postgresql+pg8000://… (default: {_STORE})",
        )
    for verb in (add, invite, status, export):
        verb.add_argument("--project", metavar="NAME", help="which one, where the store has several")
    collect.set_defaults(run=run)


def _add_add_options(add: argparse.ArgumentParser) -> None:
    add.add_argument("rows", type=given_path, nargs="+", metavar="ROWS", help="rows of any layout, or tasks")
    known = add.add_mutually_exclusive_group()
    known.add_argument(
        "--gold", action="store_true", help="what the rows prefer is right: mixed in as a check"
    )
    known.add_argument("--qualify", action="store_true", help="as --gold, but asked before all other work")
    add_row_options(add.add_argument)


def _add_invite_options(invite: argparse.ArgumentParser) -> None:
    add = invite.add_argument
    add("--role", choices=["annotator", "reviewer", "owner"], default="annotator", help="default: annotator")
    add("--uses", type=positive_integer, default=1, metavar="N", help="how many may join by it (default: 1)")
    add("--days", type=float, default=14, metavar="D", help="how long it works (default: 14)")


def _add_serve_options(serve: argparse.ArgumentParser) -> None:
    add = serve.add_argument
    add("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    add("--port", type=integer, default=8080, metavar="N", help="default: 8080; 0 takes a free one")
    add("--behind", metavar="https://…", help="the address of the proxy in front that encrypts")


def _add_trace_options(trace: argparse.ArgumentParser) -> None:
    add = trace.add_argument
    add("rows", type=given_path, metavar="ROWS", help="what export wrote")
    add("row", type=positive_integer, nargs="?", metavar="N", help="the row; the first is 1")
    add("--event", type=positive_integer, metavar="SEQ", help="which rows an event became")


def _add_export_options(export: argparse.ArgumentParser) -> None:
    add = export.add_argument
    add("--out", type=given_path, required=True, metavar="ROWS", help=".jsonl, .jsonl.gz or .parquet")
    add("--surplus", action="store_true", help="also labels that came too late to count")
    add("--items", action="store_true", help="also answers to gold, qualifying and repeated items")
    add(
        "--suspended", action="store_true", help="also labels of people who were suspended or did not qualify"
    )
    add("--settled", action="store_true", help="only tasks that want no more labels")
    add(
        "--no-adjudicated",
        action="store_true",
        help="the labels that a reviewer decided about, not the decision",
    )
    add("--group", choices=["people", "ai"], default="people", help="whose labels (default: people)")
    add("--position", type=positive_integer, metavar="N", help="as the store was at this event")


def run(args: argparse.Namespace) -> int:
    """Run the verb that was asked for."""
    try:
        _RUN[args.collect_verb](args)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        # A missing module of our own is a fault, and no extra to install.
        if package not in _EXTRAS:
            raise
        raise UserError(
            f'plaudit collect {args.collect_verb} needs {package}: pip install "plaudit[{_EXTRAS[package]}]"'
        ) from error
    return 0


@contextmanager
def _opened(args: argparse.Namespace, *, create: bool = False) -> Iterator[LabelStore]:
    """The store that ``--store`` names, while the block runs."""
    # Here and not above: every other command must start without the database's packages.
    from plaudit.labelling.store import open_store

    if not args.store:
        raise UserError("--store: expected a file or an address, got ''")
    with closing(open_store(args.store, create=create)) as store:
        yield store


def _project_name(store: LabelStore, word: str | None) -> str:
    """The project that ``--project`` names, or the only one."""
    names = store.projects()
    if word in names:
        return word
    if not names:
        raise UserError(
            f"{store.where}: there is no project in it; make one with `plaudit collect project FILE.yaml`"
        )
    if word is not None:
        hint = did_you_mean(word, names) or f"; there is {join_names(names)}"
        raise UserError(f"{store.where}: there is no project {word!r}{hint}")
    if len(names) > 1:
        raise UserError(f"{store.where}: it has several projects ({join_names(names)}): say --project NAME")
    return names[0]


def _set_project(args: argparse.Namespace) -> None:
    from plaudit.labelling.intake import read_intake
    from plaudit.labelling.project import read_project

    project = read_project(args.file)
    # All is read before anything is written: a bad row leaves no project without its items.
    known = list[tuple["Known", "Intake"]]()
    if project.gold_rows is not None:
        known.append(("gold", read_intake(Path(project.gold_rows), project, "gold")))
    if project.qualify_rows is not None:
        known.append(("qualify", read_intake(Path(project.qualify_rows), project, "qualify")))
    with _opened(args, create=True) as store:
        before = store.project(project.name) if project.name in store.projects() else None
        # The same settings make no event, so that a script may run this again and again.
        if before != project:
            store.set_project(project, actor=ACTOR)
        for line in _changes(before, project):
            print(f"{store.where}: {line}")
        for purpose, intake in known:
            added = store.add_tasks(project.name, intake.bodies, actor=ACTOR)
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
    from plaudit.labelling.project import Project, guidelines_version

    if name == "guidelines":
        version = guidelines_version(Project(name="p", guidelines=str(value)))
        return f"version {version}" if version else "none"
    if isinstance(value, tuple):
        return shorten(", ".join(map(str, value))) or "none"
    return "not set" if value is None else shorten(str(value))


def _qualification_notes(store: LabelStore, project: Project) -> Iterator[str]:
    """What keeps everybody from qualifying, where something does."""
    from plaudit.labelling.assigning import wilson_lower

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
    while page := store.tasks(project, "item", after=after):
        yield from page
        after = page[-1]["seq"]


def _add(args: argparse.Namespace) -> None:
    from plaudit.labelling.intake import read_intake

    known = "gold" if args.gold else "qualify" if args.qualify else None
    with _opened(args) as store:
        project = store.project(_project_name(store, args.project))
        options = row_options(args)
        # All files are read before anything of them is written.
        intakes = [
            read_intake(path, project, known, format=args.format, options=options) for path in args.rows
        ]
        for path, intake in zip(args.rows, intakes, strict=True):
            print(intake.sentence)
            for reason, count in intake.left_out.items():
                print(f"{path}: {count} × {reason} left out")
            added, taken = store.take_in(project.name, intake.bodies, intake.given, actor=ACTOR)
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


def _invite(args: argparse.Namespace) -> None:
    with _opened(args) as store:
        name = _project_name(store, args.project)
        secret = store.invite(name, role=args.role, uses=args.uses, days=args.days, actor=ACTOR)
        store_option = "" if args.store == _STORE else f" --store {store.where}"
    times = "once" if args.uses == 1 else f"{args.uses} times"
    body = json.dumps({"invite": "SECRET", "name": "NAME"})
    # The secret alone goes where a script reads it.
    print(secret)
    for line in (
        f"It lets in as {args.role} of {name}, {times}, for {args.days:g} days. Nothing shows it again.",
        f"To join, at the address of `plaudit collect serve{store_option}`:",
        f"  curl ADDRESS/api/v1/join -H 'Content-Type: application/json' -d '{body}'",
        "or in Python: plaudit.labelling.client.LabelClient(ADDRESS).join(SECRET, NAME)",
    ):
        print(line, file=sys.stderr)


def _serve(args: argparse.Namespace) -> None:
    from plaudit.labelling.app.server import LOOPBACK, serve

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
    if not 0 <= args.port <= 65_535:
        raise UserError(f"--port {args.port}: expected 0 to 65535")
    with _opened(args) as store:

        def ready(url: str) -> None:
            behind = "" if args.behind is None else f", for people {args.behind}"
            print(f"{store.where}: serving {join_names(store.projects()) or 'no project'} at {url}{behind}")
            # Flushed, as a script that started this waits for the address above.
            print("Ctrl-C ends it; everything acknowledged is on the disk", flush=True)

        serve(store, args.host, args.port, ready)


def _status(args: argparse.Namespace) -> None:
    with _opened(args) as store:
        name = _project_name(store, args.project)
        status, project = store.status(name), store.project(name)
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


def _export(args: argparse.Namespace) -> None:
    from plaudit.data.write import check_output_path
    from plaudit.files.data_sets import snapshot_path
    from plaudit.labelling.export import Filters, export

    check_output_path(args.out)
    filters = Filters(
        surplus=args.surplus,
        items=args.items,
        suspended=args.suspended,
        adjudicated=not args.no_adjudicated,
        settled=args.settled,
        group=args.group,
    )
    with _opened(args) as store:
        name = _project_name(store, args.project)
        found = export(store, name, args.out, filters=filters, position=args.position, actor=ACTOR)
    for line in _export_lines(found):
        print(f"{args.out}: {line}")
    print(f"{args.out}: where it comes from stands in {snapshot_path(args.out)}")


_OPTIONS = {
    "of an item whose answer is known": "--items",
    "surplus": "--surplus",
    "of a suspended annotator": "--suspended",
}
"""What brings in labels that are left out for a reason."""


def _export_lines(found: Snapshot) -> Iterator[str]:
    labels = len({*found.events})
    yield f"{found.rows} rows of {labels} labels of {found.project}, as of event {found.seq}"
    for reason, count in found.left_out.items():
        option = f" ({_OPTIONS[reason]} takes them in)" if reason in _OPTIONS else ""
        yield f"left out: {count} labels {reason}{option}"


def _trace(args: argparse.Namespace) -> None:
    from plaudit.labelling.export import read_snapshot, rows_of_event, trace_row

    if (args.row is None) == (args.event is None):
        raise UserError("say either a row (ROWS N), for its events, or --event SEQ, for the rows it became")
    snapshot = read_snapshot(args.rows)
    with _opened(args) as store:
        if args.row is not None:
            events = trace_row(store, args.rows, args.row)
            exported = f"exported from project {snapshot.project} at event {snapshot.seq}"
            print(f"row {args.row} of {args.rows}, {exported}:")
        else:
            _refuse_other_store(store, args.rows, snapshot)
            events = [_event_at(store, args.event)]
            rows = rows_of_event(args.rows, args.event)
            became = f"row{'s' * (len(rows) > 1)} {join_names([*map(str, rows)])}" if rows else "no row"
            print(f"event {args.event} became {became} of {args.rows}:")
    for event in events:
        print(f"{event.seq:>7}  {event.at[:19].replace('T', ' ')}  {event.actor}: {_event_words(event)}")


def _event_at(store: LabelStore, seq: int) -> Event:
    from plaudit.labelling.log import by_seq

    with store.looking() as look:
        event = by_seq(look.connection, seq)
    if event is None:
        raise UserError(f"{store.where}: there is no event {seq}; the last is {store.position()[0]}")
    return event


def _refuse_other_store(store: LabelStore, rows: Path, snapshot: Snapshot) -> None:
    # A shorter log has no such event, and asking for it would say something else.
    if store.position()[0] < snapshot.seq or _event_at(store, snapshot.seq).link != snapshot.link:
        raise UserError(
            f"{store.where}: event {snapshot.seq} is not the one that {rows} was exported at; name the store "
            f"that it came from ({snapshot.store})"
        )


def _event_words(event: Event) -> str:
    """What happened, in words; texts of others without what a terminal would obey."""
    if event.body is None:
        return f"{event.kind} {event.subject} (what it said was erased)"
    write = _EVENTS.get(event.kind)
    return f"{event.kind} {event.subject}" if write is None else write(event.subject, event.body)


def _project_words(subject: str, body: Mapping[str, Any]) -> str:
    settings, version = body["settings"], body["guidelines"]
    guidelines = f"guidelines {version}" if version else "no guidelines"
    return f"set project {subject}: {settings['ask']}, overlap {settings['overlap']}, {guidelines}"


def _task_words(subject: str, body: Mapping[str, Any]) -> str:
    from plaudit.data.records import plain_text
    from plaudit.labelling.rows import text_of

    prompt = shorten(plain_text(text_of(body["prompt"])))
    answers = len(body["candidates"])
    return f"added task {subject}: {prompt!r}" + (f" with {answers} answers" if answers else "")


def _lease_words(subject: str, body: Mapping[str, Any]) -> str:
    places = ", ".join(str(place + 1) for place in body["order"])
    order = f", the answers in the order {places}" if places else ""
    if "taken_in" in body:
        return f"had it in {shorten(body['taken_in']['from'])}, now {subject}{order}"
    return f"was given it as {subject}{order}, until {body['until'][:19].replace('T', ' ')}"


def _answer_words(subject: str, body: Mapping[str, Any]) -> str:
    seconds = "" if body.get("seconds") is None else f", after {body['seconds']:g} s"
    return f"answered {subject}: {_label_words(body['label'])}{seconds}{', surplus' * body['surplus']}"


def _revision_words(subject: str, body: Mapping[str, Any]) -> str:
    if body["label"] is None:
        return f"took back the answer to {subject} (event {body['replaces']})"
    return f"answered {subject} anew, in place of event {body['replaces']}: {_label_words(body['label'])}"


def _label_words(label: Mapping[str, Any]) -> str:
    """A label; whatever is in it stands as JSON, with the side of a pair in words."""
    text = shorten(json.dumps(label, ensure_ascii=False), 300)
    strength = label.get("strength")
    if strength is None:
        return text
    better = (
        "equally good" if strength == 0 else f"the {'second' if strength > 0 else 'first'} shown is better"
    )
    return f"{better} {text}"


_EVENTS: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "project-set": _project_words,
    "task-added": _task_words,
    "task-closed": lambda subject, body: f"closed task {subject}: {shorten(body['reason'])}",
    "leased": _lease_words,
    "released": lambda subject, body: (
        f"the time of {subject} ended"
        if body["reason"] == "ended"
        else f"gave {subject} back: {body['reason']}"
    ),
    "prolonged": lambda subject, body: (
        f"went on with {subject}, until {body['until'][:19].replace('T', ' ')}"
    ),
    "answered": _answer_words,
    "revised": _revision_words,
    "judged": lambda subject, body: f"judged {subject}: {_label_words(body['label'])}",
    "adjudicated": lambda subject, body: (
        f"decided {subject} ({body['reason']}): {_label_words(body['label'])}"
    ),
    "exported": lambda _, body: f"exported {body['rows']} rows as of event {body['seq']}",
    "noted": lambda subject, body: f"noted on {subject}: {shorten(body['text'], 300)}",
    "flagged": lambda subject, body: f"reported {subject} as {body['reason']}: {shorten(body['text'], 300)}",
}


def _check(args: argparse.Namespace) -> None:
    from plaudit.labelling.log import chain_faults

    with _opened(args) as store:
        if args.rebuild:
            with store.looking() as look:
                damaged = list(chain_faults(look.connection))
            # Tables that are made from an altered log would only look sound.
            _refuse_damaged(store.where, damaged)
            store.rebuild()
            print(f"{store.where}: all tables made anew from the log")
        _refuse_damaged(store.where, store.check())
        events = store.position()[0]
        print(f"{store.where}: sound: {events} events in one chain, and the tables are what a replay makes")


def _refuse_damaged(where: str, faults: list[str]) -> None:
    if faults:
        raise UserError("\n".join([f"{where}: the store is damaged:", *(f"  {fault}" for fault in faults)]))


def _backup(args: argparse.Namespace) -> None:
    from plaudit.labelling.copying import copy_store
    from plaudit.labelling.database import shown_address

    with _opened(args) as store:
        events = copy_store(store, args.target)
        target = shown_address(args.target)
        print(f"{target}: a copy of {store.where} with {events} events, proven whole; use it with --store")


_RUN: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "project": _set_project,
    "add": _add,
    "invite": _invite,
    "serve": _serve,
    "status": _status,
    "export": _export,
    "trace": _trace,
    "check": _check,
    "backup": _backup,
}
