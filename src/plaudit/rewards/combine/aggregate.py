"""Several rewards asked together, their scores put together as one.

They form ensembles (mean, min, mean − k·std), weighted sums or gates. M members, N answers; arithmetic on
``[M, N]``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.data.records import Task
from plaudit.errors import UserError
from plaudit.models.reward_model import Normalisation
from plaudit.rewards.base import Reward, RewardTraits, TaskScores
from plaudit.rewards.combine.cascade import merge_refusal_reasons

Aggregation = Literal["mean", "min", "cautious", "weighted", "gated"]


def standardise(
    reward_MN: Float[Tensor, "M N"], offset_M: Float[Tensor, " M"], scale_M: Float[Tensor, " M"]
) -> Float[Tensor, "M N"]:
    """(r − μ) / s of each member: level and unit of a reward mean nothing, so two do not compare as is."""
    return (reward_MN - offset_M[:, None]) / scale_M[:, None]


def mean(reward_MN: Float[Tensor, "M N"]) -> Float[Tensor, " N"]:
    """1/M Σ r: errors of the members that are independent cancel."""
    return reward_MN.mean(0)


def minimum(reward_MN: Float[Tensor, "M N"]) -> Float[Tensor, " N"]:
    """min r: an answer is worth what its sternest member says.
    Worst-case optimisation of Coste et al. 2023, arXiv:2310.02743.

    >>> minimum(torch.tensor([[1.0], [3.0]]))
    tensor([1.])
    """
    return reward_MN.amin(0)


def cautious(reward_MN: Float[Tensor, "M N"], k: int | float) -> Float[Tensor, " N"]:
    """mean − k · std: what the members disagree on counts for less.
    Coste et al. 2023 (arXiv:2310.02743) take away the variance; the standard deviation has the reward's own
    unit, so that k means the same for every reward.

    >>> cautious(torch.tensor([[1.0], [3.0]]), 0.5)
    tensor([1.5000])
    """
    return reward_MN.mean(0) - k * disagreement(reward_MN)


def weighted(reward_MN: Float[Tensor, "M N"], weight_M: Float[Tensor, " M"]) -> Float[Tensor, " N"]:
    """Σ w r; what has no weight may be anything, even not a number."""
    counts_M = weight_M != 0
    return (weight_M[counts_M, None] * reward_MN[counts_M]).sum(0)


def gated(
    gate_N: Float[Tensor, " N"], reward_N: Float[Tensor, " N"], *, below: int | float
) -> Float[Tensor, " N"]:
    """The gate's own score where it is below the threshold, the reward elsewhere.
    With safety as the gate and helpfulness as the reward, what is unsafe cannot be made up for. Touvron et
    al. 2023 (Llama 2, arXiv:2307.09288), whose threshold is a chance of 0.15: log-odds of −1.73.

    >>> gated(torch.tensor([-2.0, 1.0]), torch.tensor([9.0, 9.0]), below=0.0)
    tensor([-2.,  9.])
    """
    return torch.where(gate_N < below, gate_N, reward_N)


def disagreement(reward_MN: Float[Tensor, "M N"]) -> Float[Tensor, " N"]:
    """The standard deviation over the members, of those that there are (1/M)."""
    return (reward_MN - reward_MN.mean(0)).square().mean(0).sqrt()


def preference_disagreement(
    first_MB: Float[Tensor, "M B"], second_MB: Float[Tensor, "M B"]
) -> Float[Tensor, " B"]:
    """The standard deviation over the members of σ(r₁ − r₂), the chance that the first is better.

    The pair with the largest is the one to ask a person about (Christiano et al. 2017, arXiv:1706.03741); a
    member's own level does not count in it.

    >>> preference_disagreement(torch.tensor([[0.0], [5.0]]), torch.tensor([[0.0], [5.0]]))
    tensor([0.])
    """
    return disagreement((first_MB - second_MB).sigmoid())


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """How the scores of several rewards become one; an option that an aggregation does not use is None.
    Example: ``Combination(how="cautious", k=1.0)``, ``Combination(how="gated", gate=0, below=-1.7)``."""

    how: Aggregation
    weights: tuple[int | float, ...] | None = None
    """For ``weighted``: one a member, in their order."""
    k: int | float | None = None
    """For ``cautious``: how many standard deviations are taken away."""
    gate: int | None = None
    """For ``gated``: which of the two members decides, 0 or 1."""
    below: int | float | None = None
    """For ``gated``: under this score the gate's own is what counts."""
    normal: tuple[Normalisation, ...] | None = None
    """What is done to each member first; None takes them as they are."""

    def __post_init__(self) -> None:
        for name in ("weights", "k", "gate", "below"):
            is_used, is_set = name in AGGREGATION_OPTIONS[self.how], getattr(self, name) is not None
            if is_used and not is_set:
                raise UserError(f"{self.how} needs {name}; on the command line --{name}")
            if is_set and not is_used:
                suggestion = next(how for how, used_by in AGGREGATION_OPTIONS.items() if name in used_by)
                raise UserError(
                    f"{name} says nothing to {self.how}; leave it out, or combine by --how {suggestion}"
                )
        for number in (*(self.weights or ()), self.k, self.below):
            if number is not None and not math.isfinite(number):
                raise UserError(f"{self.how}: {number} is not a finite number")
        if self.k is not None and self.k < 0:
            raise UserError(f"cautious: k {self.k} would reward what the members disagree on; 0 or more")

    def refuse_members(self, count: int) -> None:
        """Complain about a number of members that this does not fit."""
        if count < 1:
            raise UserError("a combination needs members; name at least one reward")
        if self.weights is not None and len(self.weights) != count:
            raise UserError(f"{len(self.weights)} weights for {count} rewards; give one weight to each")
        if self.weights is not None and not any(self.weights):
            raise UserError("every weight is 0, so nothing would count; give one reward another weight")
        if self.normal is not None and len(self.normal) != count:
            raise UserError(f"{len(self.normal)} normalisations for {count} rewards; give one to each")
        if self.gate is not None and (count != 2 or self.gate not in (0, 1)):
            raise UserError(
                f"gated takes two rewards, one of them the gate; here are {count}, the gate is {self.gate}"
            )

    def aggregate(self, reward_MN: Float[Tensor, "M N"]) -> Float[Tensor, " N"]:
        """One score an answer, of members in one unit; not a number where one that is needed is not."""
        return _AGGREGATIONS[self.how](self, reward_MN)

    def normalise(self, reward_MN: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
        """The members' scores, each brought to its unit by its normalisation."""
        if self.normal is None:
            return reward_MN
        offset_scale_M2 = reward_MN.new_tensor([(normal.offset, normal.scale) for normal in self.normal])
        return standardise(reward_MN, offset_scale_M2[:, 0], offset_scale_M2[:, 1])


AGGREGATION_OPTIONS: Mapping[Aggregation, tuple[str, ...]] = {
    "mean": (),
    "min": (),
    "cautious": ("k",),
    "weighted": ("weights",),
    "gated": ("gate", "below"),
}


def _aggregate_cautious(combination: Combination, reward_MN: Tensor) -> Tensor:
    assert combination.k is not None
    return cautious(reward_MN, combination.k)


def _aggregate_gated(combination: Combination, reward_MN: Tensor) -> Tensor:
    assert combination.gate is not None
    assert combination.below is not None
    gate_N = reward_MN[combination.gate]
    result_N = gated(gate_N, reward_MN[1 - combination.gate], below=combination.below)
    # What is not a number is below nothing: without the gate's verdict there is none.
    return torch.where(gate_N.isnan(), gate_N, result_N)


_AGGREGATIONS: Mapping[Aggregation, Callable[[Combination, Tensor], Tensor]] = {
    "mean": lambda _, reward_MN: mean(reward_MN),
    "min": lambda _, reward_MN: minimum(reward_MN),
    "cautious": _aggregate_cautious,
    "weighted": lambda combination, reward_MN: weighted(reward_MN, reward_MN.new_tensor(combination.weights)),
    "gated": _aggregate_gated,
}


def normalisations_from_scores(
    names: Sequence[str], reward_MN: Float[Tensor, "M N"]
) -> tuple[Normalisation, ...]:
    """What gives each member's scores of some answers the mean 0 and the standard deviation 1.

    >>> normalisations_from_scores(["one"], torch.tensor([[1.0, 5.0]]))
    (Normalisation(offset=3.0, scale=2.0),)
    """
    spread_M = reward_MN.std(1, correction=0)
    for name, spread in zip(names, spread_M.tolist(), strict=True):
        if not spread > 0:
            raise UserError(f"{name} scores all the answers alike, so there is nothing to bring to one unit")
    means = reward_MN.mean(1).tolist()
    return tuple(Normalisation(offset=m, scale=s) for m, s in zip(means, spread_M.tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedReward:
    name: str
    members: tuple[Reward, ...]
    combination: Combination

    def __post_init__(self) -> None:
        self.combination.refuse_members(len(self.members))

    @property
    def traits(self) -> RewardTraits:
        return RewardTraits(members=self.members)

    @property
    def refused(self) -> Mapping[str, int]:
        return merge_refusal_reasons(self.members)

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """A row for each task; None where a member that is needed has no verdict."""
        return self._aggregate_rows(tasks, self.combination.aggregate)

    def disagreement(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """For each answer the standard deviation over the members; None where one has no verdict."""
        return self._aggregate_rows(tasks, disagreement)

    def _aggregate_rows(
        self, tasks: Sequence[Task], aggregate: Callable[[Tensor], Tensor]
    ) -> tuple[TaskScores, ...]:
        numbers = iter(aggregate(self.combination.normalise(_score_all(self.members, tasks))).tolist())
        return tuple(
            tuple(None if math.isnan(value := next(numbers)) else value for _ in task.answers)
            for task in tasks
        )


def fit_normalisations(members: Sequence[Reward], tasks: Sequence[Task]) -> tuple[Normalisation, ...]:
    """What gives each member the mean 0 and the standard deviation 1 on the answers that all can score."""
    reward_MN = _score_all(members, tasks)
    # Of what every member scored: means over different answers would not compare.
    complete_N = ~reward_MN.isnan().any(0)
    if int(complete_N.sum()) < 2:
        raise UserError(
            "fewer than two answers are scored by every reward, so they have no spread; give more rows"
        )
    return normalisations_from_scores([member.name for member in members], reward_MN[:, complete_N])


def _score_all(members: Sequence[Reward], tasks: Sequence[Task]) -> Float[Tensor, "M N"]:
    """Every member's scores of every answer; not a number where there is no verdict."""
    rows_by_member = [member.scores(tasks) for member in members]
    # No verdict travels as NaN, which means, minima and sums hand on of themselves.
    flat = [[math.nan if v is None else v for row in rows for v in row] for rows in rows_by_member]
    return torch.tensor(flat, dtype=torch.float64)


class RunningScale:
    """Brings scores to the mean 0 and the standard deviation 1 of all that were taken in so far.
    Welford's recurrence, in float64; batches are merged as in Chan, Golub and LeVeque 1983. Reward scaling as
    an unwritten part of PPO: Engstrom et al. 2020, arXiv:2005.12729.
    Example: ``scale.update(score_N)``, then ``scale.of(score_N)``; a checkpoint keeps ``scale.tensors()``."""

    def __init__(self, *, shift: bool = True, floor: float = 1e-6) -> None:
        """Without ``shift`` only the scale changes, so that the sign of a score keeps its meaning."""
        self._shift, self._floor = shift, floor
        # Squared distances from the mean, not Σ r²: the latter cancels where the mean is far from 0.
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    @property
    def mean(self) -> float:
        """Of all scores so far; 0 before the first."""
        return self._mean

    @property
    def deviation(self) -> float:
        """Of all scores so far, of those that there are (1/n); 1 before the second."""
        return (self._squares / self._count) ** 0.5 if self._count > 1 else 1.0

    def update(self, score_N: Float[Tensor, " N"]) -> None:
        """Count these scores; every rank gives those of the whole batch, so that all stay alike."""
        # One NaN or infinity would stay in the running moments for the rest of the run.
        finite = score_N[score_N.isfinite()].double()
        count = finite.numel()
        if not count:
            return
        mean = float(finite.mean())
        difference, total = mean - self._mean, self._count + count
        # Chan's term δ² n_A n_B / n: what the distance of the two means adds to the squares within each.
        self._squares += (
            float((finite - mean).square().sum()) + difference * difference * self._count * count / total
        )
        self._mean += difference * count / total
        self._count = total

    def normalise(self, score_N: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        """The scores in the running unit, (r − mean) / deviation."""
        # While all scores are alike their deviation is 0; the floor keeps the quotient finite.
        return (score_N - (self._mean if self._shift else 0.0)) / max(self.deviation, self._floor)

    def tensors(self) -> Mapping[str, Tensor]:
        """The count, mean and sum of squares, for a checkpoint."""
        values = [float(self._count), self._mean, self._squares]
        return {"scale": torch.tensor(values, dtype=torch.float64)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        count, self._mean, self._squares = tensors["scale"].tolist()
        self._count = int(count)
