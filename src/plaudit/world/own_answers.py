"""A model's own answers to the world's prompts, to be judged: what a policy is improved with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from plaudit.errors import UserError
from plaudit.records.judging import Task
from plaudit.records.messages import assistant_says
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampling import SamplingSettings
from plaudit.world.making import asked_questions
from plaudit.world.prompts import Split
from plaudit.world.questions import CATEGORIES, Category, Question

ROUNDS = 50
"""How often as many prompts as there shall be rows are asked, before a model is said to repeat itself."""


def own_tasks(
    sampler: LocalSampler,
    n: int,
    *,
    answers: int,
    split: Split = "train",
    seed: int = 0,
    categories: Sequence[Category] = CATEGORIES,
) -> list[Task]:
    """Prompts with different answers of the model, drawn at temperature 1.

    A prompt is passed over when its answers are the same, or one did not end by itself: a row could only
    pretend that it had.
    """
    drawn = asked_questions(split, seed, categories)
    found: list[Task] = []
    for number in range(ROUNDS):
        asked = list(islice(drawn, n))
        found += _told(sampler, asked, answers, seed * ROUNDS + number)
        if len(found) >= n:
            return found[:n]
    raise UserError(
        f"of {ROUNDS * n:,} prompts the model gave {answers} different answers to {len(found):,}, and {n:,} "
        "are wanted: ask for fewer rows or fewer answers"
    )


def _told(sampler: LocalSampler, asked: Sequence[Question], answers: int, seed: int) -> list[Task]:
    said = sampler.sample([question.messages for question in asked], SamplingSettings(seed=seed), n=answers)
    return [
        Task(
            prompt=question.messages,
            answers=tuple(assistant_says(answer.text) for answer in own),
            ended=(True,) * answers,
            category=question.category,
        )
        for question, own in zip(asked, said, strict=True)
        if all(answer.ended and answer.text.strip() for answer in own)
        and len({answer.text for answer in own}) == answers
    ]
