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

from plaudit.data.judging import Mark, Task, Verdict
from plaudit.data.records import plain_text, turns_of
from plaudit.errors import UserError
from plaudit.rewards.base import Reward
from plaudit.rewards.llm.judge import (
    JUDGE_SCHEME,
    EndpointJudge,
    ReplyCache,
    both_orders_verdict,
    default_cache_folder,
    endpoint_judge,
)
from plaudit.rewards.registry import (
    accepted_arguments,
    arguments_of,
    call_user_function,
    names_function,
    resolve_function,
    resolve_object,
    resolve_reward,
)

PairOutcome = Literal["first", "second", "tie"]
"""The outcomes of comparing two answers."""
_ALLOWED_ARGUMENTS = ("prompt", "first", "second", "reference_answer", "metadata", "seed", "messages")
_REQUIRED_ARGUMENTS = ("first", "second")
_TASKS_PER_CALL = 64


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

    Example: ``RewardComparer(reward=resolve_reward("length:1-20"), noise=0.5)``
    """

    reward: Reward
    """The reward that scores both answers."""
    noise: int | float = 0.0
    """What the difference of the scores is divided by; at 0 the higher one wins, and equal ones tie."""

    @property
    def name(self) -> str:
        """The name of the reward."""
        return self.reward.name

    def verdicts(self, tasks: Sequence[Task], seeds: Sequence[int]) -> list[Verdict | None]:
        """None where either answer has no score."""
        batches = (tasks[start : start + _TASKS_PER_CALL] for start in range(0, len(tasks), _TASKS_PER_CALL))
        scores = [(row[0], row[1]) for batch in batches for row in self.reward.scores(batch)]
        return [self._verdict(*both, seed) for both, seed in zip(scores, seeds, strict=True)]

    def _verdict(self, first: float | None, second: float | None, seed: int) -> Verdict | None:
        if first is None or second is None:
            return None
        if self.noise:
            probability = first_win_probability(first - second, self.noise)
            # A generator for each task, so that a verdict does not depend on how many came before it.
            better: PairOutcome = "first" if random.Random(seed).random() < probability else "second"
        else:
            better = "tie" if first == second else "first" if first > second else "second"
        return pair_verdict(better, annotator=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFunctionComparer:
    """A function of the user's own, called with whichever of its arguments it takes.

    There are prompt, first and second (their words), reference_answer, metadata, seed and messages (the
    prompt's turns).

    Example: ``UserFunctionComparer(name="mine.py:terser", function=terser)``
    """

    name: str
    """What notes and rows call it."""
    function: Callable[..., object]
    """To first, second or tie; or to a `Verdict`, or to None where it has none."""

    def __post_init__(self) -> None:
        """Refuse what cannot be called so."""
        accepted_arguments(self.name, self.function, _ALLOWED_ARGUMENTS, required=_REQUIRED_ARGUMENTS)

    def verdicts(self, tasks: Sequence[Task], seeds: Sequence[int]) -> list[Verdict | None]:
        """A verdict for each task: the function is called once for each, in order."""
        takes = accepted_arguments(self.name, self.function, _ALLOWED_ARGUMENTS, required=_REQUIRED_ARGUMENTS)
        return [self._verdict(takes, task, seed) for task, seed in zip(tasks, seeds, strict=True)]

    def _verdict(self, takes: Sequence[str], task: Task, seed: int) -> Verdict | None:
        first, second = task.answers
        available = {
            "prompt": plain_text(task.prompt),
            "first": plain_text(first),
            "second": plain_text(second),
            "messages": turns_of(task.prompt),
            "reference_answer": task.reference_answer,
            "metadata": task.metadata,
            "seed": seed,
        }
        where = f"{self.name}, prompt {plain_text(task.prompt)[:40]!r}"
        outcome = call_user_function(where, self.function, arguments_of(takes, available))
        if outcome is None or (isinstance(outcome, Verdict) and len(outcome.marks) == 2):
            return outcome
        for better in get_args(PairOutcome):
            if outcome == better:
                return pair_verdict(better, annotator=self.name)
        raise UserError(f"{where}: it gave {outcome!r}; say first, second or tie, or None for no verdict")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointComparer:
    """A model behind a server that compares: asked in both orders, as it is when it judges policies.

    Example: ``EndpointComparer(judge=endpoint_judge("openai:http://127.0.0.1:8000/v1#m", cache))``
    """

    judge: EndpointJudge
    """The judge on a server."""

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.judge.name

    def verdicts(self, tasks: Sequence[Task], seeds: Sequence[int]) -> list[Verdict | None]:
        """A tie where the two orders contradict each other; None where either has no verdict."""
        del seeds
        return [
            None if p_first is None else self._verdict(p_first)
            for p_first in (both_orders_verdict(o.forward, o.backward) for o in self.judge.orders(tasks))
        ]

    def _verdict(self, p_first: float) -> Verdict:
        better: PairOutcome = "tie" if p_first == 0.5 else "first" if p_first > 0.5 else "second"
        return pair_verdict(better, annotator=self.name)


def first_win_probability(gap: int | float, noise: int | float) -> float:
    """The chance that the first of two answers is called better, whose score is higher by a gap.

    >>> round(first_win_probability(1.0, 0.5), 3), first_win_probability(-1e9, 1e-9)
    (0.881, 0.0)
    """
    # σ(x) = ½ (1 + tanh(x/2)): tanh saturates where exp would overflow.
    return 0.5 * (1 + math.tanh(gap / noise / 2))


def pair_verdict(
    better: PairOutcome, *, annotator: str, group: str | None = None, strength: int | None = None
) -> Verdict:
    """A verdict on two answers.

    >>> [mark.rank for mark in pair_verdict("second", annotator="ada").marks]
    [2, 1]
    """
    ranks = {"first": (1, 2), "second": (2, 1), "tie": (1, 1)}[better]
    marks = tuple(Mark(rank=rank) for rank in ranks)
    return Verdict(marks=marks, annotator=annotator, group=group, strength=strength)


def resolve_comparer(spec: str, noise: int | float = 0.0) -> Comparer:
    """Who is meant by a word: a function that takes two answers, a judge on a server, or any reward.

    >>> resolve_comparer("length:1-20", 0.5).name
    'length:1-20'
    """
    is_judge = spec.startswith(JUDGE_SCHEME)
    if noise and (is_judge or compares_two_answers(spec)):
        raise UserError(f"loop.noise {noise:g}: {spec} compares by itself; leave the noise out")
    if is_judge:
        return EndpointComparer(judge=endpoint_judge(spec, ReplyCache(folder=default_cache_folder())))
    if compares_two_answers(spec):
        return UserFunctionComparer(name=spec, function=resolve_function(spec))
    return RewardComparer(reward=resolve_reward(spec), noise=noise)


def compares_two_answers(spec: str) -> bool:
    """Whether a word names a function that takes a first and a second answer."""
    # What is named may be a reward, which is no function.
    if not names_function(spec) or not callable(resolve_object(spec)):
        return False
    return {*_REQUIRED_ARGUMENTS} <= _argument_names(resolve_function(spec))


def _argument_names(function: Callable[..., object]) -> set[str]:
    """The names of a function's parameters; none where it does not reveal its signature."""
    try:
        return {*inspect.signature(function).parameters}
    except (TypeError, ValueError):
        return set()
