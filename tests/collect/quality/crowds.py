"""Crowds of the world in a store, and as rows of labels without one."""

import json
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from plaudit.collect.adding import add_tasks, set_project
from plaudit.collect.answering import submit_answer
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.people import join_project, make_invite
from plaudit.collect.project import Project
from plaudit.collect.store import LabelStore, open_store
from plaudit.data.judging import Task
from plaudit.data.records import text_to_json
from plaudit.lab.world.annotators import Annotator, annotator_pool
from plaudit.lab.world.making import answer_tasks
from plaudit.lab.world.online import direct_verdict, label_of, shown_as_task

Clicker = Callable[[Mapping[str, Any], int], dict[str, Any]]
"""From what is shown, and how many labels were given before, to a label."""


def reader(annotator: Annotator, seed: int = 0) -> Clicker:
    return lambda shown, number: label_of(shown, direct_verdict(annotator, shown_as_task(shown), seed))


def first(shown: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {"strength": -1}


def in_turn(shown: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {"strength": 1 if number % 2 else -1}


def body_of(task: Task) -> dict[str, Any]:
    candidates = [
        {"text": text_to_json(text), "ended": ended}
        for text, ended in zip(task.answers, task.ended, strict=True)
    ]
    return {"kind": "pair", "prompt": text_to_json(task.prompt), "candidates": candidates}


def labelled_store(
    where: str | Path,
    clickers: Sequence[Clicker],
    *,
    tasks: int,
    more: Sequence[dict[str, Any]] = (),
    **settings: Any,
) -> tuple[LabelStore, list[str]]:
    """A store in which everybody has labelled all that there was for them, and their pseudonyms."""
    store = open_store(where, create=True)
    store.write(set_project, Project(name="p", **settings), actor="o1")
    bodies = [body_of(task) for task in answer_tasks(tasks, answers=2, split="test", seed=3)]
    store.write(add_tasks, "p", [*bodies, *more], actor="o1")
    secret = store.write(make_invite, "p", uses=len(clickers), actor="o1")
    people = [join_project(store, secret, f"person {number}").pseudonym for number in range(len(clickers))]
    given, idle = dict.fromkeys(people, 0), set[str]()
    while len(idle) < len(people):
        for person, click in zip(people, clickers, strict=True):
            lease = store.write(next_task, "p", person, secrets.token_hex(4))
            if not isinstance(lease, Lease):
                idle.add(person)
                continue
            idle.discard(person)
            label = click(lease.shown, given[person])
            seconds = 1.0 if click in (first, in_turn) else 9.0 + given[person] % 5
            store.write(
                submit_answer, "p", person, lease.assignment, secrets.token_hex(4), label, seconds=seconds
            )
            given[person] += 1
    return store, people


def rows_of_pool(
    pool: str, *, tasks: int, seed: int = 0
) -> tuple[list[SimpleNamespace], list[Task], tuple[Annotator, ...]]:
    """Every person of a pool on every task, in an order that is drawn, as rows of labels."""
    rng, people = random.Random(f"{pool} {seed}"), annotator_pool(pool)
    asked = answer_tasks(tasks, answers=2, split="test", seed=seed)
    rows = list[SimpleNamespace]()
    for number, task in enumerate(asked):
        body = json.dumps(body_of(task))
        for person in people:
            order = [0, 1] if rng.random() < 0.5 else [1, 0]
            shown = replace(
                task,
                answers=tuple(task.answers[place] for place in order),
                ended=tuple(task.ended[place] for place in order),
            )
            one, other = (mark.rank for mark in person.verdict(shown, rng.randrange(10**9)).marks)
            rows.append(
                SimpleNamespace(
                    seq=len(rows) + 1,
                    task=f"t{number}",
                    body=body,
                    annotator=person.name,
                    purpose="work",
                    shown=json.dumps(order),
                    label=json.dumps({"strength": (one > other) - (one < other)}),
                    guidelines="",
                    seconds=None,
                    number=number + 1,
                )
            )
    return rows, asked, people
