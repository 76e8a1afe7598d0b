"""``plaudit collect`` on a store: its projects, its tasks, its rows, and whether it is whole."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from plaudit.cli.parser import row_options
from plaudit.collect import progress
from plaudit.collect.adding import Added, add_tasks, content_key, gold_of_reviewers, set_project
from plaudit.collect.answering import take_in
from plaudit.collect.assigning import wilson_lower
from plaudit.collect.database import shown_address
from plaudit.collect.export import (
    Filters,
    Snapshot,
    export,
    read_snapshot,
    refuse_other_store,
    rows_of_event,
    trace_row,
)
from plaudit.collect.intake import Intake, Known, known_items, read_intake
from plaudit.collect.kinds.kind import text_of
from plaudit.collect.log import FIRST_LINK, Event, by_seq, chain_faults
from plaudit.collect.pictures import picture_faults
from plaudit.collect.project import Project, guidelines_version, read_project
from plaudit.collect.store import LabelStore, copy_store, open_store
from plaudit.config import did_you_mean
from plaudit.data.fields import join_names, shorten
from plaudit.data.records import plain_text
from plaudit.data.write import check_output_path
from plaudit.errors import UserError
from plaudit.files.data_sets import snapshot_path

ACTOR = "command-line"
"""What the log calls whoever works on a store by this command."""


@contextmanager
def opened(args: argparse.Namespace, *, create: bool = False) -> Iterator[LabelStore]:
    # Here and not above: every other command must start without the database's packages.
    if not args.store:
        raise UserError("--store: expected a file or an address, got ''")
    with closing(open_store(args.store, create=create)) as store:
        yield store


def project_name(store: LabelStore, word: str | None) -> str:
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


def table_lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as what stands in them."""
    cells = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def print_intake(source: Path, intake: Intake) -> None:
    print(intake.sentence)
    for reason, count in intake.left_out.items():
        print(f"{source}: {count} × {reason} left out")


def make_project(args: argparse.Namespace) -> None:
    project = read_project(args.file)
    # All is read before anything is written: a bad row leaves no project without its items.
    known = known_items(project)
    with opened(args, create=True) as store:
        before = store.project(project.name) if project.name in store.projects() else None
        # The same settings make no event, so that a script may run this again and again.
        if before != project:
            store.write(set_project, project, actor=ACTOR)
        for line in _changes(before, project):
            print(f"{store.where}: {line}")
        for purpose, intake in known.items():
            intake.pictures.keep(store, project.name)
            added = store.write(add_tasks, project.name, intake.bodies, actor=ACTOR)
            print(f"{store.where}: {_added_words(added, purpose, project)}")
        for note in _qualification_notes(store, project):
            print(note)


_ITEMS: Mapping[Known | None, str] = {None: "tasks", "gold": "gold items", "qualify": "qualifying items"}


def _added_words(added: Added, purpose: Known | None, project: Project) -> str:
    there = f", {added.repeated} were there already" if added.repeated else ""
    return f"{added.added} {_ITEMS[purpose]} added to {project.name}{there}"


def _changes(before: Project | None, now: Project) -> Iterator[str]:
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
    if name == "guidelines":
        version = guidelines_version(Project(name="p", guidelines=str(value)))
        return f"version {version}" if version else "none"
    if isinstance(value, tuple):
        return shorten(", ".join(map(str, value))) or "none"
    return "not set" if value is None else shorten(str(value))


def _qualification_notes(store: LabelStore, project: Project) -> Iterator[str]:
    if project.qualify_n == 0:
        return
    most = wilson_lower(project.qualify_n, project.qualify_n)
    if most < project.qualify_floor:
        yield (
            f"Nobody can qualify: even {project.qualify_n} right ones of {project.qualify_n} say only "
            f"{most:.2f} for certain, and the floor is {project.qualify_floor:g}. Ask for more, or lower it"
        )
    there = sum(1 for item in _tasks(store, project.name, "item") if item["purpose"] == "qualify")
    if there < project.qualify_n:
        yield (
            f"Nobody can qualify yet: {project.qualify_n} qualifying items are asked for, and {there} are "
            "there. Add more with `plaudit collect add ROWS --qualify`"
        )


def _tasks(store: LabelStore, project: str, state: str | None = None) -> Iterator[dict[str, Any]]:
    after = 0
    while page := store.read(progress.project_tasks, project, state, after=after):
        yield from page
        after = page[-1]["seq"]


