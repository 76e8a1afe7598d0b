"""Who compares two answers: a reward, with or without noise, or a function of the user's own.

A reward's choice with noise T is Bradley and Terry's (1952): P(a before b) = σ((r_a − r_b) / T).
"""

import inspect
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from plaudit.data import judging
from plaudit.data.records import Task, plain_text, turns_of
from plaudit.errors import UserError
from plaudit.files.user_code import accepted_arguments, call_user_function
from plaudit.rewards.base import Reward
from plaudit.rewards.kinds import JudgeSettings, is_judge_word, judge_kind, names_function
from plaudit.rewards.registry import resolve_function, resolve_object, resolve_reward

GOLD = "gold"
"""The word for whoever knows the true worth."""
PEOPLE = "people"
"""The word for people, who answer in a label store."""
_ALLOWED_ARGUMENTS = ("prompt", "first", "second", "reference_answer", "metadata", "seed", "messages")
_REQUIRED_ARGUMENTS = ("first", "second")
_TASKS_PER_CALL = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardJudge:
    """A reward that compares: the answer of the higher score is better, or wins more often."""

    name: str
    reward: Reward
    """The reward that scores both answers; which is shown first means nothing to it."""
    noise: int | float = 0.0
    """What the difference of the scores is divided by; at 0 the higher one wins, and equal ones tie."""
    log_odds: bool = False
    """Whether a difference of scores is the log-odds of being preferred (Bradley and Terry 1952), so that
    verdicts are chances."""

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[judging.Verdict | None]:
        """None where either answer has no score."""
        size = max(len(tasks), 1) if self.log_odds else _TASKS_PER_CALL
        batches = (tasks[start : start + size] for start in range(0, len(tasks), size))
        scores = [(row[0], row[1]) for batch in batches for row in self.reward.scores(batch)]
        return [self._verdict(*both, judging.task_seed(seed, place)) for place, both in enumerate(scores)]

    def _verdict(self, first: float | None, second: float | None, seed: int) -> judging.Verdict | None:
        if first is None or second is None:
            return None
        if self.log_odds:
            return judging.probable_verdict(first_win_probability(first - second, 1.0), annotator=self.name)
        if self.noise:
            probability = first_win_probability(first - second, self.noise)
            # A generator for each task, so that a verdict does not depend on how many came before it.
            better: judging.PairOutcome = "first" if random.Random(seed).random() < probability else "second"
        else:
            better = "tie" if first == second else "first" if first > second else "second"
        return judging.pair_verdict(better, annotator=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionJudge:
    """A function of the user's own, called with whichever of its arguments it takes. There are prompt, first
    and second (their words), reference_answer, metadata, seed and messages (the prompt's turns)."""

    name: str
    function: Callable[..., object]
    """To first, second or tie; or to a `Verdict`, or to None where it has none."""

    def __post_init__(self) -> None:
        accepted_arguments(self.name, self.function, _ALLOWED_ARGUMENTS, required=_REQUIRED_ARGUMENTS)

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[judging.Verdict | None]:
        """A verdict for each task: the function is called once for each, in order."""
        takes = accepted_arguments(self.name, self.function, _ALLOWED_ARGUMENTS, required=_REQUIRED_ARGUMENTS)
        return [
            self._verdict(takes, task, judging.task_seed(seed, place)) for place, task in enumerate(tasks)
        ]

    def _verdict(self, takes: Sequence[str], task: Task, seed: int) -> judging.Verdict | None:
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
        outcome = call_user_function(where, self.function, {name: available[name] for name in takes})
        if outcome is None or (isinstance(outcome, judging.Verdict) and len(outcome.marks) == 2):
            return outcome
        for better in get_args(judging.PairOutcome):
            if outcome == better:
                return judging.pair_verdict(better, annotator=self.name)
        raise UserError(f"{where}: it gave {outcome!r}; say first, second or tie, or None for no verdict")


def first_win_probability(gap: int | float, noise: int | float) -> float:
    """The chance that the first of two answers is called better, whose score is higher by a gap.

    >>> round(first_win_probability(1.0, 0.5), 3), first_win_probability(-1e9, 1e-9)
    (0.881, 0.0)
    """
    # σ(x) = ½ (1 + tanh(x/2)): tanh saturates where exp would overflow.
    return 0.5 * (1 + math.tanh(gap / noise / 2))


def judge_named(word: str, settings: JudgeSettings | None = None) -> judging.Judge:
    """Who is meant: people, gold, a model that is asked, a reward's folder, a function, or a rule."""
    chosen = JudgeSettings() if settings is None else settings
    if chosen.noise and (word == PEOPLE or compares_pairs(word)):
        raise UserError(f"loop.noise {chosen.noise:g}: {word} compares by itself; leave the noise out")
    if word == PEOPLE:
        if chosen.people is None:
            raise UserError(
                "people answer in a label store, and none is named here (docs/collecting-teams.md)"
            )
        return chosen.people
    if word == GOLD and GOLD not in chosen.rewards:
        raise UserError("gold judges where the true worth is known, and here nobody knows it")
    if is_judge_word(word):
        return judge_kind(word).make(word, chosen)
    if compares_two_answers(word):
        return FunctionJudge(name=word, function=resolve_function(word))
    if chosen.soft and Path(word).is_dir():
        return _folder_judge(word, chosen)
    reward = chosen.rewards[GOLD] if word == GOLD else resolve_reward(word)
    return RewardJudge(name=GOLD if word == GOLD else reward.name, reward=reward, noise=chosen.noise)


def _folder_judge(word: str, settings: JudgeSettings) -> judging.Judge:
    # Models are slow to import, and no rule needs them.
    from plaudit.rewards.llm.pairwise import PairwiseRanker
    from plaudit.rewards.load import load_reward

    # The reward that scores the answers may also judge them; it is not loaded twice.
    reward = settings.rewards.get(word) or load_reward(
        Path(word), device=settings.device, dtype=settings.dtype
    )
    # A ranker has no score for one answer alone, so there is nothing to subtract.
    if isinstance(reward, PairwiseRanker):
        return reward
    return RewardJudge(name=reward.name, reward=reward, log_odds=True)


def in_both_orders(judge: judging.Judge) -> judging.Judge:
    """The judge itself where the order of answers means nothing to it, or where it asks both by itself."""
    return judging.BothWays(judge=judge) if isinstance(judge, FunctionJudge) else judge


def compares_pairs(word: str) -> bool:
    """Whether a word names a judge that sees both answers at once, and so has no score for one alone."""
    return is_judge_word(word) or compares_two_answers(word)


def compares_two_answers(spec: str) -> bool:
    """Whether a word names a function that takes a first and a second answer."""
    # What is named may be a reward, which is no function.
    if not names_function(spec) or not callable(resolve_object(spec)):
        return False
    return {*_REQUIRED_ARGUMENTS} <= _argument_names(resolve_function(spec))


def _argument_names(function: Callable[..., object]) -> set[str]:
    try:
        return {*inspect.signature(function).parameters}
    except (TypeError, ValueError):
        return set()
