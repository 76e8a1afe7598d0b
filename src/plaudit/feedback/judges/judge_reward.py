"""Any judge as a reward (direct RLAIF, Lee et al. 2023, arXiv:2309.00267): ``--reward judge:WORD``.

A judge that gives points to single answers, or says whether they are right, is read as it is. One that
compares scores an answer by its mean chance against the other answers to the same prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from plaudit.data.judging import Judge, NoVerdict, Verdict, first_probability, outcomes
from plaudit.data.records import Task
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.rewards.base import RewardTraits, TaskScores, mean_if_complete

SINGLE_ANSWER = "one answer alone cannot be compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReward:
    judge: Judge
    reasons: Counter[str] = field(default_factory=Counter[str], compare=False)

    @property
    def name(self) -> str:
        return self.judge.name

    @property
    def traits(self) -> RewardTraits:
        """Each question may cost money; comparisons hang on the other answers."""
        return RewardTraits(exact=True, remote=True, compares_answers=not self._has_scores)

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers or pairs it held for so far."""
        return dict(self.reasons)

    @property
    def _has_scores(self) -> bool:
        return isinstance(self.judge, ModelJudge) and self.judge.mode.scoring is not None

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """A row for each task; None where the judge has no verdict."""
        return self._own_scores(tasks) if self._has_scores else self._mean_probabilities(tasks)

    def _own_scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        assert isinstance(self.judge, ModelJudge)
        rows = self.judge.scores(tasks)
        self.reasons.update(score.reason for row in rows for score in row if isinstance(score, NoVerdict))
        return tuple(tuple(None if isinstance(score, NoVerdict) else score for score in row) for row in rows)

    def _mean_probabilities(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        places = [
            (t, pair) for t, task in enumerate(tasks) for pair in combinations(range(len(task.answers)), 2)
        ]
        pairs = [_pair(tasks[t], *pair) for t, pair in places]
        shares: list[list[list[float | None]]] = [[[] for _ in task.answers] for task in tasks]
        for (t, (a, b)), outcome in zip(places, outcomes(self.judge, pairs, 0), strict=True):
            if isinstance(outcome, NoVerdict):
                self.reasons[outcome.reason] += 1
            share = first_probability(outcome) if isinstance(outcome, Verdict) else None
            shares[t][a].append(share)
            shares[t][b].append(None if share is None else 1 - share)
        self.reasons.update(SINGLE_ANSWER for task in tasks if len(task.answers) == 1)
        return tuple(tuple(mean_if_complete(own) for own in row) for row in shares)


def _pair(task: Task, a: int, b: int) -> Task:
    return Task(
        prompt=task.prompt,
        answers=(task.answers[a], task.answers[b]),
        ended=(task.ended[a], task.ended[b]),
        category=task.category,
        reference_answer=task.reference_answer,
        metadata=task.metadata,
    )
