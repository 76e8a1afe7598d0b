"""What a reward is asked in a check: a few of the user's own prompts, with answers as a trainer has them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from plaudit.checks.questions import LOOKED_THROUGH, Asked, asked, own_answers
from plaudit.checks.subject import Subject
from plaudit.errors import UserError
from plaudit.models.proof import tolerance
from plaudit.records.judging import Task
from plaudit.records.messages import Text, assistant_says, words
from plaudit.rewards.cascade import Blend, Cascade
from plaudit.rewards.code import CodeReward
from plaudit.rewards.endpoint import EndpointReward
from plaudit.rewards.ensemble import CombinedReward
from plaudit.rewards.learned import LearnedReward
from plaudit.rewards.named import OwnReward
from plaudit.rewards.pattern import PatternReward
from plaudit.rewards.reward import FunctionReward, Reward, Row
from plaudit.rewards.rule import Rule
from plaudit.rewards.steps import StepReward
from plaudit.training.shards import is_sharded

PROMPTS, ANSWERS = 4, 3
"""How many prompts a reward is asked about, and answers to each."""
REMOTE = 2
"""Prompts, and answers to each, where every question is paid for."""
ROOM = 16
"""Tokens of an answer that is drawn for it."""
LOOSE = {"cpu": 1e-3, "cuda": 0.15}
"""How far scores of a model may lie apart as a share of the largest one, where its numbers are not known."""
PLAIN = (OwnReward, FunctionReward, Rule, PatternReward, CodeReward, EndpointReward)
"""Rewards that say the very same thing twice or are not to be trusted: no arithmetic of theirs is batched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Who is asked, about what, and what it said.

    Example: ``Questions(reward=reward, tasks=(task,), origins=("rows.jsonl:1",), rows=((0.5, None),))``
    """

    reward: Reward
    """Who is asked."""
    tasks: tuple[Task, ...]
    """About what."""
    origins: tuple[str, ...]
    """File and row of each task."""
    rows: tuple[Row, ...]
    """What it said, all of them asked at once."""

    @property
    def scores(self) -> list[float]:
        """The verdicts that there are."""
        return [score for row in self.rows for score in row if score is not None]

    @property
    def slack(self) -> float:
        """How far the score of one answer may lie from its score in other company."""
        largest = max(map(abs, self.scores), default=0.0)
        return largest * max((_share(leaf) for leaf in leaves(self.reward)), default=0.0)


def reward_of(subject: Subject) -> Reward | None:
    """The reward of a run, or the reward model that learns, asked as it would be later."""
    if subject.reward is not None or subject.scorer is None or is_sharded(subject.scorer):
        return subject.reward
    return LearnedReward("the reward model", subject.scorer, subject.encoder)


def why_none(subject: Subject) -> str:
    """Why nobody can be asked."""
    sharded = subject.scorer is not None and is_sharded(subject.scorer)
    return "weights are divided over ranks" if sharded else "no reward scores whole answers in this run"


def questions(subject: Subject) -> Questions | str:
    """The reward asked about a few answers; or why there is nothing to compare its scores with."""
    reward = reward_of(subject)
    if reward is None:
        return why_none(subject)
    found = tasks(subject, reward)
    if not found:
        return "no prompt of the first rows can be asked within the longest row"
    try:
        rows = reward.scores([task for _, task in found])
    except UserError:
        return "the reward cannot be asked (reward-finite says why)"
    if ill_formed([task for _, task in found], rows) is not None or not _any(rows):
        return "the reward has no usable scores (reward-finite says why)"
    origins, asked_tasks = zip(*found, strict=True)
    return Questions(reward=reward, tasks=asked_tasks, origins=origins, rows=rows)


def tasks(subject: Subject, reward: Reward) -> list[tuple[str, Task]]:
    """File and row of each, and the task: a row's own answers, or drawn ones where it is a bare prompt."""
    remote = any(isinstance(leaf, EndpointReward) for leaf in leaves(reward))
    count, answers = (REMOTE, REMOTE) if remote else (PROMPTS, ANSWERS)
    if subject.reward is None:
        return _rows_themselves(subject, count)
    rows = asked(subject, count, ROOM)
    drawn = iter(_drawn(subject, [row for row in rows if not row.answers], answers))
    found: list[tuple[str, Task]] = []
    for row in rows:
        said = [(_said(one), True) for one in row.answers[:answers]] if row.answers else next(drawn, [])
        if said:
            found.append((row.question.origin, row.question.task(said)))
    return found


