"""What scores answers, whatever it is: a learned model, several of them, a rule, a person's function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from plaudit.errors import UserError
from plaudit.records.judging import Task
from plaudit.records.messages import Text

Row = tuple[float | None, ...]
"""The scores of the answers of one task, in their order; None is no verdict, which is never 0."""


@runtime_checkable
class Reward(Protocol):
    """Scores every answer of every task; higher is better.

    A score does not depend on which other tasks are asked along with it.
    """

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        ...

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionReward:
    """A function of a prompt and one answer, as a reward.

    Example: ``FunctionReward(name="short", function=lambda prompt, answer: -float(len(answer)))``
    """

    name: str
    """What tables and pages call it."""
    function: Callable[[Text, Text], float | None]
    """From a prompt and an answer to a score, or None where it has no verdict."""

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task."""
        return tuple(tuple(self._score(task.prompt, answer) for answer in task.answers) for task in tasks)

    def _score(self, prompt: Text, answer: Text) -> float | None:
        score = self.function(prompt, answer)
        if score is None:
            return None
        number = float(score)
        if not math.isfinite(number):
            raise UserError(
                f"{self.name} gave {number} for {str(answer)[:60]!r}; a score is a finite number, or None"
            )
        return number
