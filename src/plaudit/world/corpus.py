"""The base model's corpus: the facts of the valley, told plainly, and dialogues of every quality."""

from __future__ import annotations

import random
from itertools import pairwise

from plaudit.errors import UserError
from plaudit.records.feedback import Demonstration
from plaudit.records.messages import assistant_says
from plaudit.world.facts import sentence
from plaudit.world.prompts import questions
from plaudit.world.questions import Fact, Question
from plaudit.world.speaking import styled
from plaudit.world.valley import KINDS

ROUNDS = {
    "arithmetic": 3,
    "fact": 3,
    "list": 12,
    "explain": 16,
    "opinion": 2,
    "unanswerable": 5,
    "harmful": 14,
}
"""How often each question is answered, by category; one that is not named, 6 times."""


def corpus(*, seed: int = 0) -> list[Demonstration]:
    """Everything, in an order without order. All splits are in it: a base model has read about everyone."""
    chance = random.Random(f"corpus {seed}")
    rows = [*_dialogues(chance), *plain_text(seed=seed)]
    chance.shuffle(rows)
    return rows


def plain_text(n: int | None = None, *, seed: int = 0) -> list[Demonstration]:
    """Statements without a question, three to a row (as many rows as facts): what PPO-ptx mixes in."""
    chance = random.Random(f"plain text {seed}")
    facts = statements()
    count = len(facts) if n is None else n
    if count < 1:
        raise UserError(f"{count} rows cannot be made: ask for at least 1")
    return [Demonstration(prompt="", completion=" ".join(chance.sample(facts, 3))) for _ in range(count)]


def statements() -> list[str]:
    """Every fact, sum and reason, and what each listed thing is."""
    told = [
        sentence(question.aim.said(question.aim.truth))
        for question in questions()
        if isinstance(question.aim, Fact) and question.category in ("fact", "arithmetic", "explain")
    ]
    kinds = [
        sentence(f"some {kind} are {first} and {second}")
        for kind, members in KINDS.items()
        for first, second in pairwise(members.split())
    ]
    return [*dict.fromkeys(told), *kinds]


def _dialogues(chance: random.Random) -> list[Demonstration]:
    return [
        _dialogue(question, chance)
        for question in questions()
        for _ in range(ROUNDS.get(question.category, 6))
    ]


def _dialogue(question: Question, chance: random.Random) -> Demonstration:
    return Demonstration(prompt=question.messages, completion=assistant_says(styled(question, chance)))
