"""Tasks for rules: one prompt, its answers, what is known of it."""

from collections.abc import Sequence

from plaudit.data.judging import Task
from plaudit.rewards.base import Reward


def asked(*answers: str, truth: str | None = None, facts: dict[str, object] | None = None) -> Task:
    ended = (True,) * len(answers)
    return Task(prompt="?", answers=answers, ended=ended, reference_answer=truth, metadata=facts or {})


def said(reward: Reward, *answers: str, truth: str | None = None) -> Sequence[float | None]:
    return reward.scores([asked(*answers, truth=truth)])[0]