def add_rows(args: argparse.Namespace) -> None:
    known = "gold" if args.gold else "qualify" if args.qualify else None
    with opened(args) as store:
        project = store.project(project_name(store, args.project))
        options = row_options(args)
        # All files are read before anything of them is written.
        intakes = [
            read_intake(path, project, known, format=args.format, options=options) for path in args.rows
        ]
        for intake in intakes:
            intake.pictures.keep(store, project.name)
        if args.choose is not None:
            _add_chosen(args, store, project, intakes)
            return
        _refuse_unused(args)
        for path, intake in zip(args.rows, intakes, strict=True):
            print_intake(path, intake)
            added, taken = store.write(take_in, project.name, intake.bodies, intake.given, actor=ACTOR)
            print(f"{path}: {_added_words(added, known, project)}")
            if intake.given:
                print(f"{path}: {_taken_words(taken)}")


def _refuse_unused(args: argparse.Namespace) -> None:
    for name in ("by", "most", "random", "seed"):
        if getattr(args, name) is not None:
            raise UserError(f"--{name} says how pairs are chosen: give --choose METHOD with it")


def _add_chosen(
    args: argparse.Namespace, store: LabelStore, project: Project, intakes: Sequence[Intake]
) -> None:
    from plaudit.collect.drawing import Selection, choose_bodies

    if any(intake.given for intake in intakes):
        raise UserError("--choose: some of these pairs are filled in by people; add them without it")
    more = {name: value for name in ("random", "seed") if (value := getattr(args, name)) is not None}
    selection = Selection(method=args.choose, by=args.by, most=args.most, **more)
    work = [item for item in _tasks(store, project.name) if item["purpose"] == "work"]
    there = {content_key(item["body"]) for item in work}
    listed = [body for intake in intakes for body in intake.bodies]
    bodies = [body for body in listed if content_key(body) not in there]
    if not bodies:
        raise UserError(f"--choose: all {len(listed)} pairs are in project {project.name} already")
    chosen, notes = choose_bodies(bodies, selection, [item["body"] for item in work if item["done"]])
    for path, intake in zip(args.rows, intakes, strict=True):
        print_intake(path, intake)
    if len(bodies) < len(listed):
        print(f"{len(listed) - len(bodies)} of {len(listed)} pairs are in {project.name} already")
    print(*notes, sep="\n")
    print(_added_words(store.write(add_tasks, project.name, chosen, actor=ACTOR), None, project))


def _taken_words(taken: Any) -> str:
    whose = join_names(taken.people)
    words = [f"{taken.taken} answers of {whose} taken in"]
    words += [f"{taken.repeated} were taken in before"] if taken.repeated else []
    words += [f"{taken.surplus} of them beyond what their tasks want (surplus)"] if taken.surplus else []
    return ", ".join(words)


def show_status(args: argparse.Namespace) -> None:
    is_whole = args.project is None
    with opened(args) as store:
        # Where there is none, the refusal says how to make one.
        names = (store.projects() if is_whole else []) or [project_name(store, args.project)]
        with store.looking() as moment:
            statuses = [progress.project_status(moment, name) for name in names]
        where, first = store.where, statuses[0]
    if args.json:
        objects = [{**asdict(status), "done": status.done} for status in statuses]
        print(json.dumps({"store": where, "projects": objects} if is_whole else objects[0]))
    elif is_whole:
        print(*table_lines(_HEADS, list(map(_cells, statuses))), sep="\n")
    else:
        print(f"{first.project} asks for {first.ask}; {where} at event {first.seq}")
        for head, line in _status_lines(first):
            print(f"  {head:<8} {line}")


_HEADS = ("project", "kind", "tasks done", "labels", "people", "state", "to review")


def _cells(status: progress.Status) -> tuple[str, ...]:
    reviews, total = status.tasks.get("review", 0), sum(status.tasks.values()) - status.tasks.get("item", 0)
    state = "empty" if not total else "open" if not status.done else "in review" if reviews else "done"
    tasks = f"{total - status.tasks.get('open', 0) - reviews}/{total}"
    people = sum(status.people.values()) - status.people.get("erased", 0)
    labels = f"{status.labels}/{status.wanted}"
    return status.project, status.ask, tasks, labels, str(people), state, str(reviews)


def _status_lines(status: progress.Status) -> Iterator[tuple[str, str]]:
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


def check_store(args: argparse.Namespace) -> None:
    with opened(args) as store:
        if args.expect is not None:
            _refuse_rolled_back(store, args.expect)
        if args.rebuild:
            with store.looking() as look:
                damaged = list(chain_faults(look.connection))
            # Tables that are made from an altered log would only look sound.
            _refuse_damaged(store.where, damaged)
            store.write(progress.rebuild_tables)
            print(f"{store.where}: all tables made anew from the log")
        _refuse_damaged(store.where, store.read(progress.store_faults) or store.read(picture_faults))
        for note in store.read(progress.clock_notes)[-_MOST_NOTES:]:
            print(f"{store.where}: a clock was wrong: {note}")
        seq, link = store.position()
        print(
            f"{store.where}: sound: {seq} events in one chain, and the tables are what a replay makes; the "
            f"last is {seq}:{link}"
        )


