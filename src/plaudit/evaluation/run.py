"""Evaluations as settings ask for them: policies on prompts, rewards and judges on comparisons."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plaudit.data.judging import Judge
from plaudit.data.read import ReadOptions, read_records
from plaudit.evaluation.policies import WRITTEN
from plaudit.evaluation.policies.evaluate import EvaluationSettings, Scorers, evaluate_policies
from plaudit.evaluation.policies.generate import (
    Contestant,
    EvaluationPrompt,
    GenerationSettings,
    evaluation_prompts,
)
from plaudit.evaluation.policies.judge import agreement_with_people, check_judge, load_judge
from plaudit.evaluation.policies.multiple_choice import ChoiceQuestion, read_choices
from plaudit.evaluation.policies.result import Contest, PolicyEvaluation
from plaudit.evaluation.policies.win_rate import JudgedPair
from plaudit.evaluation.prompt_sets import MAX_CLOSED_QUESTIONS, prompt_set
from plaudit.evaluation.reward_models.evaluate import EvaluatedReward, evaluate_reward, read_reward_data
from plaudit.evaluation.reward_models.pairs import PreferenceRecord, scored_pairs
from plaudit.evaluation.settings import WORLD, EvaluateSettings, JudgeRewardSettings, Split
from plaudit.evaluation.stats import Resampling
from plaudit.files.posting import RetryPolicy
from plaudit.rewards.base import Reward
from plaudit.rewards.comparing import GOLD, compares_pairs
from plaudit.rewards.kinds import JudgeSettings
from plaudit.rewards.load import load_reward
from plaudit.rewards.registry import resolve_reward
from plaudit.rollouts.sampler import SamplingSettings

Agreement = tuple[Contest, tuple[JudgedPair, ...]]


def evaluate_requested_policies(
    settings: EvaluateSettings, models: Mapping[str, Contestant], *, on_progress: Callable[[str], None]
) -> PolicyEvaluation:
    # A prompted policy is called by its own name alone.
    names = {str(model.folder or WRITTEN): name for name, model in models.items() if not model.has_context}
    for word in settings.judge:
        check_judge(word, has_gold=settings.true_worth is not None)
    sampling = SamplingSettings(temperature=settings.temperature, max_tokens=settings.max_tokens)
    seeds = tuple(range(settings.seed, settings.seed + settings.seeds))
    drawing = GenerationSettings(
        sampling=sampling, answers=settings.answers, seeds=seeds, device=settings.device, dtype=settings.dtype
    )
    evaluation_settings = EvaluationSettings(
        drawing=drawing,
        against=tuple(names.get(folder, folder) for folder in settings.against),
        resampling=Resampling(times=settings.bootstrap, seed=settings.seed),
        best_of=settings.best_of or 0,
        closed=_requested_choices(settings),
        pass_at=settings.pass_at,
    )
    scorers = load_scorers(
        _true_worth(settings.true_worth),
        settings.reward,
        settings.judge,
        settings.right,
        JudgeSettings(
            device=settings.device,
            dtype=settings.dtype,
            retry_policy=RetryPolicy(token_from=settings.token_from),
        ),
    )
    prompts = _requested_prompts(settings)
    return evaluate_policies(models, prompts, scorers, evaluation_settings, on_progress=on_progress)


def _requested_prompts(settings: EvaluateSettings) -> tuple[EvaluationPrompt, ...]:
    if settings.prompts is None:
        world = prompt_set()
        available = len(world.prompts(None, split=settings.split, seed=settings.seed))
        return world.prompts(min(settings.n, available), split=settings.split, seed=settings.seed)
    options = ReadOptions(columns=settings.columns, leave_out=settings.leave_out)
    in_file = evaluation_prompts(read_records(settings.prompts, options=options).records)
    rng = random.Random(f"prompts {settings.seed}")
    return tuple(
        in_file[index] for index in sorted(rng.sample(range(len(in_file)), min(settings.n, len(in_file))))
    )


def _requested_choices(settings: EvaluateSettings) -> tuple[ChoiceQuestion, ...]:
    if settings.prompts is not None and settings.choices is None:
        return ()
    return closed_questions(settings.choices, settings.n, split=settings.split, seed=settings.seed)


def closed_questions(file: Path | None, n: int, *, split: Split, seed: int) -> tuple[ChoiceQuestion, ...]:
    """The questions of a file with all their answers; without a file at most n of the world's."""
    if file is not None:
        return read_choices(file)
    return prompt_set().closed_questions(min(n, MAX_CLOSED_QUESTIONS), split=split, seed=seed)


