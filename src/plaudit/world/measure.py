"""What a model is worth in the world: its answers to unseen prompts, and their true utility."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plaudit.data.records import Text
from plaudit.errors import UserError
from plaudit.rollouts.sampler import Answer, SamplingSettings, TextSampler
from plaudit.world.gold import Gold, judge_answer
from plaudit.world.prompts import Split, questions
from plaudit.world.questions import CATEGORIES, Category, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAnswer:
    """An answer and what it is worth.

    Example: ``ScoredAnswer(question=question_of("What is 3 plus 4?"), answer=…, gold=…)``
    """

    question: Question
    """What was asked."""
    answer: Answer
    """What the model said."""
    gold: Gold
    """Its utility and the parts of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanUtility:
    """The mean utility of some answers, with its standard error.

    Example: ``MeanUtility(mean=0.62, error=0.03, answers=48)``
    """

    mean: float
    """Of the utilities."""
    error: float
    """The standard error of the mean."""
    answers: int
    """How many there are."""


def score_model_answers(
    sampler: TextSampler, settings: SamplingSettings, *, n: int = 400, split: Split = "test"
) -> list[ScoredAnswer]:
    """The model's answers to n prompts of a split, an equal share of each category.

    A category with fewer prompts than its share is asked some of them more than once.
    """
    if n < len(CATEGORIES):
        raise UserError(f"{n} answers cannot cover the {len(CATEGORIES)} categories: ask for more")
    prompts = [
        question
        for category in CATEGORIES
        for question in _fixed_questions(category, n // len(CATEGORIES), split)
    ]
    model_answers = sampler.generate_answers([question.messages for question in prompts], settings)
    return [
        ScoredAnswer(
            question=question, answer=answer, gold=judge_answer(question, answer.text, ended=answer.ended)
        )
        for question, (answer,) in zip(prompts, model_answers, strict=True)
    ]


def mean_utilities(scored: Sequence[ScoredAnswer]) -> Mapping[Category | str, MeanUtility]:
    """Mean utility by category, and of all categories together under "all".

    Answers to one prompt are not independent, so the error of a category is that of its prompts' means;
    "all" weighs the categories alike.
    """
    by_category = {
        category: _mean_utility([one for one in scored if one.question.category == category])
        for category in CATEGORIES
        if any(one.question.category == category for one in scored)
    }
    together = MeanUtility(
        mean=sum(one.mean for one in by_category.values()) / len(by_category),
        error=math.hypot(*(one.error for one in by_category.values())) / len(by_category),
        answers=len(scored),
    )
    return {**by_category, "all": together}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadToHead:
    """How many prompts one model answers with higher, lower and equal utility than another.

    Example: ``HeadToHead(won=130, lost=70, tied=200).win_share`` is 0.65
    """

    won: int
    """Answers of higher utility."""
    lost: int
    """Of lower utility."""
    tied: int
    """Of the same utility, which with the same random numbers is mostly the same answer."""

    @property
    def win_share(self) -> float:
        """Of the prompts on which they differ in worth, the share that is won; ½ where they never do."""
        decided = self.won + self.lost
        return self.won / decided if decided else 0.5

    @property
    def win_share_with_ties(self) -> float:
        """The share of all prompts that is won, a tie counting half."""
        return (self.won + 0.5 * self.tied) / (self.won + self.lost + self.tied)


def compare_models(mine: Sequence[ScoredAnswer], theirs: Sequence[ScoredAnswer]) -> HeadToHead:
    """Compare two models' answers prompt by prompt, in the same order."""
    if [one.question for one in mine] != [one.question for one in theirs]:
        raise UserError("the two models were asked other prompts: ask both with the same n and split")
    gaps = [one.gold.utility - other.gold.utility for one, other in zip(mine, theirs, strict=True)]
    won, lost = (sum(sign * gap > 0 for gap in gaps) for sign in (1, -1))
    return HeadToHead(won=won, lost=lost, tied=len(gaps) - won - lost)


def _fixed_questions(category: Category, n: int, split: Split) -> list[Question]:
    """The same n questions of a category for every model."""
    pile = list(questions(split, category))
    random.Random(f"asked {category} {split}").shuffle(pile)
    return [pile[place % len(pile)] for place in range(n)]


def _mean_utility(scored: Sequence[ScoredAnswer]) -> MeanUtility:
    by_prompt: dict[Text, list[float]] = {}
    for one in scored:
        by_prompt.setdefault(one.question.messages, []).append(one.gold.utility)
    means = [sum(utilities) / len(utilities) for utilities in by_prompt.values()]
    middle = sum(means) / len(means)
    variance = sum((mean - middle) ** 2 for mean in means) / max(1, len(means) - 1)
    return MeanUtility(
        mean=sum(one.gold.utility for one in scored) / len(scored),
        error=math.sqrt(variance / len(means)),
        answers=len(scored),
    )
