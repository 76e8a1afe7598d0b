"""What the steps of an answer are worth, one by one: a process reward; importing this does not import torch.

A step is a line that holds a word. A payment for each step is made of the steps' scores in one of several
ways (``StepPayKind``), and an answer is worth the sum of its payments.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, Protocol, runtime_checkable

from plaudit.data.records import Task, Text, plain_text
from plaudit.errors import UserError

StepPayKind = Literal["score", "odds", "min", "product", "last"]
"""Each step's own score, its log-odds, or by how much it changes one number of all steps so far."""


TaskStepScores = tuple[tuple[float, ...] | None, ...]


ADDITIVE_PAYS: tuple[StepPayKind, ...] = ("score", "odds")
"""Payments that grow with the number of steps; those of the others add up to one number of all steps."""


_RUNNING_VALUE: Mapping[StepPayKind, Callable[[float, float], float]] = {
    "min": min,
    "product": operator.mul,
    "last": lambda before, now: now,
}
"""The number of all steps so far, from that of those before and the newest score."""


@runtime_checkable
class StepScoringReward(Protocol):
    """A reward that can be asked for a score of each step."""

    @property
    def name(self) -> str: ...

    def step_scores(self, tasks: Sequence[Task], *, odds: bool = False) -> tuple[TaskStepScores, ...]:
        """A row for each task; ``odds`` asks for log-odds in place of chances."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPayments:
    """What the steps of an answer were paid, and where."""

    ends: tuple[int, ...]
    """The last token of each step, counted from the answer's first; steps may end at the same one."""
    scores: tuple[float, ...]
    paid: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPayRule:
    pay: StepPayKind
    """How a step's score becomes its reward."""
    baseline: int | float = 0.0
    """What is taken off the score of each step; only where scores are paid themselves."""
    weight: int | float = 1.0

    def payments(self, scores: Sequence[float]) -> tuple[float, ...]:
        """One for each step.

        >>> StepPayRule(pay="score", baseline=0.5).payments([1.0, 0.25])
        (0.5, -0.25)
        >>> StepPayRule(pay="min").payments([0.75, 1.0, 0.5])
        (0.75, 0.0, -0.25)
        """
        if self.pay in ADDITIVE_PAYS:
            return tuple(self.weight * (score - self.baseline) for score in scores)
        # Differences telescope: together they pay the last value, however many steps there are.
        so_far = self._running_values(scores)
        return tuple(self.weight * (now - before) for before, now in pairwise([0.0, *so_far]))

    def total(self, scores: Sequence[float]) -> float:
        """The sum of the step rewards.

        >>> StepPayRule(pay="product").total([0.5, 0.5])
        0.25
        """
        if self.pay in ADDITIVE_PAYS:
            return math.fsum(self.payments(scores))
        return self.weight * self._running_values(scores)[-1]

    def check_scores(self, scores: Sequence[float], where: str) -> None:
        """Complain about scores that this scheme cannot reward: not finite, or no probabilities."""
        for score in scores:
            if not math.isfinite(score):
                raise UserError(f"{where}: a step has the score {score}; a score is a finite number")
            if self.pay == "product" and not 0 <= score <= 1:
                raise UserError(
                    f"{where}: a step has the score {score}, and a product is that of chances from 0 to 1; "
                    "use --process.pay min, last or score"
                )

    def _running_values(self, scores: Sequence[float]) -> tuple[float, ...]:
        return tuple(accumulate(scores, _RUNNING_VALUE[self.pay]))


def step_lines(answer: Text) -> tuple[str, ...]:
    return tuple(line.strip() for line in plain_text(answer).splitlines() if line.strip())
