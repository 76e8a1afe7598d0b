"""What the world knows about its own prompts: true utility, the pool's ceiling, answers to choose from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations

import numpy as np

from plaudit.evaluation.columns import numbered
from plaudit.evaluation.evaluate import Evidence
from plaudit.evaluation.pairs import Judged, answers_of
from plaudit.evaluation.resample import Resampling, estimate
from plaudit.evaluation.result import Ceiling
from plaudit.records.judging import Task
from plaudit.records.messages import Text, assistant_says
from plaudit.rewards.reward import FunctionReward
from plaudit.world.annotators import Annotator
from plaudit.world.gold import gold_of
from plaudit.world.making import prompts
from plaudit.world.pools import POOLS, agreement, pool
from plaudit.world.prompts import question_of
from plaudit.world.speaking import styled

PROMPTS = 128
"""Test prompts of the best-of-n curve."""
MOST = 2000
"""Pairs from which a pool's ceiling is computed."""


def gold() -> FunctionReward:
    """The true utility as a reward."""
    return FunctionReward(name="gold", function=_utility)


def with_world(evidence: Evidence, *, answers: int, resampling: Resampling) -> Evidence:
    """The evidence with all that the world knows of it; a prompt that is not the world's is an error."""
    records = [
        replace(record, category=record.category or question_of(record.prompt).category)
        for record in evidence.records
    ]
    return replace(
        evidence,
        records=records,
        truth=gold(),
        sampled=_sampled(answers, resampling.seed),
        ceiling=_ceiling(records, resampling),
    )


@lru_cache(maxsize=100_000)
def _utility(prompt: Text, answer: Text) -> float:
    return gold_of(prompt, answer).utility


def _sampled(answers: int, seed: int) -> tuple[Task, ...]:
    """Answers in the manner of the base corpus, drawn one by one: some come twice, as from any policy."""
    chance = random.Random(f"best of {seed}")
    asked = [question_of(prompt.prompt) for prompt in prompts(PROMPTS, split="test", seed=seed)]
    return tuple(
        Task(
            prompt=question.messages,
            answers=tuple(assistant_says(styled(question, chance)) for _ in range(answers)),
            ended=(True,) * answers,
        )
        for question in asked
    )


def _ceiling(records: Sequence[Judged], resampling: Resampling) -> Ceiling | None:
    """Of the pool that the annotators belong to, each of whose choices has a known chance."""
    found = _pool_of({record.annotator for record in records if record.annotator is not None})
    if found is None:
        return None
    name, judges = found
    tasks = [
        Task(prompt=record.prompt, answers=pair, ended=(True, True))
        for record in records
        for pair in combinations(answers_of(record), 2)
    ][:MOST]
    each = [agreement(name, judges, [task]) for task in tasks]
    kept = [(task, one) for task, one in zip(tasks, each, strict=True) if one.ceiling is not None]
    if not kept:
        return None
    best = estimate(
        np.array([one.ceiling for _, one in kept], dtype=float),
        numbered([task.prompt for task, _ in kept]),
        resampling,
        weight_B=np.array([1 - one.ties for _, one in kept]),
    )
    return Ceiling(
        source=f"the pool {name}",
        accuracy=best,
        at_most=best.value,
        words=f"computed from the known chances of the {len(judges)} annotators of the {name} pool, who "
        f"judge {len(tasks)} of these pairs anew",
    )


def _pool_of(names: set[str]) -> tuple[str, tuple[Annotator, ...]] | None:
    """The smallest pool that has all of them."""
    pools = [(name, pool(name)) for name in POOLS]
    fitting = [(name, judges) for name, judges in pools if names <= {judge.name for judge in judges}]
    return min(fitting, key=lambda one: len(one[1])) if names and fitting else None
