"""Several sources as one reward, cheap and certain ones first: a cascade that routes, a blend that weighs.

Both keep what every part said, for the log: one number hides which part is being learned, and gamed.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Protocol, runtime_checkable

from plaudit.data.records import Task
from plaudit.errors import UserError
from plaudit.rewards.base import HasTraits, Reward, RewardTraits, TaskScores, refusal_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoresWithParts:
    rows: tuple[TaskScores, ...]
    parts: Mapping[str, tuple[TaskScores, ...]]
    """What each part said, by its name; None where it was not asked or had no verdict."""


@runtime_checkable
class HasScoreParts(Protocol):
    def scores_with_parts(self, tasks: Sequence[Task]) -> ScoresWithParts: ...


class OfParts:
    """What a reward that is made of others, and keeps what each said, has of its own making."""

    __slots__ = ()

    @property
    def refused(self: HasTraits) -> Mapping[str, int]:
        return merge_refusal_reasons(self.traits.members)

    def scores(self: HasScoreParts, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """A row for each task; None where there is no verdict."""
        return self.scores_with_parts(tasks).rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    reward: Reward
    confidence_threshold: int | float | None = None
    """A score nearer to the centre than this is not confident, and the next tier is asked; None trusts every
    score."""
    centre: int | float = 0.0
    """The score that says nothing: 0 of a reward, 0.5 of a chance."""

    def __post_init__(self) -> None:
        if self.confidence_threshold is not None and not (
            math.isfinite(self.confidence_threshold) and self.confidence_threshold >= 0
        ):
            raise UserError(
                f"{self.reward.name}: sure of {self.confidence_threshold}; give a number of 0 or more, or "
                "None"
            )

    def is_confident(self, score: float | None) -> bool:
        return score is not None and (
            self.confidence_threshold is None or abs(score - self.centre) >= self.confidence_threshold
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade(OfParts):
    """Tiers in order, each asked only for the answers that those above were not confident about.
    Where no tier is confident, the last one that said anything at all counts. The scores of all tiers are
    taken as they are: bring them to one unit first, or an answer gains by which tier happens to judge it."""

    name: str
    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        refuse_duplicate_names(self.name, self.traits.members)

    @property
    def traits(self) -> RewardTraits:
        return RewardTraits(members=tuple(tier.reward for tier in self.tiers))

    def scores_with_parts(self, tasks: Sequence[Task]) -> ScoresWithParts:
        rows: list[list[float | None]] = [[None] * len(task.answers) for task in tasks]
        undecided = [[True] * len(task.answers) for task in tasks]
        deciders: list[list[str | None]] = [[None] * len(task.answers) for task in tasks]
        parts: dict[str, tuple[TaskScores, ...]] = {}
        for tier in self.tiers:
            tier_rows = _scores_of_wanted(tier.reward, tasks, undecided)
            parts[tier.reward.name] = tier_rows
            for t, row in enumerate(tier_rows):
                for a, score in enumerate(row):
                    if score is not None:
                        rows[t][a] = score
                        deciders[t][a] = tier.reward.name
                    # A later tier is not asked about it and says None, which must not undo the decision.
                    undecided[t][a] &= not tier.is_confident(score)
        for name in list(parts):
            # Its mean is the share of answers that this tier decided, which runs show as a figure.
            parts[f"{name} decides"] = tuple(tuple(float(who == name) for who in row) for row in deciders)
        return ScoresWithParts(rows=tuple(map(tuple, rows)), parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend(OfParts):
    """A weighted sum, with weights that sum to 1.
    An answer that one part has no verdict on has none. Sharing the missing weight out over the others would
    put the answers of one group on different scales, and a policy could gain by making a stern part fail."""

    name: str
    rewards: tuple[Reward, ...]
    weights: tuple[int | float, ...]
    """One a reward, none below 0; the sum is 1."""

    def __post_init__(self) -> None:
        refuse_duplicate_names(self.name, self.rewards)
        if len(self.weights) != len(self.rewards):
            raise UserError(f"{self.name}: {len(self.weights)} weights for {len(self.rewards)} rewards")
        if not all(weight >= 0 for weight in self.weights) or not math.isclose(sum(self.weights), 1):
            raise UserError(
                f"{self.name}: the weights {self.weights} sum to {sum(self.weights):g}; give shares of 1, "
                "none of them below 0"
            )

    @property
    def traits(self) -> RewardTraits:
        return RewardTraits(members=self.rewards)

    def scores_with_parts(self, tasks: Sequence[Task]) -> ScoresWithParts:
        rows_by_reward = [reward.scores(tasks) for reward in self.rewards]
        rows = tuple(
            tuple(
                self._weighted_sum([rows[t][a] for rows in rows_by_reward]) for a in range(len(task.answers))
            )
            for t, task in enumerate(tasks)
        )
        parts = dict(zip([reward.name for reward in self.rewards], rows_by_reward, strict=True))
        return ScoresWithParts(rows=rows, parts=parts)

    def _weighted_sum(self, scores: Sequence[float | None]) -> float | None:
        present = [score for score in scores if score is not None]
        if len(present) < len(scores):
            return None
        return float(sum(weight * score for weight, score in zip(self.weights, present, strict=True)))


def _scores_of_wanted(
    reward: Reward, tasks: Sequence[Task], wanted: Sequence[Sequence[bool]]
) -> tuple[TaskScores, ...]:
    selected = [
        (replace(task, answers=tuple(compress(task.answers, row)), ended=tuple(compress(task.ended, row))), t)
        for t, (task, row) in enumerate(zip(tasks, wanted, strict=True))
        if any(row)
    ]
    scores_by_task = dict(
        zip([t for _, t in selected], reward.scores([task for task, _ in selected]), strict=True)
    )
    result: list[TaskScores] = []
    for t, row in enumerate(wanted):
        scores = iter(scores_by_task.get(t, ()))
        result.append(tuple(next(scores) if item else None for item in row))
    return tuple(result)


def refuse_duplicate_names(name: str, rewards: Sequence[Reward]) -> None:
    names = [reward.name for reward in rewards]
    if not names:
        raise UserError(f"{name}: nobody to ask; give at least one reward")
    if len({*names}) < len(names):
        raise UserError(f"{name}: two parts have the same name ({', '.join(names)}); give each its own")


def merge_refusal_reasons(rewards: Sequence[Reward]) -> Mapping[str, int]:
    """Each reason of these rewards for having had no verdict, with the reward's name, and how often."""
    counts = Counter[str]()
    for reward in rewards:
        counts.update({f"{reward.name}: {reason}": n for reason, n in refusal_counts(reward).items()})
    return dict(counts)
