"""``plaudit plan labels``: what labels by people will cost, in hours and money."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.parser import Subparsers, integer, positive_integer, write_json
from plaudit.errors import UserError

if TYPE_CHECKING:
    from plaudit.collect.labelling_cost import LabellingRequest
    from plaudit.collect.timing import Timing

LABEL_KINDS = ("pair", "rank", "rate", "write", "steps", "talk", "attack")
"""The kinds of task of `plaudit.collect.project`."""


def add_parser(methods: Subparsers) -> None:
    labels = methods.add_parser("labels", description="plan labels by people: hours and money")
    add = labels.add_argument
    add("--ask", choices=LABEL_KINDS, default="pair", help="the kind of task (default: pair)")
    add("--tasks", type=positive_integer, metavar="N", help="how many; none: what is open in --store")
    add("--overlap", type=positive_integer, default=1, metavar="K", help="people a task (default: 1)")
    add("--most", type=positive_integer, metavar="K", help="where they are divided (default: overlap + 2)")
    add("--seconds", type=float, metavar="S", help="for a label; none: measured in --store, or assumed")
    add("--pay", type=float, metavar="P", help="an hour, in whatever money (default: 20)")
    add("--checks", type=float, default=0.0, metavar="X", help="share of gold and repeated (default: 0)")
    add("--qualify", type=integer, default=0, metavar="N", help="qualifying items of each (default: 0)")
    add("--people", type=positive_integer, default=1, metavar="N", help="who qualify (default: 1)")
    add("--store", metavar="FILE", help="a label store: its open tasks, and its median seconds")
    add("--project", metavar="NAME", help="which one, where the store has several")
    add("--json", type=Path, metavar="FILE", help="write the plan there")


def run(args: argparse.Namespace) -> int:
    from plaudit.collect.labelling_cost import labelling_cost, labelling_sentences, labelling_to_dict

    request = _labels_of_store(args) if args.tasks is None else _labels_as_stated(args)
    cost = labelling_cost(request)
    for line in labelling_sentences(request, cost):
        print(line)
    if args.json is not None:
        write_json(args.json, labelling_to_dict(request, cost))
    return 0


def _labels_as_stated(args: argparse.Namespace) -> LabellingRequest:
    from plaudit.collect.labelling_cost import PAY, LabellingRequest

    timing = None if args.store is None else _timing(args)
    measured = None if timing is None or args.seconds is not None else timing.median_seconds
    return LabellingRequest(
        ask=args.ask if timing is None else timing.ask,
        tasks=args.tasks,
        overlap=args.overlap,
        most=args.most,
        seconds=args.seconds if measured is None else measured,
        measured=timing.timed if timing is not None and measured is not None else 0,
        pay=PAY if args.pay is None else args.pay,
        checks=args.checks,
        qualify=args.qualify,
        people=args.people,
    )


def _labels_of_store(args: argparse.Namespace) -> LabellingRequest:
    from plaudit.collect.labelling_cost import PAY, request_of_timing

    if args.store is None:
        raise UserError("say how many with --tasks N, or name a label store with --store FILE")
    timing = _timing(args)
    if timing.open_tasks == 0:
        raise UserError(f"{args.store}: no task is open, so nothing is left to plan; say --tasks N")
    return request_of_timing(timing, seconds=args.seconds, pay=PAY if args.pay is None else args.pay)


def _timing(args: argparse.Namespace) -> Timing:
    from plaudit.collect.verbs.store import opened, project_name
    from plaudit.collect.waiting import refuse_without_database

    refuse_without_database()
    from plaudit.collect.timing import project_timing

    with opened(args) as store:
        return project_timing(store, project_name(store, args.project))
