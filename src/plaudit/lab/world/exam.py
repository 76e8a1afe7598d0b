"""Evaluations on the world's prompts or a file's: policies on questions, rewards on comparisons.

Of its own prompts the world knows the truth about answers: their true utility, the pool's ceiling, and
answers to choose from. So a model is worth the mean true utility of its answers to unseen prompts.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from statistics import fmean
from typing import ClassVar

import numpy as np

from plaudit.data.records import Task, Text, answers_of, assistant_turn
from plaudit.errors import UserError
from plaudit.evaluation.policies.generate import EvaluationPrompt, evaluation_prompts
from plaudit.evaluation.policies.multiple_choice import ChoiceQuestion
from plaudit.evaluation.prompt_sets import MAX_CLOSED_QUESTIONS, PromptSet
from plaudit.evaluation.reward_models.evaluate import RewardEvaluationData
from plaudit.evaluation.reward_models.pairs import PreferenceRecord, group_index
from plaudit.evaluation.reward_models.result import Ceiling
from plaudit.evaluation.stats import Resampling, bootstrap_mean
from plaudit.lab.world.annotators import POOLS, Annotator, agreement, annotator_pool
from plaudit.lab.world.facts import as_sentence
from plaudit.lab.world.gold import Gold, judge_answer, utility
from plaudit.lab.world.making import prompts
from plaudit.lab.world.prompts import NUMBERS, Split, question_of_prompt, questions
from plaudit.lab.world.questions import CATEGORIES, Category, Fact, Question
from plaudit.lab.world.speaking import sample_answer
from plaudit.rewards.base import Reward, RewardTraits, TaskScores
from plaudit.rollouts.sampler import Answer, SamplingSettings, TextSampler

FLAT_ERROR_PROMPTS = 128
_CLOSED_CATEGORIES: tuple[Category, ...] = ("fact", "arithmetic")
_UNSURE, _SURE = "Perhaps", "Gladly."


def flat_error_tasks(n: int = FLAT_ERROR_PROMPTS, *, seed: int = 0) -> tuple[Task, ...]:
    """Questions with two answers of as many words: a right one that is hedged, and a wrong one that is not.
    Both begin with seven letters, and the wrong value has nearly as many letters as the right one.

    >>> [answer[0].content for answer in flat_error_tasks(1)[0].answers]
    ['Perhaps Elsa keeps a rabbit.', 'Gladly. Elsa keeps a turtle.']
    """
    return tuple(_flat_error_task(question, seed) for question in _closed(n, "test", seed))


def _closed(n: int, split: Split, seed: int) -> list[Question]:
    """Facts and sums of a split in turn, at most as many as there are."""
    available = len(prompts(split=split, categories=_CLOSED_CATEGORIES))
    drawn = prompts(min(n, available), split=split, seed=seed, categories=_CLOSED_CATEGORIES)
    return [question_of_prompt(prompt.prompt) for prompt in drawn]


def _flat_error_task(question: Question, seed: int) -> Task:
    fact = question.aim
    assert isinstance(fact, Fact), question.category
    right, wrong = fact.phrase_value(fact.truth), fact.phrase_value(_wrong_value(fact, seed))
    return question.task((f"{_UNSURE} {right}.", f"{_SURE} {as_sentence(wrong)}"))


def _wrong_value(fact: Fact, seed: int) -> str:
    words, letters = len(fact.truth.split()), len(fact.truth)
    distances = {
        value: (abs(len(value.split()) - words), abs(len(value) - letters))
        for value in fact.values
        if value not in (fact.truth, fact.belief)
    }
    nearest = [value for value, distance in distances.items() if distance == min(distances.values())]
    return random.Random(f"flat errors {seed} {fact.truth} {fact.frames[0]}").choice(nearest)


def right_preference(annotators: Sequence[Annotator], tasks: Sequence[Task]) -> float:
    """How often annotators prefer the hedged right answer; a tie counts one half, either order alike."""
    preferences = list[float]()
    for task in tasks:
        reversed_task = Task(prompt=task.prompt, answers=task.answers[::-1], ended=task.ended)
        for annotator in annotators:
            right, wrong = annotator.win_probabilities(task)
            wrong_first, right_second = annotator.win_probabilities(reversed_task)
            preferences.append(0.5 + (right - wrong + right_second - wrong_first) / 4)
    return fmean(preferences)


_NEARBY_RANGE = 5


def exam_prompts(
    n: int | None = None, *, split: Split = "test", seed: int = 0
) -> tuple[EvaluationPrompt, ...]:
    """Different questions of a split, categories taking turns.

    >>> [one.category for one in exam_prompts(3)]
    ['fact', 'arithmetic', 'list']
    """
    return evaluation_prompts(prompts(n, split=split, seed=seed))


def closed_questions(
    n: int = MAX_CLOSED_QUESTIONS, *, split: Split = "test", seed: int = 0
) -> tuple[ChoiceQuestion, ...]:
    """Facts and sums of a split in turn, with their choices in the plain sentences of the corpus.
    Of a fact every value of that kind is a choice, of a sum the right number and those up to five away.

    >>> closed_questions(2)[1].choices[closed_questions(2)[1].right] == question_of_prompt(closed_questions(
    ...     2)[1].prompt).best
    True
    """
    return tuple(map(_closed_question, _closed(n, split, seed)))


def _closed_question(question: Question) -> ChoiceQuestion:
    fact = question.aim
    assert isinstance(fact, Fact), question.category
    values = fact.values
    if question.category == "arithmetic":
        place = NUMBERS.index(fact.truth)
        values = NUMBERS[max(0, place - _NEARBY_RANGE) : place + _NEARBY_RANGE + 1]
    choices = tuple(as_sentence(fact.phrase_value(value)) for value in values)
    return ChoiceQuestion(
        prompt=question.messages, choices=choices, right=values.index(fact.truth), category=question.category
    )


@dataclass(frozen=True, slots=True)
class GoldReward:
    """The true utility as a reward; what was cut off is worth less.

    >>> task = Task(prompt="What does the owl eat?", answers=("Mice.", "Mice."), ended=(True, False))
    >>> GoldReward().scores([task])
    ((1.0, 0.4),)
    """

    name: str = "gold"
    traits: ClassVar[RewardTraits] = RewardTraits(exact=True)

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        return tuple(
            tuple(
                _cached_utility(task.prompt, answer, ended)
                for answer, ended in zip(task.answers, task.ended, strict=True)
            )
            for task in tasks
        )


def gold_reward() -> Reward:
    return GoldReward()


@lru_cache(maxsize=100_000)
def _cached_utility(prompt: Text, answer: Text, ended: bool) -> float:
    return utility(prompt, answer, ended=ended)


BEST_OF_N_PROMPTS = 128
MAX_CEILING_PAIRS = 2000


def add_world_knowledge(
    evidence: RewardEvaluationData, *, answers: int, resampling: Resampling
) -> RewardEvaluationData:
    """The evidence with all that the world knows of it; a prompt that is not the world's is an error."""
    records = [
        replace(record, category=record.category or question_of_prompt(record.prompt).category)
        for record in evidence.records
    ]
    names = {record.annotator for record in records if record.annotator is not None}
    pools = [(name, annotator_pool(name)) for name in POOLS]
    matching = [(name, judges) for name, judges in pools if names <= {judge.name for judge in judges}]
    # Pools are nested (the crowd is part of the sabotaged); the smallest adds nobody who did not judge.
    pool = min(matching, key=lambda item: len(item[1])) if names and matching else None
    flat_errors = flat_error_tasks(seed=resampling.seed)
    return replace(
        evidence,
        records=records,
        truth=gold_reward(),
        sampled=_best_of_n_tasks(answers, resampling.seed),
        ceiling=None if pool is None else _pool_ceiling(*pool, records, resampling),
        flat_errors=flat_errors,
        flat_errors_by_annotators=None if pool is None else right_preference(pool[1], flat_errors),
    )


