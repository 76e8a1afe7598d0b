"""A rule as a reward: something that looks at one answer and knows, or says why it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from plaudit.records.judging import Task
from plaudit.records.messages import words
from plaudit.rewards.reward import Row

RIGHT = 1.0
"""The score of an answer that is right."""
WRONG = 0.0
"""The score of one that is wrong; not knowing is None."""
NO_TRUTH = "the row has no reference answer to compare with (its field `answer`)"
"""Said where there is nothing to check against."""

Found = float | str
"""A score, or the reason for having none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A function of an answer's words and its task, as a reward; remembers why it had no verdict.

    Example: ``Rule(name="polite", check=lambda said, task: verdict("please" in said))``
    """

    name: str
    """What tables and pages call it."""
    check: Callable[[str, Task], Found]
    """A score, or the reason for having none."""
    reasons: Counter[str] = field(default_factory=Counter[str], compare=False)
    """Filled as answers come."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers it held for so far."""
        return dict(self.reasons)

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task."""
        return tuple(tuple(self._score(words(answer), task) for answer in task.answers) for task in tasks)

    def _score(self, said: str, task: Task) -> float | None:
        found = self.check(said, task)
        if isinstance(found, str):
            self.reasons[found] += 1
            return None
        return found


def verdict(right: bool) -> float:
    """1.0 for right and 0.0 for wrong.

    >>> verdict(True), verdict(False)
    (1.0, 0.0)
    """
    return RIGHT if right else WRONG
