"""Judgements of models as events of a store: what was said, in which orders, how it was asked, what it cost.

They take nobody's place, and are exported only where the group ``ai`` is asked for by name: labels of people
and of models never mix silently.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plaudit.collect import log
from plaudit.collect.asking import People, task_body
from plaudit.collect.desk import task_of
from plaudit.collect.export import Filters, Snapshot, export
from plaudit.collect.log import Entry
from plaudit.collect.project import Project
from plaudit.collect.store import LabelStore, Transaction, open_store
from plaudit.data.judging import PASSING, Judging, NoVerdict, Task, Verdict, first_probability
from plaudit.data.records import text_to_json

_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A task with what a judge says of it."""

    task: Task
    outcome: Verdict | NoVerdict
    cost: Mapping[str, float] = field(default_factory=dict[str, float])
    """Tokens and price of the replies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    tasks: tuple[str, ...]
    """The ids of the tasks, in order."""
    added: int
    repeated: int
    """Judgements by the same judge and version that were there already."""
    passing: int
    """Tasks on which nothing was said for a reason that may pass; they are not written."""


def record_judgements(
    store: LabelStore, project: str, judging: Judging, judged: Sequence[Judged]
) -> Recorded:
    """Write judgements, once for each task, judge and version; the project is made where there is none."""
    people = People(store=store, project=project)
    people.begin(Project(name=project))
    ids = people.ask([task_body(item.task) for item in judged])
    # Nothing is written of a reason that may pass: what is written is not asked again.
    lasting = [
        pair
        for pair in zip(ids, judged, strict=True)
        if isinstance(pair[1].outcome, Verdict) or pair[1].outcome.reason not in PASSING
    ]
    added = 0
    # Some at a time: whoever else writes into the store waits for each change.
    for start in range(0, len(lasting), _BATCH):
        with store.changing() as change:
            part = lasting[start : start + _BATCH]
            added += sum(_record(change, project, judging, *pair) for pair in part)
    passing = len(judged) - len(lasting)
    return Recorded(tasks=ids, added=added, repeated=len(lasting) - added, passing=passing)


def _record(change: Transaction, project: str, judging: Judging, task: str, item: Judged) -> bool:
    # Write one judgement; False where it is there already.
    key = f"judged/{judging.actor}/{task}"
    if log.by_key(change.connection, project, key) is not None:
        return False
    stored = json.loads(task_of(change, project, task).body)["candidates"][0]["text"]
    order = [0, 1] if stored == text_to_json(item.task.answers[0]) else [1, 0]
    outcome, orders = item.outcome, item.outcome.orders
    is_verdict = isinstance(outcome, Verdict)
    body = {
        "label": _label(outcome) if is_verdict else {"none": True},
        "order": order,
        "wording": judging.version,
        "sampling": dict(judging.sampling),
        "orders": None if orders is None else [orders.forward, orders.backward],
        "reason": None if is_verdict else outcome.reason,
        "principles": [*outcome.principles] if is_verdict else [],
        **item.cost,
    }
    change.record(
        Entry(project=project, actor=judging.actor, kind="judged", subject=task, key=key, body=body)
    )
    return True


def export_judgements(
    store: LabelStore, project: str, judging: Judging, tasks: Sequence[str], out: Path
) -> Snapshot:
    """The rows of one judge's judgements of these tasks, with their snapshot."""
    filters = Filters(group="ai", annotator=judging.actor)
    return export(store, project, out, filters=filters, tasks=tasks, actor=judging.actor)


def store_judgements(
    place: str, project: str, judging: Judging, judged: Iterable[tuple[Task, Any, Any]], out: Path
) -> Iterator[str]:
    """Write tasks with outcomes and costs into a store, and their rows out of it; says what came of it."""
    items = [Judged(task=task, outcome=outcome, cost=cost) for task, outcome, cost in judged]
    with closing(open_store(place, create=True)) as store:
        recorded = record_judgements(store, project, judging, items)
        there = f", {recorded.repeated} were there already" if recorded.repeated else ""
        yield f"{store.where}: {recorded.added} judgements by {judging.actor} in {project}{there}"
        snapshot = export_judgements(store, project, judging, recorded.tasks, out)
    yield f"{out}: {snapshot.rows} rows by {judging.actor}, as of event {snapshot.seq}"


def _label(verdict: Verdict) -> dict[str, Any]:
    # The side, as a person's label has it, with the chance of the answer that was shown first.
    share = first_probability(verdict)
    why = {} if verdict.rationale is None else {"why": verdict.rationale}
    return {"strength": (share < 0.5) - (share > 0.5), "probability": share, **why}
