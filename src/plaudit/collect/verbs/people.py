"""``plaudit collect invite``, ``people``, ``person`` and ``pay``: who comes in, what is stored of them."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from plaudit.collect.people import Panel, make_invite, revoke, set_groups, set_standing
from plaudit.collect.privacy import erase_person, export_person
from plaudit.collect.progress import group_sizes, pay_csv, pay_rows, project_people
from plaudit.collect.sessions import list_sessions, set_password
from plaudit.collect.store import LabelStore
from plaudit.collect.verbs.store import ACTOR, opened, project_name, table_lines
from plaudit.config import did_you_mean
from plaudit.data.fields import shorten
from plaudit.data.records import STORE_FILE
from plaudit.errors import UserError
from plaudit.files.atomic import write_text


def invite(args: argparse.Namespace) -> None:
    if args.panel != (args.code is not None) or (args.tasks is not None and not args.panel):
        raise UserError("--panel and --code CODE belong together, and --tasks N to them")
    panel = Panel(code=args.code, tasks=args.tasks) if args.panel else None
    with opened(args) as store:
        name = project_name(store, args.project)
        secret = store.write(
            make_invite, name, role=args.role, uses=args.uses, days=args.days, actor=ACTOR, panel=panel
        )
        store_option = "" if args.store == STORE_FILE else f" --store {store.where}"
    times = "once" if args.uses == 1 else f"{args.uses} times"
    # The secret alone goes where a script reads it.
    print(secret)
    for line in (
        f"It lets in as {args.role} of {name}, {times}, for {args.days:g} days. Nothing shows it again.",
        f"To join, at the address of `plaudit collect serve{store_option}`:",
        *_ways_in(args.panel),
    ):
        print(line, file=sys.stderr)


def _ways_in(panel: bool) -> Iterator[str]:
    if panel:
        yield "  ADDRESS/join/SECRET?participant=ID in a browser, with the panel's id of each of its people"
        return
    body = json.dumps({"invite": "SECRET", "name": "NAME"})
    yield "  ADDRESS/join/SECRET in a browser"
    yield f"  curl ADDRESS/api/v1/join -H 'Content-Type: application/json' -d '{body}'"
    yield "or in Python: plaudit.collect.client.LabelClient(ADDRESS).join(SECRET, NAME)"


def list_people(args: argparse.Namespace) -> None:
    with opened(args) as store:
        name = project_name(store, args.project)
        rows, sizes = store.read(project_people, name), store.read(group_sizes, name)
    if args.json:
        print(json.dumps({"people": rows, "groups": [asdict(size) for size in sizes]}))
        return
    for line in _table(rows):
        print(line)
    for size in sizes:
        people = "fewer than 5 people, or told by the other sums" if size.people is None else size.people
        print(f"group {size.name}: {size.value or 'not said'}: {people}")


_HEADS = ("", "name", "role", "standing", "answered", "labels", "surplus", "skipped", "minutes")


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    return table_lines(_HEADS, [_cells(row) for row in rows])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    counts = [str(row[name]) for name in ("answered", "labels", "surplus", "skipped")]
    name = "–" if row["person"] is None else shorten(row["person"], 40)
    minutes = f"{(row['seconds'] or 0) / 60:.0f}"
    return row["pseudonym"], name, row["role"], row["standing"], *counts, minutes


def _pseudonym(store: LabelStore, project: str, word: str) -> str:
    """Whom a word names: what the log calls somebody, or the name that one person alone has."""
    rows = store.read(project_people, project)
    called = [row["pseudonym"] for row in rows if word in (row["pseudonym"], row["person"])]
    if not called:
        names = [name for row in rows for name in (row["pseudonym"], row["person"]) if name]
        raise UserError(f"{store.where}: nobody in {project} is called {word!r}{did_you_mean(word, names)}")
    if len(called) > 1:
        raise UserError(
            f"{store.where}: {word!r} may be {' or '.join(called)} of {project}; say which of them"
        )
    return called[0]


def manage_person(args: argparse.Namespace) -> None:
    with opened(args) as store:
        project = project_name(store, args.project)
        pseudonym = _pseudonym(store, project, args.name)
        for option, do in _DEEDS.items():
            if getattr(args, option) not in (None, False):
                print(do(store, project, pseudonym, args))
                return
        (row,) = [row for row in store.read(project_people, project) if row["pseudonym"] == pseudonym]
        for line in _table([row]):
            print(line)
        for session in store.read(list_sessions, project, pseudonym):
            print(f"signed in since {_moment(session.started)}, last used {_moment(session.used)} UTC")


def _moment(at: str) -> str:
    return at[:16].replace("T", " ")


def _export_person(store: LabelStore, project: str, pseudonym: str, args: argparse.Namespace) -> str:
    found = store.read(export_person, project, pseudonym)
    _write_private(args.export, json.dumps(found, ensure_ascii=False, indent=2) + "\n")
    return f"{args.export}: everything that is stored of {pseudonym}, with {len(found['events'])} events"


def _write_private(path: Path, text: str) -> None:
    write_text(path, text)
    # It has somebody's name in it, and other users of the machine have no business with that.
    os.chmod(path, 0o600)


def _erase(store: LabelStore, project: str, pseudonym: str, _: argparse.Namespace) -> str:
    seq = erase_person(store, project, pseudonym, actor=ACTOR)
    return (
        f"{pseudonym} of {project} is erased (event {seq}): name, sessions, tokens, drafts and words "
        "are gone. Backups, and files that were exported before, still have them"
    )


def _end_sessions(store: LabelStore, project: str, pseudonym: str, _: argparse.Namespace) -> str:
    sessions = len(store.read(list_sessions, project, pseudonym))
    tokens = store.write(revoke, project, pseudonym, actor=ACTOR)
    return f"{pseudonym} of {project}: {sessions} sessions and {tokens} tokens ended"


def _suspend(store: LabelStore, project: str, pseudonym: str, args: argparse.Namespace) -> str:
    store.write(set_standing, project, pseudonym, "suspended", reason=args.suspend, actor=ACTOR)
    return f"{pseudonym} of {project} is suspended, signed out, and left out of exports"


def _set_groups(store: LabelStore, project: str, pseudonym: str, args: argparse.Namespace) -> str:
    groups = dict[str, str]()
    for word in args.group:
        name, sign, value = word.partition("=")
        if not sign:
            raise UserError(f"--group {word}: write NAME=VALUE, such as region=north; region= takes it out")
        groups[name] = value
    store.write(set_groups, project, pseudonym, groups, actor=ACTOR)
    return f"{pseudonym} of {project}: {', '.join(groups)} set; only sums of five or more people are told"


def _set_password(store: LabelStore, project: str, pseudonym: str, _: argparse.Namespace) -> str:
    set_password(store, project, pseudonym, _typed_password(pseudonym), actor=ACTOR)
    return f"{pseudonym} of {project} has another password, and is signed out everywhere"


def _typed_password(pseudonym: str) -> str:
    """What is typed twice without being shown; of a script the first line of standard input."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass.getpass(f"New password of {pseudonym}: ")
    if getpass.getpass("The same again: ") != first:
        raise UserError("the two passwords differ; nothing was changed")
    return first


_DEEDS = {
    "export": _export_person,
    "erase": _erase,
    "end_sessions": _end_sessions,
    "suspend": _suspend,
    "group": _set_groups,
    "password": _set_password,
}


def write_pay(args: argparse.Namespace) -> None:
    if args.out.is_dir() or not args.out.parent.is_dir():
        raise UserError(f"{args.out}: name a file in a folder that is there")
    with opened(args) as store:
        name = project_name(store, args.project)
        rows = store.read(pay_rows, name)
    _write_private(args.out, pay_csv(rows))
    hours = sum(row.seconds for row in rows) / 3600
    print(f"{args.out}: {len(rows)} people of {name}, {hours:.1f} hours of active work")
