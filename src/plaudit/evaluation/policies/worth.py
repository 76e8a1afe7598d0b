"""What answers of several policies are worth, by whoever scores them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from plaudit.errors import UserError
from plaudit.evaluation.policies.distances import places
from plaudit.evaluation.policies.drawn import Asked, Drawn
from plaudit.evaluation.policies.result import Part
from plaudit.evaluation.resample import Resampling, estimate
from plaudit.evaluation.result import Estimate
from plaudit.rewards.reward import Reward, Row

Worth = tuple[Row, ...]
"""Of each question's answers; None is no verdict."""


def worths(reward: Reward, asked: Sequence[Asked], policies: Sequence[Drawn]) -> Mapping[str, Worth]:
    """By the policy's name; the answers of all policies to one question are scored side by side."""
    said = [
        [[(one.answer.text, one.answer.ended) for one in policy.rollouts[place]] for policy in policies]
        for place in range(len(asked))
    ]
    tasks = [
        question.task(answer for own in groups for answer in own)
        for question, groups in zip(asked, said, strict=True)
    ]
    rows = reward.scores(tasks)
    if [len(row) for row in rows] != [len(task.answers) for task in tasks]:
        raise UserError(f"{reward.name}: a reward returns one score for each answer of each task")
    _refuse_what_is_no_number(reward.name, rows)
    found: dict[str, list[Row]] = {policy.name: [] for policy in policies}
    for row, groups in zip(rows, said, strict=True):
        left = iter(row)
        for policy, own in zip(policies, groups, strict=True):
            found[policy.name].append(tuple(next(left) for _ in own))
    return {name: tuple(own) for name, own in found.items()}


def mean_worth(worth: Worth | None, resampling: Resampling) -> Estimate | None:
    """Over the answers that have a verdict; None where none has."""
    if worth is None:
        return None
    flat = [score for row in worth for score in row]
    told_B = np.array([score is not None for score in flat], dtype=bool)
    if not told_B.any():
        return None
    score_B = np.array([score for score in flat if score is not None], dtype=float)
    share = bool(((score_B >= 0) & (score_B <= 1)).all())
    return estimate(score_B, places(worth)[told_B], resampling, share=share)


def by_category(worth: Worth | None, asked: Sequence[Asked], resampling: Resampling) -> tuple[Part, ...]:
    """The same of each kind of question, in the order in which they are met; empty with fewer than two."""
    kinds = dict.fromkeys(one.category for one in asked if one.category is not None)
    if worth is None or len(kinds) < 2:
        return ()
    found = (
        (
            kind,
            mean_worth(
                tuple(w for w, one in zip(worth, asked, strict=True) if one.category == kind), resampling
            ),
        )
        for kind in kinds
    )
    return tuple(Part(name=kind, value=value) for kind, value in found if value is not None)


def missing(worth: Worth | None) -> int:
    """Answers without a verdict."""
    return 0 if worth is None else sum(score is None for row in worth for score in row)


def _refuse_what_is_no_number(name: str, rows: Sequence[Row]) -> None:
    for number, row in enumerate(rows, 1):
        for score in row:
            if score is not None and not math.isfinite(score):
                raise UserError(
                    f"{name} gave {score} to an answer to prompt {number}; a score is a finite number or None"
                )
