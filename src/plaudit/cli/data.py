"""``plaudit data``: look at a file of feedback, and write it in another layout."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

from plaudit.cli.parser import Verbs
from plaudit.errors import UserError
from plaudit.records.preferred import preferred
from plaudit.sources.files import name_of
from plaudit.sources.layouts import LAYOUTS, ReadOptions
from plaudit.sources.read import open_rows, read_records
from plaudit.sources.summary import summarise, summary_page
from plaudit.sources.write import WRITTEN_LAYOUTS, check_target, write_records

_FORMATS = ", ".join(layout.name for layout in LAYOUTS)


def add_parser(subparsers: Verbs) -> None:
    """Add ``data inspect`` and ``data convert``."""
    data = subparsers.add_parser("data", help="look at a file of feedback, or write it in another layout")
    verbs = data.add_subparsers(dest="data_verb", required=True, metavar="inspect|convert")
    inspect = verbs.add_parser("inspect", help="say what a file holds and what is wrong with it")
    inspect.add_argument("file", type=Path, metavar="FILE", help="JSONL, JSON, CSV, Parquet, datasets folder")
    inspect.add_argument("--limit", type=int, metavar="N", help="look at the first N rows only")
    inspect.add_argument("--model", type=Path, metavar="DIR", help="show three rows as this model's tokens")
    convert = verbs.add_parser("convert", help="write a file in plaudit's layout or TRL's")
    convert.add_argument("file", type=Path, metavar="IN", help="what to read")
    convert.add_argument("out", type=Path, metavar="OUT", help="what to write: .jsonl, .jsonl.gz or .parquet")
    convert.add_argument("--to", choices=[*WRITTEN_LAYOUTS], default="plaudit", help="default: plaudit")
    convert.add_argument("--threshold", type=float, default=0.01, help="share of bad rows (default: 0.01)")
    convert.add_argument("--preferred", action="store_true", help="write the preferred answers only")
    for verb in (inspect, convert):
        verb.add_argument("--format", metavar="NAME", help=f"do not guess the layout: {_FORMATS}")
        verb.add_argument("--split", metavar="NAME", help="which split of a datasets folder to read")
        verb.add_argument("--ties", choices=["soft", "drop"], default="soft", help="HelpSteer3's ties")
        verb.add_argument("--neutral", type=float, default=0.5, help="label of PRM800K's neutral steps")
    data.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb that was asked for."""
    return _inspect(args) if args.data_verb == "inspect" else _convert(args)


def _inspect(args: argparse.Namespace) -> int:
    if args.limit is not None and args.limit < 1:
        raise UserError(f"--limit {args.limit}: expected 1 or more")
    stream = open_rows(args.file, format=args.format, options=_options(args))
    print(stream.detected.sentence)
    found = summarise(islice(stream.rows, args.limit))
    print(summary_page(found))
    if args.model is not None:
        from plaudit.batches.show import show_rows

        print()
        print(show_rows(found.first, args.model))
    return 0


def _convert(args: argparse.Namespace) -> int:
    if args.out.resolve() == args.file.resolve():
        raise UserError(f"{args.out}: would replace the file that is read; name another")
    check_target(args.out)
    aside = args.out.with_name(f"{args.out.name}.quarantine.jsonl")
    reading = read_records(
        args.file,
        format=args.format,
        threshold=args.threshold,
        quarantine=aside,
        options=_options(args),
    )
    print(reading.sentence)
    for reason, count in reading.left_out.items():
        print(f"{name_of(args.file)}: {count} × {reason} left out")
    if reading.quarantine:
        print(f"{len(reading.problems)} of {reading.rows} rows are bad; they are in {reading.quarantine}")
    records = reading.records
    if args.preferred:
        records = tuple(liked for record in records if (liked := preferred(record)) is not None)
        print(f"{len(reading.records) - len(records)} of {len(reading.records)} records prefer nothing")
    written = write_records(records, args.out, layout=args.to)
    for reason, count in written.lost.items():
        print(f"{count} × {reason}")
    print(f"{written.path}: {written.rows} rows written in the {args.to} layout")
    return 0


def _options(args: argparse.Namespace) -> ReadOptions:
    return ReadOptions(ties=args.ties, neutral=args.neutral, split=args.split)
