"""People who answer in a label store, as tests have them: by its own calls, one after another."""

import secrets
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from plaudit.collect.answering import submit_answer
from plaudit.collect.desk import Lease, next_task
from plaudit.collect.people import join_project, make_invite
from plaudit.collect.progress import project_people
from plaudit.collect.store import LabelStore, open_store
from plaudit.data.fields import Node
from plaudit.data.records import plain_text
from plaudit.data.turns import read_text_or_messages

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""From what a person is shown to a label."""


def words_of(shown: object) -> str:
    """The words of a text as a task shows it."""
    return plain_text(read_text_or_messages(Node(value=shown, path="text")))


def fuller(shown: dict[str, Any]) -> dict[str, Any]:
    first, second = (len(words_of(answer).split()) for answer in shown["answers"])
    return {"strength": 0 if first == second else -2 if first > second else 2}


def join(store: LabelStore, project: str, name: str) -> str:
    return join_project(store, store.write(make_invite, project, actor="o1"), name).pseudonym


def answer(store: LabelStore, project: str, person: str, say: Answer = fuller, most: int = 10_000) -> int:
    """Let a person answer until there is nothing left for them; gives how many answers it were."""
    for number in range(most):
        lease = store.write(next_task, project, person, secrets.token_hex(4))
        if not isinstance(lease, Lease):
            return number
        store.write(submit_answer, project, person, lease.assignment, secrets.token_hex(4), say(lease.shown))
    return most


def let_answer(
    where: Path, project: str, say: Answer = fuller, *, people: int = 1, most: int = 10_000
) -> int:
    """Open a store, and let some people who have just joined answer in turn; gives how many answers."""
    with closing(open_store(where)) as store:
        there = len(store.read(project_people, project))
        names = [join(store, project, f"person {there + number}") for number in range(people)]
        return sum(answer(store, project, name, say, most) for name in names)
