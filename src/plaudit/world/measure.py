"""What a model is worth in the world: its answers to unseen prompts, and their true utility."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plaudit.errors import UserError
from plaudit.records.messages import Text
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampling import Answer, SamplingSettings
from plaudit.world.gold import Gold, judge
from plaudit.world.prompts import Split, questions
from plaudit.world.questions import CATEGORIES, Category, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """An answer and what it is worth.

    Example: ``Scored(question=question_of("What is 3 plus 4?"), answer=…, gold=…)``
    """

    question: Question
    """What was asked."""
    answer: Answer
    """What the model said."""
    gold: Gold
    """Its utility and the parts of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The mean utility of some answers.

    Example: ``Standing(mean=0.62, error=0.03, answers=48)``
    """

    mean: float
    """Of the utilities."""
    error: float
    """The standard error of the mean."""
    answers: int
    """How many there are."""


def answered(
    sampler: LocalSampler, settings: SamplingSettings, *, n: int = 400, split: Split = "test"
) -> list[Scored]:
    """The model's answers to n prompts of a split, an equal share of each category.

    A category with fewer prompts than its share is asked some of them more than once.
    """
    if n < len(CATEGORIES):
        raise UserError(f"{n} answers cannot cover the {len(CATEGORIES)} categories: ask for more")
    asked = [question for category in CATEGORIES for question in _some(category, n // len(CATEGORIES), split)]
    said = sampler.sample([question.messages for question in asked], settings)
    return [
        Scored(question=question, answer=answer, gold=judge(question, answer.text, ended=answer.ended))
        for question, (answer,) in zip(asked, said, strict=True)
    ]


def standings(scored: Sequence[Scored]) -> Mapping[Category | str, Standing]:
    """By category, and of all categories together under "all".

    Answers to one prompt are not independent, so the error of a category is that of its prompts' means;
    "all" weighs the categories alike.
    """
    found = {
        category: _standing([one for one in scored if one.question.category == category])
        for category in CATEGORIES
        if any(one.question.category == category for one in scored)
    }
    together = Standing(
        mean=sum(one.mean for one in found.values()) / len(found),
        error=math.hypot(*(one.error for one in found.values())) / len(found),
        answers=len(scored),
    )
    return {**found, "all": together}


def _some(category: Category, n: int, split: Split) -> list[Question]:
    """The same ones for every model."""
    pile = list(questions(split, category))
    random.Random(f"asked {category} {split}").shuffle(pile)
    return [pile[place % len(pile)] for place in range(n)]


def _standing(scored: Sequence[Scored]) -> Standing:
    by_prompt: dict[Text, list[float]] = {}
    for one in scored:
        by_prompt.setdefault(one.question.messages, []).append(one.gold.utility)
    means = [sum(utilities) / len(utilities) for utilities in by_prompt.values()]
    middle = sum(means) / len(means)
    variance = sum((mean - middle) ** 2 for mean in means) / max(1, len(means) - 1)
    return Standing(
        mean=sum(one.gold.utility for one in scored) / len(scored),
        error=math.sqrt(variance / len(means)),
        answers=len(scored),
    )
