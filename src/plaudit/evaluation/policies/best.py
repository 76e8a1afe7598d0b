"""What becomes of the reference where a reward chooses among its answers, and how far that leads from it."""

from __future__ import annotations

from collections.abc import Sequence

from plaudit.evaluation.best_of import best_of_curve
from plaudit.evaluation.pairs import task_scores
from plaudit.evaluation.policies.drawn import Asked
from plaudit.evaluation.policies.over_optimisation import OverOptimisation, of_best_of
from plaudit.evaluation.resample import Resampling
from plaudit.evaluation.result import BestOfCurve
from plaudit.rewards.reward import Reward
from plaudit.rollouts.sampling import Rollout


def chosen_curve(
    asked: Sequence[Asked],
    groups: Sequence[Sequence[Rollout]],
    scorers: tuple[Reward, Reward],
    resampling: Resampling,
) -> tuple[BestOfCurve, OverOptimisation | None]:
    """The worth by the second scorer of the answer that the first one likes best of n, and where it turns."""
    tasks = [
        question.task((one.answer.text, one.answer.ended) for one in group)
        for question, group in zip(asked, groups, strict=True)
    ]
    proxies, truths = (task_scores(tasks, scorer) for scorer in scorers)
    curve = best_of_curve(tasks, proxies, truths, resampling)
    return curve, of_best_of(tasks, proxies, truths, resampling)
