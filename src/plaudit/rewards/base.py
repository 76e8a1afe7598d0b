"""What scores answers, whatever it is: a learned model, several of them, a rule, a person's function.

A rule looks at one answer and knows its score, or says why it does not.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import ClassVar, Literal, Protocol, runtime_checkable

from plaudit.data.records import Task, Text, plain_text
from plaudit.errors import UserError

StepPayKind = Literal["score", "odds", "min", "product", "last"]
"""Each step's own score, its log-odds, or by how much it changes one number of all steps so far."""
ADDITIVE_PAYS: tuple[StepPayKind, ...] = ("score", "odds")
"""Payments that grow with the number of steps; those of the others add up to one number of all steps."""

TaskScores = tuple[float | None, ...]
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

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """A row for each task."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardTraits:
    """What a reward says of itself, so that nobody needs to know its class.

    Example: ``RewardTraits(exact=True)``
    """

    members: tuple[Reward, ...] = ()
    """The rewards that it is made of; none where it is made of no others."""
    exact: bool = False
    """Whether the score of an answer is the same number, bit for bit, whatever is asked along with it."""
    remote: bool = False
    """Whether each question goes to somebody else's machine, and may cost money."""
    compares_answers: bool = False
    """Whether a score depends on the other answers to the same prompt."""


@runtime_checkable
class HasTraits(Protocol):
    @property
    def traits(self) -> RewardTraits: ...


def traits_of(reward: Reward) -> RewardTraits:
    """What a reward says of itself, or that nothing is known of it."""
    return reward.traits if isinstance(reward, HasTraits) else RewardTraits()


def leaf_rewards(reward: Reward) -> Iterator[Reward]:
    """The rewards that a reward is made of, recursively; itself where it is made of no others."""
    members = traits_of(reward).members
    if not members:
        yield reward
    for member in members:
        yield from leaf_rewards(member)


def compares_answers(reward: object) -> bool:
    """Whether a score depends on the other answers to a prompt, in any part of a reward."""
    leaves = leaf_rewards(reward) if isinstance(reward, Reward) else ()
    return any(traits_of(leaf).compares_answers for leaf in leaves)


def checked_scores(reward: Reward, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
    """What a reward says of every answer: a finite number or None for each, and anything else is refused."""
    rows = reward.scores(tasks)
    if [len(row) for row in rows] != [len(task.answers) for task in tasks]:
        raise UserError(f"{reward.name}: a reward returns one score for each answer of each task")
    for number, row in enumerate(rows, 1):
        for score in row:
            if score is not None and not math.isfinite(score):
                raise UserError(
                    f"{reward.name} gave {score} to an answer to prompt {number}; a score is a finite number "
                    "or None"
                )
    return tuple(rows)


@runtime_checkable
class HasRefusalReasons(Protocol):
    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason, and how many answers it held for so far."""
        ...


def refusal_counts(reward: object) -> Mapping[str, int]:
    """Why the reward had no verdict so far, where it remembers; nothing of one that does not."""
    # A copy: what was counted so far is not to grow with what is counted later.
    return dict(reward.refused) if isinstance(reward, HasRefusalReasons) else {}


def refusal_reasons(counts: Mapping[str, int]) -> str:
    """Why answers had no verdict so far, in brackets; nothing where all had one.

    >>> refusal_reasons({"too long": 2})
    ' (2 × too long)'
    """
    return f" ({'; '.join(f'{count} × {why}' for why, count in counts.items())})" if counts else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionReward:
    """A function of a prompt and one answer, as a reward.

    Example: ``FunctionReward(name="short", function=lambda prompt, answer: -float(len(answer)))``
    """

    name: str
    """What tables and pages call it."""
    function: Callable[[Text, Text], float | None]
    """From a prompt and an answer to a score, or None where it has no verdict."""
    traits: ClassVar[RewardTraits] = RewardTraits(exact=True)
    """What it says of itself."""

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """A row for each task."""
        return tuple(tuple(self._score(task.prompt, answer) for answer in task.answers) for task in tasks)

    def _score(self, prompt: Text, answer: Text) -> float | None:
        score = self.function(prompt, answer)
        if score is None:
            return None
        number = float(score)
        if not math.isfinite(number):
            raise UserError(f"{self.name} gave {number} for {str(answer)[:60]!r}; it is finite, or None")
        return number


RIGHT = 1.0
WRONG = 0.0
"""The score of one that is wrong; not knowing is None."""
NO_TRUTH = "the row has no reference answer to compare with (its field `answer`)"

ScoreOrReason = float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleReward:
    """A function of an answer's words and its task, as a reward; remembers why it had no verdict."""

    name: str
    check: Callable[[str, Task], ScoreOrReason]
    traits: ClassVar[RewardTraits] = RewardTraits(exact=True)
    refused: Counter[str] = field(default_factory=Counter[str], compare=False)
    """How often each reason for having no verdict occurred; counted while answers are scored."""

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        return tuple(
            tuple(self._score(plain_text(answer), task) for answer in task.answers) for task in tasks
        )

    def _score(self, text: str, task: Task) -> float | None:
        result = self.check(text, task)
        if isinstance(result, str):
            self.refused[result] += 1
            return None
        return result


def binary_score(right: bool) -> float:
    return RIGHT if right else WRONG


def mean_if_complete(points: Sequence[float | None]) -> float | None:
    present = [point for point in points if point is not None]
    return fmean(present) if present and len(present) == len(points) else None
