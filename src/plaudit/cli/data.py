"""``plaudit data``: look at a file of feedback, and write it in another layout."""

import argparse
from itertools import islice
from pathlib import Path
from typing import get_args

from plaudit.cli import parser
from plaudit.data.files import source_name
from plaudit.data.formats.layout import ReadOptions
from plaudit.data.formats.registry import FORMATS
from plaudit.data.read import open_rows, read_records
from plaudit.data.records import UNSAFE, Safety
from plaudit.data.transforms import preferred_demonstration
from plaudit.data.write import OUTPUT_FORMATS, check_output_path, summarise_rows, summary_text, write_records
from plaudit.errors import UserError
from plaudit.files import hub
from plaudit.wings import offered

_ROWS_ON_PAGE = 50
_FORMATS = ", ".join(layout.name for layout in FORMATS)


def add_parser(subparsers: parser.Subparsers) -> None:
    data = subparsers.add_parser("data")
    verbs = data.add_subparsers(dest="data_verb", required=True, metavar="inspect|convert|folds")
    inspect = verbs.add_parser("inspect", help="say what a file holds and what is wrong with it")
    add = inspect.add_argument
    add("file", type=parser.given_path, metavar="FILE", help="JSONL, JSON, CSV, Parquet, datasets folder")
    add("--limit", type=int, metavar="N", help="look at the first N rows only")
    add("--model", type=parser.model_path, metavar="DIR", help="show three rows as this model's tokens")
    add("--template", type=Path, metavar="FILE", help="with a chat template of your own")
    add("--page", type=Path, metavar="FILE", help="write the first rows, with their pictures, as NAME.html")
    convert = verbs.add_parser("convert", help="write a file in plaudit's layout or TRL's")
    add = convert.add_argument
    add("file", type=parser.given_path, metavar="IN", help="what to read")
    add("out", type=parser.given_path, metavar="OUT", help="what to write: .jsonl, .jsonl.gz or .parquet")
    add("--to", choices=[*OUTPUT_FORMATS], default="plaudit", help="default: plaudit")
    add("--threshold", type=float, default=0.01, help="share of bad rows (default: 0.01)")
    add("--preferred", action="store_true", help="write the preferred answers only")
    folds = verbs.add_parser("folds", help="divide rows by who judged them, to hold people out")
    add = folds.add_argument
    add("file", type=parser.given_path, metavar="IN", help="rows that name their annotators")
    add("out", type=parser.given_path, metavar="DIR", help="fold-1/train.jsonl, test.jsonl … go there")
    add("--groups", type=int, default=5, metavar="N", help="groups of people (default: 5)")
    add("--test", type=float, default=0.2, metavar="X", help="share of prompts kept from all (default: 0.2)")
    add("--threshold", type=float, default=0.01, help="share of bad rows (default: 0.01)")
    add("--seed", type=int, default=0, help="which prompts (default: 0)")
    for verb in (inspect, convert, folds):
        parser.add_row_options(verb.add_argument, formats=_FORMATS)
        verb.add_argument("--split", metavar="NAME", help="which split of a datasets folder to read")
        verb.add_argument("--ties", choices=["soft", "drop"], default="soft", help="HelpSteer3's ties")
        verb.add_argument("--neutral", type=float, default=0.5, help="label of PRM800K's neutral steps")
        verb.add_argument("--safety", choices=get_args(Safety), help="only such pairs by flags, or thumbs")
        verb.add_argument("--unsafe", nargs="+", default=UNSAFE, metavar="FLAG", help="the flags that count")
    data.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    hub.refuse_address(args.file)
    return {"inspect": _inspect, "convert": _convert, "folds": _folds}[args.data_verb](args)


def _inspect(args: argparse.Namespace) -> int:
    if args.limit is not None and args.limit < 1:
        raise UserError(f"--limit {args.limit}: expected 1 or more")
    parser.refuse_missing_models(args.model)
    if args.page is not None and args.page.suffix != ".html":
        raise UserError(f"--page {args.page}: expected a file NAME.html")
    if args.template is not None and args.model is None:
        raise UserError("--template shows rows as a model's tokens: say which with --model DIR")
    stream = open_rows(args.file, format=args.format, options=_read_options(args))
    print(stream.sentence)
    if stream.unread_text is not None:
        print(f"Before it can be trained: {stream.unread_text}")
    summary = summarise_rows(islice(stream.rows, args.limit))
    print(summary_text(summary))
    if args.model is not None:
        from plaudit.tokens.encode import make_encoder, read_template
        from plaudit.tokens.inspect import show_rows

        template = None if args.template is None else read_template(args.template)
        print()
        print(show_rows(summary.first_records, make_encoder(args.model, template=template)))
    if args.page is not None:
        _write_page(args, stream.sentence)
    return 0


def _write_page(args: argparse.Namespace, sentence: str) -> None:
    # Read once more: what a summary keeps of rows is three of them.
    rows = islice(open_rows(args.file, format=args.format, options=_read_options(args)).rows, args.limit)
    records = list(islice((record for row in rows for record in row.records), _ROWS_ON_PAGE))
    write = offered("rows_page", of="runs")
    print(f"\n{write(source_name(args.file), sentence, records, args.page)}")


def _convert(args: argparse.Namespace) -> int:
    if args.out.resolve() == args.file.resolve():
        raise UserError(f"{args.out}: would replace the file that is read; name another")
    check_output_path(args.out)
    quarantine_path = args.out.with_name(f"{args.out.name}.quarantine.jsonl")
    options = _read_options(args)
    result = read_records(
        args.file, format=args.format, threshold=args.threshold, quarantine=quarantine_path, options=options
    )
    print(result.format_sentence)
    for reason, count in result.left_out.items():
        print(f"{source_name(args.file)}: {count} × {reason} left out")
    if result.quarantine:
        print(f"{len(result.problems)} of {result.rows} rows are bad; they are in {result.quarantine}")
    records = result.records
    if args.preferred:
        records = tuple(filter(None, map(preferred_demonstration, records)))
        print(f"{len(result.records) - len(records)} of {len(result.records)} records prefer nothing")
    output = write_records(records, args.out, layout=args.to)
    for reason, count in output.lost.items():
        print(f"{count} × {reason}")
    print(f"{output.path}: {output.rows} rows written in the {args.to} layout")
    return 0


def _folds(args: argparse.Namespace) -> int:
    from plaudit.data.transforms import annotator_folds
    from plaudit.files.atomic import make_folder

    options = _read_options(args)
    result = read_records(args.file, format=args.format, threshold=args.threshold, options=options)
    print(result.format_sentence)
    folds = annotator_folds(result.records, args.groups, test_share=args.test, seed=args.seed)
    for number, fold in enumerate(folds, start=1):
        folder = args.out / f"fold-{number}"
        make_folder(folder)
        for name, records in (("train", fold.train), ("test", fold.test)):
            write_records(records, folder / f"{name}.jsonl")
        print(
            f"{folder}: {len(fold.train)} rows to train on, {len(fold.test)} to try on; held out: "
            f"{', '.join(fold.held_out)}"
        )
    return 0


def _read_options(args: argparse.Namespace) -> ReadOptions:
    own = {name: getattr(args, name) for name in ("ties", "neutral", "split", "safety")}
    return parser.row_options(args, unsafe=tuple(args.unsafe), **own)
