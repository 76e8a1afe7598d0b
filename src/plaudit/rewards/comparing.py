"""Who compares two answers: a reward, with or without noise, or a function of the user's own.

A reward's choice with noise T is Bradley and Terry's (1952): P(a before b) = σ((r_a − r_b) / T).
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from plaudit.data.judging import (
    Judge,
    PairOutcome,
    Task,
    Verdict,
    pair_verdict,
    probable_verdict,
    task_seed,
)
from plaudit.data.records import plain_text, turns_of
from plaudit.errors import UserError
from plaudit.feedback.judges.both_ways import both_ways
from plaudit.feedback.judges.cache import ReplyCache, default_cache_folder
from plaudit.feedback.judges.calling import FunctionChat, source_of
from plaudit.feedback.judges.endpoint import endpoint_judge
from plaudit.feedback.judges.jury import assemble
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.money import Purse
from plaudit.feedback.judges.words import CALL, JURY, SERVER, SPREAD, HowToAsk, asks_a_model, parse_judge_word
from plaudit.feedback.judges.writing import Writer, check_writer
from plaudit.files.posting import RetryPolicy
from plaudit.files.user_code import accepted_arguments, call_user_function
from plaudit.rewards.base import Reward
from plaudit.rewards.llm.pairwise import PairwiseRanker
from plaudit.rewards.load import load_reward
from plaudit.rewards.registry import (
    names_function,
    resolve_function,
    resolve_object,
    resolve_reward,
)
from plaudit.rewards.word_files import refuse_circle, word_from

GOLD = "gold"
"""The word for whoever knows the true worth."""
PEOPLE = "people"
"""The word for people, who answer in a label store."""
_ALLOWED_ARGUMENTS = ("prompt", "first", "second", "reference_answer", "metadata", "seed", "messages")
_REQUIRED_ARGUMENTS = ("first", "second")
_TASKS_PER_CALL = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardJudge:
    """A reward that compares: the answer of the higher score is better, or wins more often.

    Example: ``RewardJudge(name="length:1-20", reward=resolve_reward("length:1-20"), noise=0.5)``
    """

    name: str
    """What notes and rows call it."""
    reward: Reward
    """The reward that scores both answers; which is shown first means nothing to it."""
    noise: int | float = 0.0
    """What the difference of the scores is divided by; at 0 the higher one wins, and equal ones tie."""
    log_odds: bool = False
    """Whether a difference of scores is the log-odds of being preferred (Bradley and Terry 1952), so that
    verdicts are chances."""

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """None where either answer has no score."""
        size = max(len(tasks), 1) if self.log_odds else _TASKS_PER_CALL
        batches = (tasks[start : start + size] for start in range(0, len(tasks), size))
        scores = [(row[0], row[1]) for batch in batches for row in self.reward.scores(batch)]
        return [self._verdict(*both, task_seed(seed, place)) for place, both in enumerate(scores)]

    def _verdict(self, first: float | None, second: float | None, seed: int) -> Verdict | None:
        if first is None or second is None:
            return None
        if self.log_odds:
            return probable_verdict(first_win_probability(first - second, 1.0), annotator=self.name)
        if self.noise:
            probability = first_win_probability(first - second, self.noise)
            # A generator for each task, so that a verdict does not depend on how many came before it.
            better: PairOutcome = "first" if random.Random(seed).random() < probability else "second"
        else:
            better = "tie" if first == second else "first" if first > second else "second"
        return pair_verdict(better, annotator=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionJudge:
    """A function of the user's own, called with whichever of its arguments it takes.

    There are prompt, first and second (their words), reference_answer, metadata, seed and messages (the
    prompt's turns).

    Example: ``FunctionJudge(name="mine.py:terser", function=terser)``
    """

    name: str
    """What notes and rows call it."""
    function: Callable[..., object]
    """To first, second or tie; or to a `Verdict`, or to None where it has none."""

    def __post_init__(self) -> None:
        """Refuse what cannot be called so."""
        accepted_arguments(self.name, self.function, _ALLOWED_ARGUMENTS, required=_REQUIRED_ARGUMENTS)

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """A verdict for each task: the function is called once for each, in order."""
        takes = accepted_arguments(self.name, self.function, _ALLOWED_ARGUMENTS, required=_REQUIRED_ARGUMENTS)
        return [self._verdict(takes, task, task_seed(seed, place)) for place, task in enumerate(tasks)]

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
        outcome = call_user_function(where, self.function, {name: available[name] for name in takes})
        if outcome is None or (isinstance(outcome, Verdict) and len(outcome.marks) == 2):
            return outcome
        for better in get_args(PairOutcome):
            if outcome == better:
                return pair_verdict(better, annotator=self.name)
        raise UserError(f"{where}: it gave {outcome!r}; say first, second or tie, or None for no verdict")


def first_win_probability(gap: int | float, noise: int | float) -> float:
    """The chance that the first of two answers is called better, whose score is higher by a gap.

    >>> round(first_win_probability(1.0, 0.5), 3), first_win_probability(-1e9, 1e-9)
    (0.881, 0.0)
    """
    # σ(x) = ½ (1 + tanh(x/2)): tanh saturates where exp would overflow.
    return 0.5 * (1 + math.tanh(gap / noise / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """How judges are loaded and asked.

    Example: ``JudgeSettings(retry_policy=RetryPolicy(token_from="JUDGE_TOKEN"), cache=Path("judged"))``
    """

    device: str = "auto"
    """Of a reward's folder."""
    dtype: str = "auto"
    """The number type of the judge's products."""
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    """How a server is asked."""
    cache: Path | None = None
    """Where a server's replies are kept; None is the user's cache folder."""
    noise: int | float = 0.0
    """Of a reward or rule that compares: what the difference of its scores is divided by."""
    soft: bool = False
    """Whether learned rewards and rankers give chances; otherwise the better answer and no more."""
    rewards: Mapping[str, Reward] = field(default_factory=dict[str, Reward])
    """Rewards that are loaded already, by their words; ``gold`` is only here."""
    people: Judge | None = None
    """Who answers for the word ``people``: the label store of whoever asks."""
    ask: HowToAsk = field(default_factory=HowToAsk)
    """How models are asked, where their words do not say."""
    purse: Purse = field(default_factory=Purse, compare=False)
    """What all judges together may spend."""


def judge_named(word: str, settings: JudgeSettings | None = None) -> Judge:
    """Who is meant by a word: people, gold, a model that is asked, a reward's folder, a function, or a rule.

    >>> judge_named("length:1-20").name
    'length:1-20'
    """
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
    if asks_a_model(word):
        return _model_judge(word, chosen)
    if compares_two_answers(word):
        return FunctionJudge(name=word, function=resolve_function(word))
    if chosen.soft and Path(word).is_dir():
        return _folder_judge(word, chosen)
    reward = chosen.rewards[GOLD] if word == GOLD else resolve_reward(word)
    return RewardJudge(name=GOLD if word == GOLD else reward.name, reward=reward, noise=chosen.noise)


def writer_named(word: str, settings: JudgeSettings | None = None) -> Writer:
    """The model of a word as a writer: ``openai:URL#model``, ``model:DIR`` or another that is asked in words.

    Its temperature and its most tokens are set behind commas; what the word leaves open is as in `Writer`.
    """
    check_writer(word)
    parsed = parse_judge_word(word)
    judge = judge_named(word, settings)
    assert isinstance(judge, ModelJudge), "whoever is asked in words, and is no jury"
    ask, names = parsed.how(), {name.replace("-", "_") for name in parsed.settings}
    given = {name: getattr(ask, name) for name in ("temperature", "max_tokens") if name in names}
    return Writer(asker=judge.asker, **given)


def _model_judge(word: str, settings: JudgeSettings) -> Judge:
    """A model that is asked in words: on a server, in a folder, or several of them together."""
    if word.startswith(SERVER):
        cache = ReplyCache(folder=settings.cache or default_cache_folder())
        return endpoint_judge(word, cache, settings.retry_policy, ask=settings.ask, purse=settings.purse)
    parsed = parse_judge_word(word)
    if word.startswith(CALL):
        ask = parsed.how(settings.ask)
        return ModelJudge(asker=function_chat(parsed.place, ask, settings), ask=ask)
    if word.startswith((JURY, SPREAD)):
        path = Path(parsed.place.partition(":")[2])
        # Members give their chances, and those to whom the order of answers means something are asked twice.
        member = replace(settings, soft=True, ask=parsed.how(settings.ask))
        refuse_circle(word)
        return assemble(
            word, path, lambda own: in_both_orders(judge_named(word_from(own, path.parent), member))
        )
    # Models are slow to import, and a server needs none.
    from plaudit.feedback.local_judge import local_judge

    return local_judge(
        word,
        ReplyCache(folder=settings.cache or default_cache_folder()),
        device=settings.device,
        dtype=settings.dtype,
        ask=settings.ask,
        purse=settings.purse,
    )


def function_chat(place: str, ask: HowToAsk, settings: JudgeSettings) -> FunctionChat:
    """The function of ``call:module:function`` as a model that is asked."""
    word = place.removeprefix(CALL)
    return FunctionChat(
        word=word,
        function=resolve_function(word),
        cache=ReplyCache(folder=settings.cache or default_cache_folder()),
        source=source_of(word),
        requests_at_once=ask.requests or 1,
        prices=ask.price,
        purse=settings.purse,
    )


def _folder_judge(word: str, settings: JudgeSettings) -> Judge:
    # The reward that scores the answers may also judge them; it is not loaded twice.
    reward = settings.rewards.get(word) or load_reward(
        Path(word), device=settings.device, dtype=settings.dtype
    )
    # A ranker has no score for one answer alone, so there is nothing to subtract.
    if isinstance(reward, PairwiseRanker):
        return reward
    return RewardJudge(name=reward.name, reward=reward, log_odds=True)


def in_both_orders(judge: Judge) -> Judge:
    """The judge itself where the order of answers means nothing to it, or where it asks both by itself."""
    return both_ways(judge) if isinstance(judge, FunctionJudge) else judge


def compares_pairs(word: str) -> bool:
    """Whether a word names a judge that sees both answers at once, and so has no score for one alone."""
    return asks_a_model(word) or compares_two_answers(word)


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
