"""``plaudit collect route``: what judges before people would keep and cost, before they are asked it all."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import bindparam, select

from plaudit.cli.parser import write_json
from plaudit.collect.asking import People
from plaudit.collect.routed import Body, Voice, ask_judge, number_of, task_of
from plaudit.collect.routing import Promise, Retained, keep_in_order
from plaudit.collect.screening import measure_of
from plaudit.collect.store import LabelStore
from plaudit.collect.tables import task
from plaudit.collect.verbs.plan import PAY, LabellingRequest, labelling_cost
from plaudit.collect.verbs.store import opened, project_name, table_lines
from plaudit.errors import UserError
from plaudit.wings import offered

_WORK = select(task.c.id, task.c.body, task.c.state).where(
    task.c.project == bindparam("p"), task.c.purpose == "work"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What comes of one wanted agreement."""

    promise: Promise
    retained: Sequence[Retained]
    tasks: int
    prices: tuple[float, ...]
    """Of each judge, for one pair."""
    seconds: tuple[float, ...]

    @property
    def shares(self) -> list[float]:
        return [float(each.retained_B.mean()) for each in self.retained]

    @property
    def people(self) -> int:
        """How many tasks are left to people, the sample among them or not."""
        return round(self.tasks * (1 - sum(self.shares)))

    @property
    def queried(self) -> list[float]:
        """How many pairs each judge is asked about."""
        passed = [1.0, *(float(each.passed_B.mean()) for each in self.retained)]
        return [self.tasks * share for share in passed[:-1]]

    def to_dict(self, pay: float, label_seconds: float | None) -> dict[str, Any]:
        cost = labelling_cost(
            LabellingRequest(ask="pair", tasks=max(self.people, 1), pay=pay, seconds=label_seconds)
        )
        agreeing, tested = (
            sum(getattr(each, name) for each in self.retained) for name in ("agreeing", "tested")
        )
        measure = measure_of([1.0] * agreeing + [0.0] * (tested - agreeing))
        return {
            "wanted": self.promise.agreement,
            "shares": self.shares,
            "thresholds": [each.threshold for each in self.retained],
            "people": self.people,
            "agreement": None if measure is None else [measure.value, measure.low, measure.high],
            "money": sum(map(float.__mul__, self.queried, self.prices)),
            "seconds": sum(map(float.__mul__, self.queried, self.seconds)),
            "people_money": cost.money if self.people else 0.0,
            "people_hours": cost.hours if self.people else 0.0,
            "fewest": self.promise.fewest,
        }


def show_route(args: argparse.Namespace) -> None:
    promises = [
        Promise(agreement=wanted, risk=args.risk, judges=len(args.judge)) for wanted in args.agreement
    ]
    with opened(args) as store:
        project = project_name(store, args.project)
        bodies, shares, left = _labelled(store, project, trusted=args.random)
        judges = offered("queried_judges", of="feedback")(args.judge, most_money=args.most_money)
        tasks = [task_of(body) for body in bodies]
        print(f"{project}: {len(tasks)} pairs that people labelled, {left} left to label")
        print("\n".join(judge.estimate(tasks) for judge in judges), flush=True)
        if args.estimate:
            return
        people_B = np.array([number_of(share) for share in shares])
        voices, seconds = [*zip(*(_timed(judge, tasks) for judge in judges), strict=True)]
    forecasts = _forecasts(promises, voices, people_B, args.tasks or left, seconds)
    rows = [each.to_dict(PAY if args.pay is None else args.pay, args.seconds) for each in forecasts]
    names = [voice.judging.actor for voice in voices]
    print("\n".join(_lines(rows, names, args)))
    if args.json is not None:
        write_json(args.json, {"judges": names, "risk": args.risk, "sample": len(tasks), "rows": rows})


def _labelled(
    store: LabelStore, project: str, *, trusted: bool
) -> tuple[list[Body], list[float | None], int]:
    # The tasks of the random sample that people labelled, what they say of each, and how many have no label.
    with store.looking() as moment:
        settings = moment.settings(project)
        rows = moment.connection.execute(_WORK, {"p": project}).all()
    if settings.ask != "pair":
        raise UserError(f"project {project} asks for {settings.ask}, and judges before people judge pairs")
    bodies = {row.id: json.loads(row.body) for row in rows}
    shares = People(store=store, project=project).shares(bodies)
    chosen = [name for name in bodies if name in shares]
    if not chosen:
        raise UserError(
            f"{store.where}: nobody has labelled in project {project}, so nothing says how far judges agree "
            "with people: let people label a random sample first"
        )
    drawn = chosen if trusted else [name for name in chosen if bodies[name].get("method") == "random"]
    if not drawn:
        raise UserError(
            f"{store.where}: the {len(chosen)} labelled tasks of project {project} do not say that they were "
            "drawn at random (method: random), and of tasks that were chosen nothing follows for the others: "
            "let people label a random sample, or say --random if these are one"
        )
    left = sum(row.state == "open" and row.id not in shares for row in rows)
    probability = bodies[drawn[0]].get("metadata", {}).get("chance")
    if not left and probability is not None:
        # A stage adds the others when judges have been asked; the chance says how many they are.
        left = round(len(drawn) / probability) - len(drawn)
    return [bodies[name] for name in drawn], [shares[name] for name in drawn], left


def _timed(judge: Any, tasks: Sequence[Any]) -> tuple[Voice, float]:
    # With the seconds for a pair: close to none where all replies are there from before.
    started = time.monotonic()
    voice = ask_judge(judge, tasks)
    return voice, (time.monotonic() - started) / len(tasks)


def _forecasts(
    promises: Sequence[Promise],
    voices: Sequence[Voice],
    people_B: np.ndarray,
    tasks: int,
    seconds: Sequence[float],
) -> Iterator[Forecast]:
    sure_JB = [voice.sure_B for voice in voices]
    agrees_JB = [voice.agrees(people_B) for voice in voices]
    prices = tuple(float(np.mean([each.cost["price"] for each in voice.judged])) for voice in voices)
    for promise in promises:
        retained = keep_in_order(sure_JB, agrees_JB, np.ones(len(people_B), bool), promise)
        yield Forecast(promise=promise, retained=retained, tasks=tasks, prices=prices, seconds=tuple(seconds))


def _lines(rows: Sequence[dict[str, Any]], names: Sequence[str], args: argparse.Namespace) -> Iterator[str]:
    head = ["wanted", *names, "people", "agree on what judges keep", "judges' money", "minutes"]
    head += ["people's money", "hours", "labels to prove it"]
    yield from table_lines(head, [_cells(row) for row in rows])
    yield (
        f"shares of pairs that each keeps, with {100 * (1 - args.risk):g} % chance of agreeing as often as "
        "wanted; a forecast: the stage decides on a random sample of its own"
    )
    if args.seconds is None:
        yield "people's seconds a label are assumed; --seconds says others, --pay another hour's pay"


def _cells(row: dict[str, Any]) -> list[str]:
    agreement = row["agreement"]
    reported = "–" if agreement is None else "{:.1%} ({:.1%}–{:.1%})".format(*agreement)
    return [
        f"{row['wanted']:g}",
        *(f"{share:.0%}" for share in row["shares"]),
        f"{row['people']:,}",
        reported,
        f"{row['money']:.4g}",
        f"{row['seconds'] / 60:.1f}",
        f"{row['people_money']:,.2f}",
        f"{row['people_hours']:.1f}",
        f"{row['fewest']}",
    ]