def load_scorers(
    gold: Reward | None,
    reward: Path | None,
    judges: Iterable[str],
    right: str | None,
    settings: JudgeSettings,
) -> Scorers:
    """The true worth, a learnt reward, judges by their words, and the rule that says what is right."""
    # Loaded once: the same reward may score answers and judge them.
    rewards: dict[str, Reward] = {} if gold is None else {GOLD: gold}
    if reward is not None:
        rewards[str(reward)] = load_reward(reward, device=settings.device, dtype=settings.dtype)
    return Scorers(
        gold=gold,
        reward=rewards.get(str(reward)),
        judges={word: load_judge(word, rewards, settings) for word in judges},
        right=None if right is None else resolve_reward(right, device=settings.device, dtype=settings.dtype),
    )


def _true_worth(word: str | None) -> Reward | None:
    if word is None:
        return None
    return prompt_set().gold() if word == WORLD else resolve_reward(word)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedModels:
    rewards: list[EvaluatedReward]
    judges: list[Agreement]
    notes: tuple[str, ...]


def evaluate_requested_rewards(settings: JudgeRewardSettings, names: Sequence[str]) -> EvaluatedModels:
    """The rewards and judges, each under its name, on the comparisons that were asked for."""
    resampling = Resampling(times=settings.bootstrap, seed=settings.seed)
    source = read_reward_data(
        settings.data,
        threshold=settings.threshold,
        n=settings.n,
        seed=settings.seed,
        options=ReadOptions(columns=settings.columns, leave_out=settings.leave_out),
    )
    evidence = source.data
    if settings.world:
        evidence = prompt_set().knowledge(evidence, answers=settings.best_of or 16, resampling=resampling)
    evaluated: list[EvaluatedReward] = []
    judges = [word for word in settings.models if ":" in word and compares_pairs(word)]
    for word, name in zip(settings.models, names, strict=True):
        if word in judges:
            continue
        reward = load_scored_reward(word, device=settings.device)
        result = evaluate_reward(reward, evidence, resampling)
        evaluated.append(replace(result, evaluation=replace(result.evaluation, model=name)))
    judge_settings = JudgeSettings(
        device=settings.device, retry_policy=RetryPolicy(token_from=settings.token_from)
    )
    _, agreements = judge_agreements(judges, source.data.records, judge_settings, resampling)
    return EvaluatedModels(rewards=evaluated, judges=agreements, notes=tuple(source.notes))


def load_scored_reward(word: str, *, device: str = "auto", dtype: str = "auto") -> Reward:
    """The reward of a word; ``gold`` is the world's truth, unless a folder is called so."""
    if word == GOLD and not Path(word).exists():
        return prompt_set().gold()
    return resolve_reward(word, device=device, dtype=dtype)


def judge_agreements(
    words: Iterable[str], records: Sequence[PreferenceRecord], settings: JudgeSettings, resampling: Resampling
) -> tuple[list[Judge], list[Agreement]]:
    """The judges of these words, and how far each agrees with people, with every verdict."""
    judges = [load_judge(word, {}, settings) for word in words]
    # Judges score nothing: the pairs are wanted for what people said of them.
    pairs = scored_pairs(records, defaultdict(lambda: None)) if judges else ()
    return judges, [agreement_with_people(judge, pairs, resampling) for judge in judges]
