"""The world's questions for an evaluation of policies, and the truth about answers to them."""

from __future__ import annotations

from functools import lru_cache

from plaudit.evaluation.policies.choices import Closed
from plaudit.evaluation.policies.drawn import Asked, asked_of
from plaudit.records.messages import Text
from plaudit.rewards.named import OwnReward
from plaudit.world.asking import NUMBERS
from plaudit.world.facts import sentence
from plaudit.world.gold import utility
from plaudit.world.making import prompts
from plaudit.world.prompts import Split, question_of
from plaudit.world.questions import Category, Fact, Question

MOST_CLOSED = 200
"""Closed questions of an exam, unless fewer prompts are asked."""
_CLOSED: tuple[Category, ...] = ("fact", "arithmetic")
_NEAR = 5


def exam(n: int | None = None, *, split: Split = "test", seed: int = 0) -> tuple[Asked, ...]:
    """Different questions of a split, categories taking turns.

    >>> [one.category for one in exam(3)]
    ['fact', 'arithmetic', 'list']
    """
    return asked_of(prompts(n, split=split, seed=seed))


def closed_exam(n: int = MOST_CLOSED, *, split: Split = "test", seed: int = 0) -> tuple[Closed, ...]:
    """Facts and sums of a split in turn, with their choices in the plain sentences of the corpus.

    Of a fact every value of that kind is a choice, of a sum the right number and those up to five away.

    >>> closed_exam(2)[1].choices[closed_exam(2)[1].right] == question_of(closed_exam(2)[1].prompt).best
    True
    """
    there = len(prompts(split=split, categories=_CLOSED))
    asked = prompts(min(n, there), split=split, seed=seed, categories=_CLOSED)
    return tuple(_closed(question_of(one.prompt)) for one in asked)


def _closed(question: Question) -> Closed:
    fact = question.aim
    assert isinstance(fact, Fact), question.category
    values = _near(fact.truth) if question.category == "arithmetic" else fact.values
    return Closed(
        prompt=question.messages,
        choices=tuple(sentence(fact.said(value)) for value in values),
        right=values.index(fact.truth),
        category=question.category,
    )


def _near(number: str) -> tuple[str, ...]:
    place = NUMBERS.index(number)
    return NUMBERS[max(0, place - _NEAR) : place + _NEAR + 1]


def truth() -> OwnReward:
    """The true utility as a reward; what was cut off is worth less.

    >>> from plaudit.records.judging import Task
    >>> task = Task(prompt="What does the owl eat?", answers=("Mice.", "Mice."), ended=(True, False))
    >>> truth().scores([task])
    ((1.0, 0.4),)
    """
    return OwnReward(name="gold", function=_utility)


@lru_cache(maxsize=100_000)
def _utility(prompt: Text, answer: Text, ended: bool) -> float:
    return utility(prompt, answer, ended=ended)
