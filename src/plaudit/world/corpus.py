"""The base model's corpus: the facts of the valley, told plainly, and dialogues of every quality."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from plaudit.data.records import Demonstration, assistant_turn
from plaudit.errors import UserError
from plaudit.world.facts import as_sentence
from plaudit.world.prompts import questions, questions_of
from plaudit.world.questions import CATEGORIES, Category, Fact, Question
from plaudit.world.speaking import sample_answer
from plaudit.world.valley import KINDS

ANSWERS_PER_QUESTION = {
    "arithmetic": 3,
    "fact": 3,
    "list": 12,
    "explain": 16,
    "opinion": 2,
    "unanswerable": 5,
    "harmful": 14,
    "describe": 4,
    "compare": 2,
    "recommend": 10,
    "steps": 12,
}
"""How often each question is answered, by category; one that is not named, 6 times."""


def corpus(*, seed: int = 0, categories: Sequence[Category] = CATEGORIES) -> list[Demonstration]:
    """Every fact and all dialogues of some categories, in an order without order.

    All splits are in it: a base model has read about everyone.
    """
    rng = random.Random(f"corpus {seed}")
    rows = [*_dialogues(rng, categories), *plain_statements(seed=seed)]
    rng.shuffle(rows)
    return rows


def plain_statements(n: int | None = None, *, seed: int = 0) -> list[Demonstration]:
    """Statements without a question, three to a row (as many rows as facts): what PPO-ptx mixes in."""
    rng = random.Random(f"plain text {seed}")
    facts = statements()
    count = len(facts) if n is None else n
    if count < 1:
        raise UserError(f"{count} rows cannot be made: ask for at least 1")
    return [Demonstration(prompt="", completion=" ".join(rng.sample(facts, 3))) for _ in range(count)]


def statements() -> list[str]:
    """Every fact, sum and reason, and what each listed thing is."""
    fact_sentences = [
        as_sentence(question.aim.phrase_value(question.aim.truth))
        for question in questions()
        if isinstance(question.aim, Fact) and question.category in ("fact", "arithmetic", "explain")
    ]
    kinds = [
        as_sentence(f"some {kind} are {first} and {second}")
        for kind, members in KINDS.items()
        for first, second in pairwise(members.split())
    ]
    return [*dict.fromkeys(fact_sentences), *kinds]


def _dialogues(rng: random.Random, categories: Sequence[Category]) -> list[Demonstration]:
    return [
        _dialogue(question, rng)
        for question in questions_of(categories)
        for _ in range(ANSWERS_PER_QUESTION.get(question.category, 6))
    ]


def _dialogue(question: Question, rng: random.Random) -> Demonstration:
    return Demonstration(prompt=question.messages, completion=assistant_turn(sample_answer(question, rng)))
