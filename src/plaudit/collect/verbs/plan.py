"""What labels by people will cost: how many, by how many people, how long each takes, what an hour costs.

``plaudit plan labels`` tells it, and so does the dry run of a pipeline that asks people.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.parser import Subparsers, integer, positive_integer, write_json
from plaudit.collect.kinds import KINDS, USUAL
from plaudit.errors import UserError

if TYPE_CHECKING:
    from plaudit.collect.progress import Timing

SECONDS = {kind.name: kind.seconds for kind in KINDS.values()}
"""How long a label takes where nobody has measured: of a pair the five minutes that InstructGPT's comparisons
are reckoned with, of the others guesses in proportion to what is read and written."""
PAY = 20.0
"""An hour's pay where nothing is said, in whatever money: about what AlpacaFarm paid in dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabellingRequest:
    ask: str
    tasks: int
    overlap: int = 1
    most: int | None = None
    """Up to how many where they are divided; none: the overlap and two more."""
    seconds: float | None = None
    """How long a label takes; none: as `SECONDS` has it."""
    measured: int = 0
    """How many labels the seconds were measured on; 0 where they are assumed."""
    pay: float = PAY
    checks: float = 0.0
    """The share of what people answer that is gold or repeated, and makes no row."""
    qualify: int = 0
    people: int = 1
    missing: int | None = None
    """Labels that are still wanted, where some are there already; none: all of them."""

    def __post_init__(self) -> None:
        conditions = {
            f"--tasks is at least 1, not {self.tasks}": self.tasks < 1,
            f"--overlap is at least 1, not {self.overlap}": self.overlap < 1,
            f"--most is at least the overlap ({self.overlap}), not {self.most}": self.limit < self.overlap,
            f"--seconds is above 0, not {self.seconds}": self.seconds is not None
            and not 0 < self.seconds < float("inf"),
            f"--pay is 0 or more, not {self.pay:g}": not 0 <= self.pay < float("inf"),
            f"--checks is a share from 0 to below 1, not {self.checks:g}": not 0 <= self.checks < 1,
            f"--qualify is 0 or more, not {self.qualify}": self.qualify < 0,
            f"--people is at least 1, not {self.people}": self.people < 1,
        }
        for words, broken in conditions.items():
            if broken:
                raise UserError(words)

    @property
    def limit(self) -> int:
        """Up to how many people label a task on which they are divided."""
        return self.overlap + 2 if self.most is None else self.most

    @property
    def can_divide(self) -> bool:
        """Whether people can disagree, so that more are asked: not where one answers, or nothing is right."""
        return self.overlap > 1 and self.ask in ("pair", "rank", "steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabellingCost:
    labels: int
    answers: int
    """All that people answer: checks and what qualifies them too."""
    seconds: float
    hours: float
    money: float
    labels_at_most: int
    """Labels if people are divided over every task."""
    hours_at_most: float
    money_at_most: float


def labelling_cost(request: LabellingRequest) -> LabellingCost:
    """The arithmetic.

    >>> cost = labelling_cost(LabellingRequest(ask="pair", tasks=33_000, pay=10))
    >>> cost.hours, cost.money
    (2750.0, 27500.0)
    """
    seconds = float(SECONDS[request.ask] if request.seconds is None else request.seconds)
    labels = request.tasks * request.overlap if request.missing is None else request.missing
    at_most = labels + request.tasks * (request.limit - request.overlap) * request.can_divide
    answers, answers_at_most = (_answers(count, request) for count in (labels, at_most))
    hours, hours_at_most = (count * seconds / 3600 for count in (answers, answers_at_most))
    return LabellingCost(
        labels=labels,
        answers=answers,
        seconds=seconds,
        hours=hours,
        money=hours * request.pay,
        labels_at_most=at_most,
        hours_at_most=hours_at_most,
        money_at_most=hours_at_most * request.pay,
    )


def _answers(labels: int, request: LabellingRequest) -> int:
    # Checks are a share of all that is given out, not of the labels: 5 % of them leave 95 % for work.
    return round(labels / (1 - request.checks)) + request.qualify * request.people


def labelling_sentences(request: LabellingRequest, cost: LabellingCost) -> Iterator[str]:
    if request.missing is None:
        yield f"labels: {request.tasks:,} tasks × {_people(request.overlap)} = {cost.labels:,}"
    else:
        tasks = f"{request.tasks:,} open tasks × {_people(request.overlap)}"
        yield f"labels: {cost.labels:,} are missing, of {tasks}"
    if cost.answers > cost.labels:
        qualifying = f" and {request.qualify} qualifying items of {_people(request.people)}"
        yield (
            f"answers: {cost.answers:,}, with {100 * request.checks:g} % of them gold or repeated"
            f"{qualifying if request.qualify else ''}"
        )
    yield f"time: {cost.seconds:g} s each ({_source(request)}) = {_hours(cost.hours)} of work"
    yield f"money: {request.pay:g} an hour, in whatever money = {cost.money:,.2f}"
    if cost.labels_at_most > cost.labels:
        yield (
            f"where people are divided a task is labelled by up to {request.limit}: at most "
            f"{cost.labels_at_most:,} labels, {_hours(cost.hours_at_most)}, {cost.money_at_most:,.2f}"
        )
    yield "not in it: skipped tasks, breaks, questions, reviewers, fees of a platform"


def _source(request: LabellingRequest) -> str:
    if request.measured:
        return f"the median of {request.measured:,} labels of this project"
    return "assumed: nothing was measured" if request.seconds is None else "as said"


def _hours(hours: float) -> str:
    return f"{hours:,.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"


def _people(count: int) -> str:
    return f"{count:,} {'person' if count == 1 else 'people'}"


def add_parser(methods: Subparsers) -> None:
    labels = methods.add_parser("labels", description="plan labels by people: hours and money")
    add = labels.add_argument
    add("--ask", choices=[*KINDS], default=USUAL, help=f"the kind of task (default: {USUAL})")
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
    request = _request(args)
    cost = labelling_cost(request)
    for line in labelling_sentences(request, cost):
        print(line)
    if args.json is not None:
        write_json(args.json, {"request": asdict(request), "cost": asdict(cost)})
    return 0


def _request(args: argparse.Namespace) -> LabellingRequest:
    timing = None if args.store is None else _timing(args)
    seconds, measured, pay = args.seconds, 0, PAY if args.pay is None else args.pay
    if timing is not None and seconds is None and timing.median_seconds is not None:
        seconds, measured = timing.median_seconds, timing.timed
    if args.tasks is not None:
        names = ("tasks", "overlap", "most", "checks", "qualify", "people")
        given = {name: getattr(args, name) for name in names}
        ask = args.ask if timing is None else timing.ask
    elif timing is None:
        raise UserError("say how many with --tasks N, or name a label store with --store FILE")
    elif timing.open_tasks == 0:
        raise UserError(f"{args.store}: no task is open, so nothing is left to plan; say --tasks N")
    else:
        # What is still to be labelled in a project.
        given = {name: getattr(timing, name) for name in ("overlap", "most", "checks", "missing")}
        given["tasks"], ask = timing.open_tasks, timing.ask
    return LabellingRequest(ask=ask, seconds=seconds, measured=measured, pay=pay, **given)


def _timing(args: argparse.Namespace) -> Timing:
    from plaudit.collect.verbs.store import opened, project_name
    from plaudit.collect.waiting import refuse_without_database

    refuse_without_database()
    from plaudit.collect.progress import project_timing

    with opened(args) as store:
        return project_timing(store, project_name(store, args.project))
