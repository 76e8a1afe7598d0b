"""``plaudit revise``: answers that a model criticises and writes anew, as demonstrations and as pairs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from plaudit.cli.parser import Subparsers, add_row_options, given_path, integer, positive_integer
from plaudit.errors import UserError
from plaudit.feedback.verbs.judge import add_model_options, add_money_options, settings_from

if TYPE_CHECKING:
    from plaudit.feedback.revised_rows import RevisionFiles

_EPILOG = """\
by       openai:http://host:port/v1#model   a model behind a server
         model:DIR                          a chat model on this machine
         call:module:function               a Python function that replies to a question
settings behind commas: openai:http://host:port/v1#model,temperature=0.7,max-tokens=256,price=0.15/0.6

Each round asks for a critique of the answer, and then for the answer anew. Revisions that change nothing, are
empty or fail are left out and counted. Replies are kept: the same command goes on where it was stopped."""


def add_parser(subparsers: Subparsers) -> None:
    revise = subparsers.add_parser(
        "revise", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG
    )
    add = revise.add_argument
    add("rows", type=given_path, metavar="ROWS", help="prompts for --model, or rows that have answers")
    add("--by", required=True, metavar="WORD", help="who criticises and revises: see below")
    add("--constitution", metavar="FILE", help="principles, one drawn for each round; ours: plaudit's own")
    add("--rounds", type=integer, default=1, metavar="N", help="1 to 4 (default: 1)")
    add("--minimal", action="store_true", help="one round that changes as little as can be, for pairs")
    add("--without-critique", action="store_true", help="revise answers without a critique of them")
    add("--score", metavar="WORD", help="a reward or judge that scores the answers of every round")
    add("--people", type=given_path, metavar="ROWS", help="labels of people on some pairs: correct --score")
    add("--card", type=given_path, metavar="FILE", help="without labels: the card of the judge in --score")
    add("--out", type=given_path, metavar="FILE", help="demonstrations: the last revision of each answer")
    add("--pairs", type=given_path, metavar="FILE", help="pairs: each last revision over its original")
    add("--steps", type=given_path, metavar="FILE", help="a line of JSON for each answer: all that was said")
    add("--figures", type=given_path, metavar="FILE", help="length, refusals … before and after, as JSON")
    add("--marks", type=given_path, metavar="FILE", help="phrases to count, by groups, as YAML")
    add("--n", type=positive_integer, metavar="N", help="at most so many answers, by chance")
    add("--seed", type=integer, default=0, help="of chance (default: 0)")
    add_model_options(revise, "revise an answer of it to each prompt of ROWS")
    add_money_options(revise)
    add_row_options(add)


def run(args: argparse.Namespace) -> int:
    from plaudit.feedback.asking import ReviseSettings
    from plaudit.feedback.revised_rows import prepare_revising, revision_figures, write_revisions

    files = _files(args)
    if files.demonstrations is None and files.pairs is None and not args.estimate:
        raise UserError("--out FILE or --pairs FILE: say where the rows go")
    from_model = args.model is not None
    given = {"prompts": args.rows if from_model else None, "data": None if from_model else args.rows}
    settings = settings_from(ReviseSettings, args, **given)
    revising = prepare_revising(settings, layout=args.format)
    for note in revising.notes:
        print(note)
    # Flushed: whoever waits for a long run sees first what it will be.
    print(f"{revising.writer.name}: {revising.estimate().sentence()}", flush=True)
    if args.estimate:
        return 0
    revisions = revising.run()
    figures = revision_figures(revising, revisions)
    print("\n".join((*figures.lines(), *revising.purse.sentences)))
    write_revisions(revising, revisions, figures, files)
    for path in (files.demonstrations, files.pairs):
        if path is not None:
            print(f"{path}: {revisions.outcomes['revised']} rows by {revisions.annotator}")
    return 0


def _files(args: argparse.Namespace) -> RevisionFiles:
    from plaudit.data.write import check_output_path
    from plaudit.feedback.revised_rows import RevisionFiles

    for path in (args.out, args.pairs):
        if path is not None:
            check_output_path(path)
    return RevisionFiles(demonstrations=args.out, pairs=args.pairs, steps=args.steps, figures=args.figures)
