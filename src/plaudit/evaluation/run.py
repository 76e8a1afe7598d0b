"""Evaluations as settings ask for them: policies on prompts, rewards and judges on comparisons."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plaudit.data.judging import Judge
from plaudit.data.read import DEFAULT_OPTIONS, ReadOptions, read_records
from plaudit.data.transforms import some_of
from plaudit.evaluation.policies import WORLD, WORLD_PROMPTS
from plaudit.evaluation.policies.corrected import read_people
from plaudit.evaluation.policies.evaluate import EvaluationSettings, Scorers
from plaudit.evaluation.policies.generate import EvaluationPrompt, GenerationSettings, evaluation_prompts
from plaudit.evaluation.policies.judge import agreement_with_people, load_judge
from plaudit.evaluation.policies.multiple_choice import ChoiceQuestion, read_choices
from plaudit.evaluation.policies.result import Contest
from plaudit.evaluation.policies.win_rate import JudgedPair
from plaudit.evaluation.prompt_sets import MAX_CLOSED_QUESTIONS, prompt_set
from plaudit.evaluation.reward_models import evaluate
from plaudit.evaluation.reward_models.pairs import PreferenceRecord, scored_pairs
from plaudit.evaluation.stats import Resampling
from plaudit.files.posting import RetryPolicy
from plaudit.rewards.base import Reward
from plaudit.rewards.comparing import GOLD
from plaudit.rewards.kinds import JudgeSettings
from plaudit.rewards.load import load_reward
from plaudit.rewards.registry import resolve_reward
from plaudit.rollouts.sampler import SamplingSettings

Agreement = tuple[Contest, tuple[JudgedPair, ...]]


# Settings of a pipeline, or arguments of the command or of Python, which have the same names.
Request = Any


def requested_settings(
    request: Request, against: Sequence[str] = (), closed: Sequence[ChoiceQuestion] = (), best_of: int = 0
) -> EvaluationSettings:
    sampling = SamplingSettings(temperature=request.temperature, max_tokens=request.max_tokens)
    seeds = tuple(range(request.seed, request.seed + request.seeds))
    drawing = GenerationSettings(
        sampling=sampling, answers=request.answers, seeds=seeds, device=request.device, dtype=request.dtype
    )
    return EvaluationSettings(
        drawing=drawing,
        against=tuple(against),
        resampling=Resampling(times=request.bootstrap, seed=request.seed),
        best_of=best_of,
        closed=tuple(closed),
        pass_at=tuple(request.pass_at),
        people=None if request.people is None else read_people(Path(request.people)),
        cards=tuple(map(Path, request.card)),
    )


def requested_prompts(
    request: Request, options: ReadOptions = DEFAULT_OPTIONS, format: str | None = None
) -> tuple[EvaluationPrompt, ...]:
    if request.prompts is None:
        return prompt_set().prompts(request.n or WORLD_PROMPTS, split=request.split, seed=request.seed)
    in_file = evaluation_prompts(read_records(request.prompts, format=format, options=options).records)
    return tuple(some_of(in_file, request.n, f"prompts {request.seed}"))


def requested_choices(request: Request) -> tuple[ChoiceQuestion, ...]:
    """The questions of a file with all their answers; without a file those of the world."""
    if request.choices is not None:
        return read_choices(request.choices)
    if request.prompts is not None:
        return ()
    n = min(request.n or WORLD_PROMPTS, MAX_CLOSED_QUESTIONS)
    return prompt_set().closed_questions(n, split=request.split, seed=request.seed)


def requested_scorers(request: Request, true_worth: str | None, judges: Iterable[str]) -> Scorers:
    """The true worth, a learnt reward, judges by their words, and the rule that says what is right."""
    settings = _judge_settings(request)
    gold, device, dtype = None, request.device, request.dtype
    if true_worth is not None:
        gold = prompt_set().gold() if true_worth == WORLD else resolve_reward(true_worth)
    # Loaded once: the same reward may score answers and judge them.
    rewards: dict[str, Reward] = {} if gold is None else {GOLD: gold}
    if request.reward is not None:
        rewards[str(request.reward)] = load_reward(request.reward, device=device, dtype=dtype)
    return Scorers(
        gold=gold,
        reward=rewards.get(str(request.reward)),
        judges={word: load_judge(word, rewards, settings) for word in judges},
        right=None if request.right is None else resolve_reward(request.right, device=device, dtype=dtype),
    )


def _judge_settings(request: Request) -> JudgeSettings:
    retry_policy, dtype = RetryPolicy(token_from=request.token_from), getattr(request, "dtype", "auto")
    return JudgeSettings(device=request.device, dtype=dtype, retry_policy=retry_policy)


def evaluated_rewards(
    names: Mapping[str, str], evidence: evaluate.RewardEvaluationData, resampling: Resampling, **how: str
) -> list[evaluate.EvaluatedReward]:
    """The rewards of these words, each under its name; ``how`` has their device and dtype."""
    evaluated: list[evaluate.EvaluatedReward] = []
    for word, name in names.items():
        result = evaluate.evaluate_reward(load_scored_reward(word, **how), evidence, resampling)
        evaluated.append(replace(result, evaluation=replace(result.evaluation, model=name)))
    return evaluated


def load_scored_reward(word: str, *, device: str = "auto", dtype: str = "auto") -> Reward:
    """The reward of a word; ``gold`` is the world's truth, unless a folder is called so."""
    if word == GOLD and not Path(word).exists():
        return prompt_set().gold()
    return resolve_reward(word, device=device, dtype=dtype)


def judge_agreements(
    words: Iterable[str], records: Sequence[PreferenceRecord], request: Request, resampling: Resampling
) -> tuple[list[Judge], list[Agreement]]:
    """The judges of these words, and how far each agrees with people, with every verdict."""
    judges = [load_judge(word, {}, _judge_settings(request)) for word in words]
    # Judges score nothing: the pairs are wanted for what people said of them.
    pairs = scored_pairs(records, defaultdict(lambda: None)) if judges else ()
    return judges, [agreement_with_people(judge, pairs, resampling) for judge in judges]
