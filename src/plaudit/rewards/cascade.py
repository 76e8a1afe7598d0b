"""Several sources as one reward, cheap and certain ones first: a cascade that routes, a blend that weighs.

Both keep what every part said, for the log: one number hides which part is being learned, and gamed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from plaudit.errors import UserError
from plaudit.records.judging import Task
from plaudit.rewards.asking import reasons_of
from plaudit.rewards.reward import Reward, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """Scores and what they are made of.

    Example: ``Parted(rows=((1.0, 0.3),), parts={"rule": ((1.0, None),), "model": ((None, 0.3),)})``
    """

    rows: tuple[Row, ...]
    """A row for each task."""
    parts: Mapping[str, tuple[Row, ...]]
    """What each part said, by its name; None where it was not asked or had no verdict."""


@runtime_checkable
class KeepsParts(Protocol):
    """A reward that can say what its scores are made of."""

    def parted(self, tasks: Sequence[Task]) -> Parted:
        """The scores and their parts."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One source of a cascade.

    Example: ``Tier(reward=reward_model, sure=1.0)``
    """

    reward: Reward
    """Who is asked."""
    sure: int | float | None = None
    """A score nearer to 0 than this is not confident, and the next tier is asked; None trusts every score."""

    def __post_init__(self) -> None:
        """Refuse a threshold that is none."""
        if self.sure is not None and not (math.isfinite(self.sure) and self.sure >= 0):
            raise UserError(f"{self.reward.name}: sure of {self.sure}; give a number of 0 or more, or None")

    def decides(self, score: float | None) -> bool:
        """Whether no further tier is needed."""
        return score is not None and (self.sure is None or abs(score) >= self.sure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """Tiers in order, each asked only for the answers that those above were not confident about.

    Where no tier is confident, the last one that said anything at all counts. The scores of all tiers are
    taken as they are: bring them to one unit first, or an answer gains by which tier happens to judge it.

    Example: ``Cascade(name="checked", tiers=(Tier(reward=exact()), Tier(reward=model)))``
    """

    name: str
    """What tables and pages call it."""
    tiers: tuple[Tier, ...]
    """The first is asked about everything."""

    def __post_init__(self) -> None:
        """Refuse nothing, and parts that cannot be told apart."""
        _refuse_names(self.name, [tier.reward for tier in self.tiers])

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason of a part for having had no verdict, with its name, and for how many answers."""
        return _reasons([tier.reward for tier in self.tiers])

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task; None where no tier had a verdict."""
        return self.parted(tasks).rows

    def parted(self, tasks: Sequence[Task]) -> Parted:
        """The scores and what each tier said."""
        rows: list[list[float | None]] = [[None] * len(task.answers) for task in tasks]
        open_places = [[True] * len(task.answers) for task in tasks]
        parts: dict[str, tuple[Row, ...]] = {}
        for tier in self.tiers:
            said = _asked(tier.reward, tasks, open_places)
            parts[tier.reward.name] = said
            for t, row in enumerate(said):
                for a, score in enumerate(row):
                    if score is not None:
                        rows[t][a] = score
                    open_places[t][a] &= not tier.decides(score)
        return Parted(rows=tuple(map(tuple, rows)), parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend:
    """A weighted sum, with weights that sum to 1.

    An answer that one part has no verdict on has none. Sharing the missing weight out over the others would
    put the answers of one group on different scales, and a policy could gain by making a stern part fail.

    Example: ``Blend(name="both", rewards=(rule, model), weights=(0.7, 0.3))``
    """

    name: str
    """What tables and pages call it."""
    rewards: tuple[Reward, ...]
    """Each is asked about every answer."""
    weights: tuple[int | float, ...]
    """One a reward, none below 0; the sum is 1."""

    def __post_init__(self) -> None:
        """Refuse weights that are no shares."""
        _refuse_names(self.name, self.rewards)
        if len(self.weights) != len(self.rewards):
            raise UserError(f"{self.name}: {len(self.weights)} weights for {len(self.rewards)} rewards")
        if not all(weight >= 0 for weight in self.weights) or not math.isclose(sum(self.weights), 1):
            raise UserError(
                f"{self.name}: the weights {self.weights} sum to {sum(self.weights):g}; give shares of 1, "
                "none of them below 0"
            )

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason of a part for having had no verdict, with its name, and for how many answers."""
        return _reasons(self.rewards)

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task; None where a part has no verdict."""
        return self.parted(tasks).rows

    def parted(self, tasks: Sequence[Task]) -> Parted:
        """The scores and what each part said."""
        said = [reward.scores(tasks) for reward in self.rewards]
        rows = tuple(
            tuple(self._sum([rows[t][a] for rows in said]) for a in range(len(task.answers)))
            for t, task in enumerate(tasks)
        )
        return Parted(rows=rows, parts=dict(zip([one.name for one in self.rewards], said, strict=True)))

    def _sum(self, scores: Sequence[float | None]) -> float | None:
        known = [score for score in scores if score is not None]
        if len(known) < len(scores):
            return None
        return float(sum(weight * score for weight, score in zip(self.weights, known, strict=True)))


def _asked(reward: Reward, tasks: Sequence[Task], wanted: Sequence[Sequence[bool]]) -> tuple[Row, ...]:
    """What the reward says of the answers that are wanted; None elsewhere."""
    asked = [
        (_only(task, row), t) for t, (task, row) in enumerate(zip(tasks, wanted, strict=True)) if any(row)
    ]
    said = dict(zip([t for _, t in asked], reward.scores([task for task, _ in asked]), strict=True))
    found: list[Row] = []
    for t, row in enumerate(wanted):
        scores = iter(said.get(t, ()))
        found.append(tuple(next(scores) if one else None for one in row))
    return tuple(found)


def _only(task: Task, wanted: Sequence[bool]) -> Task:
    places = [a for a, one in enumerate(wanted) if one]
    return replace(
        task,
        answers=tuple(task.answers[a] for a in places),
        ended=tuple(task.ended[a] for a in places),
    )


def _refuse_names(name: str, rewards: Sequence[Reward]) -> None:
    names = [reward.name for reward in rewards]
    if not names:
        raise UserError(f"{name}: nobody to ask; give at least one reward")
    if len({*names}) < len(names):
        raise UserError(f"{name}: two parts have the same name ({', '.join(names)}); give each its own")


def _reasons(rewards: Sequence[Reward]) -> Mapping[str, int]:
    counts = Counter[str]()
    for reward in rewards:
        counts.update({f"{reward.name}: {why}": n for why, n in reasons_of(reward).items()})
    return dict(counts)
