"""Who says which of two answers is better: the truth, a reward, a function, a model behind a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from plaudit.data.judging import Task, Verdict
from plaudit.data.records import plain_text
from plaudit.errors import UserError
from plaudit.evaluation.policies.generate import EvaluationPrompt, PolicyCompletions
from plaudit.evaluation.policies.result import Contest
from plaudit.evaluation.policies.win_rate import ContestNames, JudgedPair, contest_result
from plaudit.evaluation.reward_models.pairs import ScoredPair
from plaudit.evaluation.stats import Resampling
from plaudit.models.load import architectures
from plaudit.rewards.base import Reward
from plaudit.rewards.http import RetryPolicy
from plaudit.rewards.llm.comparer import (
    Comparer,
    RewardComparer,
    compares_two_answers,
    first_win_probability,
    resolve_comparer,
)
from plaudit.rewards.llm.judge import (
    JUDGE_SCHEME,
    OrderVerdicts,
    ReplyCache,
    default_cache_folder,
    endpoint_judge,
    parse_judge_address,
)
from plaudit.rewards.llm.pairwise import PairwiseRanker
from plaudit.rewards.load import check_reward, load_reward, loaded_model_folders, model_folder
from plaudit.rewards.registry import resolve_reward

GOLD = "gold"
"""The word for whoever knows the true worth."""
NO_VERDICT = "no verdict"
"""Said of a reward or a function that has none."""


@runtime_checkable
class PairJudge(Protocol):
    """Compares two answers to a prompt."""

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        ...

    @property
    def sees_order(self) -> bool:
        """Whether the place of an answer may sway it."""
        ...

    def orders(self, tasks: Sequence[Task]) -> list[OrderVerdicts]:
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
    """The reward whose higher score wins."""
    log_odds: bool
    """Whether a difference of scores is the log-odds of being preferred, as Bradley and Terry (1952) have it;
    otherwise the higher score is better, and equal ones are a tie."""
    sees_order: bool = False
    """It sees one answer at a time."""

    def orders(self, tasks: Sequence[Task]) -> list[OrderVerdicts]:
        """For each task σ(r₁ − r₂), or 1, ½ and 0, the same in both orders."""
        rows = self.reward.scores(tasks) if tasks else ()
        return [self._orders(first, second) for first, second in rows]

    def _orders(self, first: float | None, second: float | None) -> OrderVerdicts:
        if first is None or second is None:
            return OrderVerdicts(forward=None, backward=None, reason=NO_VERDICT)
        gap = first - second
        # Only a learnt reward is on the scale of log-odds; of a rule's score the sign alone is a verdict.
        p_first = first_win_probability(gap, 1.0) if self.log_odds else 0.5 + 0.5 * ((gap > 0) - (gap < 0))
        return OrderVerdicts(forward=p_first, backward=p_first)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareJudge:
    """A comparer that is given each pair in both orders.

    Example: ``CompareJudge(comparer=resolve_comparer("mine.py:terser"))``
    """

    comparer: Comparer
    """What compares two answers."""
    sees_order: bool = True
    """It is shown both answers at once."""

    @property
    def name(self) -> str:
        """The comparer's name."""
        return self.comparer.name

    def orders(self, tasks: Sequence[Task]) -> list[OrderVerdicts]:
        """For each task the probability that the first is better, judged in both orders: a verdict's own,
        or 1, ½ and 0.
        """
        # The same seeds in both orders: what then differs is the order, and not the judge's luck.
        seeds = range(len(tasks))
        forward = self.comparer.verdicts(tasks, seeds)
        backward = self.comparer.verdicts([_swapped(task) for task in tasks], seeds)
        return [_both_orders(item, other) for item, other in zip(forward, backward, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankerJudge:
    """A ranker: a model that was trained to say which of two is better.

    Example: ``RankerJudge(name="runs/ranker", ranker=ranker)``
    """

    name: str
    """What tables and pages call it."""
    ranker: PairwiseRanker
    """It is shown both orders itself, and tells the mean of what it thinks."""
    sees_order: bool = False
    """What it tells has no order in it any more."""

    def orders(self, tasks: Sequence[Task]) -> list[OrderVerdicts]:
        """For each task the ranker's probability, the same in both orders."""
        return [
            OrderVerdicts(forward=p_first, backward=p_first, reason=NO_VERDICT if p_first is None else None)
            for p_first in self.ranker.win_probabilities(tasks)
        ]


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


def check_judge(spec: str, *, has_gold: bool) -> None:
    """Raises `UserError` about the name of a judge before anything is loaded."""
    if spec == GOLD and not has_gold:
        raise UserError("gold judges where the true worth is known: with --world, or with --gold RULE")
    if spec.startswith(JUDGE_SCHEME):
        parse_judge_address(spec)
    elif Path(spec).is_dir():
        check_reward(Path(spec))
    elif spec != GOLD:
        resolve_comparer(spec)


def load_judge(
    spec: str, loaded_rewards: Mapping[str, Reward] | None = None, settings: JudgeSettings | None = None
) -> PairJudge:
    """Loads a judge by its name: ``gold``, a reward's folder, a rule, module:function,
    ``openai:http://…/v1#model``.

    ``loaded_rewards`` has those that are there already, by their words; gold has to be among them.

    >>> load_judge("length:1-20").name
    'length:1-20'
    """
    settings, loaded_rewards = settings or JudgeSettings(), loaded_rewards or {}
    if spec == GOLD:
        if spec not in loaded_rewards:
            raise UserError("gold judges where the true worth is known, and here nobody knows it")
        return ScoreJudge(name=GOLD, reward=loaded_rewards[spec], log_odds=False)
    if spec.startswith(JUDGE_SCHEME):
        cache = ReplyCache(folder=settings.cache or default_cache_folder())
        return endpoint_judge(spec, cache, settings.retry_policy)
    if Path(spec).is_dir():
        # The reward that scores the answers may also judge them; it is not loaded twice.
        reward = loaded_rewards.get(spec) or load_reward(
            Path(spec), device=settings.device, dtype=settings.dtype
        )
        # A ranker has no score for one answer alone, so there is nothing to subtract.
        if isinstance(reward, PairwiseRanker):
            return RankerJudge(name=reward.name, ranker=reward)
        return ScoreJudge(name=reward.name, reward=reward, log_odds=True)
    comparer = resolve_comparer(spec)
    # A rule scores each answer by itself; as a comparer it would be asked in both orders for nothing.
    if isinstance(comparer, RewardComparer):
        return ScoreJudge(name=spec, reward=resolve_reward(spec), log_odds=False)
    return CompareJudge(comparer=comparer)


def judge_pairs(
    judge: PairJudge,
    prompts: Sequence[EvaluationPrompt],
    pairs: Mapping[tuple[str, str], tuple[PolicyCompletions, PolicyCompletions]],
) -> dict[tuple[str, str], list[JudgedPair]]:
    """Has a judge compare every pair of policies, answer by answer, in one call for all of them."""
    answer_pairs = [
        (names, *pair) for names, policies in pairs.items() for pair in _answer_pairs(prompts, *policies)
    ]
    # One call over all pairs of policies: a server's requests and a model's passes fill up across them.
    orders_of_pairs = judge.orders([prompt.task((mine, theirs)) for _, prompt, mine, theirs in answer_pairs])
    duels_by_pair: dict[tuple[str, str], list[JudgedPair]] = {names: [] for names in pairs}
    for (names, prompt, mine, theirs), orders in zip(answer_pairs, orders_of_pairs, strict=True):
        duel = JudgedPair(
            prompt=plain_text(prompt.prompt),
            category=prompt.category,
            mine=mine[0],
            theirs=theirs[0],
            forward=orders.forward,
            backward=orders.backward,
            reason=orders.reason,
        )
        duels_by_pair[names].append(duel)
    return duels_by_pair


def compares_pairs(spec: str) -> bool:
    """Whether a word names a judge that sees both answers at once, and so has no score for one alone."""
    return spec.startswith(JUDGE_SCHEME) or compares_two_answers(spec)


def agreement_with_people(
    judge: PairJudge, pairs: Sequence[ScoredPair], resampling: Resampling
) -> tuple[Contest, tuple[JudgedPair, ...]]:
    """How often a judge prefers what people preferred, as a contest of their choice with the other answer.

    ``raw`` is the accuracy, in which a tie of the judge counts one half; pairs that people called a tie say
    nothing of it and are left out.
    """
    decided = [pair for pair in pairs if pair.p_first != 0.5]
    duels = [(pair, *(pair.answers if pair.p_first > 0.5 else pair.answers[::-1])) for pair in decided]
    tasks = [
        EvaluationPrompt(prompt=pair.prompt).task(((preferred, True), (other, True)))
        for pair, preferred, other in duels
    ]
    judged = tuple(
        JudgedPair(
            prompt=plain_text(pair.prompt),
            category=pair.category,
            mine=preferred,
            theirs=other,
            forward=orders.forward,
            backward=orders.backward,
            reason=orders.reason,
        )
        for (pair, preferred, other), orders in zip(duels, judge.orders(tasks), strict=True)
    )
    names = ContestNames(policy="preferred by people", against="the other answer", judge=judge.name)
    contest = contest_result(names, judged, resampling, sees_order=judge.sees_order)
    if contest.raw is None:
        reasons = ", ".join(f"{count} {why}" for why, count in contest.reasons.items()) or "all are ties"
        raise UserError(f"{judge.name} has no verdict on any pair that people decided ({reasons})")
    return contest, judged


def family_note(judge: str, name: str, policies: Mapping[str, Path]) -> str | None:
    """A note on a judge of the same model family as policies that it judges; None where nothing is known of
    it.

    A model prefers answers of its own kind (Panickssery et al. 2024, arXiv:2404.13076).
    """
    same_family = [policy for policy, folder in policies.items() if _same_family(judge, model_folder(folder))]
    if not same_family:
        return None
    return (
        f"{name} is of the same family of models as {', '.join(same_family)}; a judge may prefer its own kind"
    )


def _same_family(judge: str, policy: Path) -> bool:
    family = _family(policy)
    if family is None:
        return False
    if judge.startswith(JUDGE_SCHEME):
        # Of a judge behind a server only the model's name is known, which stands behind the #.
        return family in judge.partition("#")[2].lower()
    if not Path(judge).is_dir():
        return False
    return any(_family(folder) == family for folder in loaded_model_folders(Path(judge)))


def _family(folder: Path) -> str | None:
    """The letters that its class begins with: llama, qwen, mistral."""
    class_names = architectures(folder)
    if not class_names:
        return None
    # LlamaForCausalLM and GPT2LMHeadModel both leave their stem; without its digits Qwen2 and Qwen3 are kin.
    stem = class_names[0].partition("For")[0].removesuffix("LMHeadModel").lower()
    return stem.rstrip("0123456789") or None


def _answer_pairs(
    prompts: Sequence[EvaluationPrompt], mine: PolicyCompletions, theirs: PolicyCompletions
) -> list[tuple[EvaluationPrompt, tuple[str, bool], tuple[str, bool]]]:
    return [
        (
            prompt,
            (my_rollout.answer.text, my_rollout.answer.ended),
            (their_rollout.answer.text, their_rollout.answer.ended),
        )
        for prompt, my_rollouts, their_rollouts in zip(prompts, mine.rollouts, theirs.rollouts, strict=True)
        for my_rollout, their_rollout in zip(my_rollouts, their_rollouts, strict=True)
    ]


def _swapped(task: Task) -> Task:
    return replace(task, answers=task.answers[::-1], ended=task.ended[::-1])


def _both_orders(forward: Verdict | None, backward: Verdict | None) -> OrderVerdicts:
    first, second = _p_first(forward), _p_first(backward)
    reason = NO_VERDICT if first is None or second is None else None
    # Backward, the other answer stood first: turned round, both chances speak of the same one.
    return OrderVerdicts(forward=first, backward=None if second is None else 1 - second, reason=reason)


def _p_first(verdict: Verdict | None) -> float | None:
    """That the first answer is better."""
    if verdict is None:
        return None
    if verdict.probability is not None:
        return float(verdict.probability)
    first, second = (mark.rank for mark in verdict.marks)
    return 0.5 if first == second else float(first < second)
