"""``plaudit collect export`` and ``trace``: labels as rows, and from a row back to what people did."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.parser import Subparsers, given_path, positive_integer
from plaudit.collect.verbs.event_words import event_words
from plaudit.collect.verbs.opening import ACTOR, add_project_option, add_store_option, opened, project_name
from plaudit.data.fields import join_names
from plaudit.errors import UserError

if TYPE_CHECKING:
    from plaudit.collect.export import Snapshot
    from plaudit.collect.log import Event
    from plaudit.collect.store import LabelStore


def add_parsers(verbs: Subparsers) -> None:
    """Add the verbs."""
    export = verbs.add_parser("export", help="write labels as rows for training, with their snapshot")
    _add_export_options(export)
    add_project_option(export)
    export.set_defaults(run_verb=_export)
    trace = verbs.add_parser("trace", help="from a row back to what people did, or from there to rows")
    _add_trace_options(trace)
    add_store_option(trace)
    trace.set_defaults(run_verb=_trace)


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
    add(
        "--soft",
        action="store_true",
        help="one row a pair, with the chance that people prefer the answer, in place of one a label",
    )
    add("--group", choices=["people", "ai"], default="people", help="whose labels (default: people)")
    add("--position", type=positive_integer, metavar="N", help="as the store was at this event")


def _add_trace_options(trace: argparse.ArgumentParser) -> None:
    add = trace.add_argument
    add("rows", type=given_path, metavar="ROWS", help="what export wrote")
    add("row", type=positive_integer, nargs="?", metavar="N", help="the row; the first is 1")
    add("--event", type=positive_integer, metavar="SEQ", help="which rows an event became")


def _export(args: argparse.Namespace) -> None:
    from plaudit.collect.export import Filters, export
    from plaudit.data.write import check_output_path
    from plaudit.files.data_sets import snapshot_path

    check_output_path(args.out)
    filters = Filters(
        surplus=args.surplus,
        items=args.items,
        suspended=args.suspended,
        adjudicated=not args.no_adjudicated,
        settled=args.settled,
        group=args.group,
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


def _trace(args: argparse.Namespace) -> None:
    from plaudit.collect.export import read_snapshot, rows_of_event, trace_row

    if (args.row is None) == (args.event is None):
        raise UserError("say either a row (ROWS N), for its events, or --event SEQ, for the rows it became")
    snapshot = read_snapshot(args.rows)
    with opened(args) as store:
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
        print(f"{event.seq:>7}  {event.at[:19].replace('T', ' ')}  {event.actor}: {event_words(event)}")


def _event_at(store: LabelStore, seq: int) -> Event:
    from plaudit.collect.log import by_seq

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
