"""Several rewards asked together, and what they say as one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.errors import UserError
from plaudit.models.reward import Normalisation
from plaudit.records.judging import Task
from plaudit.rewards.asking import reasons_of
from plaudit.rewards.manners import Combination, disagreement, levels
from plaudit.rewards.reward import Reward, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedReward:
    """Several rewards as one.

    Example: ``CombinedReward(name="safe", members=(one, other), combination=Combination(how="min"))``
    """

    name: str
    """What tables and pages call it."""
    members: tuple[Reward, ...]
    """Each is asked about every answer."""
    combination: Combination
    """How their scores become one."""

    def __post_init__(self) -> None:
        """Refuse members that the combination does not fit."""
        self.combination.refuse_members(len(self.members))

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason of a member for having had no verdict, with its name, and for how many answers."""
        counts = Counter[str]()
        for member in self.members:
            counts.update({f"{member.name}: {why}": n for why, n in reasons_of(member).items()})
        return dict(counts)

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task; None where a member that is needed has no verdict."""
        return self._rows(tasks, self.combination.of)

    def disagreement(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """For each answer the standard deviation over the members; None where one has no verdict."""
        return self._rows(tasks, disagreement)

    def _rows(self, tasks: Sequence[Task], one: Callable[[Tensor], Tensor]) -> tuple[Row, ...]:
        reward_MN = _asked(self.members, tasks)
        numbers = iter(one(self.combination.normalised(reward_MN)).tolist())
        return tuple(
            tuple(None if math.isnan(v := next(numbers)) else v for _ in task.answers) for task in tasks
        )


def normalisations(members: Sequence[Reward], tasks: Sequence[Task]) -> tuple[Normalisation, ...]:
    """What gives each member the mean 0 and the standard deviation 1 on the answers that all can score."""
    reward_MN = _asked(members, tasks)
    whole_N = ~reward_MN.isnan().any(0)
    if int(whole_N.sum()) < 2:
        raise UserError(
            "fewer than two answers are scored by every reward, so they have no spread; give more rows"
        )
    return levels([member.name for member in members], reward_MN[:, whole_N])


def _asked(members: Sequence[Reward], tasks: Sequence[Task]) -> Float[Tensor, "M N"]:
    """Every member's scores of every answer; not a number where there is no verdict."""
    said = [member.scores(tasks) for member in members]
    flat = [[math.nan if v is None else v for row in rows for v in row] for rows in said]
    return torch.tensor(flat, dtype=torch.float64)
