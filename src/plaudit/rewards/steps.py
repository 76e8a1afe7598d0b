"""Solutions in steps: where each step ends among the tokens, and one number made of its steps' scores.

Process reward models are taught and asked at the last token of each step (Lightman et al. 2023,
arXiv:2305.20050). The answer is the steps, a line each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from plaudit.batches.judged import Labelled, encode_judged
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.records.feedback import Steps
from plaudit.records.judging import Task
from plaudit.records.messages import Text
from plaudit.rewards.reward import Row
from plaudit.rewards.step_pay import StepRow, lines_of

Reading = Literal["product", "min", "last"]
"""The chance that every step is right, the weakest step's, or the last one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A problem and the steps of an answer to it.

    Example: ``Solution(prompt="Solve 2x = 6.", steps=("Divide by 2.", "x = 3."))``
    """

    prompt: Text
    """The problem."""
    steps: tuple[str, ...]
    """The steps, in order."""


@runtime_checkable
class ScoresSteps(Protocol):
    """Whatever gives each step of a solution its log-odds of being right."""

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        ...

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many solutions it held for."""
        ...

    def steps(self, solutions: Sequence[Solution]) -> tuple[tuple[float, ...] | None, ...]:
        """A score for each step of each solution."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReward:
    """A process reward model as a reward of whole answers, each line of which is a step.

    Example: ``StepReward(model=LearnedReward("steps", model, encoder), reading="product")``
    """

    model: ScoresSteps
    """Scores the steps."""
    reading: Reading = "product"
    """How one number is made of them; Lightman et al. take the product."""

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        return self.model.name

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers it held for."""
        return self.model.refused

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task, of chances from 0 to 1."""
        read = READINGS[self.reading]
        rows = self.step_scores(tasks, odds=True)
        return tuple(tuple(None if own is None else read(own) for own in row) for row in rows)

    def step_scores(self, tasks: Sequence[Task], *, odds: bool = False) -> tuple[StepRow, ...]:
        """A row for each task: of every step of every answer the chance that it is right, or its log-odds."""
        solutions = [
            Solution(prompt=task.prompt, steps=lines_of(answer)) for task in tasks for answer in task.answers
        ]
        said = iter(self.model.steps(solutions))
        if not odds:
            said = (None if own is None else tuple(map(_chance, own)) for own in said)
        return tuple(tuple(next(said) for _ in task.answers) for task in tasks)


def product(logit_C: Sequence[float]) -> float:
    """Π σ(l): the chance that every step is right (Lightman et al. 2023).

    >>> product([0.0, 0.0])
    0.25
    """
    return math.prod(map(_chance, logit_C))


def least(logit_C: Sequence[float]) -> float:
    """min σ(l): a solution is as good as its weakest step.

    >>> least([0.0, 5.0])
    0.5
    """
    return _chance(min(logit_C))


def last(logit_C: Sequence[float]) -> float:
    """σ(l) of the last step alone, as a model of outcomes would say it.

    >>> last([5.0, 0.0])
    0.5
    """
    return _chance(logit_C[-1])


READINGS: dict[Reading, Callable[[Sequence[float]], float]] = {
    "product": product,
    "min": least,
    "last": last,
}
"""Each way to make one number of the steps' scores."""


def encode_steps(solution: Solution, encoder: Encoder) -> tuple[Example, tuple[int, ...]]:
    """The solution as tokens, exactly as in training, and for each step the place of its last token."""
    if not solution.steps:
        raise UserError("a solution needs a step; leave out this row")
    told = Steps(prompt=solution.prompt, steps=solution.steps, labels=(0.0,) * len(solution.steps))
    encoding = encode_judged([told], encoder)
    for refused in encoding.refused:
        raise UserError(refused.reason)
    [row] = encoding.examples
    assert isinstance(row.said, Labelled)
    return row.example, row.said.ends


def _chance(logit: float) -> float:
    """σ, without overflow."""
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0
