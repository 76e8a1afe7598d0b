"""The world's prompts, found by their words and dealt to train, validation and test.

A split holds its own people, animals, things, pairs of numbers, kinds, topics and deeds: what is learnt on
one and measured on another must have been understood, not remembered.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from typing import Literal, get_args

from plaudit.errors import UserError
from plaudit.records.messages import Text, words
from plaudit.world.asking import every_question
from plaudit.world.questions import Category, Question

Split = Literal["train", "validation", "test"]
"""The parts that prompts are dealt to."""
SPLITS: tuple[Split, ...] = get_args(Split)
"""All of them."""
SHARES: Mapping[Split, float] = {"train": 0.7, "validation": 0.1, "test": 0.2}
"""How much of each kind of thing a split holds."""


def questions(split: Split | None = None, category: Category | None = None) -> tuple[Question, ...]:
    """All questions, or those of a split and a category.

    >>> len(questions("train")) > 5 * len(questions("validation"))
    True
    """
    return tuple(
        question
        for question in _by_words().values()
        if split in (None, split_of(question)) and category in (None, question.category)
    )


def question_of(prompt: Text) -> Question:
    """The question behind a prompt, which may be a string or a conversation.

    >>> question_of("What is 3 plus 4?").answer
    '7'
    """
    found = _by_words().get(words(prompt))
    if found is None:
        raise UserError(
            f"the world has no such prompt: {words(prompt)!r}; only its own prompts have a known utility "
            "(plaudit world make prompts writes them)"
        )
    return found


def split_of(question: Question) -> Split:
    """The split that the question's subject was dealt to."""
    return _dealt()[question.entity]


@cache
def _by_words() -> dict[str, Question]:
    return {words(question.messages): question for question in every_question()}


@cache
def _dealt() -> dict[str, Split]:
    """Every entity's split: each kind of entity is shuffled once, for all time, and cut into shares."""
    kinds: dict[str, dict[str, None]] = {}
    for question in _by_words().values():
        kinds.setdefault(question.entity.partition(":")[0], {})[question.entity] = None
    dealt: dict[str, Split] = {}
    for kind, entities in kinds.items():
        each = list(entities)
        random.Random(f"the valley's {kind}").shuffle(each)
        for place, entity in enumerate(each):
            dealt[entity] = _split_at((place + 0.5) / len(each))
    return dealt


def _split_at(share: float) -> Split:
    """The split in which a place between 0 and 1 lies."""
    for split in SPLITS[:-1]:
        if share < SHARES[split]:
            return split
        share -= SHARES[split]
    return SPLITS[-1]
