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


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """How often one model's answer is worth more than another's to the same prompt.

    Example: ``Duel(won=130, lost=70, tied=200).share`` is 0.65
    """

    won: int
    """Answers of higher utility."""
    lost: int
    """Of lower utility."""
    tied: int
    """Of the same utility, which with the same random numbers is mostly the same answer."""

    @property
    def share(self) -> float:
        """Of the prompts on which they differ in worth, the share that is won; ½ where they never do."""
        decided = self.won + self.lost
        return self.won / decided if decided else 0.5

    @property
    def with_ties(self) -> float:
        """The share of all prompts that is won, a tie counting half."""
        return (self.won + 0.5 * self.tied) / (self.won + self.lost + self.tied)


def duel(mine: Sequence[Scored], theirs: Sequence[Scored]) -> Duel:
    """Answer by answer, to the same prompts in the same order."""
    if [one.question for one in mine] != [one.question for one in theirs]:
        raise UserError("the two models were asked other prompts: ask both with the same n and split")
    gaps = [one.gold.utility - other.gold.utility for one, other in zip(mine, theirs, strict=True)]
    won, lost = (sum(sign * gap > 0 for gap in gaps) for sign in (1, -1))
    return Duel(won=won, lost=lost, tied=len(gaps) - won - lost)


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
