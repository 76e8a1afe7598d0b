"""Who says which of two answers is better: the truth, a reward, a function, a model behind a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from plaudit.errors import UserError
from plaudit.evaluation.policies.drawn import Asked, Drawn
from plaudit.evaluation.policies.dueled import Dueled
from plaudit.models.files import architectures
from plaudit.records.judging import Task, Verdict
from plaudit.records.messages import words
from plaudit.rewards.comparing import Comparer, RewardComparer, comparer_named, first_wins
from plaudit.rewards.folder import check_reward, load_reward, model_folder, models_of
from plaudit.rewards.judge_cache import ReplyCache, usual_cache
from plaudit.rewards.judge_endpoint import SCHEME, Orders, endpoint_judge, server_of
from plaudit.rewards.named import reward_named
from plaudit.rewards.posting import Manners
from plaudit.rewards.reward import Reward
from plaudit.rewards.worded_ranker import Ranker

GOLD = "gold"
"""The word for whoever knows the true worth."""
SILENT = "no verdict"
"""Said of a reward or a function that has none."""


@runtime_checkable
class PairJudge(Protocol):
    """Compares two answers."""

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        ...

    @property
    def order_seen(self) -> bool:
        """Whether the place of an answer may sway it."""
        ...

    def orders(self, tasks: Sequence[Task]) -> list[Orders]:
        """Of each task of two answers the chance that the first is better, told in both orders."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreJudge:
    """A reward that scores both answers; which of them is shown first means nothing to it.

    Example: ``ScoreJudge(name="runs/reward", reward=load_reward(Path("runs/reward")), log_odds=True)``
    """

    name: str
    """What tables and pages call it."""
    reward: Reward
    """What scores."""
    log_odds: bool
    """Whether a difference of scores is the log-odds of being preferred, as Bradley and Terry (1952) have it;
    otherwise the higher score is better, and equal ones are a tie."""
    order_seen: bool = False
    """It sees one answer at a time."""

    def orders(self, tasks: Sequence[Task]) -> list[Orders]:
        """σ(r₁ − r₂), or 1, ½ and 0."""
        rows = self.reward.scores(tasks) if tasks else ()
        return [self._orders(first, second) for first, second in rows]

    def _orders(self, first: float | None, second: float | None) -> Orders:
        if first is None or second is None:
            return Orders(forward=None, backward=None, reason=SILENT)
        gap = first - second
        chance = first_wins(gap, 1.0) if self.log_odds else 0.5 + 0.5 * ((gap > 0) - (gap < 0))
        return Orders(forward=chance, backward=chance)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareJudge:
    """Anything that compares, asked in both orders.

    Example: ``CompareJudge(comparer=comparer_named("mine.py:terser"))``
    """

    comparer: Comparer
    """What compares."""
    order_seen: bool = True
    """It is shown both answers at once."""

    @property
    def name(self) -> str:
        """The comparer's."""
        return self.comparer.name

    def orders(self, tasks: Sequence[Task]) -> list[Orders]:
        """A verdict's chance where it gives one, or 1, ½ and 0."""
        seeds = range(len(tasks))
        forward = self.comparer.verdicts(tasks, seeds)
        backward = self.comparer.verdicts([_turned(task) for task in tasks], seeds)
        return [_both(one, other) for one, other in zip(forward, backward, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankerJudge:
    """A ranker: a model that was trained to say which of two is better.

    Example: ``RankerJudge(name="runs/ranker", ranker=ranker)``
    """

    name: str
    """What tables and pages call it."""
    ranker: Ranker
    """It is shown both orders itself, and tells the mean of what it thinks."""
    order_seen: bool = False
    """What it tells has no order in it any more."""

    def orders(self, tasks: Sequence[Task]) -> list[Orders]:
        """Its chance."""
        return [
            Orders(forward=chance, backward=chance, reason=SILENT if chance is None else None)
            for chance in self.ranker.chances(tasks)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """How judges are loaded and asked.

    Example: ``JudgeSettings(manners=Manners(token_from="JUDGE_TOKEN"), cache=Path("judged"))``
    """

    device: str = "auto"
    """Of a reward's folder."""
    dtype: str = "auto"
    """Of its numbers."""
    manners: Manners = field(default_factory=Manners)
    """How a server is asked."""
    cache: Path | None = None
    """Where a server's replies are kept; None is the user's cache folder."""


def check_judge(word: str, *, gold: bool) -> None:
    """Complain about the word of a judge before anything is loaded."""
    if word == GOLD and not gold:
        raise UserError("gold judges where the true worth is known: with --world, or with --gold RULE")
    if word.startswith(SCHEME):
        server_of(word)
    elif Path(word).is_dir():
        check_reward(Path(word))
    elif word != GOLD:
        comparer_named(word)


def judge_named(
    word: str, known: Mapping[str, Reward] | None = None, settings: JudgeSettings | None = None
) -> PairJudge:
    """Who is meant: ``gold``, a reward's folder, a rule, module:function, ``openai:http://…/v1#model``.

    ``known`` has rewards that are there already, by their words; gold has to be among them.

    >>> judge_named("length:1-20").name
    'length:1-20'
    """
    settings, known = settings or JudgeSettings(), known or {}
    if word == GOLD:
        if word not in known:
            raise UserError("gold judges where the true worth is known, and here nobody knows it")
        return ScoreJudge(name=GOLD, reward=known[word], log_odds=False)
    if word.startswith(SCHEME):
        cache = ReplyCache(folder=settings.cache or usual_cache())
        return endpoint_judge(word, cache, settings.manners)
    if Path(word).is_dir():
        reward = known.get(word) or load_reward(Path(word), device=settings.device, dtype=settings.dtype)
        if isinstance(reward, Ranker):
            return RankerJudge(name=reward.name, ranker=reward)
        return ScoreJudge(name=reward.name, reward=reward, log_odds=True)
    comparer = comparer_named(word)
    if isinstance(comparer, RewardComparer):
        return ScoreJudge(name=word, reward=reward_named(word), log_odds=False)
    return CompareJudge(comparer=comparer)


def duels(
    judge: PairJudge, asked: Sequence[Asked], pairs: Mapping[tuple[str, str], tuple[Drawn, Drawn]]
) -> dict[tuple[str, str], list[Dueled]]:
    """Every pair of policies, answer by answer, the judge being asked once about all of them."""
    met = [(names, *one) for names, two in pairs.items() for one in _met(asked, *two)]
    said = judge.orders([question.task((mine, theirs)) for _, question, mine, theirs in met])
    found: dict[tuple[str, str], list[Dueled]] = {names: [] for names in pairs}
    for (names, question, mine, theirs), orders in zip(met, said, strict=True):
        duel = Dueled(
            prompt=words(question.prompt),
            category=question.category,
            mine=mine[0],
            theirs=theirs[0],
            forward=orders.forward,
            backward=orders.backward,
            reason=orders.reason,
        )
        found[names].append(duel)
    return found


def kinship(judge: str, name: str, policies: Mapping[str, Path]) -> str | None:
    """What to say of a judge that is of the family of those whom it judges; None where nothing is known.

    A model prefers answers of its own kind (Panickssery et al. 2024, arXiv:2404.13076).
    """
    kin = [one for one, folder in policies.items() if _same_family(judge, model_folder(folder))]
    if not kin:
        return None
    return f"{name} is of the same family of models as {', '.join(kin)}; a judge may prefer its own kind"


def _same_family(judge: str, policy: Path) -> bool:
    family = _family(policy)
    if family is None:
        return False
    if judge.startswith(SCHEME):
        return family in judge.partition("#")[2].lower()
    if not Path(judge).is_dir():
        return False
    return any(_family(folder) == family for folder in models_of(Path(judge)))


def _family(folder: Path) -> str | None:
    """The letters that its class begins with: llama, qwen, mistral."""
    named = architectures(folder)
    if not named:
        return None
    stem = named[0].partition("For")[0].removesuffix("LMHeadModel").lower()
    return stem.rstrip("0123456789") or None


def _met(
    asked: Sequence[Asked], mine: Drawn, theirs: Drawn
) -> list[tuple[Asked, tuple[str, bool], tuple[str, bool]]]:
    return [
        (question, (one.answer.text, one.answer.ended), (other.answer.text, other.answer.ended))
        for question, ours, others in zip(asked, mine.rollouts, theirs.rollouts, strict=True)
        for one, other in zip(ours, others, strict=True)
    ]


def _turned(task: Task) -> Task:
    return replace(task, answers=task.answers[::-1], ended=task.ended[::-1])


def _both(forward: Verdict | None, backward: Verdict | None) -> Orders:
    first, second = _chance(forward), _chance(backward)
    reason = SILENT if first is None or second is None else None
    return Orders(forward=first, backward=None if second is None else 1 - second, reason=reason)


def _chance(verdict: Verdict | None) -> float | None:
    """That the first answer is better."""
    if verdict is None:
        return None
    if verdict.probability is not None:
        return float(verdict.probability)
    first, second = (mark.rank for mark in verdict.marks)
    return 0.5 if first == second else float(first < second)
