"""Who compares two answers: a reward, with or without noise, or a function of the user's own.

A reward's choice with noise T is Bradley and Terry's (1952): P(a before b) = σ((r_a − r_b) / T).
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args, runtime_checkable

from plaudit.errors import UserError
from plaudit.records.judging import Mark, Task, Verdict
from plaudit.records.messages import words
from plaudit.rewards.named import asked, function_named, is_function, reward_named, taken_by
from plaudit.rewards.reward import Reward

Better = Literal["first", "second", "tie"]
"""What can be said of two answers."""
_CAN_HAVE = ("prompt", "first", "second", "truth", "facts", "seed")
_MUST_TAKE = ("first", "second")
_AT_ONCE = 64


@runtime_checkable
class Comparer(Protocol):
    """Says of each task of two answers which is better."""

    @property
    def name(self) -> str:
        """What notes and rows call it."""
        ...

    def verdicts(self, tasks: Sequence[Task], seeds: Sequence[int]) -> list[Verdict | None]:
        """A verdict for each task, or None where there is none; chance begins at the task's own seed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardComparer:
    """A reward that compares: the answer of the higher score is better, or wins more often.

    Example: ``RewardComparer(reward=reward_named("length:1-20"), noise=0.5)``
    """

    reward: Reward
    """What scores both."""
    noise: int | float = 0.0
    """What the difference of the scores is divided by; at 0 the higher one wins, and equal ones tie."""

    @property
    def name(self) -> str:
        """The reward's."""
        return self.reward.name

    def verdicts(self, tasks: Sequence[Task], seeds: Sequence[int]) -> list[Verdict | None]:
        """None where either answer has no score."""
        parts = (tasks[start : start + _AT_ONCE] for start in range(0, len(tasks), _AT_ONCE))
        scores = [(row[0], row[1]) for part in parts for row in self.reward.scores(part)]
        return [self._verdict(*both, seed) for both, seed in zip(scores, seeds, strict=True)]

    def _verdict(self, first: float | None, second: float | None, seed: int) -> Verdict | None:
        if first is None or second is None:
            return None
        if self.noise:
            chance = first_wins(first - second, self.noise)
            better: Better = "first" if random.Random(seed).random() < chance else "second"
        else:
            better = "tie" if first == second else "first" if first > second else "second"
        return verdict_for(better, annotator=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnComparer:
    """A function of the user's own, called with whichever of prompt, first, second … it takes.

    Example: ``OwnComparer(name="mine.py:terser", function=terser)``
    """

    name: str
    """What notes and rows call it."""
    function: Callable[..., object]
    """To first, second or tie; or to a `Verdict`, or to None where it has none."""

    def __post_init__(self) -> None:
        """Refuse what cannot be called so."""
        taken_by(self.name, self.function, _CAN_HAVE, needed=_MUST_TAKE)

    def verdicts(self, tasks: Sequence[Task], seeds: Sequence[int]) -> list[Verdict | None]:
        """One after another."""
        takes = taken_by(self.name, self.function, _CAN_HAVE, needed=_MUST_TAKE)
        return [self._verdict(takes, task, seed) for task, seed in zip(tasks, seeds, strict=True)]

    def _verdict(self, takes: Sequence[str], task: Task, seed: int) -> Verdict | None:
        first, second = task.answers
        has = {
            "prompt": task.prompt,
            "first": first,
            "second": second,
            "truth": task.truth,
            "facts": task.facts,
            "seed": seed,
        }
        where = f"{self.name}, prompt {words(task.prompt)[:40]!r}"
        said = asked(where, self.function, {name: has[name] for name in takes})
        if said is None or (isinstance(said, Verdict) and len(said.marks) == 2):
            return said
        for better in get_args(Better):
            if said == better:
                return verdict_for(better, annotator=self.name)
        raise UserError(f"{where}: it gave {said!r}; say first, second or tie, or None for no verdict")


def first_wins(gap: int | float, noise: int | float) -> float:
    """The chance that the first of two answers is called better, whose score is higher by a gap.

    >>> round(first_wins(1.0, 0.5), 3), first_wins(-1e9, 1e-9)
    (0.881, 0.0)
    """
    return 0.5 * (1 + math.tanh(gap / noise / 2))


def verdict_for(
    better: Better, *, annotator: str, group: str | None = None, strength: int | None = None
) -> Verdict:
    """A verdict on two answers.

    >>> [mark.rank for mark in verdict_for("second", annotator="ada").marks]
    [2, 1]
    """
    ranks = {"first": (1, 2), "second": (2, 1), "tie": (1, 1)}[better]
    marks = tuple(Mark(rank=rank) for rank in ranks)
    return Verdict(marks=marks, annotator=annotator, group=group, strength=strength)


def comparer_named(word: str, noise: int | float = 0.0) -> Comparer:
    """Who is meant by a word: a function that takes two answers, or any reward.

    >>> comparer_named("length:1-20", 0.5).name
    'length:1-20'
    """
    if is_function(word) and {*_MUST_TAKE} <= _arguments(function := function_named(word)):
        if noise:
            raise UserError(f"loop.noise {noise:g}: {word} compares by itself; leave the noise out")
        return OwnComparer(name=word, function=function)
    return RewardComparer(reward=reward_named(word), noise=noise)


def _arguments(function: Callable[..., object]) -> set[str]:
    """The names of its arguments, where it tells them."""
    try:
        return {*inspect.signature(function).parameters}
    except (TypeError, ValueError):
        return set()