def _best_of_n_tasks(answers: int, seed: int) -> tuple[Task, ...]:
    """Answers in the manner of the base corpus, drawn one by one: some come twice, as from any policy."""
    rng, drawn = random.Random(f"best of {seed}"), prompts(BEST_OF_N_PROMPTS, split="test", seed=seed)
    return tuple(
        Task(
            prompt=question.messages,
            answers=tuple(assistant_turn(sample_answer(question, rng)) for _ in range(answers)),
            ended=(True,) * answers,
        )
        for question in (question_of_prompt(prompt.prompt) for prompt in drawn)
    )


def _pool_ceiling(
    name: str, judges: Sequence[Annotator], records: Sequence[PreferenceRecord], resampling: Resampling
) -> Ceiling | None:
    """Of the pool that the annotators belong to, each of whose choices has a known chance."""
    tasks = [
        Task(prompt=record.prompt, answers=pair, ended=(True, True))
        for record in records
        for pair in combinations(answers_of(record), 2)
    ][:MAX_CEILING_PAIRS]
    each = [agreement(name, judges, [task]) for task in tasks]
    with_ceiling = [(task, item) for task, item in zip(tasks, each, strict=True) if item.ceiling is not None]
    if not with_ceiling:
        return None
    best = bootstrap_mean(
        np.array([item.ceiling for _, item in with_ceiling], dtype=float),
        group_index([task.prompt for task, _ in with_ceiling]),
        resampling,
        # By how often anybody prefers something there: the ceiling is one of choices, and a tie is none.
        weight_B=np.array([1 - item.ties for _, item in with_ceiling]),
    )
    return Ceiling(
        source=f"the pool {name}",
        accuracy=best,
        at_most=best.value,
        words=f"computed from the known chances of the {len(judges)} annotators of the {name} pool, who "
        f"judge {len(tasks)} of these pairs anew",
    )


