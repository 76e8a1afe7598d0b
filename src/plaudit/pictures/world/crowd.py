"""People who compare two answers about a picture: noisy, often blind to what is invented, fond of length.

So their preferences are useful and not the truth. The chance of each of their choices is known.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from plaudit.data.judging import Mark, Verdict, task_seed
from plaudit.data.records import Task, plain_text
from plaudit.errors import UserError
from plaudit.pictures.world.gold import Gold, judge_answer
from plaudit.pictures.world.questions import question_of

MOST_FELT_WORDS = 60
"""Nobody feels an answer grow any further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody who compares; a `plaudit.data.judging.Judge`.

    Example: ``Person(name="crowd-1", noise=0.1, overlooks=0.4, longer=0.05)``
    """

    name: str
    noise: float = 0.03
    """What a difference in worth is divided by: the higher, the closer to chance."""
    overlooks: float = 0.0
    """How often what is invented in an answer, or an absent thing that it takes for there, goes unseen."""
    longer: float = 0.0
    """What ten words more are worth to them."""

    def probability(self, task: Task) -> float:
        """The chance that they prefer the first of two answers."""
        first, second = _golds(task)
        blind = (1 - self.overlooks, self.overlooks)
        return sum(
            blind[here] * blind[there] * self._sigmoid(self._gap(first, second, (here, there)))
            for here, there in product((False, True), repeat=2)
        )

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """Their choice on each task, with how clear it is to them."""
        return [self._verdict(task, task_seed(seed, at)) for at, task in enumerate(tasks)]

    def _verdict(self, task: Task, seed: int) -> Verdict:
        rng = random.Random(f"{self.name} {seed} {[plain_text(answer) for answer in task.answers]}")
        first, second = _golds(task)
        gap = self._gap(first, second, (rng.random() < self.overlooks, rng.random() < self.overlooks))
        prefers_first = rng.random() < self._sigmoid(gap)
        marks = (Mark(rank=2 - prefers_first), Mark(rank=1 + prefers_first))
        strength = 1 + sum(abs(gap) > clear for clear in (0.15, 0.4))
        return Verdict(marks=marks, strength=strength, annotator=self.name, group=self.name.split("-")[0])

    def _gap(self, first: Gold, second: Gold, unseen: Sequence[bool]) -> float:
        """How much better the first seems."""
        first_worth, second_worth = (
            (gold.overlooked if blind else gold.score) + self.longer * min(MOST_FELT_WORDS, gold.words) / 10
            for gold, blind in zip((first, second), unseen, strict=True)
        )
        return first_worth - second_worth

    def _sigmoid(self, gap: float) -> float:
        return 0.5 * (1 + math.tanh(gap / self.noise / 2))


def _golds(task: Task) -> tuple[Gold, Gold]:
    question = question_of(task.metadata)
    first, second = (
        judge_answer(question, plain_text(answer), ended=ended)
        for answer, ended in zip(task.answers, task.ended, strict=True)
    )
    return first, second


def _crowd() -> tuple[Person, ...]:
    # The same twelve people whatever seed the rows have.
    rng = random.Random("the crowd of the pictures")
    return tuple(
        Person(
            name=f"crowd-{n}",
            noise=rng.uniform(0.06, 0.14),
            overlooks=rng.uniform(0.2, 0.5),
            longer=rng.uniform(0.02, 0.1),
        )
        for n in range(1, 13)
    )


POOLS: Mapping[str, Callable[[], tuple[Person, ...]]] = {
    "crowd": _crowd,
    "experts": lambda: tuple(Person(name=f"experts-{n}") for n in range(1, 4)),
    "dazzled": lambda: tuple(
        Person(name=f"dazzled-{n}", noise=0.1, overlooks=0.8, longer=0.15) for n in range(1, 7)
    ),
}
"""Pools of people: the crowd; experts, who see everything; the dazzled, who mostly go by length."""


def people(pool: str) -> tuple[Person, ...]:
    """The people of a pool."""
    if pool not in POOLS:
        raise UserError(f"there is no pool {pool!r}; choose from {', '.join(POOLS)}")
    return POOLS[pool]()


def soft_truth(pool: Sequence[Person], task: Task) -> float:
    """The chance that somebody of the pool, drawn at random, prefers the first answer."""
    return sum(person.probability(task) for person in pool) / len(pool)