def one_answer_each(subject: Subject, count: int) -> list[tuple[str, Task]]:
    """File and row of each, and a prompt with one answer, no model being asked; the shortest and longer ones.

    The answer is the row's own, its reference answer, or words of the prompt itself.
    """
    rows = asked(subject, 2 * count, ROOM)
    found: list[tuple[str, Task]] = []
    for place, row in enumerate(rows[:: 2 if len(rows) > count else 1]):
        echo = " ".join(words(row.question.text).split()[: 2 + 3 * place])
        said = _said(row.answers[0]) if row.answers else row.question.truth or echo
        found.append((row.question.origin, row.question.task([(said, True)])))
    return found


def ill_formed(asked_tasks: Sequence[Task], rows: Sequence[Row]) -> str | None:
    """What is wrong with the form of the scores, or with a number among them."""
    if len(rows) != len(asked_tasks):
        return f"asked about {len(asked_tasks)} prompts it answered {len(rows)}"
    for task, row in zip(asked_tasks, rows, strict=True):
        if len(row) != len(task.answers):
            return f"it gave {len(row)} scores for {len(task.answers)} answers to {_short(task.prompt)}"
        for answer, score in zip(task.answers, row, strict=True):
            if score is not None and not math.isfinite(score):
                return f"it gave {score} for {_short(answer)}, an answer to {_short(task.prompt)}"
    return None


def leaves(reward: Reward) -> Iterator[Reward]:
    """The rewards that a reward is made of."""
    match reward:
        case CombinedReward():
            parts: Sequence[Reward] = reward.members
        case Cascade():
            parts = [tier.reward for tier in reward.tiers]
        case Blend():
            parts = reward.rewards
        case StepReward() if isinstance(reward.model, LearnedReward):
            parts = [reward.model]
        case _:
            yield reward
            return
    for part in parts:
        yield from leaves(part)


def same(one: float | None, other: float | None, slack: int | float) -> bool:
    """Whether two scores of one answer are the same.

    >>> same(None, None, 0), same(1.0, 1.5, 0.1), same(1.0, None, 9)
    (True, False, False)
    """
    return one is other if one is None or other is None else abs(one - other) <= slack


def differing(found: Questions, other: Sequence[Row]) -> tuple[str, Text, float | None, float | None] | None:
    """The first answer whose score is another: where, what, and both scores."""
    for origin, task, row, second in zip(found.origins, found.tasks, found.rows, other, strict=True):
        for answer, one, two in zip(task.answers, row, second, strict=True):
            if not same(one, two, found.slack):
                return origin, answer, one, two
    return None


def _rows_themselves(subject: Subject, count: int) -> list[tuple[str, Task]]:
    """As a reward model reads them when it learns."""
    found: list[tuple[str, Task]] = []
    for record in subject.records[:LOOKED_THROUGH]:
        plain = isinstance(record.prompt, str)
        said = [
            one if plain or not isinstance(one, str) else assistant_says(one) for one in own_answers(record)
        ]
        if said:
            task = Task(prompt=record.prompt, answers=tuple(said), ended=(True,) * len(said))
            found.append((record.origin, task))
    return sorted(found, key=lambda one: sum(map(len, map(words, (one[1].prompt, *one[1].answers)))))[:count]


def _drawn(subject: Subject, rows: Sequence[Asked], answers: int) -> list[list[tuple[str, bool]]]:
    if subject.sampler is None or not rows:
        return []
    settings = replace(subject.sampling, max_tokens=min(ROOM, subject.sampling.max_tokens))
    groups = subject.sampler.rollouts([row.question.text for row in rows], settings, n=answers)
    return [[(one.answer.text, one.answer.ended) for one in group] for group in groups]


def _said(answer: Text) -> str:
    """The words of the first turn."""
    return words(answer if isinstance(answer, str) else answer[:1])


def _share(leaf: Reward) -> float:
    if isinstance(leaf, LearnedReward):
        return tolerance(leaf.model)
    return 0.0 if isinstance(leaf, PLAIN) else LOOSE["cuda" if torch.cuda.is_available() else "cpu"]


def _any(rows: Sequence[Row]) -> bool:
    return any(score is not None for row in rows for score in row)


def _short(text: Text) -> str:
    return repr(words(text)[:40])