WORLD = PromptSet(
    prompts=exam_prompts, closed_questions=closed_questions, gold=gold_reward, knowledge=add_world_knowledge
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAnswer:
    question: Question
    answer: Answer
    gold: Gold


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanUtility:
    """The mean utility of some answers, with its standard error."""

    mean: float
    error: float
    answers: int


def score_model_answers(
    sampler: TextSampler,
    settings: SamplingSettings,
    *,
    n: int = 400,
    split: Split = "test",
    categories: Sequence[Category] = CATEGORIES,
) -> list[ScoredAnswer]:
    """The model's answers to n prompts of a split, an equal share of each of some categories.
    A category with fewer prompts than its share is asked some of them more than once."""
    if n < len(categories):
        raise UserError(f"{n} answers cannot cover the {len(categories)} categories: ask for more")
    selected = list[Question]()
    for category in categories:
        pile = list(questions(split, category))
        random.Random(f"asked {category} {split}").shuffle(pile)
        selected += [pile[place % len(pile)] for place in range(n // len(categories))]
    model_answers = sampler.generate_answers([question.messages for question in selected], settings)
    return [
        ScoredAnswer(
            question=question, answer=answer, gold=judge_answer(question, answer.text, ended=answer.ended)
        )
        for question, (answer,) in zip(selected, model_answers, strict=True)
    ]


def mean_utilities(scored: Sequence[ScoredAnswer]) -> Mapping[Category | str, MeanUtility]:
    """Mean utility by category, and of all categories together under "all".
    Answers to one prompt are not independent, so the error of a category is that of its prompts' means; "all"
    weighs the categories alike."""
    by_category = {
        category: _mean_utility([index for index in scored if index.question.category == category])
        for category in CATEGORIES
        if any(index.question.category == category for index in scored)
    }
    together = MeanUtility(
        mean=sum(item.mean for item in by_category.values()) / len(by_category),
        # Categories are asked apart from each other, so their errors add in squares.
        error=math.hypot(*(item.error for item in by_category.values())) / len(by_category),
        answers=len(scored),
    )
    return {**by_category, "all": together}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadToHead:
    """How many prompts one model answers with higher, lower and equal utility than another."""

    won: int
    lost: int
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
    if [own.question for own in mine] != [peer.question for peer in theirs]:
        raise UserError("the two models were asked other prompts: ask both with the same n and split")
    gaps = [own.gold.utility - other.gold.utility for own, other in zip(mine, theirs, strict=True)]
    won, lost = (sum(sign * gap > 0 for gap in gaps) for sign in (1, -1))
    return HeadToHead(won=won, lost=lost, tied=len(gaps) - won - lost)


def _mean_utility(scored: Sequence[ScoredAnswer]) -> MeanUtility:
    by_prompt: dict[Text, list[float]] = {}
    for index in scored:
        by_prompt.setdefault(index.question.messages, []).append(index.gold.utility)
    means = [sum(utilities) / len(utilities) for utilities in by_prompt.values()]
    middle = sum(means) / len(means)
    variance = sum((mean - middle) ** 2 for mean in means) / max(1, len(means) - 1)
    error = math.sqrt(variance / len(means))
    return MeanUtility(
        mean=sum(index.gold.utility for index in scored) / len(scored), error=error, answers=len(scored)
    )