_MOST_NOTES = 20


def _refuse_rolled_back(store: LabelStore, expected: str) -> None:
    """Complain where an event that was there is not: a log that was cut at its end is still one chain."""
    number, _, link = expected.partition(":")
    if not number.isdecimal() or len(number) > 18 or len(link) != len(FIRST_LINK):
        raise UserError(
            f"--expect {expected}: expected SEQUENCE:LINK, as `plaudit collect check`, the page of a project "
            "and an export's snapshot (seq, link) have it"
        )
    with store.looking() as moment:
        event = by_seq(moment.connection, int(number))
    if event is None or event.link != link:
        raise UserError(
            f"{store.where}: event {number} is not the one that was there: the log was cut or written anew "
            f"since, or it is another store (its last event is {store.position()[0]}); restore a backup"
        )


def _refuse_damaged(where: str, faults: list[str]) -> None:
    if faults:
        raise UserError("\n".join([f"{where}: the store is damaged:", *(f"  {fault}" for fault in faults)]))


def back_up(args: argparse.Namespace) -> None:
    with opened(args) as store:
        events = copy_store(store, args.target)
        target = shown_address(args.target)
        print(f"{target}: a copy of {store.where} with {events} events, proven whole; use it with --store")


def export_labels(args: argparse.Namespace) -> None:
    check_output_path(args.out)
    filters = Filters(
        surplus=args.surplus,
        items=args.items,
        suspended=args.suspended,
        adjudicated=not args.no_adjudicated,
        settled=args.settled,
        group=args.group,
        by=args.by,
    )
    with opened(args) as store:
        name = project_name(store, args.project)
        found = export(
            store, name, args.out, filters=filters, position=args.position, soft=args.soft, actor=ACTOR
        )
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
    kind = "soft rows" if found.votes else "rows"
    yield f"{found.rows} {kind} of {len(found.heard)} labels of {found.project}, as of event {found.seq}"
    for reason, count in found.left_out.items():
        option = f" ({_OPTIONS[reason]} takes them in)" if reason in _OPTIONS else ""
        yield f"left out: {count} labels {reason}{option}"


def trace_rows(args: argparse.Namespace) -> None:
    if (args.row is None) == (args.event is None):
        raise UserError("say either a row (ROWS N), for its events, or --event SEQ, for the rows it became")
    snapshot = read_snapshot(args.rows)
    with opened(args) as store:
        if args.row is not None:
            events = trace_row(store, args.rows, args.row)
            exported = f"exported from project {snapshot.project} at event {snapshot.seq}"
            print(f"row {args.row} of {args.rows}, {exported}:")
        else:
            refuse_other_store(store, args.rows, snapshot)
            with store.looking() as moment:
                event = by_seq(moment.connection, args.event)
            if event is None:
                last = store.position()[0]
                raise UserError(f"{store.where}: there is no event {args.event}; the last is {last}")
            events = [event]
            rows = rows_of_event(args.rows, args.event)
            became = f"row{'s' * (len(rows) > 1)} {join_names([*map(str, rows)])}" if rows else "no row"
            print(f"event {args.event} became {became} of {args.rows}:")
    for event in events:
        print(f"{event.seq:>7}  {event.at[:19].replace('T', ' ')}  {event.actor}: {event_words(event)}")


def event_words(event: Event) -> str:
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
    "task-opened": lambda subject, body: f"opened task {subject} again: {shorten(body['reason'])}",
    "routed": lambda subject, body: f"judges keep {len(body['kept'])} of {len(body['tasks'])} tasks",
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


def add_gold(args: argparse.Namespace) -> None:
    with opened(args) as store:
        name = project_name(store, args.project)
        # Read and written in one, or a decision in between would be made known as it no longer is.
        with store.changing() as change:
            found = gold_of_reviewers(change, name, least=args.reviewers, agreement=args.agreement)
            bodies = () if args.dry_run else found.bodies
            added = add_tasks(change, name, bodies, actor=ACTOR)
        project = store.project(name)
    made = (
        f"{len(found.bodies)} gold items would be made"
        if args.dry_run
        else _added_words(added, "gold", project)
    )
    print(f"{made}; {len(found.left_open)} tasks that reviewers answered are left open")
    for task_id, reason in found.left_open:
        print(f"left open: {task_id}: {reason}")
