"""The world's questions for an evaluation of policies, and the truth about answers to them."""

from __future__ import annotations

from functools import lru_cache

from plaudit.evaluation.policies.drawn import Asked, asked_of
from plaudit.records.messages import Text
from plaudit.rewards.named import OwnReward
from plaudit.world.gold import utility
from plaudit.world.making import prompts
from plaudit.world.prompts import Split


def exam(n: int | None = None, *, split: Split = "test", seed: int = 0) -> tuple[Asked, ...]:
    """Different questions of a split, categories taking turns.

    >>> [one.category for one in exam(3)]
    ['fact', 'arithmetic', 'list']
    """
    return asked_of(prompts(n, split=split, seed=seed))


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
