"""Judges before people in a label store: a random sample by people, thresholds, then people for the rest.

What judges say is written as labels of theirs, and the route with its thresholds is an event of the log. What
a judge keeps is closed to people; a later route that has it pass on opens it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import bindparam, select

from plaudit.collect import adding, log
from plaudit.collect.asking import People
from plaudit.collect.export import retained_by_judges
from plaudit.collect.judging import Judged, record_judgements
from plaudit.collect.kinds.kind import text_of
from plaudit.collect.log import Entry
from plaudit.collect.own import PLAUDIT
from plaudit.collect.routing import Promise, Retained, keep_sure
from plaudit.collect.store import Transaction
from plaudit.collect.tables import task
from plaudit.data.judging import Judging, NoVerdict, Task, Verdict, first_probability, outcomes
from plaudit.errors import UserError
from plaudit.wings import offered

Body = dict[str, Any]
_BATCH = 500
_SIDES, _FEWEST = (0.0, 0.25, 0.75, 1.0), 10
"""What both orders of a judge make that gives sides and ties alone; a few such verdicts may be chance."""
_STATES = select(task.c.id, task.c.state).where(task.c.project == bindparam("p"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    judges: tuple[str, ...]
    """Their words, cheap to dear."""
    promise: Promise
    sample: int
    """How many tasks people label first, drawn by chance."""
    seed: int = 0
    device: str = "auto"
    most_money: float | None = None

    @property
    def key(self) -> str:
        return log.digest([self.judges, asdict(self.promise), self.sample, self.seed])


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """What a judge says of the tasks that it was asked about."""

    judging: Judging
    first_B: np.ndarray
    """The chance that the first answer is the better one; NaN where there is no verdict."""
    judged: Sequence[Judged] = field(repr=False)

    @property
    def sure_B(self) -> np.ndarray:
        """The chance given to the answer that it prefers; NaN where it prefers none: such pairs pass on."""
        return np.where(self.first_B == 0.5, np.nan, np.maximum(self.first_B, 1 - self.first_B))

    def agrees(self, people_B: np.ndarray) -> np.ndarray:
        """Where people prefer the same answer; where they prefer none a judge that does is wrong."""
        return (self.first_B - 0.5) * (people_B - 0.5) > 0


def ask_judge(queried: Any, tasks: Sequence[Task]) -> Voice:
    """Ask a `QueriedJudge` about pairs; one that never says how sure it is is refused."""
    verdicts: Sequence[Verdict | NoVerdict] = outcomes(queried.judge, tasks, 0)
    first_B = np.array(
        [np.nan if isinstance(o, NoVerdict) else first_probability(o) for o in verdicts], float
    )
    reported_B = first_B[np.isfinite(first_B) & (first_B != 0.5)]
    if reported_B.size >= _FEWEST and np.isin(reported_B, _SIDES).all():
        raise UserError(
            f"{queried.judging.actor} gives sides and no chances, so nothing says what it is sure of: ask it "
            "by letters with log-probs (how=letter), or by points"
        )
    judged = [
        Judged(task=each, outcome=o, cost=queried.cost(each)) for each, o in zip(tasks, verdicts, strict=True)
    ]
    return Voice(judging=queried.judging, first_B=first_B, judged=judged)


def ask_in_order(
    people: People,
    bodies_of: Callable[[], Sequence[Body]],
    draw: str,
    routing: Routing,
    refuse_waiting: Callable[[Collection[str]], None],
) -> tuple[tuple[str, ...], list[str]]:
    """The ids of all tasks, once it is decided which of them judges keep, and what there is to say of that.

    ``refuse_waiting`` has people label tasks, and raises while they have not. Goes on where it was stopped.
    """
    key = f"{draw}/{routing.key}"
    ids = people.requested(key)
    if ids is None:
        sample = _sample(people, bodies_of, f"{draw}/sample {routing.sample} {routing.seed}", routing)
        refuse_waiting(sample)
        _route(people, _distinct(bodies_of()), {*sample}, routing, f"routed/{key}")
        ids = people.ask(bodies_of(), draw=key)
    with people.store.looking() as moment:
        event = log.by_key(moment.connection, people.project, f"routed/{key}")
    assert event is not None, "it is written before the tasks have their name"
    assert event.body is not None, "nobody's words are in it"
    return ids, _sentences(event.body)


def _distinct(bodies: Sequence[Body]) -> dict[str, Body]:
    return {adding.content_key(body): body for body in bodies}


def _sample(
    people: People, bodies_of: Callable[[], Sequence[Body]], draw: str, routing: Routing
) -> tuple[str, ...]:
    # By its name first: who comes back after a wait draws nothing.
    there = people.requested(draw)
    if there is not None:
        return there
    bodies = [*_distinct(bodies_of()).values()]
    if len(bodies) <= routing.sample:
        raise UserError(
            f"{len(bodies)} tasks and a sample of {routing.sample}: people would label all of them, and "
            "nothing is left to judges; take a smaller sample, or more tasks"
        )
    chosen = sorted(random.Random(f"{routing.seed}/sample").sample(range(len(bodies)), routing.sample))
    probability = routing.sample / len(bodies)
    return people.ask([_marked(bodies[place], probability) for place in chosen], draw=draw)


def _marked(body: Body, probability: float) -> Body:
    # Among the tasks of this stage it is random; rows that a score chose keep the word for that.
    return {"method": "random", **body, "metadata": {**body.get("metadata", {}), "chance": probability}}


def _route(people: People, bodies: Mapping[str, Body], sample: set[str], routing: Routing, key: str) -> None:
    with people.store.looking() as moment:
        there = adding.ids_by_content(moment, people.project, bodies.values())
    if missing := len(sample - {there[content] for content in bodies if content in there}):
        raise UserError(
            f"{missing} of the {len(sample)} tasks of the sample are not among those that are asked now, so "
            "it is no sample of them: answers were drawn anew; name another project, or another seed"
        )
    shares = people.shares({there[content]: body for content, body in bodies.items() if content in there})
    labelled_B = np.array([there.get(content) in sample for content in bodies])
    # No label at all, or nobody could compare them: a judge that prefers one does not agree.
    people_B = np.array([number_of(shares.get(there.get(content, ""))) for content in bodies])
    tasks = [task_of(body) for body in bodies.values()]
    voices, retained = _ask_all(routing, tasks, labelled_B, people_B)
    is_answered = {content for content in bodies if there.get(content) in shares}
    keepers = {
        content: (voice.judging.actor, each.threshold)
        for voice, each in zip(voices, retained, strict=True)
        for content, is_retained in zip(bodies, each.retained_B, strict=True)
        if is_retained and content not in is_answered
    }
    _close_and_open(people, bodies, keepers)
    ids = dict(zip(bodies, people.ask([*bodies.values()]), strict=True))
    queried = [len(tasks), *(int(each.passed_B.sum()) for each in retained)]
    facts = [
        {"judge": voice.judging.actor, "asked": count, **_figures(each)}
        for voice, count, each in zip(voices, queried, retained, strict=False)
    ]
    body = {**asdict(routing.promise), "sample": len(sample), "judges": facts, "tasks": [*ids.values()]}
    body["kept"] = {ids[content]: judge for content, (judge, _) in keepers.items()}
    with people.store.changing() as change:
        if log.by_key(change.connection, people.project, key) is None:
            place = {"project": people.project, "subject": people.project, "key": key}
            change.record(Entry(actor=PLAUDIT, kind="routed", body=body, **place))
    for voice in voices:
        record_judgements(people.store, people.project, voice.judging, voice.judged)


def _ask_all(
    routing: Routing, tasks: Sequence[Task], labelled_B: np.ndarray, people_B: np.ndarray
) -> tuple[list[Voice], list[Retained]]:
    # Each judge is asked what those before it passed on.
    voices, retained, queried = list[Voice](), list[Retained](), np.arange(len(tasks))
    judges = offered("queried_judges", of="feedback")(
        routing.judges, device=routing.device, most_money=routing.most_money
    )
    for judge in judges:
        if not queried.size:
            break
        voice = ask_judge(judge, [tasks[int(place)] for place in queried])
        agrees_B = voice.agrees(people_B[queried])
        sure = keep_sure(voice.sure_B, agrees_B, labelled_B[queried], routing.promise)
        retained_B, passed_B = np.zeros((2, len(tasks)), bool)
        retained_B[queried], passed_B[queried] = sure.retained_B, sure.passed_B
        figures = {name: getattr(sure, name) for name in ("threshold", "tested", "agreeing")}
        retained.append(Retained(retained_B=retained_B, passed_B=passed_B, **figures))
        voices.append(voice)
        queried = np.flatnonzero(passed_B)
    return voices, retained


def _figures(retained: Retained) -> dict[str, Any]:
    return {
        "threshold": retained.threshold,
        "kept": int(retained.retained_B.sum()),
        "tested": retained.tested,
        "agreeing": retained.agreeing,
    }


def number_of(share: float | None) -> float:
    """A share as arrays have it: NaN where there is none."""
    return np.nan if share is None else share


def task_of(body: Body) -> Task:
    """A pair as a judge sees it."""
    first, second = body["candidates"]
    return Task(
        prompt=text_of(body["prompt"]),
        answers=(text_of(first["text"]), text_of(second["text"])),
        ended=(first.get("ended", True), second.get("ended", True)),
        category=body.get("category"),
        reference_answer=body.get("reference_answer"),
    )


def _close_and_open(
    people: People, bodies: Mapping[str, Body], keepers: Mapping[str, tuple[str, float | None]]
) -> None:
    # What a judge keeps is added closed, so that at no moment people are given it.
    before = retained_by_judges(people.store, people.project)
    listed = [*bodies]
    for start in range(0, len(listed), _BATCH):
        part = listed[start : start + _BATCH]
        with people.store.changing() as change:
            adding.add_tasks(
                change, people.project, _fresh(change, people, bodies, part, keepers), actor=PLAUDIT
            )
            there = adding.ids_by_content(change, people.project, [bodies[content] for content in part])
            states = {row.id: row.state for row in change.connection.execute(_STATES, {"p": people.project})}
            for content in (content for content in part if content in there):
                where = {"name": people.project, "wanted": there[content], "actor": PLAUDIT}
                state, keeper = states[there[content]], keepers.get(content)
                if keeper is not None and state == "open":
                    reason = f"{keeper[0]} is sure enough of it (at least {keeper[1]:.3f})"
                    adding.close_task(change, **where, reason=reason)
                elif keeper is None and state == "closed" and there[content] in before:
                    adding.open_task(change, **where, reason="no judge is sure enough of it")


def _fresh(
    change: Transaction,
    people: People,
    bodies: Mapping[str, Body],
    part: Sequence[str],
    keepers: Mapping[str, tuple[str, float | None]],
) -> list[Body]:
    retained = [content for content in part if content in keepers]
    there = adding.ids_by_content(change, people.project, [bodies[content] for content in retained])
    return [bodies[content] for content in retained if content not in there]


def _sentences(route: Mapping[str, Any]) -> list[str]:
    reported = list[str]()
    for judge in route["judges"]:
        if judge["threshold"] is None:
            what = "keeps nothing, since no threshold was proven"
        else:
            what = (
                f"keeps {judge['kept']} of which it is at least {judge['threshold']:.3f} sure, and agrees "
                f"there with people on {judge['agreeing']} of {judge['tested']} labels of the sample"
            )
        reported.append(f"{judge['judge']} was asked about {judge['asked']} pairs and {what}")
    left = len(route["tasks"]) - len(route["kept"])
    reported.append(
        f"people: {left} of {len(route['tasks'])} pairs, {route['sample']} of them as a random sample; at "
        f"least {100 * (1 - route['risk']):g} % chance that what judges keep agrees with people on "
        f"{100 * route['agreement']:g} % or more"
    )
    return reported
